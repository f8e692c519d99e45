//! The publisher's side of a step over Kafka: claims the run's log, reads what earlier publishers left, runs the connector, writes
//! checkpoints, counts the events, and ends when every document is accounted for.

use super::{
    barrier::Passing,
    role::{RoleEnd, RolePlan, RoleThreads},
    route::Route,
};
use crate::{
    actions::{self, When},
    connectors,
    courier::{self, CourierError, CourierFigures, Desk, DeskOwner, Outlet},
    indexers::{self, Backend},
    messenger::kafka::{Publication, SourceAcks, TooLarge, TopicWriter},
    publisher::{
        Publisher, PublisherEnd, PublisherSettings,
        checkpoint::CheckpointTracker,
        completion::{self, End, Facts, Next, Post, Source},
        log::{EventLog, LogRecord},
        recovery::{self, Recovered, Seen},
        snapshot::{Snapshot, Snapshots},
        topic_log::{Appending, TopicLog},
    },
    runner::{
        StepError,
        accounting::Accounting,
        deadlines::{Deadlines, check_failed},
        step::{Flow, Step},
        threads::{ConnectorEnd, spawn_connector},
    },
};
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use penstock_crds::{conditions::ConnectorState, ingest_run::Counts};
use rdkafka::types::RDKafkaErrorCode;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long the log is waited for in each round.
const ROUND: Duration = Duration::from_millis(20);
/// Records of the log taken in each round.
const RECORDS: usize = 1_000;
/// Time between checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// How long one call to the log may take while the broker is in trouble, before the step ends and can be started again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events between two snapshots of the ledger.
const SNAPSHOT_EVENTS: u64 = 10_000_000;
/// How long a step that has failed waits for documents on which nobody seems to work.
const FAILED_GRACE: Duration = Duration::from_secs(30);
/// How long roles in this process may take to end.
const ROLE_GRACE: Duration = Duration::from_secs(30);

/// What a process does for a step besides publishing.
#[derive(Clone, Copy, Debug, Default)]
pub struct KafkaOptions {
    /// Work and index here as well.
    pub all_roles: bool,
    /// Make the topics that are missing.
    pub create_topics: bool,
}

/// The parts of the pipeline that run in this process besides the publisher.
struct Roles {
    threads: Vec<RoleThreads>,
    backend: Arc<dyn Backend>,
}

/// What one of our own records in the log says.
#[derive(Clone, Copy, Debug)]
enum Said {
    Checkpoint {
        seq: u64,
        end: bool,
    },
    Complete,
    /// The last part of a snapshot: the log is not needed before that record any more.
    Snapshot {
        read_to: u64,
    },
    Part,
}

/// A step while it runs.
struct Publishing<'a, 'b> {
    step: &'a Step<'a>,
    route: &'a Route,
    roles: Option<Roles>,
    accounting: &'b mut Accounting,
    log: TopicLog,
    /// The next record of the log to be read.
    next: u64,
    epoch: u64,
    acks: Arc<SourceAcks>,
    checkpoints: Arc<Mutex<CheckpointTracker>>,
    checkpointed: Instant,
    appending: Vec<(Appending, Said)>,
    snapshots: Snapshots,
    /// Steps that share the log and are complete.
    others: BTreeMap<String, Counts>,
    is_complete_sent: bool,
    desk: Desk,
    connector: Option<Receiver<ConnectorEnd>>,
    facts: Facts,
    barrier: Option<Passing>,
    deadlines: Deadlines,
    /// Why the step will have failed, once what was accepted is accounted for.
    error: Option<StepError>,
    drain_until: Option<Instant>,
    cancel_until: Option<Instant>,
}

/// Publishes a step and follows it to its end.
pub(in crate::runner) fn publish(step: &Step<'_>, route: &Route, options: KafkaOptions, accounting: &mut Accounting) -> Flow {
    let begun = prepare(step, route, options).and_then(|()| Publishing::begin(step, route, options, accounting));
    match begun {
        Ok(Some(publishing)) => publishing.run(),
        Ok(None) => Flow::Interrupted,
        Err(error) => Flow::Failed(error),
    }
}

/// The brokers answer, and the topics are there.
fn prepare(step: &Step<'_>, route: &Route, options: KafkaOptions) -> Result<(), StepError> {
    route.check()?;
    let run_id = Some(step.context.run_id.as_str());
    if options.create_topics { route.create_topics(step.pipeline, run_id) } else { route.check_topics(step.pipeline, run_id) }
}

