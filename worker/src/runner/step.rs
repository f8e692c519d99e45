//! One step: a connector, the lanes of its pipeline and the accounting, from the first check to the last action.

use super::{
    accounting::Accounting,
    control::Control,
    outcome::{FailureClass, StepError},
    summary::{State, StepSummary},
    threads::{ConnectorEnd, Message, Threads},
};
use crate::{
    actions::{self, When},
    connectors,
    context::StepContext,
    health::Health,
    indexers::{self, Backend, DeadLetter},
    metrics::StepFigures,
    pipeline::Plan,
    publisher::{
        PublisherEnd, PublisherSettings, StepState,
        completion::{self, End, Facts, Next, Source},
    },
};
use penstock_crds::{PipelineSpec, connectors::Connector};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How often the accounting looks at clocks and requests.
const TICK: Duration = Duration::from_millis(50);
/// How long threads may take to end once the step was aborted.
const ABORT_GRACE: Duration = Duration::from_secs(5);
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
    /// End the step if a stage does not return.
    pub exit_on_stuck: bool,
}

/// How a step ended.
pub struct StepEnd {
    /// For the summary.
    pub summary: StepSummary,
    /// What kind of failure it was, if it was one.
    pub failure: Option<FailureClass>,
}

/// What has been built before anything runs.
struct Built {
    plan: Plan,
    backend: Arc<dyn Backend>,
    connector: Box<dyn connectors::Connector>,
}

/// How the part between the first and the last document ended.
enum Flow {
    Complete,
    Interrupted,
    Failed(StepError),
}

impl Step<'_> {
    /// Runs the step to its end.
    pub fn run(self) -> StepEnd {
        let begun = Instant::now();
        // every thread and task of the step works inside of it, so their log lines name run and pipeline
        let span =
            tracing::info_span!("step", run_id = self.context.run_id, connector = self.connector.name, pipeline = self.connector.pipeline);
        let _inside = span.enter();
        let mut accounting = Accounting::new(1, Arc::clone(&self.state));
        let flow = match self.build() {
            Ok(built) => self.run_built(built, &mut accounting),
            Err(error) => Flow::Failed(error),
        };
        let counts = accounting.show();
        let (state, message, failure) = match flow {
            Flow::Complete => (State::Succeeded, None, None),
            Flow::Interrupted => (State::Interrupted, Some(self.remaining()), None),
            Flow::Failed(error) => {
                let message = error.chain();
                tracing::error!(connector = self.connector.name, error = message, "the step failed");
                (State::Failed, Some(message), Some(error.class()))
            }
        };
        let failures = accounting.into_samples();
        self.log_stages();
        let summary =
            StepSummary { name: self.connector.name.clone(), state, counts, message, failures, seconds: begun.elapsed().as_secs_f64() };
        StepEnd { summary, failure }
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
        let ready = runtime.block_on(async {
            actions::run(&self.connector.pre, &self.context, When::Pre).await?;
            backend.check().await.map_err(StepError::from)
        });
        let flow = match ready {
            Ok(()) => self.flow(&plan, &backend, connector, accounting),
            Err(_) if self.control.is_ending() => Flow::Interrupted,
            Err(error) => Flow::Failed(error),
        };
        match flow {
            Flow::Complete => match runtime.block_on(self.complete(&*backend)) {
                Ok(()) => Flow::Complete,
                Err(error) => Flow::Failed(error),
            },
            other => {
                runtime.block_on(backend.abandon());
                other
            }
        }
    }

    /// Everything is accounted for: makes it visible, then the last actions.
    async fn complete(&self, backend: &dyn Backend) -> Result<(), StepError> {
        backend.commit().await?;
        Ok(actions::run(&self.connector.post, &self.context, When::Post).await?)
    }

    /// From the first document to the last event.
    fn flow(
        &self,
        plan: &Plan,
        backend: &Arc<dyn Backend>,
        connector: Box<dyn connectors::Connector>,
        accounting: &mut Accounting,
    ) -> Flow {
        let settings = PublisherSettings {
            max_pending: self.connector.max_pending.and_then(|max| u64::try_from(max).ok()).unwrap_or(MAX_PENDING),
            max_rate: self.connector.max_rate,
            collapse: self.connector.collapse,
            limit: self.limits.documents,
            epoch: 1,
        };
        match Threads::start(self, plan, backend, connector, settings) {
            Ok(threads) => {
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
        let counts = self.state.counts();
        let read = match self.state.source() {
            (done, Some(total)) if total > 0 => format!(", the source was read to {} %", done.min(total) * 100 / total),
            _ => String::new(),
        };
        let pending = match counts.pending {
            0 => "all of them are accounted for".to_owned(),
            pending => format!("{pending} of them are pending"),
        };
        format!("interrupted after {} documents, {pending}{read}; run it again to start the step over", counts.published)
    }
}

/// The course of a step while its threads work.
struct Course<'a> {
    step: &'a Step<'a>,
    threads: Threads,
    error: Option<StepError>,
    connector_end: Option<ConnectorEnd>,
    lanes_left: usize,
    begun: Instant,
    suspended: Duration,
    last_tick: Instant,
    /// The sum of published and closed documents, and when it last grew.
    moved: (u64, Instant),
    stalled: bool,
    drain_until: Option<Instant>,
    abort_until: Option<Instant>,
}

impl<'a> Course<'a> {
    fn new(step: &'a Step<'a>, threads: Threads) -> Self {
        let now = Instant::now();
        let lanes_left = threads.lanes;
        let (error, connector_end, drain_until, abort_until) = (None, None, None, None);
        let (begun, suspended, last_tick, moved, stalled) = (now, Duration::ZERO, now, (0, now), false);
        Self { step, threads, error, connector_end, lanes_left, begun, suspended, last_tick, moved, stalled, drain_until, abort_until }
    }

