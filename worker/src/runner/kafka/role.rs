//! A part of a pipeline in this process: a courier and its lanes, from the start to the last commit.

use super::{lag, route::Route};
use crate::{
    context::StepContext,
    courier::{self, Courier, CourierEnd, CourierError, CourierFigures, CourierSettings, LaneEnds, Role},
    health::{Health, LaneProgress},
    indexers::{Backend, BackendError, IndexerLane, IndexerOutputs, IndexerStats},
    metrics::StageFigures,
    pipeline::Plan,
    runner::{StepError, threads::spawn_lane},
    worker_lane::{LaneError, LaneOutputs, WorkerLane},
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use penstock_crds::{PipelineSpec, pool::Pool};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// What a role works with.
pub struct RolePlan<'a> {
    /// The role.
    pub role: Role,
    /// The pipeline.
    pub pipeline: &'a PipelineSpec,
    /// What its components may know.
    pub context: &'a StepContext,
    /// Its way through Kafka.
    pub route: &'a Route,
    /// Its backend, for roles that index.
    pub backend: Option<Arc<dyn Backend>>,
    /// Who watches the lanes.
    pub health: Arc<Health>,
    /// The indexer's figures.
    pub indexer: Arc<IndexerStats>,
    /// The stages' figures.
    pub stages: Arc<StageFigures>,
    /// End if a stage does not return.
    pub exit_on_stuck: bool,
    /// The courier's figures.
    pub courier: Arc<CourierFigures>,
}

/// What the pipeline says of the processes of a role.
fn pool_of(role: Role, pipeline: &PipelineSpec) -> &Pool {
    match (role, &pipeline.indexers) {
        (Role::Indexer, Some(indexers)) => indexers,
        _ => &pipeline.workers,
    }
}

/// How a role ended.
#[derive(Debug)]
pub enum RoleEnd {
    /// Everything that was read is done and committed.
    Drained,
    /// It was ended before.
    Aborted,
    /// It cannot go on.
    Failed(StepError),
}

/// How long the commit may take that marks a document before the process ends because of it.
const MARKING: Duration = Duration::from_secs(2);

/// How long an aborted role may take to leave its group.
const LEAVE: Duration = Duration::from_secs(6);

enum Message {
    Courier(Result<CourierEnd, CourierError>),
    CourierPanic(String),
    Lane(Result<(), StepError>),
    Fatal(BackendError),
}

/// Sees to it that a document at which a stage does not return is marked before the process ends.
struct StuckWatch {
    health: Arc<Health>,
    lanes: Vec<Arc<LaneProgress>>,
    stages: Vec<String>,
    blame: Sender<u64>,
    /// The number of the document, and when it was blamed.
    blamed: Option<(u64, Instant)>,
}

impl StuckWatch {
    /// The error to end with, once the mark has had time to be committed.
    fn look(&mut self) -> Option<StepError> {
        let Some(stuck) = self.health.stuck_among(&self.lanes) else {
            self.blamed = None;
            return None;
        };
        let since = match self.blamed {
            Some((number, since)) if number == stuck.number => since,
            _ => {
                // without the courier there is nobody to mark it
                let _ = self.blame.send(stuck.number);
                Instant::now()
            }
        };
        self.blamed = Some((stuck.number, since));
        let stage = self.stages.get(stuck.stage).cloned().unwrap_or_default();
        (since.elapsed() > MARKING).then(|| StepError::Stuck { stage, id: stuck.id, seconds: stuck.since.as_secs() })
    }
}

/// The running threads of a role.
pub struct RoleThreads {
    role: Role,
    messages: Receiver<Message>,
    drain: CancellationToken,
    abort: CancellationToken,
    stop: CancellationToken,
    lanes_left: usize,
    courier: Option<RoleEnd>,
    stuck: Option<StuckWatch>,
    failure: Option<StepError>,
}