/// Kafka does not take a record of ours.
fn refused(route: &Route, topic: String, code: RDKafkaErrorCode) -> StepError {
    match route.connection.denied_to_write(&topic, code) {
        Some(denied) => denied.into(),
        None if courier::is_gone(code) => CourierError::TopicLost { topic }.into(),
        None => StepError::Refused { topic, reason: code.to_string() },
    }
}

/// Starts workers and indexers in this process.
fn start_roles(step: &Step<'_>, route: &Route) -> Result<Roles, StepError> {
    let backend = indexers::build(&step.pipeline.indexer, &step.context)?;
    step.context.runtime.block_on(backend.check())?;
    let start = |courier: &Arc<CourierFigures>| {
        RoleThreads::start(RolePlan {
            role: courier.role,
            pipeline: step.pipeline,
            context: &step.context,
            route,
            backend: courier.role.has_backend().then(|| Arc::clone(&backend)),
            health: Arc::clone(&step.health),
            indexer: Arc::clone(&step.figures.indexer),
            stages: Arc::clone(&step.figures.stages),
            exit_on_stuck: step.limits.exit_on_stuck,
            courier: Arc::clone(courier),
        })
    };
    Ok(Roles { threads: step.couriers.iter().map(start).collect::<Result<_, _>>()?, backend })
}

impl<'a, 'b> Publishing<'a, 'b> {
    /// Claims the log, then reads it, then starts the connector where the checkpoint says. Nothing, if the run is to end before that.
    fn begin(
        step: &'a Step<'a>,
        route: &'a Route,
        options: KafkaOptions,
        accounting: &'b mut Accounting,
    ) -> Result<Option<Self>, StepError> {
        let connector = connectors::build(step.connector, &step.context).map_err(StepError::Connector)?;
        let log_topic = route.log(&step.context.run_id)?;
        let log = TopicLog::open(&route.connection, &log_topic, PATIENCE)?;
        let name = &step.connector.name;
        let epoch = recovery::claim(&log, name)?;
        let recovered = recovery::recover(&log, name, connector.has_cursor(), epoch, &mut |detail| accounting.sample(detail))?;
        let after = recovered.last_valid();
        let Recovered { others, replaced, resume, source_offsets, ended, complete, ledger, .. } = recovered;
        tracing::info!(epoch, after, ended, complete = complete.is_some(), log = log_topic, "the run's log is claimed");
        step.state.set_published(after);
        accounting.resume(ledger);
        let is_over = ended || complete.is_some();
        if after == 0 && !is_over {
            match step.before_the_first(async { Ok(actions::run(&step.connector.pre, &step.context, When::Pre).await?) }) {
                Flow::Complete => {}
                Flow::Interrupted => return Ok(None),
                Flow::Failed(error) => return Err(error),
            }
        }
        let roles = if options.all_roles { Some(start_roles(step, route)?) } else { None };
        let acks = SourceAcks::start(&route.connection, route.largest_record(&route.names.source), after, source_offsets)?;
        let checkpoints = Arc::new(Mutex::new(CheckpointTracker::new(epoch, after, resume.clone())));
        let owner = DeskOwner {
            run: step.context.run_id.clone(),
            step: name.clone(),
            pipeline: step.context.pipeline.clone(),
            epoch,
            log: log_topic,
        };
        let (desk, outlet) = Desk::new(&route.connection, route.dead_letter_topic(), owner)?;
        let is_cancelled = step.control.is_cancelled();
        let facts = Facts {
            source: match (is_over, is_cancelled) {
                (true, _) => Source::Exhausted,
                (false, true) => Source::Stopped,
                (false, false) => Source::Reading,
            },
            end_is_safe: is_over,
            is_complete: complete.is_some(),
            ..Facts::default()
        };
        let mut publishing = Self {
            step,
            route,
            roles,
            accounting,
            log,
            next: epoch + 1,
            epoch,
            acks,
            checkpoints,
            checkpointed: Instant::now(),
            appending: Vec::new(),
            snapshots: Snapshots::new(SNAPSHOT_EVENTS),
            others,
            is_complete_sent: false,
            desk,
            connector: None,
            facts,
            barrier: None,
            deadlines: Deadlines::new(Instant::now()),
            error: None,
            drain_until: None,
            cancel_until: None,
        };
        step.state.enter(ConnectorState::Publishing);
        if is_over {
            step.state.enter(ConnectorState::Draining);
        } else if !is_cancelled {
            publishing.start_connector(connector, outlet, after, replaced, resume)?;
        }
        Ok(Some(publishing))
    }

