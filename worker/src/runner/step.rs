//! One step: a connector, the lanes of its pipeline and the accounting, from the first check to the last action.

use super::{
    accounting::Accounting,
    control::Control,
    course::Course,
    kafka::{self, KafkaOptions, Route},
    outcome::{FailureClass, StepError},
    summary::State,
    threads::Threads,
};
use crate::{
    actions::{self, When},
    connectors,
    context::StepContext,
    courier::CourierFigures,
    health::Health,
    indexers::{self, Backend, DeadLetter},
    metrics::StepFigures,
    pipeline::Plan,
    publisher::{PublisherSettings, StepState},
    wording::counted,
};
use penstock_crds::{PipelineSpec, conditions::ConnectorState, connectors::Connector, report::StepReport};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Documents that may be pending if the manifest says nothing.
const MAX_PENDING: u64 = 10_000_000;

/// What a step works with.
pub struct Step<'a> {
    /// The connector.
    pub connector: &'a Connector,
    /// The pipeline.
    pub pipeline: &'a PipelineSpec,
    /// What its components may know.
    pub context: StepContext,
    /// Where failed documents are kept.
    pub dead_letter: Arc<dyn DeadLetter>,
    /// How it may be asked to end.
    pub control: Control,
    /// Who watches the lanes.
    pub health: Arc<Health>,
    /// Where the figures are collected.
    pub figures: Arc<StepFigures>,
    /// Figures of the workers and indexers over Kafka that run in this process.
    pub couriers: Vec<Arc<CourierFigures>>,
    /// The shared state.
    pub state: Arc<StepState>,
    /// Limits of the run.
    pub limits: Limits,
}

/// Limits that the run sets for a step.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Failed documents that are still allowed.
    pub max_failed: Option<u64>,
    /// Stop after so many documents.
    pub documents: Option<u64>,
    /// A step without progress for so long is reported.
    pub progress_deadline: Duration,
    /// How long a cancelled step waits for what was published.
    pub cancel_grace: Duration,
    /// End the step if a stage does not return.
    pub exit_on_stuck: bool,
}

/// How a step ended.
pub struct StepEnd {
    /// What there is to tell of it.
    pub report: StepReport,
    /// How it ended.
    pub state: State,
    /// What kind of failure it was, if it was one.
    pub failure: Option<FailureClass>,
}

impl StepEnd {
    /// A step whose turn did not come.
    pub(super) fn skipped(connector: &str) -> Self {
        let report = StepReport { state: ConnectorState::Skipped, ..StepReport::new(connector) };
        Self { report, state: State::Skipped, failure: None }
    }

    /// A step that failed before it began.
    pub(super) fn failed(connector: &str, error: &StepError) -> Self {
        let mut end = Self::skipped(connector);
        end.fail(error);
        end
    }

    /// It failed, or was cancelled, after all.
    pub(super) fn fail(&mut self, error: &StepError) {
        let is_cancelled = matches!(error, StepError::Cancelled);
        (self.state, self.report.state) = match is_cancelled {
            true => (State::Cancelled, ConnectorState::Cancelled),
            false => (State::Failed, ConnectorState::Failed),
        };
        (self.report.reason, self.report.message) = (error.reason(), Some(error.chain()));
        self.failure = Some(error.class());
    }
}

/// What has been built before anything runs.
pub(super) struct Built {
    pub(super) plan: Plan,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) connector: Box<dyn connectors::Connector>,
}

/// How the part between the first and the last document ended.
#[derive(Debug)]
pub(super) enum Flow {
    Complete,
    Interrupted,
    Failed(StepError),
}

