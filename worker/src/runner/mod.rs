//! Runs: connectors one after the other, each only after the one before it succeeded.

mod accounting;
mod control;
mod course;
mod deadlines;
mod kafka;
mod outcome;
mod reason;
mod shared_files;
mod step;
mod summary;
#[cfg(test)]
mod tests;
mod threads;

pub use control::{AlreadyCancelled, Control};
pub use kafka::{KafkaOptions, RoleEnd, RolePlan, RoleThreads, Route};
pub use outcome::{FailureClass, StepError};
pub use shared_files::shared_files;
pub use step::{Limits, Step, StepEnd};
pub use summary::{RunSummary, State, StepSummary, duration};

use crate::{
    context::StepContext,
    dead_letter::DeadLetterFile,
    health::Health,
    indexers::IndexerStats,
    manifest::{Manifests, Object},
    metrics::{RunFigures, StageFigures, StepFigures},
    publisher::StepState,
    secrets::Secrets,
};
use parking_lot::Mutex;
use penstock_crds::{
    IngestRunSpec, PipelineSpec,
    connectors::Connector,
    ingest_run::{Counts, FailurePolicy},
    report::StepReport,
};
use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Instant};

/// What a run needs besides its manifests.
pub struct RunOptions {
    /// Unique id of this execution.
    pub run_id: String,
    /// Where credentials come from.
    pub secrets: Secrets,
    /// Stop each connector after so many documents.
    pub limit: Option<u64>,
    /// Failed documents that are allowed, instead of the manifest's failure policy.
    pub max_failed: Option<u64>,
    /// End the run if a stage does not return.
    pub exit_on_stuck: bool,
    /// Where failed documents are kept.
    pub dead_letter: Arc<DeadLetterFile>,
    /// How the run may be asked to end.
    pub control: Control,
    /// Who watches the lanes.
    pub health: Arc<Health>,
    /// Documents flow through memory, whatever the pipelines say.
    pub over_memory: bool,
    /// What is done besides publishing, for pipelines that flow over Kafka.
    pub kafka: KafkaOptions,
    /// Only this connector; the others are not the business of this process.
    pub only: Option<String>,
    /// For components that wait on the network.
    pub runtime: tokio::runtime::Handle,
}

/// A run that has ended.
pub struct RunEnd {
    /// What became of it.
    pub summary: RunSummary,
    /// What became of each connector, with what the summary leaves out.
    pub reports: Vec<StepReport>,
    /// What kind of failure it was, if it was one.
    pub failure: Option<FailureClass>,
}

/// A run and what it works with.
pub struct Run<'a> {
    manifests: &'a Manifests,
    object: &'a Object<IngestRunSpec>,
    options: RunOptions,
    written: Arc<Mutex<HashSet<PathBuf>>>,
}

impl<'a> Run<'a> {
    /// A run of checked manifests.
    pub fn new(manifests: &'a Manifests, object: &'a Object<IngestRunSpec>, options: RunOptions) -> Self {
        Self { manifests, object, options, written: Arc::default() }
    }

    /// Runs the connectors in order. Blocks; never call it from a task.
    pub fn execute(self, figures: &RunFigures) -> RunEnd {
        let begun = Instant::now();
        let mut ends: Vec<StepEnd> = Vec::new();
        let mut failure = None;
        let mut phase = State::Succeeded;
        let only = self.options.only.clone();
        let wanted = self.object.spec.connectors.iter().filter(|connector| only.as_ref().is_none_or(|only| *only == connector.name));
        for connector in wanted {
            if phase == State::Succeeded && self.options.control.is_ending() {
                phase = State::Interrupted;
            }
            // the first one says itself that it was cancelled
            if phase == State::Succeeded && self.options.control.is_cancelled() && !ends.is_empty() {
                phase = State::Cancelled;
            }
            if phase != State::Succeeded {
                ends.push(StepEnd::skipped(&connector.name));
                continue;
            }
            let mut end = self.execute_step(connector, &totals(&ends), figures);
            if end.state == State::Succeeded {
                self.apply_failure_policy(&mut end, &totals(&ends));
            }
            figures.end(end.report.clone());
            (phase, failure) = (end.state, end.failure);
            ends.push(end);
        }
        // a log is for all connectors of a run
        if phase == State::Succeeded && self.options.kafka.all_roles && self.options.only.is_none() {
            self.remove_logs();
        }
        let (totals, seconds) = (totals(&ends), begun.elapsed().as_secs_f64());
        let connectors = ends.iter().map(|end| StepSummary::of(&end.report, end.state)).collect();
        let summary = RunSummary { run: self.object.name.clone(), phase, seconds, totals, connectors };
        RunEnd { summary, reports: ends.into_iter().map(|end| end.report).collect(), failure }
    }