    fn start_connector(
        &mut self,
        connector: Box<dyn connectors::Connector>,
        outlet: Outlet,
        after: u64,
        replaced: bool,
        resume: Option<connectors::ResumeFrom>,
    ) -> Result<(), StepError> {
        let step = self.step;
        let publication = Publication { run: step.context.run_id.clone(), step: step.connector.name.clone(), epoch: self.epoch, replaced };
        let writer = TopicWriter::new(&self.route.names.source, publication, Arc::clone(&self.acks), step.context.stop.clone());
        let settings = PublisherSettings { after, checkpoints: Some(Arc::clone(&self.checkpoints)), ..step.publisher_settings(self.epoch) };
        let publisher = Publisher::new(writer, Arc::clone(&step.state), Arc::new(outlet.clone()), Arc::new(outlet), settings);
        let (sender, ended) = crossbeam_channel::bounded(1);
        self.connector = Some(ended);
        spawn_connector(connector, publisher, resume, move |end| {
            let _ = sender.send(end);
        })
        .map_err(|source| StepError::System { what: "start the thread of the connector", source })
    }

    fn run(mut self) -> Flow {
        let end = self.follow();
        self.step.state.stop_publishing();
        self.end_roles();
        self.step.context.stop.cancel();
        self.step.health.unwatch();
        match (end, self.error.take()) {
            // asked to end before everything was counted, and there is time left to do so: for whoever goes on
            (Ok(End::Stopped { pending }), Some(StepError::Cancelled)) if pending > 0 && self.is_interrupted(Instant::now()) => {
                Flow::Interrupted
            }
            (Err(error), _) | (Ok(End::Stopped { .. } | End::SourceFailed), Some(error)) => Flow::Failed(error),
            (Ok(End::Complete), _) => Flow::Complete,
            (Ok(End::Superseded { by }), _) => Flow::Failed(StepError::Superseded { by }),
            (Ok(End::Stopped { .. }), None) => Flow::Interrupted,
            (Ok(End::Unaccounted(pending)), _) => Flow::Failed(StepError::Unaccounted { pending, sample: self.accounting.pending() }),
            // the post actions' own error is kept
            (Ok(End::PostFailed | End::SourceFailed), error) => {
                Flow::Failed(error.unwrap_or(StepError::ConnectorPanic("it ended without a reason".into())))
            }
        }
    }

    fn follow(&mut self) -> Result<End, StepError> {
        loop {
            self.read_log()?;
            self.take_connector_end();
            self.take_acknowledged()?;
            self.take_appended()?;
            self.watch_roles()?;
            let counts = self.accounting.show();
            self.facts.counts = counts;
            let now = Instant::now();
            if self.error.is_none()
                && let Err(error) = check_failed(self.step, counts.failed)
            {
                self.stop(error);
            }
            if let Err(error) = self.deadlines.look(self.step, now, &counts) {
                // a cancelled step has a time of its own
                if !self.is_cancelled() {
                    return Err(error);
                }
            }
            // the last checkpoint is begun before anybody asks whether all of them are written
            self.write_checkpoint(now)?;
            self.look_at_control(now);
            // a step that has failed waits for what it gave as long as somebody works on it
            self.facts.grace_is_over |= self.error.is_some() && !self.is_cancelled() && self.deadlines.still_for(now) > FAILED_GRACE;
            self.facts.is_given_up = self.error.is_some() && !self.is_complete_sent;
            match completion::next(&self.facts) {
                Next::Publish | Next::Drain => {}
                Next::PassBarrier => self.pass_barrier(now)?,
                Next::WriteComplete if !self.is_complete_sent => {
                    let record = LogRecord::Complete { epoch: self.epoch, counts };
                    self.appending.push((self.log.begin_append(&record)?, Said::Complete));
                    self.is_complete_sent = true;
                }
                Next::WriteComplete => {}
                Next::RunPost => self.facts.post = Some(self.run_post()?),
                Next::End(end) => return Ok(end),
            }
        }
    }