    fn run(mut self, accounting: &mut Accounting) -> Flow {
        loop {
            if let Ok(message) = self.threads.messages.recv_timeout(TICK) {
                self.take(message, accounting);
                while let Ok(message) = self.threads.messages.try_recv() {
                    self.take(message, accounting);
                }
            }
            let counts = accounting.show();
            self.tick(counts.published + counts.published - counts.pending, counts.failed, counts.pending);
            let ended = self.connector_end.is_some() && self.lanes_left == 0 && self.threads.messages.is_empty();
            if ended || self.abort_until.is_some_and(|until| until <= Instant::now()) {
                return self.conclude(accounting);
            }
        }
    }

    fn take(&mut self, message: Message, accounting: &mut Accounting) {
        match message {
            Message::Events(events) => accounting.enter(&events),
            Message::ConnectorEnded(end) => self.connector_ended(end),
            Message::LaneEnded(Ok(())) => self.lanes_left -= 1,
            Message::LaneEnded(Err(error)) => {
                self.lanes_left -= 1;
                self.fail(error);
            }
            Message::Fatal(error) => self.fail(error.into()),
        }
    }

    /// A structural failure: everything ends at once, what is in work stays pending.
    fn fail(&mut self, error: StepError) {
        // the first error is the cause; a closed lane only says that there is another
        match &self.error {
            None | Some(StepError::Lane(crate::worker_lane::LaneError::Closed)) => self.error = Some(error),
            Some(_) => {}
        }
        self.abort();
    }

    fn abort(&mut self) {
        self.step.state.stop_publishing();
        self.step.context.stop.cancel();
        self.threads.abort.abort();
        self.abort_until.get_or_insert_with(|| Instant::now() + ABORT_GRACE);
    }

    fn connector_ended(&mut self, end: ConnectorEnd) {
        let error = match &end {
            ConnectorEnd::Returned(Some(PublisherEnd::DeadLetter(error))) => {
                Some(StepError::DeadLetter(std::io::Error::new(error.kind(), error.to_string())))
            }
            ConnectorEnd::Returned(_) => None,
            ConnectorEnd::Failed(_) | ConnectorEnd::Panicked(_) => None,
        };
        if let Some(error) = error {
            self.error.get_or_insert(error);
        }
        self.connector_end = Some(end);
    }

    /// Looks at clocks and requests.
    fn tick(&mut self, progress: u64, failed: u64, pending: u64) {
        let now = Instant::now();
        if self.step.state.is_suspended() {
            self.suspended += now - self.last_tick;
            self.moved.1 = now;
        }
        self.last_tick = now;
        self.check_progress(now, progress, pending);
        if self.error.is_none() {
            if let Some(allowed) = self.step.limits.max_failed.filter(|allowed| failed > *allowed) {
                self.error = Some(StepError::FailurePolicy { failed, allowed: allowed.to_string() });
                self.step.state.stop_publishing();
            }
            let timeout = self.step.connector.timeout;
            if now - self.begun > timeout.get() + self.suspended {
                self.fail(StepError::Timeout { timeout: timeout.to_string(), pending });
            }
            if let (true, Some(stuck)) = (self.step.limits.exit_on_stuck, self.step.health.stuck().into_iter().next()) {
                let stage = self.step.pipeline.stages.get(stuck.stage).map(|stage| stage.display_name(stuck.stage)).unwrap_or_default();
                self.fail(StepError::Stuck { stage, id: stuck.id, seconds: stuck.since.as_secs() });
            }
        }
        let control = &self.step.control;
        if control.is_ending() {
            self.step.state.stop_publishing();
            let until = *self.drain_until.get_or_insert(now + *control.grace);
            if (control.abort.is_cancelled() || until <= now) && self.abort_until.is_none() {
                self.abort();
            }
        }
    }

    fn check_progress(&mut self, now: Instant, progress: u64, pending: u64) {
        if progress != self.moved.0 {
            self.moved = (progress, now);
            self.stalled = false;
            return;
        }
        let deadline = self.step.limits.progress_deadline;
        if !self.stalled && now - self.moved.1 > deadline {
            self.stalled = true;
            tracing::warn!(connector = self.step.connector.name, pending, seconds = deadline.as_secs(), "no progress");
        }
    }

    fn conclude(self, accounting: &mut Accounting) -> Flow {
        let counts = accounting.show();
        if let Some(error) = self.error {
            return Flow::Failed(error);
        }
        let source = match self.connector_end {
            Some(ConnectorEnd::Failed(error)) => return Flow::Failed(StepError::Connector(error)),
            Some(ConnectorEnd::Panicked(message)) => return Flow::Failed(StepError::ConnectorPanic(message)),
            Some(ConnectorEnd::Returned(None | Some(PublisherEnd::Limit))) => Source::Exhausted,
            Some(ConnectorEnd::Returned(Some(_))) | None => Source::Stopped,
        };
        // in memory what was handed over is safe, and no event can come once all lanes have ended
        let is_draining = self.step.control.is_ending();
        let facts = Facts {
            source,
            counts,
            end_is_safe: true,
            barrier_passed: true,
            grace_is_over: self.abort_until.is_some(),
            ..Facts::default()
        };
        match completion::next(&facts) {
            Next::WriteComplete => Flow::Complete,
            Next::End(End::Stopped { .. }) if is_draining => Flow::Interrupted,
            _ => Flow::Failed(StepError::Unaccounted { pending: counts.pending, sample: accounting.pending() }),
        }
    }
}