impl RoleThreads {
    /// Starts courier and lanes.
    ///
    /// # Errors
    /// The stages cannot be built, or the system gives no threads.
    pub fn start(plan: RolePlan<'_>) -> Result<Self, StepError> {
        let (sender, messages) = crossbeam_channel::unbounded();
        let (drain, abort, stop) = (CancellationToken::new(), CancellationToken::new(), plan.context.stop.child_token());
        let count = pool_of(plan.role, plan.pipeline)
            .threads
            .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), |n| n as usize);
        let (ends, watched) = start_lanes(&plan, count, &stop, &sender)?;
        let lanes = watched.len();
        let (blame, blamed) = crossbeam_channel::unbounded();
        let letters = plan.route.dead_letter_topic();
        let largest_record = match plan.role {
            Role::Worker => letters.largest_record.min(plan.route.largest_record(&plan.route.names.dest)),
            Role::Indexer | Role::WorkerIndexer => letters.largest_record,
        };
        let settings = CourierSettings {
            letters,
            largest_record,
            pipeline: plan.context.pipeline.clone(),
            names: plan.route.names.clone(),
            role: plan.role,
            drain: drain.clone(),
            abort: abort.clone(),
            max_attempts: u32::try_from(plan.pipeline.dead_letter.max_attempts).unwrap_or(1),
            blamed,
            figures: Arc::clone(&plan.courier),
        };
        spawn_courier(plan.route, settings, ends, sender)?;
        lag::watch(plan.route, Arc::clone(&plan.courier), plan.context.runtime.clone(), stop.clone())
            .map_err(|source| StepError::System { what: "start the thread that watches the lag", source })?;
        let stages = plan.pipeline.stages.iter().enumerate().map(|(index, stage)| stage.display_name(index)).collect();
        let health = Arc::clone(&plan.health);
        let stuck = plan.exit_on_stuck.then(|| StuckWatch { health, lanes: watched, stages, blame, blamed: None });
        Ok(Self { role: plan.role, messages, drain, abort, stop, lanes_left: lanes, courier: None, stuck, failure: None })
    }

    /// Takes no more records; what is in work is finished.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Ends at once.
    pub fn abort(&self) {
        self.abort.cancel();
        self.stop.cancel();
    }

    /// Waits for something to happen, at most so long. The answer: how it ended, if it has.
    pub fn wait(&mut self, at_most: Duration) -> Option<RoleEnd> {
        match self.messages.recv_timeout(at_most) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
        if let Some(error) = self.stuck.as_mut().and_then(StuckWatch::look) {
            // the lane does not end: the process does
            return Some(RoleEnd::Failed(error));
        }
        if self.lanes_left > 0 || self.courier.is_none() {
            return None;
        }
        match self.failure.take() {
            Some(error) => Some(RoleEnd::Failed(error)),
            None => self.courier.take(),
        }
    }

    /// Finishes what is in work, and waits for the end; at most so long, then it is aborted.
    pub fn finish(&mut self, at_most: Duration) -> RoleEnd {
        self.finish_until(Instant::now() + at_most)
    }

    /// Several roles end together: each finishes what is in work until then.
    pub fn finish_all(all: &mut [Self], at_most: Duration) {
        let until = Instant::now() + at_most;
        all.iter().for_each(Self::drain);
        if at_most.is_zero() {
            all.iter().for_each(Self::abort);
        }
        all.iter_mut().for_each(|role| drop(role.finish_until(until)));
    }

    fn finish_until(&mut self, until: Instant) -> RoleEnd {
        self.drain();
        loop {
            if let Some(end) = self.wait(Duration::from_millis(50)) {
                return end;
            }
            let now = Instant::now();
            if now >= until + LEAVE {
                // brokers that are gone must not hold up the end
                return self.failure.take().map_or(RoleEnd::Aborted, RoleEnd::Failed);
            }
            if now >= until {
                self.abort();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Courier(Ok(CourierEnd::Drained)) => self.courier = Some(RoleEnd::Drained),
            Message::Courier(Ok(CourierEnd::Aborted)) => self.courier = Some(RoleEnd::Aborted),
            Message::Courier(Err(error)) => {
                self.courier = Some(RoleEnd::Aborted);
                self.fail(error.into());
            }
            Message::CourierPanic(message) => {
                self.courier = Some(RoleEnd::Aborted);
                self.fail(StepError::LanePanic(message));
            }
            Message::Lane(Ok(())) => self.lanes_left -= 1,
            Message::Lane(Err(error)) => {
                self.lanes_left -= 1;
                // a lane that was closed because all ends is no reason of its own
                if !self.abort.is_cancelled() || !matches!(error, StepError::Lane(LaneError::Closed)) {
                    self.fail(error);
                }
            }
            Message::Fatal(error) => self.fail(error.into()),
        }
    }

    /// A structural failure: everything ends at once; what is in work is done again by the next start.
    fn fail(&mut self, error: StepError) {
        match &self.failure {
            None | Some(StepError::Lane(LaneError::Closed | LaneError::DeadLetter { .. })) => self.failure = Some(error),
            Some(_) => {}
        }
        tracing::debug!(role = self.role.as_str(), "the role ends");
        self.abort();
    }
}