    /// Reads the log on, and enters what it says.
    fn read_log(&mut self) -> Result<(), StepError> {
        let records = self.log.read_some(self.next, RECORDS, ROUND)?;
        for (offset, record) in records {
            self.next = offset + 1;
            match self.accounting.read_on(self.epoch, offset, &record) {
                Seen::Superseded { by } => self.facts.superseded_by = Some(by),
                Seen::Complete => self.facts.is_complete = true,
                Seen::Events(_) => self.consider_snapshot(&record),
                Seen::Nothing => {}
            }
        }
        Ok(())
    }

    /// Takes a snapshot every so many events.
    fn consider_snapshot(&mut self, record: &LogRecord) {
        let LogRecord::Events(events) = record else { return };
        if self.snapshots.entered(events.len() as u64) {
            let ledger = self.accounting.ledger();
            self.snapshots.taken(Snapshot::take(self.epoch, &self.step.connector.name, self.next, ledger, &self.others));
        }
    }

    fn take_connector_end(&mut self) {
        let Some(end) = self.connector.as_ref().and_then(|ended| ended.try_recv().ok()) else { return };
        self.connector = None;
        self.facts.source = match end {
            ConnectorEnd::Returned(None | Some(PublisherEnd::Limit)) => Source::Exhausted,
            ConnectorEnd::Returned(Some(PublisherEnd::DeadLetter(error))) => {
                self.error.get_or_insert(StepError::DeadLetter(error));
                Source::Stopped
            }
            ConnectorEnd::Returned(Some(PublisherEnd::Stopped)) => Source::Stopped,
            // what it gave is still processed and counted
            ConnectorEnd::Failed(error) => {
                self.error.get_or_insert(StepError::Connector(error));
                Source::Stopped
            }
            ConnectorEnd::Panicked(message) => {
                self.error.get_or_insert(StepError::ConnectorPanic(message));
                Source::Stopped
            }
        };
        if self.facts.source == Source::Exhausted {
            self.step.state.enter(ConnectorState::Draining);
        }
    }

    /// What Kafka has acknowledged of documents, letters and events of our own.
    fn take_acknowledged(&mut self) -> Result<(), StepError> {
        let refused = |topic, code| refused(self.route, topic, code);
        let acknowledged = self.acks.poll().map_err(|fault| refused(fault.topic, fault.code))?;
        for TooLarge { seq, id, value } in acknowledged.too_large {
            self.desk.too_large(seq, id, value);
        }
        let in_log = self.desk.poll().map_err(|fault| refused(fault.topic, fault.code))?;
        let mut checkpoints = self.checkpoints.lock();
        for seq in in_log {
            checkpoints.own_failure_logged(seq);
            self.acks.failed_by_itself(seq);
        }
        checkpoints.acknowledged_to(acknowledged.up_to);
        Ok(())
    }

    /// Writes a checkpoint if one is due. The last one, with `end`, is written as soon as all is acknowledged.
    fn write_checkpoint(&mut self, now: Instant) -> Result<(), StepError> {
        let returned = self.facts.source == Source::Exhausted;
        let is_last = returned || self.facts.source == Source::Stopped;
        if self.facts.end_is_safe || !is_last && now - self.checkpointed < CHECKPOINT_INTERVAL {
            return Ok(());
        }
        self.checkpointed = now;
        let offsets = self.acks.offsets();
        let due = self.checkpoints.lock().due(returned, &offsets);
        if let Some(checkpoint) = due {
            let said = Said::Checkpoint { seq: checkpoint.seq, end: checkpoint.end };
            self.appending.push((self.log.begin_append(&LogRecord::Checkpoint(checkpoint))?, said));
        }
        Ok(())
    }

    /// What of our own records is in the log.
    fn take_appended(&mut self) -> Result<(), StepError> {
        for (appending, said) in std::mem::take(&mut self.appending) {
            if appending.wait(Duration::ZERO)?.is_none() {
                self.appending.push((appending, said));
                continue;
            }
            match said {
                Said::Checkpoint { seq, end } => {
                    self.facts.end_is_safe |= end;
                    self.append_snapshot(seq)?;
                }
                Said::Snapshot { read_to } => self.forget_before(read_to),
                Said::Complete | Said::Part => {}
            }
        }
        Ok(())
    }

    /// Writes the snapshot that waits for this checkpoint, if one does.
    fn append_snapshot(&mut self, covered: u64) -> Result<(), StepError> {
        let Some((read_to, records)) = self.snapshots.covered(covered) else { return Ok(()) };
        let last = records.len() - 1;
        for (index, record) in records.iter().enumerate() {
            let said = if index == last { Said::Snapshot { read_to } } else { Said::Part };
            self.appending.push((self.log.begin_append(record)?, said));
        }
        Ok(())
    }

