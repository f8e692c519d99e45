//! `penstock publish`: one step of a run over Kafka. Workers and indexers are processes of their own.

use super::{
    Exit,
    manifests::{ManifestArgs, print_problems},
    process::{self, ProcessArgs},
    progress::{Progress, ProgressMode},
    run,
};
use crate::{
    dead_letter::{self, DeadLetterFile},
    manifest::{Manifests, Object},
    metrics::RunFigures,
    runner::{KafkaOptions, Run, RunOptions, StepSummary},
};
use anyhow::Context;
use clap::Args;
use penstock_crds::IngestRunSpec;
use std::{
    fs,
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
The result is one line of JSON on standard output, and in --result-file. Exit codes: 0 every
document is accounted for, 75 interrupted (work remains), 76 a newer publisher has taken over.";

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
    /// File for the result, as JSON.
    #[arg(long, value_name = "FILE")]
    result_file: Option<PathBuf>,
    /// How progress is shown on standard error.
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    #[command(flatten)]
    process: ProcessArgs,
}

impl PublishCommand {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let manifests = match self.manifests.load() {
            Ok(manifests) => manifests,
            Err(report) => return print_problems(&report),
        };
        let object = match run::choose(&manifests, self.run.as_deref()).and_then(|object| self.check_connector(&manifests, object)) {
            Ok(object) => object,
            Err(message) => {
                writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
                return Ok(Exit::Invalid);
            }
        };
        let runtime = process::runtime()?;
        let figures = Arc::new(RunFigures::new(&object.name, 1));
        let Some(process) = self.process.start(&figures, &runtime)? else { return Ok(Exit::Failed) };
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
        let end = Run::new(&manifests, object, options).execute(&figures);
        progress.finish();
        // what still waits there has nobody to tell
        runtime.shutdown_background();
        if let Some(result) = end.summary.connectors.first() {
            self.report(result)?;
        }
        Ok(run::exit(&end))
    }

    fn check_connector<'a>(&self, manifests: &Manifests, object: &'a Object<IngestRunSpec>) -> Result<&'a Object<IngestRunSpec>, String> {
        let connectors = &object.spec.connectors;
        let Some(connector) = connectors.iter().find(|connector| connector.name == self.connector) else {
            let names: Vec<_> = connectors.iter().map(|connector| connector.name.as_str()).collect();
            return Err(format!("run `{}` has no connector `{}`; it has: {}", object.name, self.connector, names.join(", ")));
        };
        let pipeline = manifests.pipeline(&object.namespace, &connector.pipeline);
        if pipeline.is_some_and(|pipeline| pipeline.spec.kafka_ref.is_none()) {
            return Err(format!("pipeline `{}` flows through memory (it has no kafkaRef): use `penstock run`", connector.pipeline));
        }
        Ok(object)
    }

    fn report(&self, result: &StepSummary) -> anyhow::Result<()> {
        let text = serde_json::to_string(result).context("failed to write the result")?;
        if let Some(file) = &self.result_file {
            // Kubernetes gives a file that is there already and cannot be replaced, only written
            fs::write(file, &text).with_context(|| format!("failed to write the result to {}", file.display()))?;
        }
        writeln!(io::stdout(), "{text}").context("failed to print the result")
    }
}
