//! The one thread of a process that talks to Kafka: it reads records, hands them to the lanes, sends what comes of them, and
//! commits an offset only when everything that its record led to is acknowledged.
//!
//! It never waits for a lane: what is in work is bounded in number and bytes, beyond which the queues of the partitions are left
//! alone. The consumer itself is polled at all times, so a slow backend is no reason to lose partitions.

mod arrivals;
mod committer;
mod departures;
mod desk;
mod figures;
mod lanes;
mod membership;
mod outbox;
mod partitions;
mod producers;
mod queues;
mod record;
mod role;
mod tickets;

pub use desk::{Desk, DeskOwner};
pub use figures::{CourierFigures, Figures};
pub use lanes::{KafkaReader, LaneEnds, Outlet, TopicDest, lanes};
pub(crate) use outbox::is_gone;
pub use outbox::{Fault, LetterTopic};
pub use role::Role;

use crate::{
    kafka::{Access, Connection, KafkaError, PipelineNames, Resource, Traffic},
    messenger::kafka::intake::{Intake, IntakeSettings},
};
use committer::Committer;
use crossbeam_channel::Receiver;
use membership::{Change, Membership};
use outbox::Outbox;
use partitions::Leaving;
use queues::Queues;
use rdkafka::{
    consumer::{BaseConsumer, Consumer},
    types::RDKafkaErrorCode,
};
use record::HeldRecord;
use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tickets::{Passage, Tickets};
use tokio_util::sync::CancellationToken;

/// Records in work at most, and their bytes. At half of it reading goes on.
const MOST_RECORDS: usize = 50_000;
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// Records of a partition read between two looks at everything else.
const READ: usize = 256;
/// How long to wait for something to happen while work is on its way, and while there is none. Records, reports and answers to
/// commits end the wait; acknowledgements and changes of time do not.
const BUSY_WAIT: Duration = Duration::from_millis(1);
const IDLE_WAIT: Duration = Duration::from_millis(50);
/// How often is shown where it stands in its partitions.
const SHOW: Duration = Duration::from_secs(1);
/// How long the last commits are waited for once nothing is in work: brokers that are gone must not hold up the end. What is
/// not committed is read again by the next process, and counts once.
const LAST_COMMITS: Duration = Duration::from_secs(5);
/// How long leaving the group may take. Brokers that are gone are waited for by the client without an end.
const LEAVE: Duration = Duration::from_secs(3);

/// What a courier works with.
#[derive(Clone)]
pub struct CourierSettings {
    /// The name of the pipeline.
    pub pipeline: String,
    /// Its topics and groups.
    pub names: PipelineNames,
    /// Which part of the pipeline this process does.
    pub role: Role,
    /// Take no more records; finish what is in work.
    pub drain: CancellationToken,
    /// End at once.
    pub abort: CancellationToken,
    /// Where failed documents go.
    pub letters: LetterTopic,
    /// The largest record that every topic takes that the role writes to.
    pub largest_record: usize,
    /// Tickets of documents at which a stage does not return, before the process ends because of them.
    pub blamed: Receiver<u64>,
    /// How often a process may die at a document until the document fails.
    pub max_attempts: u32,
    /// What is shown of it.
    pub figures: Arc<CourierFigures>,
}

/// How a courier ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CourierEnd {
    /// Everything that was read is done and committed.
    Drained,
    /// It was ended; what was in work is done again by whoever goes on.
    Aborted,
}