    /// The head of the log is not needed any more. If it cannot be removed, it only takes room.
    fn forget_before(&self, read_to: u64) {
        match self.route.admin.delete_records(self.log.topic(), &[(0, read_to as i64)]) {
            Ok(_) => tracing::info!(log = self.log.topic(), read_to, "a snapshot is in the log, its head is removed"),
            Err(error) => tracing::warn!(log = self.log.topic(), %error, "a snapshot is in the log, but its head cannot be removed"),
        }
    }

    fn pass_barrier(&mut self, now: Instant) -> Result<(), StepError> {
        let Self { barrier, acks, route, log, next, .. } = self;
        let barrier = barrier.get_or_insert_with(|| Passing::behind(&acks.offsets()));
        self.facts.barrier_passed = barrier.go_on(route, || log.end().ok(), *next, now)?;
        Ok(())
    }

    /// Every document is accounted for: makes them visible, then runs the last actions.
    fn run_post(&mut self) -> Result<Post, StepError> {
        self.step.state.enter(ConnectorState::Finishing);
        if let Some(mut roles) = self.roles.take() {
            for threads in &mut roles.threads {
                if let RoleEnd::Failed(error) = threads.finish(ROLE_GRACE) {
                    return Err(error);
                }
            }
            self.step.context.runtime.block_on(roles.backend.commit())?;
        }
        let ran = self.step.context.runtime.block_on(actions::run(&self.step.connector.post, &self.step.context, When::Post));
        Ok(match ran {
            Ok(()) => Post::Succeeded,
            Err(error) => {
                self.error = Some(error.into());
                Post::Failed
            }
        })
    }

    /// Roles that still run finish what is in work and leave their groups, so that the next ones need not wait for them.
    fn end_roles(&mut self) {
        for threads in self.roles.iter_mut().flat_map(|roles| &mut roles.threads) {
            let grace = if self.step.control.abort.is_cancelled() { Duration::ZERO } else { ROLE_GRACE };
            if let RoleEnd::Failed(error) = threads.finish(grace) {
                self.error.get_or_insert(error);
            }
        }
    }

    /// No more is published; what was accepted is still accounted for.
    fn stop(&mut self, error: StepError) {
        self.error = Some(error);
        self.step.state.stop_publishing();
    }

    fn is_cancelled(&self) -> bool {
        matches!(self.error, Some(StepError::Cancelled))
    }

    /// Whether the step was asked to end, and not because its time as a cancelled one is over.
    fn is_interrupted(&self, now: Instant) -> bool {
        self.step.control.is_ending() && self.cancel_until.is_none_or(|until| now < until)
    }

    /// Cancelled: what was accepted is counted until its time is over. A step that is complete stays so.
    fn look_at_cancel(&mut self, now: Instant) {
        if !self.step.control.is_cancelled() || self.is_complete_sent || self.facts.is_complete {
            return;
        }
        if self.error.is_none() {
            self.stop(StepError::Cancelled);
        }
        let until = *self.cancel_until.get_or_insert(now + self.step.limits.cancel_grace);
        self.facts.grace_is_over |= until <= now;
    }

    /// Asked to end: what is handed over is acknowledged and covered by a checkpoint, the rest is for whoever goes on.
    fn look_at_control(&mut self, now: Instant) {
        self.look_at_cancel(now);
        let control = &self.step.control;
        if !control.is_ending() {
            return;
        }
        self.step.state.stop_publishing();
        let until = *self.drain_until.get_or_insert(now + *control.grace);
        let is_safe = self.facts.source != Source::Reading && self.appending.is_empty() && self.checkpoints.lock().is_covered();
        self.facts.grace_is_over |= control.abort.is_cancelled() || until <= now || is_safe;
    }

    fn watch_roles(&mut self) -> Result<(), StepError> {
        for threads in self.roles.iter_mut().flat_map(|roles| &mut roles.threads) {
            match threads.wait(Duration::ZERO) {
                Some(RoleEnd::Failed(error)) => return Err(error),
                Some(RoleEnd::Drained | RoleEnd::Aborted) => return Err(StepError::LanePanic("a part of the pipeline ended early".into())),
                None => {}
            }
        }
        Ok(())
    }
}
