//! `penstock run`: a run from its manifests, in this process.

use super::{
    Exit,
    manifests::{ManifestArgs, print_problems},
    preview,
    progress::{Progress, ProgressMode},
    server, signals,
    style::printable,
};
use crate::{
    dead_letter::{self, DeadLetterFile},
    health::{Health, WATCH_INTERVAL},
    manifest::{Manifests, Object},
    metrics::RunFigures,
    runner::{self, Control, FailureClass, KafkaOptions, Run, RunEnd, RunOptions, RunSummary, State},
    secrets::Secrets,
};
use anyhow::Context;
use clap::{Args, ValueEnum};
use penstock_crds::{IngestRunSpec, values::Duration};
use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

const EXAMPLES: &str = "\
Examples:
  penstock run quickstart.yaml                       the run in it, with a progress bar
  penstock run pipelines/ nightly.yaml --run nightly one of several runs
  penstock run quickstart.yaml --limit 3 --preview   show what the stages do; writes nothing
  penstock run nightly.yaml --summary json | jq .    the summary for programs

Everything is checked before anything is read; all problems are shown at once (exit code 64). SIGINT and SIGTERM stop
reading and finish what is in flight (exit code 75); a second one ends at once. Failed documents alone leave the exit code
at 0: use --max-failed or the run's failurePolicy.";

/// Arguments of `penstock run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunCommand {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// The run to execute, where the manifests hold several.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Unique id of this execution, for `{runId}` and reports. Made up without it.
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
    /// Time between progress lines in the log.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    log_interval: Duration,
    /// File for failed documents. It is made at the first failure. Default: {run}_fail.jsonl in the current folder.
    #[arg(long, value_name = "FILE")]
    dead_letter: Option<PathBuf>,
    /// Folder with secrets, as DIR/NAME/KEY. Without it they come from PENSTOCK_SECRET_<NAME>_<KEY>.
    #[arg(long, value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
    /// Address for /metrics, /healthz, /readyz and /progress, for example 127.0.0.1:9090.
    #[arg(long, value_name = "ADDRESS")]
    metrics_addr: Option<SocketAddr>,
    /// File that is written while the run is healthy; see `penstock health`.
    #[arg(long, value_name = "FILE")]
    heartbeat_file: Option<PathBuf>,
    /// End with exit code 70 if a stage does not return within the pipeline's maxProcessing.
    #[arg(long)]
    exit_on_stuck: bool,
    /// How long documents in flight may take after SIGINT or SIGTERM.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    grace_period: Duration,
    /// Where documents flow. `local`: through memory, also where a pipeline's mode says Kafka.
    #[arg(long, value_enum)]
    messaging: Option<Messaging>,
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

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

impl RunCommand {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let manifests = match self.manifests.load() {
            Ok(manifests) => manifests,
            Err(report) => return print_problems(&report),
        };
        let object = match self.choose(&manifests) {
            Ok(object) => object,
            Err(message) => {
                writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
                return Ok(Exit::Invalid);
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("failed to start the threads for the network")?;
        let secrets = Secrets::new(self.secrets_dir.clone());
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
        let control = Control::new(self.grace_period.get());
        let health = Health::new(self.heartbeat_file.clone());
        let figures = Arc::new(RunFigures::new(&object.name, object.spec.connectors.len()));
        if let Some(file) = &self.heartbeat_file
            && let Err(error) = health.look(Instant::now())
        {
            let file = file.display();
            writeln!(io::stderr(), "error: the heartbeat file {file} cannot be written: {error}; choose another --heartbeat-file")
                .context("failed to print the error")?;
            return Ok(Exit::Failed);
        }
        watch(&health)?;
        if let Some(address) = self.metrics_addr {
            runtime.block_on(server::start(address, Arc::clone(&figures), Arc::clone(&health)))?;
        }
        signals::end_on_signal(control.clone(), runtime)?;
        let options = RunOptions {
            run_id: self.run_id.clone().unwrap_or_else(|| made_up_id(&object.name)),
            secrets,
            limit: self.limit,
            max_failed: self.max_failed,
            exit_on_stuck: self.exit_on_stuck,
            dead_letter: Arc::clone(&dead_letter),
            control,
            health,
            over_memory: self.messaging == Some(Messaging::Local),
            kafka: KafkaOptions { all_roles: true, create_topics: true },
            only: None,
            runtime: runtime.handle().clone(),
        };
        tracing::info!(run = object.name, run_id = options.run_id, version = env!("CARGO_PKG_VERSION"), "run begins");
        let progress = Progress::start(self.progress, self.log_interval.get(), Arc::clone(&figures))
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

    /// The run that is meant.
    fn choose<'a>(&self, manifests: &'a Manifests) -> Result<&'a Object<IngestRunSpec>, String> {
        let names = || manifests.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ");
        let object = match (&self.run, manifests.runs.as_slice()) {
            (_, []) => return Err("the manifests hold no IngestRun; add one, or give its file as well".into()),
            (None, [only]) => only,
            (None, _) => return Err(format!("the manifests hold several runs; choose one with --run: {}", names())),
            (Some(name), runs) => {
                let found = runs.iter().find(|run| run.name == *name);
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
}

/// Looks after the lanes as long as the process lives.
fn watch(health: &Arc<Health>) -> anyhow::Result<()> {
    let health = Arc::clone(health);
    health.look(Instant::now()).context("failed to write the heartbeat file")?;
    std::thread::Builder::new()
        .name("watcher".into())
        .spawn(move || {
            loop {
                std::thread::sleep(WATCH_INTERVAL);
                if let Err(error) = health.look(Instant::now()) {
                    tracing::error!(%error, "failed to write the heartbeat file");
                }
            }
        })
        .context("failed to start the watcher")?;
    Ok(())
}

fn made_up_id(run: &str) -> String {
    use std::hash::BuildHasher;
    let random = foldhash::quality::RandomState::default().hash_one(std::process::id());
    format!("{run}-{:08x}", random as u32)
}

fn exit(end: &RunEnd) -> Exit {
    match (end.summary.phase, end.failure) {
        (_, Some(FailureClass::Unreachable)) => Exit::Unreachable,
        (_, Some(FailureClass::Internal)) => Exit::Internal,
        (_, Some(FailureClass::Superseded)) => Exit::Superseded,
        (State::Succeeded, _) => Exit::Complete,
        (State::Interrupted, _) => Exit::Interrupted,
        _ => Exit::Failed,
    }
}