/// Why a courier cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    /// A call failed.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// A record was refused.
    #[error(transparent)]
    Refused(#[from] Fault),
    /// A topic was deleted while it was used.
    #[error("topic `{topic}` is gone (TopicLost): it was deleted while the pipeline used it; make it again and start the run anew")]
    TopicLost {
        /// Its name.
        topic: String,
    },
    /// Records were removed before they were read, or the offset is that of another topic.
    #[error(
        "topic `{topic}`, partition {partition}: offset {committed} is committed, but it holds {first} to {end} (SourceTruncated): \
         records were removed before they were read, or the topic was made anew; set the offset of the group by hand to go on"
    )]
    Truncated {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// What was committed.
        committed: u64,
        /// The first offset that is there.
        first: u64,
        /// The next offset to be written.
        end: u64,
    },
    /// Records were removed while they waited to be read.
    #[error(
        "topic `{topic}`: records were removed before they were read (SourceTruncated); raise its retention, \
         and publish again what is missing"
    )]
    Overtaken {
        /// The topic.
        topic: String,
    },
    /// The system gives no thread.
    #[error("failed to start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// Too many documents in a row ended the process: it is not the documents.
    #[error(
        "the process died at several documents in a row and none has passed: it is not the documents; \
         look at memory limits, stages and the backend, then start it again"
    )]
    Ill,
}

/// The thread's state.
pub struct Courier {
    connection: Arc<Connection>,
    settings: CourierSettings,
    /// The topic that is read.
    topic: String,
    committer: Committer,
    /// They go before the consumer does.
    queues: Queues,
    consumer: Arc<BaseConsumer<Membership>>,
    outbox: Outbox,
    lanes: LaneEnds,
    tickets: Tickets,
    intake: Intake,
    /// The dest topic, if the role has one.
    dest: Option<Arc<str>>,
    /// What the last record of each partition has in common with the next, usually.
    passages: HashMap<u32, Rc<Passage>>,
    logs: HashMap<String, Option<Arc<str>>>,
    /// Records that ended the process too often, and are not failed yet.
    set_aside: BTreeMap<(u32, u64), HeldRecord>,
    /// By partition the record that may not start yet; nothing is read behind it.
    held: BTreeMap<u32, HeldRecord>,
    /// The partitions, with their tenure.
    owned: BTreeMap<u32, u64>,
    /// Commits that are not answered, by partition.
    commits: BTreeMap<u32, u64>,
    leaving: Option<Leaving>,
    unfollowed: Option<Change>,
    header: Vec<u8>,
    is_full: bool,
    is_draining: bool,
    /// Since when only commits are waited for.
    finished: Option<Instant>,
    read: u64,
    /// When the positions were shown last.
    shown: Instant,
}

impl Courier {
    /// Joins the group of the role. Nothing is read before [`Courier::run`].
    ///
    /// # Errors
    /// The settings of the connection are refused by the client.
    pub fn new(connection: &Arc<Connection>, settings: CourierSettings, lanes: LaneEnds) -> Result<Self, CourierError> {
        let (topic, group) = (settings.role.topic(&settings.names).to_owned(), settings.role.group(&settings.names));
        let mut consumer: BaseConsumer<Membership> =
            connection.start(&connection.consumer(group), Membership::new(connection.context()))?;
        consumer.subscribe(&[&topic]).map_err(|error| connection.error(&error, Access::Read, Resource::topic(&topic)))?;
        let queues = Queues::new(&mut consumer, &topic);
        let consumer = Arc::new(consumer);
        let committer = Committer::start(Arc::clone(&consumer), &topic).map_err(CourierError::Thread)?;
        let traffic = if settings.role == Role::Worker { Traffic::Results } else { Traffic::Reports };
        let intake = IntakeSettings { max_attempts: settings.max_attempts, ..IntakeSettings::default() };
        let dest = (settings.role == Role::Worker).then(|| Arc::from(settings.names.dest.as_str()));
        Ok(Self {
            outbox: Outbox::new(connection, settings.letters.clone(), settings.largest_record, traffic)?,
            connection: Arc::clone(connection),
            topic,
            committer,
            queues,
            consumer,
            lanes,
            tickets: Tickets::default(),
            intake: Intake::new(intake, Instant::now(), unix_seconds()),
            dest,
            passages: HashMap::new(),
            logs: HashMap::new(),
            set_aside: BTreeMap::new(),
            held: BTreeMap::new(),
            owned: BTreeMap::new(),
            commits: BTreeMap::new(),
            leaving: None,
            unfollowed: None,
            header: Vec::new(),
            is_full: false,
            is_draining: false,
            finished: None,
            read: 0,
            shown: Instant::now(),
            settings,
        })
    }

