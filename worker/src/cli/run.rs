//! `penstock run`: a run from its manifests, in this process.

use super::{
    Exit,
    manifests::{ManifestArgs, print_problems},
    preview,
    process::{self, ProcessArgs},
    progress::{Progress, ProgressMode},
    style::printable,
};
use crate::{
    dead_letter::{self, DeadLetterFile},
    manifest::{Manifests, Object},
    metrics::RunFigures,
    runner::{self, KafkaOptions, Run, RunEnd, RunOptions, RunSummary, State},
    secrets::Secrets,
};
use anyhow::Context;
use clap::{Args, ValueEnum};
use penstock_crds::IngestRunSpec;
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

const EXAMPLES: &str = "\
Examples:
  penstock run quickstart.yaml                       the run in it, with a progress bar
  penstock run pipelines/ nightly.yaml --run nightly one of several runs
  penstock run quickstart.yaml --limit 3 --preview   show what the stages do; writes nothing
  penstock run nightly.yaml --summary json | jq .    the summary for programs

Everything is checked before anything is read; all problems are shown at once (exit code 64).
Pipelines with a kafkaRef flow over Kafka, with workers and indexers in this process; the same
--run-id goes on with a run that was interrupted there. SIGINT and SIGTERM stop reading and finish
what is in flight (exit code 75); a second one ends at once. Failed documents alone leave the exit
code at 0: use --max-failed or the run's failurePolicy.";

/// Arguments of `penstock run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunCommand {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// The run to execute, where the manifests hold several.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Unique id of this execution, for `{runId}` and reports; over Kafka the one to go on with. Made up without it.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Stop each connector after so many records.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Write nothing; print each document after every stage that changed it. Use it with --limit.
    #[arg(long)]
    preview: bool,
    /// Fail the run if more documents than this fail, instead of its failurePolicy.
    #[arg(long, value_name = "N")]
    max_failed: Option<u64>,
    /// How the summary is printed on standard output.
    #[arg(long, value_enum, default_value_t = SummaryFormat::Text)]
    summary: SummaryFormat,
    /// How progress is shown on standard error.
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    /// File for failed documents. It is made at the first failure. Default: {run}_fail.jsonl in the current folder.
    #[arg(long, value_name = "FILE")]
    dead_letter: Option<PathBuf>,
    /// Where documents flow. `local`: through memory, also where a pipeline's mode says Kafka.
    #[arg(long, value_enum)]
    messaging: Option<Messaging>,
    #[command(flatten)]
    process: ProcessArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SummaryFormat {
    /// A table for people.
    Text,
    /// One line of JSON, the last on standard output.
    Json,
    /// Nothing.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Messaging {
    /// Through memory.
    Local,
}

impl RunCommand {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let manifests = match self.manifests.load() {
            Ok(manifests) => manifests,
            Err(report) => return print_problems(&report),
        };
        let object = match choose(&manifests, self.run.as_deref()) {
            Ok(object) => object,
            Err(message) => {
                writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
                return Ok(Exit::Invalid);
            }
        };
        let runtime = process::runtime()?;
        let secrets = self.process.secrets();
        if self.preview {
            return preview::print(&manifests, object, secrets, self.limit, runtime.handle());
        }
        let ended = self.run(&manifests, object, secrets, &runtime);
        // what still waits there has nobody to tell
        runtime.shutdown_background();
        ended
    }

    fn run(
        self,
        manifests: &Manifests,
        object: &Object<IngestRunSpec>,
        secrets: Secrets,
        runtime: &tokio::runtime::Runtime,
    ) -> anyhow::Result<Exit> {
        let dead_letter =
            Arc::new(DeadLetterFile::new(self.dead_letter.clone().unwrap_or_else(|| dead_letter::default_path(&object.name))));
        if let Err(error) = dead_letter.check() {
            writeln!(io::stderr(), "error: failed documents cannot be kept: {error}").context("failed to print the error")?;
            return Ok(Exit::Failed);
        }
        let shared = runner::shared_files(manifests, object, dead_letter.path());
        if !shared.is_empty() {
            for message in shared {
                writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
            }
            return Ok(Exit::Invalid);
        }
        let figures = Arc::new(RunFigures::new(&object.name, object.spec.connectors.len()));
        let Some(process) = self.process.start(&figures, runtime)? else { return Ok(Exit::Failed) };
        let options = RunOptions {
            run_id: self.run_id.clone().unwrap_or_else(|| made_up_id(&object.name)),
            secrets,
            limit: self.limit,
            max_failed: self.max_failed,
            exit_on_stuck: self.process.exit_on_stuck,
            dead_letter: Arc::clone(&dead_letter),
            control: process.control,
            health: process.health,
            over_memory: self.messaging == Some(Messaging::Local),
            kafka: KafkaOptions { all_roles: true, create_topics: true },
            only: None,
            runtime: runtime.handle().clone(),
        };
        tracing::info!(run = object.name, run_id = options.run_id, version = env!("CARGO_PKG_VERSION"), "run begins");
        let progress = Progress::start(self.progress, self.process.log_interval.get(), Arc::clone(&figures))
            .context("failed to start the progress display")?;
        let end = Run::new(manifests, object, options).execute(&figures);
        progress.finish();
        self.print_summary(&end.summary, &dead_letter)?;
        Ok(exit(&end))
    }

    fn print_summary(&self, summary: &RunSummary, dead_letter: &DeadLetterFile) -> anyhow::Result<()> {
        let path = (dead_letter.kept() > 0).then(|| dead_letter.path().display().to_string());
        let text = match self.summary {
            SummaryFormat::None => return Ok(()),
            SummaryFormat::Text => printable(&summary.to_text(path.as_deref())).into_owned(),
            SummaryFormat::Json => serde_json::to_string(summary).context("failed to write the summary")? + "\n",
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("failed to print the summary")
    }
}

/// The run that is meant.
pub(super) fn choose<'a>(manifests: &'a Manifests, run: Option<&str>) -> Result<&'a Object<IngestRunSpec>, String> {
    let names = || manifests.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ");
    let object = match (run, manifests.runs.as_slice()) {
        (_, []) => return Err("the manifests hold no IngestRun; add one, or give its file as well".into()),
        (None, [only]) => only,
        (None, _) => return Err(format!("the manifests hold several runs; choose one with --run: {}", names())),
        (Some(name), runs) => {
            let found = runs.iter().find(|run| run.name == name);
            found.ok_or_else(|| format!("there is no run `{name}`; the manifests hold: {}", names()))?
        }
    };
    for (is_set, field) in [(object.spec.suspend, "suspend"), (object.spec.cancel, "cancel")] {
        if is_set {
            return Err(format!("the run `{}` says `{field}: true`, so it must not be started; remove that first", object.name));
        }
    }
    Ok(object)
}

pub(super) fn made_up_id(run: &str) -> String {
    use std::hash::BuildHasher;
    let random = foldhash::quality::RandomState::default().hash_one(std::process::id());
    format!("{run}-{:08x}", random as u32)
}

pub(super) fn exit(end: &RunEnd) -> Exit {
    match (end.summary.phase, end.failure) {
        (_, Some(failure)) => process::exit_of(failure),
        (State::Succeeded, None) => Exit::Complete,
        (State::Interrupted, None) => Exit::Interrupted,
        (State::Failed | State::Skipped, None) => Exit::Failed,
    }
}
