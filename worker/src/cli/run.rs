//! `penstock run`: a run from its manifests, in this process.

use super::{
    Exit,
    control::ControlArgs,
    manifests::{ManifestArgs, print_problems},
    preview,
    process::{self, ProcessArgs},
    progress::{Progress, ProgressMode},
    result::{self, Ended, LastWords},
    style::printable,
};
use crate::{
    dead_letter::{self, DeadLetterFile},
    manifest::{Manifests, Object},
    metrics::RunFigures,
    runner::{self, Control, KafkaOptions, Run, RunEnd, RunOptions, RunSummary, State},
};
use anyhow::Context;
use clap::{Args, ValueEnum};
use penstock_crds::{IngestRunSpec, report::Wanted};
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
  penstock run nightly.yaml --connector products     one connector of it

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
    /// Only this connector of the run.
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
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
    /// File for the result of the one connector, as JSON; it is written for every end, also for invalid manifests. 4,096 bytes at most:
    /// samples of failed documents are left out first, then the message is cut.
    #[arg(long, value_name = "FILE", requires = "connector")]
    result_file: Option<PathBuf>,
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
    control: ControlArgs,
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
        result::write(self.result_file.as_deref(), self.connector.as_deref(), self.check_and_run())
    }

    fn check_and_run(&self) -> anyhow::Result<Ended> {
        let manifests = match self.manifests.load() {
            Ok(manifests) => manifests,
            Err(report) => return print_problems(&report).map(|_| Ended::invalid(self.connector.as_deref(), &report)),
        };
        let object = match choose(&manifests, self.run.as_deref()).and_then(|object| self.check_connector(object)) {
            Ok(object) => object,
            Err(message) => return Ended::refused(self.connector.as_deref(), Exit::Invalid, &message),
        };
        let runtime = process::runtime()?;
        if self.preview {
            let exit = preview::print(&manifests, object, self.process.secrets(), self.limit, runtime.handle())?;
            return Ok(Ended { exit, report: None });
        }
        let ended = self.run(&manifests, object, &runtime);
        // what still waits there has nobody to tell
        runtime.shutdown_background();
        ended
    }

    fn run(&self, manifests: &Manifests, object: &Object<IngestRunSpec>, runtime: &tokio::runtime::Runtime) -> anyhow::Result<Ended> {
        let dead_letter =
            Arc::new(DeadLetterFile::new(self.dead_letter.clone().unwrap_or_else(|| dead_letter::default_path(&object.name))));
        if let Err(error) = dead_letter.check() {
            return Ended::refused(self.connector.as_deref(), Exit::Failed, &format!("failed documents cannot be kept: {error}"));
        }
        let shared = runner::shared_files(manifests, object, dead_letter.path());
        if !shared.is_empty() {
            return Ended::refused(self.connector.as_deref(), Exit::Invalid, &shared.join("\nerror: "));
        }
        let (wanted, token) = match self.control.read(&object.spec) {
            Ok(control) => control,
            Err(error) => return Ended::refused(self.connector.as_deref(), Exit::Failed, &format!("{error:#}")),
        };
        let steps = if self.connector.is_some() { 1 } else { object.spec.connectors.len() };
        let figures = Arc::new(RunFigures::new(&object.name, steps));
        let last_words = LastWords::new(self.result_file.as_deref(), self.connector.as_deref().unwrap_or_default(), &figures);
        let process = match self.process.start(&figures, runtime, token, last_words)? {
            Ok(process) => process,
            Err(message) => return Ended::refused(self.connector.as_deref(), Exit::Failed, &message),
        };
        tell(&process.control, wanted);
        let options = RunOptions {
            run_id: self.run_id.clone().unwrap_or_else(|| made_up_id(&object.name)),
            secrets: self.process.secrets(),
            limit: self.limit,
            max_failed: self.max_failed,
            exit_on_stuck: self.process.exit_on_stuck,
            dead_letter: Arc::clone(&dead_letter),
            control: process.control,
            health: process.health,
            over_memory: self.messaging == Some(Messaging::Local),
            kafka: KafkaOptions { all_roles: true, create_topics: true },
            only: self.connector.clone(),
            runtime: runtime.handle().clone(),
        };
        tracing::info!(run = object.name, run_id = options.run_id, version = env!("CARGO_PKG_VERSION"), "run begins");
        let progress = Progress::start(self.progress, self.process.log_interval.get(), Arc::clone(&figures))
            .context("failed to start the progress display")?;
        let mut end = Run::new(manifests, object, options).execute(&figures);
        progress.finish();
        self.print_summary(&end.summary, &dead_letter)?;
        Ok(Ended { exit: exit(&end), report: end.reports.pop() })
    }

    fn check_connector<'a>(&self, object: &'a Object<IngestRunSpec>) -> Result<&'a Object<IngestRunSpec>, String> {
        self.connector.as_deref().map_or(Ok(()), |wanted| has_connector(object, wanted)).map(|()| object)
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
    Ok(object)
}

/// Whether the run has that connector.
pub(super) fn has_connector(object: &Object<IngestRunSpec>, wanted: &str) -> Result<(), String> {
    let names: Vec<_> = object.spec.connectors.iter().map(|connector| connector.name.as_str()).collect();
    if names.contains(&wanted) {
        return Ok(());
    }
    Err(format!("run `{}` has no connector `{wanted}`; it has: {}", object.name, names.join(", ")))
}

/// Says before anything begins what is wanted of the run.
pub(super) fn tell(control: &Control, wanted: Wanted) {
    if wanted == Wanted::Suspend {
        tracing::warn!("the run is suspended: nothing is published until it is told to go on");
    }
    // nothing else has been wanted before
    let _ = control.want(wanted);
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
        (State::Failed | State::Skipped | State::Cancelled, None) => Exit::Failed,
    }
}