    /// Works until it is told to end.
    ///
    /// # Errors
    /// Kafka cannot be used any more in a way that waiting does not cure. What was not committed is done again by the next start.
    pub fn run(mut self) -> Result<CourierEnd, CourierError> {
        let ended = self.work();
        self.settings.figures.end();
        self.consumer.context().leave();
        let consumer = Arc::clone(&self.consumer);
        drop(self);
        leave(consumer);
        ended
    }

    fn work(&mut self) -> Result<CourierEnd, CourierError> {
        loop {
            if self.settings.abort.is_cancelled() {
                return Ok(CourierEnd::Aborted);
            }
            let now = Instant::now();
            let mut moved = self.read()?;
            self.follow_changes(now)?;
            moved |= self.take_reports();
            moved |= self.take_answers()?;
            moved |= self.take_commits();
            self.take_blamed();
            moved |= self.offer_held(now)?;
            // a suspect runs alone: nothing would come to fill its batch
            self.lanes.flush(self.intake.is_probing());
            self.outbox.hurry(self.intake.runs_alone())?;
            self.regulate();
            self.commit(now);
            self.show(now);
            if self.settings.drain.is_cancelled()
                && let Some(end) = self.drained(now)
            {
                return Ok(end);
            }
            if !moved {
                self.wait();
            }
        }
    }

    /// Reads some records, as far as they may be read; whether there were some. Serves the client's callbacks in any case.
    fn read(&mut self) -> Result<bool, CourierError> {
        let (consumer, before) = (Arc::clone(&self.consumer), self.read);
        while let Some(polled) = consumer.poll(Duration::ZERO) {
            self.arrived(polled)?;
        }
        if self.is_full || self.is_draining {
            return Ok(false);
        }
        for (partition, queue) in self.queues.all() {
            for _ in 0..READ {
                if self.held.contains_key(&partition) {
                    break;
                }
                let Some(polled) = queue.poll(Duration::ZERO) else { break };
                self.arrived(polled)?;
            }
        }
        Ok(self.read > before)
    }

    /// Nothing happens: waits a little for something that does.
    fn wait(&mut self) {
        let is_idle =
            self.tickets.is_empty() && self.outbox.is_empty() && self.leaving.is_none() && self.held.is_empty() && self.commits.is_empty();
        let nothing = crossbeam_channel::never();
        // without a dest topic nobody sends results
        let results = if self.dest.is_none() || self.outbox.is_full() { &nothing } else { &self.lanes.results };
        // the ends of lanes that have ended are always ready
        crossbeam_channel::select! {
            recv(self.queues.woken) -> _ => {}
            recv(results) -> results => match results {
                Ok(results) => self.take_results(&results),
                Err(_) => thread::sleep(BUSY_WAIT),
            },
            recv(self.lanes.reports) -> report => match report {
                Ok(report) => self.take_report(report),
                Err(_) => thread::sleep(BUSY_WAIT),
            },
            recv(self.committer.answers) -> answer => match answer {
                Ok(answer) => self.take_commit(answer),
                Err(_) => thread::sleep(BUSY_WAIT),
            },
            default(if is_idle { IDLE_WAIT } else { BUSY_WAIT }) => {}
        }
    }

    /// What Kafka has acknowledged; whether there was something.
    fn take_answers(&mut self) -> Result<bool, CourierError> {
        let connection = &self.connection;
        let answers = self.outbox.poll().map_err(|fault| match connection.denied_to_write(&fault.topic, fault.code) {
            Some(denied) => CourierError::Kafka(denied),
            None if is_gone(fault.code) => CourierError::TopicLost { topic: fault.topic },
            None => CourierError::Refused(fault),
        })?;
        let moved = !answers.settled.is_empty() || !answers.refused.is_empty();
        for tag in answers.settled {
            if let Some((passage, offset)) = self.tickets.settle(tag) {
                self.intake.settled(passage.partition, passage.tenure, offset);
            }
        }
        answers.refused.into_iter().for_each(|failed| self.fail(failed));
        Ok(moved)
    }