impl Step<'_> {
    /// Runs the step to its end.
    pub fn run(self) -> StepEnd {
        self.run_with(Self::build)
    }

    /// Runs the step to its end, with the parts that are built for it.
    pub(super) fn run_with(self, build: impl FnOnce(&Self) -> Result<Built, StepError>) -> StepEnd {
        self.conclude(|step, accounting| match build(step) {
            Ok(built) => step.run_built(built, accounting),
            Err(error) => Flow::Failed(error),
        })
    }

    /// Runs the step over Kafka: the publisher, and with `all_roles` also workers and indexers.
    pub fn run_over(self, route: &Route, options: KafkaOptions) -> StepEnd {
        self.conclude(|step, accounting| kafka::publish(step, route, options, accounting))
    }

    fn conclude(self, flow: impl FnOnce(&Self, &mut Accounting) -> Flow) -> StepEnd {
        let begun = Instant::now();
        // every thread and task of the step works inside of it, so their log lines name run and pipeline
        let span =
            tracing::info_span!("step", run_id = self.context.run_id, connector = self.connector.name, pipeline = self.connector.pipeline);
        let _inside = span.enter();
        self.control.govern(&self.state);
        let mut accounting = Accounting::new(1, Arc::clone(&self.state));
        let flow = flow(&self, &mut accounting);
        let counts = accounting.show();
        accounting.end();
        self.log_stages();
        let seconds = begun.elapsed().as_secs_f64();
        // where it stands is what an interrupted step has to say
        let known = self.state.report(&self.connector.name);
        let report =
            StepReport { counts, seconds, suspended: false, docs_per_second: None, oldest_pending_seconds: None, message: None, ..known };
        let mut end = StepEnd { report, state: State::Succeeded, failure: None };
        match flow {
            Flow::Complete => end.report.state = ConnectorState::Succeeded,
            Flow::Interrupted => (end.state, end.report.message) = (State::Interrupted, Some(self.remaining())),
            Flow::Failed(StepError::Cancelled) => {
                end.fail(&StepError::Cancelled);
                end.report.message = Some(format!("cancelled {}", self.so_far()));
                tracing::warn!(connector = self.connector.name, pending = counts.pending, "the step was cancelled");
            }
            Flow::Failed(error) => {
                end.fail(&error);
                tracing::error!(connector = self.connector.name, error = error.chain(), "the step failed");
            }
        }
        end
    }

    /// Builds everything, so that what cannot be built stops the step before a document is read.
    fn build(&self) -> Result<Built, StepError> {
        let plan = Plan::compile(&self.pipeline.stages, &self.context)?;
        let connector = connectors::build(self.connector, &self.context).map_err(StepError::Connector)?;
        let backend = indexers::build(&self.pipeline.indexer, &self.context)?;
        Ok(Built { plan, backend, connector })
    }

    fn run_built(&self, built: Built, accounting: &mut Accounting) -> Flow {
        let runtime = &self.context.runtime;
        let Built { plan, backend, connector } = built;
        let prepared = self.before_the_first(self.prepare(&*backend));
        let flow = match prepared {
            Flow::Complete => self.flow(&plan, &backend, connector, accounting),
            other => other,
        };
        match flow {
            Flow::Complete if !self.control.is_cancelled() => runtime.block_on(async {
                self.state.enter(ConnectorState::Finishing);
                tokio::select! {
                    completed = self.complete(&*backend) => completed.map_or_else(Flow::Failed, |()| Flow::Complete),
                    () = self.control.grace_is_over() => Flow::Interrupted,
                }
            }),
            other => {
                runtime.block_on(backend.abandon());
                // cancelled between the last document and the last actions
                if matches!(other, Flow::Complete) { Flow::Failed(StepError::Cancelled) } else { other }
            }
        }
    }

    /// Work before the first document. It is given up as soon as the run is to end: nothing is in flight yet.
    pub(super) fn before_the_first(&self, work: impl Future<Output = Result<(), StepError>>) -> Flow {
        self.context.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.control.cancelled() => Flow::Failed(StepError::Cancelled),
                () = self.control.drain.cancelled() => Flow::Interrupted,
                done = work => done.map_or_else(Flow::Failed, |()| Flow::Complete),
            }
        })
    }

    /// The first actions, then the look at the backend: they may have made what it needs.
    async fn prepare(&self, backend: &dyn Backend) -> Result<(), StepError> {
        actions::run(&self.connector.pre, &self.context, When::Pre).await?;
        Ok(backend.check().await?)
    }

    /// Everything is accounted for: makes it visible, then the last actions.
    async fn complete(&self, backend: &dyn Backend) -> Result<(), StepError> {
        backend.commit().await?;
        Ok(actions::run(&self.connector.post, &self.context, When::Post).await?)
    }

    /// What a publisher with that epoch works with.
    pub(super) fn publisher_settings(&self, epoch: u64) -> PublisherSettings {
        PublisherSettings {
            max_pending: self.connector.max_pending.and_then(|max| u64::try_from(max).ok()).unwrap_or(MAX_PENDING),
            max_rate: self.connector.max_rate,
            collapse: self.connector.collapse,
            limit: self.limits.documents,
            epoch,
            after: 0,
            checkpoints: None,
        }
    }

    /// From the first document to the last event.
    fn flow(
        &self,
        plan: &Plan,
        backend: &Arc<dyn Backend>,
        connector: Box<dyn connectors::Connector>,
        accounting: &mut Accounting,
    ) -> Flow {
        let settings = self.publisher_settings(1);
        match Threads::start(self, plan, backend, connector, settings) {
            Ok(threads) => {
                self.state.enter(ConnectorState::Publishing);
                let flow = Course::new(self, threads).run(accounting);
                self.health.unwatch();
                flow
            }
            Err(source) => Flow::Failed(StepError::System { what: "start a thread", source }),
        }
    }

    /// What each stage has done.
    fn log_stages(&self) {
        for (label, stats) in self.figures.stages.totals() {
            let mean = stats.durations.sum_seconds / stats.durations.count().max(1) as f64;
            tracing::info!(
                stage = label.name,
                processed = stats.processed,
                mean_us = (mean * 1e8).round() / 100.0,
                children = stats.children,
                dropped = stats.dropped,
                failed = stats.failed,
                continued = stats.continued,
                "stage"
            );
        }
    }

    /// What is left to do, in words.
    fn remaining(&self) -> String {
        let again = match self.context.is_continuous {
            true => format!("run it again with --run-id {} to go on", self.context.run_id),
            false => "run it again to start the step over".to_owned(),
        };
        format!("interrupted {}; {again}", self.so_far())
    }

    /// How far the step is, in words.
    fn so_far(&self) -> String {
        let counts = self.state.counts();
        let read = match self.state.source() {
            (done, Some(total)) if total > 0 => format!(", the source was read to {} %", done.min(total) * 100 / total),
            _ => String::new(),
        };
        let pending = match counts.pending {
            0 => "everything is accounted for".to_owned(),
            pending => format!("with {} pending", counted(pending, "document")),
        };
        format!("after {}, {pending}{read}", counted(counts.published, "document"))
    }
}