impl Drop for RoleThreads {
    fn drop(&mut self) {
        self.abort();
    }
}

fn spawn_courier(route: &Route, settings: CourierSettings, ends: LaneEnds, sender: Sender<Message>) -> Result<(), StepError> {
    let (connection, span) = (Arc::clone(&route.connection), tracing::Span::current());
    let work = move || {
        let _inside = span.entered();
        // it is made on its thread, which it never leaves
        let run = || Courier::new(&connection, settings, ends)?.run();
        let message = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(ended) => Message::Courier(ended),
            Err(panic) => Message::CourierPanic(crate::runner::threads::panic_message(&*panic)),
        };
        let _ = sender.send(message);
    };
    let spawned = thread::Builder::new().name("courier".into()).spawn(work);
    spawned.map(|_| ()).map_err(|source| StepError::System { what: "start the thread for Kafka", source })
}

fn start_lanes(
    plan: &RolePlan<'_>,
    count: usize,
    stop: &CancellationToken,
    sender: &Sender<Message>,
) -> Result<(LaneEnds, Vec<Arc<LaneProgress>>), StepError> {
    let (ends, readers, outlet, dest) = courier::lanes(count);
    let stages = if plan.role == Role::Indexer { &[][..] } else { plan.pipeline.stages.as_slice() };
    let stages = Plan::compile(stages, plan.context)?;
    let mut watched = Vec::new();
    for (index, reader) in readers.into_iter().enumerate() {
        let pipeline = stages.lane();
        let progress = LaneProgress::new(pipeline.position());
        watched.push(Arc::clone(&progress));
        let outputs = LaneOutputs {
            events: Arc::new(outlet.clone()),
            dead_letter: Arc::new(outlet.clone()),
            figures: Arc::clone(&plan.stages),
            // the courier puts in the true ones
            epoch: 0,
            attempt: 0,
        };
        let tell = sender.clone();
        let tell = move |ended| {
            let _ = tell.send(Message::Lane(ended));
        };
        match &plan.backend {
            None => spawn_lane(index, WorkerLane { reader, pipeline, dest: dest.clone(), outputs, progress }, tell),
            Some(backend) => {
                let fatal = sender.clone();
                let indexer = IndexerOutputs {
                    events: Arc::new(outlet.clone()),
                    dead_letter: Arc::new(outlet.clone()),
                    epoch: 0,
                    attempt: 0,
                    stats: Arc::clone(&plan.indexer),
                    stop: stop.clone(),
                    fatal: Arc::new(move |error| {
                        let _ = fatal.send(Message::Fatal(error));
                    }),
                };
                let dest = IndexerLane::start(Arc::clone(backend), &plan.pipeline.indexer, indexer, &plan.context.runtime);
                spawn_lane(index, WorkerLane { reader, pipeline, dest, outputs, progress }, tell)
            }
        }
        .map_err(|source| StepError::System { what: "start a thread for a lane", source })?;
    }
    plan.health.watch(watched.clone(), pool_of(plan.role, plan.pipeline).max_processing.get());
    Ok((ends, watched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexers_have_settings_of_their_own_or_those_of_the_workers() {
        let lanes = |role, more: &str| {
            let spec = format!(r#"{{"indexer": {{"nop": {{}}}}, "workers": {{"threads": 3}}{more}}}"#);
            let pipeline: PipelineSpec = serde_json::from_str(&spec).expect("a pipeline");
            pool_of(role, &pipeline).threads
        };
        let own = r#", "indexers": {"threads": 5}"#;
        assert_eq!([Role::Worker, Role::Indexer, Role::WorkerIndexer].map(|role| lanes(role, own)), [Some(3), Some(5), Some(3)]);
        assert_eq!(lanes(Role::Indexer, ""), Some(3));
    }
}