    /// A document is about to end the process: its record is marked, so that it is not tried for ever.
    fn take_blamed(&mut self) {
        while let Ok(ticket) = self.settings.blamed.try_recv() {
            if let Some(record) = self.tickets.get(ticket) {
                self.intake.blame(record.passage.partition, record.passage.tenure, record.offset);
            }
        }
    }

    /// Stops reading while too much is in work, and lets it go on again.
    fn regulate(&mut self) {
        let (records, bytes) = (self.tickets.len(), self.tickets.bytes());
        if !self.is_full && (records >= MOST_RECORDS || bytes >= MOST_BYTES || self.outbox.is_full()) {
            self.is_full = true;
        } else if self.is_full && records < MOST_RECORDS / 2 && bytes < MOST_BYTES / 2 && !self.outbox.is_full() {
            self.is_full = false;
        }
    }

    /// Finishes what is in work. How it ended, once it has.
    fn drained(&mut self, now: Instant) -> Option<CourierEnd> {
        if !self.is_draining {
            self.is_draining = true;
            self.held.clear();
            self.lanes.finish();
            self.set_aside.clear();
            self.owned.keys().for_each(|partition| self.intake.begin_revoke(*partition));
            tracing::info!(topic = self.topic, in_work = self.tickets.len(), "finishing what is in work");
        }
        if !self.tickets.is_empty() || !self.outbox.is_empty() {
            self.finished = None;
            return None;
        }
        if self.commits.is_empty() {
            let partitions: Vec<u32> = self.owned.keys().copied().collect();
            self.release(&partitions, now);
        }
        if self.commits.is_empty() {
            return Some(CourierEnd::Drained);
        }
        let finished = *self.finished.get_or_insert(now);
        if now.saturating_duration_since(finished) < LAST_COMMITS {
            return None;
        }
        tracing::warn!(topic = self.topic, "the last commits are not answered: what they cover is read again by whoever goes on");
        Some(CourierEnd::Aborted)
    }

    /// The event log of a run.
    fn log_of(&mut self, run: &str) -> Option<Arc<str>> {
        if let Some(log) = self.logs.get(run) {
            return log.clone();
        }
        // a run whose id cannot be that of a topic has no log
        let log: Option<Arc<str>> = self.settings.names.event(run).ok().map(Into::into);
        self.logs.insert(run.into(), log.clone());
        log
    }

    /// A call about the topic that is read, or the group, failed.
    fn error(&self, error: &rdkafka::error::KafkaError) -> CourierError {
        let resource = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => Resource::group(self.settings.role.group(&self.settings.names)),
            _ => Resource::topic(&self.topic),
        };
        self.connection.error(error, Access::Read, resource).into()
    }

    fn show(&mut self, now: Instant) {
        let figures = &self.settings.figures;
        figures.round(std::mem::take(&mut self.read), self.tickets.len(), self.outbox.take_discarded());
        if now >= self.shown + SHOW {
            self.shown = now;
            let position = |partition: &u32| Some((*partition, self.intake.position(*partition)?));
            figures.set_positions(self.owned.keys().filter_map(position).collect());
        }
    }
}

/// Leaves the group, within a bound.
fn leave(consumer: Arc<BaseConsumer<Membership>>) {
    let (tell, left) = crossbeam_channel::bounded(1);
    let leave = move || {
        drop(consumer);
        // after the bound nobody listens
        let _ = tell.send(());
    };
    if thread::Builder::new().name("leave".into()).spawn(leave).is_ok() && left.recv_timeout(LEAVE).is_err() {
        tracing::warn!("no broker takes the farewell: the group notices after its session timeout that this process is gone");
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