    fn execute_step(&self, connector: &Connector, before: &Counts, figures: &RunFigures) -> StepEnd {
        let Some(pipeline) = self.manifests.pipeline(&self.object.namespace, &connector.pipeline) else {
            // loading has refused manifests with a missing pipeline
            return StepEnd::failed(&connector.name, &StepError::NoPipeline { pipeline: connector.pipeline.clone() });
        };
        let mut context = self.context(connector, pipeline);
        let route = match self.route(pipeline, &context) {
            Ok(route) => route,
            Err(error) => return StepEnd::failed(&connector.name, &error),
        };
        context.is_continuous = route.is_some();
        let step_figures = Arc::new(StepFigures {
            connector: connector.name.clone(),
            pipeline: connector.pipeline.clone(),
            state: StepState::new(),
            indexer: Arc::new(IndexerStats::default()),
            stages: Arc::new(StageFigures::new(&pipeline.spec.stages)),
        });
        figures.begin(Arc::clone(&step_figures));
        tracing::info!(run_id = self.options.run_id, connector = connector.name, pipeline = connector.pipeline, "step begins");
        let roles = route.as_ref().filter(|_| self.options.kafka.all_roles).map_or(&[][..], Route::roles);
        let step = Step {
            connector,
            pipeline: &pipeline.spec,
            dead_letter: Arc::new(self.options.dead_letter.for_step(&context)),
            context,
            control: self.options.control.clone(),
            health: Arc::clone(&self.options.health),
            state: Arc::clone(&step_figures.state),
            figures: step_figures,
            couriers: roles.iter().map(|role| figures.courier(*role, &connector.pipeline)).collect(),
            limits: Limits {
                max_failed: self.max_failed().map(|max| max.saturating_sub(before.failed)),
                documents: self.options.limit,
                progress_deadline: self.object.spec.progress_deadline.get(),
                cancel_grace: self.object.spec.cancel_grace_period.get(),
                exit_on_stuck: self.options.exit_on_stuck,
            },
        };
        let mut end = match &route {
            None => step.run(),
            Some(route) => step.run_over(route, self.options.kafka),
        };
        if let Err(error) = self.options.dead_letter.sync()
            && end.state == State::Succeeded
        {
            end.fail(&StepError::DeadLetter(error));
        }
        end
    }

    /// The way of a pipeline through Kafka, if it takes one.
    fn route(&self, pipeline: &Object<PipelineSpec>, context: &StepContext) -> Result<Option<Route>, StepError> {
        if self.options.over_memory { Ok(None) } else { Route::of(self.manifests, pipeline, context) }
    }

    /// Removes the logs of a run that is complete: nobody will go on with it.
    fn remove_logs(&self) {
        let mut pipelines: Vec<&Object<PipelineSpec>> = Vec::new();
        for connector in &self.object.spec.connectors {
            if let Some(pipeline) = self.manifests.pipeline(&self.object.namespace, &connector.pipeline)
                && !pipelines.iter().any(|known| known.name == pipeline.name)
            {
                pipelines.push(pipeline);
                let context = self.context(connector, pipeline);
                let removed =
                    self.route(pipeline, &context).and_then(|route| route.map_or(Ok(()), |route| route.remove_log(&context.run_id)));
                if let Err(error) = removed {
                    tracing::warn!(pipeline = pipeline.name, error = error.chain(), "failed to remove the event topic of the run");
                }
            }
        }
    }

    /// A step that succeeded fails if the run has too many failed documents with it.
    fn apply_failure_policy(&self, end: &mut StepEnd, before: &Counts) {
        let mut totals = *before;
        totals.add(&end.report.counts);
        // --max-failed stands for the whole policy
        let policy = self.policy().filter(|_| self.options.max_failed.is_none());
        if let Err(error) = check_failure_policy(policy, &totals) {
            end.fail(&error);
        }
    }

    fn context(&self, connector: &Connector, pipeline: &Object<PipelineSpec>) -> StepContext {
        StepContext {
            run: self.object.name.clone(),
            run_id: self.options.run_id.clone(),
            connector: connector.name.clone(),
            pipeline: pipeline.name.clone(),
            base_dir: pipeline.base_dir.clone(),
            run_base_dir: self.object.base_dir.clone(),
            secrets: self.options.secrets.clone(),
            runtime: self.options.runtime.clone(),
            stop: self.options.control.abort.child_token(),
            is_continuous: false,
            written: Arc::clone(&self.written),
        }
    }

    fn policy(&self) -> Option<&FailurePolicy> {
        self.object.spec.failure_policy.as_ref()
    }

    fn max_failed(&self) -> Option<u64> {
        self.options.max_failed.or_else(|| self.policy()?.max_failed.and_then(|max| u64::try_from(max).ok()))
    }
}

/// Whether so many failed documents are still allowed, in percent of all. The absolute number is the step's own business.
fn check_failure_policy(policy: Option<&FailurePolicy>, totals: &Counts) -> Result<(), StepError> {
    let percent = policy.and_then(|policy| policy.max_failed_percent).and_then(|percent| u64::try_from(percent).ok());
    let documents = totals.published + totals.created;
    match percent {
        Some(percent) if totals.failed * 100 > percent * documents => {
            Err(StepError::FailurePolicy { failed: totals.failed, allowed: format!("{percent} % of {documents}") })
        }
        _ => Ok(()),
    }
}

fn totals(ends: &[StepEnd]) -> Counts {
    let mut totals = Counts::default();
    ends.iter().for_each(|end| totals.add(&end.report.counts));
    totals
}
