//! `penstock publish`: one step of a run over Kafka. Workers and indexers are processes of their own.

use super::{
    Exit,
    control::ControlArgs,
    manifests::{ManifestArgs, print_problems},
    process::{self, ProcessArgs},
    progress::{Progress, ProgressMode},
    result::{self, Ended, LastWords},
    run,
};
use crate::{
    dead_letter::{self, DeadLetterFile},
    manifest::{Manifests, Object},
    metrics::RunFigures,
    runner::{KafkaOptions, Run, RunOptions},
};
use anyhow::Context;
use clap::Args;
use penstock_crds::IngestRunSpec;
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

const EXAMPLES: &str = "\
Examples:
  penstock publish manifests/ --run nightly --connector products --run-id nightly-17
  penstock publish manifests/ --run nightly --connector products --run-id nightly-17 --create-topics

The first one wants the topics to be there, the second one makes them. The same command again, with
the same run id, goes on where a publisher that died has been; nothing is counted twice.
The result is one line of JSON on standard output, and in --result-file. Its `state` is Succeeded,
Failed or Cancelled; any other one is where the step was interrupted. Exit codes: 0 every document
is accounted for, 1 failed or cancelled, 75 interrupted (work remains), 76 a newer publisher has
taken over.";

/// Arguments of `penstock publish`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PublishCommand {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// The run that the step belongs to, where the manifests hold several.
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// The connector to execute.
    #[arg(long, value_name = "NAME")]
    connector: String,
    /// Unique id of this execution of the run; the one of an interrupted execution goes on with it. Made up without it.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Make the topics that are missing.
    #[arg(long)]
    create_topics: bool,
    /// Stop after so many records.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Fail the step if more documents than this fail, instead of the run's failurePolicy.
    #[arg(long, value_name = "N")]
    max_failed: Option<u64>,
    /// File for the result, as JSON; it is written for every end, also for invalid manifests. 4,096 bytes at most: samples of failed
    /// documents are left out first, then the message is cut.
    #[arg(long, value_name = "FILE")]
    result_file: Option<PathBuf>,
    /// How progress is shown on standard error.
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    #[command(flatten)]
    control: ControlArgs,
    #[command(flatten)]
    process: ProcessArgs,
}

impl PublishCommand {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        result::write(self.result_file.as_deref(), Some(&self.connector), self.run())
    }

    fn run(&self) -> anyhow::Result<Ended> {
        let manifests = match self.manifests.load() {
            Ok(manifests) => manifests,
            Err(report) => return print_problems(&report).map(|_| Ended::invalid(Some(&self.connector), &report)),
        };
        let object = match run::choose(&manifests, self.run.as_deref()).and_then(|object| self.check_connector(&manifests, object)) {
            Ok(object) => object,
            Err(message) => return Ended::refused(Some(&self.connector), Exit::Invalid, &message),
        };
        let (wanted, token) = match self.control.read(&object.spec) {
            Ok(control) => control,
            Err(error) => return Ended::refused(Some(&self.connector), Exit::Failed, &format!("{error:#}")),
        };
        let runtime = process::runtime()?;
        let figures = Arc::new(RunFigures::new(&object.name, 1));
        let last_words = LastWords::new(self.result_file.as_deref(), &self.connector, &figures);
        let process = match self.process.start(&figures, &runtime, token, last_words)? {
            Ok(process) => process,
            Err(message) => return Ended::refused(Some(&self.connector), Exit::Failed, &message),
        };
        run::tell(&process.control, wanted);
        process.end_in_time(&runtime);
        let options = RunOptions {
            run_id: self.run_id.clone().unwrap_or_else(|| run::made_up_id(&object.name)),
            secrets: self.process.secrets(),
            limit: self.limit,
            max_failed: self.max_failed,
            exit_on_stuck: self.process.exit_on_stuck,
            // failed documents go to the topic
            dead_letter: Arc::new(DeadLetterFile::new(dead_letter::default_path(&object.name))),
            control: process.control,
            health: process.health,
            over_memory: false,
            kafka: KafkaOptions { all_roles: false, create_topics: self.create_topics },
            only: Some(self.connector.clone()),
            runtime: runtime.handle().clone(),
        };
        tracing::info!(run = object.name, run_id = options.run_id, connector = self.connector, "step begins");
        let progress = Progress::start(self.progress, self.process.log_interval.get(), Arc::clone(&figures))
            .context("failed to start the progress display")?;
        let mut end = Run::new(&manifests, object, options).execute(&figures);
        progress.finish();
        // what still waits there has nobody to tell
        runtime.shutdown_background();
        let exit = run::exit(&end);
        let report = end.reports.pop();
        if let Some(report) = &report {
            let text = serde_json::to_string(report).context("failed to write the result")?;
            writeln!(io::stdout(), "{text}").context("failed to print the result")?;
        }
        Ok(Ended { exit, report })
    }

    fn check_connector<'a>(&self, manifests: &Manifests, object: &'a Object<IngestRunSpec>) -> Result<&'a Object<IngestRunSpec>, String> {
        run::has_connector(object, &self.connector)?;
        let connector = object.spec.connectors.iter().find(|connector| connector.name == self.connector);
        let pipeline = connector.and_then(|connector| manifests.pipeline(&object.namespace, &connector.pipeline));
        if let Some(pipeline) = pipeline.filter(|pipeline| pipeline.spec.kafka_ref.is_none()) {
            return Err(format!("pipeline `{}` flows through memory (it has no kafkaRef): use `penstock run`", pipeline.name));
        }
        Ok(object)
    }
}
