//! A publisher: the real pure parts, driven step by step.

use super::{
    Violation,
    cluster::{Cluster, Fate, Group, Reference, SourceRecord},
    node::event,
};
use crate::{
    connectors::Cursor,
    document::{Document, Value},
    event::{Detail, EventBatch, Outcome, Tag},
    publisher::{
        checkpoint::CheckpointTracker,
        collapse::Collapse,
        completion::{End, Facts, Next, Post, Source, next},
        ledger::{Ledger, ValidRange},
        log::{Checkpoint, EventLog, LogRecord},
        recovery::{Seen, claim, read_on, recover},
    },
};
use penstock_crds::ingest_run::Counts;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

const STEP: &str = "step";

pub(super) enum PublisherAct {
    Resume,
    Claim,
    Recover,
    Read,
    Publish,
    Return,
    Checkpoint,
    Advance,
    Deliver(Topic),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Source(usize),
    DeadLetter,
    Log,
}

enum Message {
    Document(SourceRecord),
    /// A document that the publisher itself failed: the event follows the letter.
    Letter(u64, EventBatch),
    OwnFailure(u64, EventBatch),
    Checkpoint(Checkpoint),
    Complete(Counts),
}

/// How a publisher saw the step end.
#[derive(Debug)]
pub(super) enum Verdict {
    Complete { counts: Counts, truth: Vec<ValidRange>, failed: HashSet<Reference> },
    Unaccounted(u64),
}

enum State {
    New,
    Claimed { epoch: u64 },
    Running(Box<Running>),
    Done,
}

pub(super) struct Publisher {
    pub dead: bool,
    pub stopped: bool,
    state: State,
    outbox: BTreeMap<Topic, VecDeque<Message>>,
}

/// What a step of completion sends, and the verdict if it was the last.
type Advanced = (Option<(Topic, Message)>, Option<Verdict>);

/// Where the barrier is.
enum Barrier {
    /// Workers must commit what we have sent.
    Workers,
    /// Indexers must commit up to these ends.
    Indexers(Vec<u64>),
    /// The log must be read up to this end.
    Log(u64),
}

struct Running {
    epoch: u64,
    truth: Vec<ValidRange>,
    ledger: Ledger,
    failed: HashSet<Reference>,
    tracker: CheckpointTracker,
    collapse: Collapse,
    /// The next document of the source.
    position: usize,
    seq: u64,
    /// The next record of the log.
    read: u64,
    /// Numbers handed to the client and not acknowledged.
    unacknowledged: BTreeSet<u64>,
    last_sent: u64,
    source_offsets: BTreeMap<u32, u64>,
    checkpoint_is_under_way: bool,
    complete_is_written: bool,
    barrier: Barrier,
    facts: Facts,
}

impl Publisher {
    pub fn new() -> Self {
        Self { dead: false, stopped: false, state: State::New, outbox: BTreeMap::new() }
    }

    pub fn is_quiet(&self) -> bool {
        !self.stopped && (matches!(self.state, State::Done) || self.outbox.values().all(VecDeque::is_empty))
    }

    pub fn describe(&self) -> String {
        match &self.state {
            State::Running(running) => format!("{:?}, next {:?}", running.facts, next(&running.facts)),
            State::New => "not started".into(),
            State::Claimed { epoch } => format!("claimed epoch {epoch}"),
            State::Done => "done".into(),
        }
    }

    pub fn acts(&self, cluster: &Cluster, wake: f64, add: &mut dyn FnMut(f64, PublisherAct)) {
        if self.dead {
            return;
        }
        if self.stopped {
            return add(wake, PublisherAct::Resume);
        }
        for (topic, queue) in &self.outbox {
            if !queue.is_empty() {
                add(1.0, PublisherAct::Deliver(*topic));
            }
        }
        match &self.state {
            State::New => add(1.0, PublisherAct::Claim),
            State::Claimed { .. } => add(1.0, PublisherAct::Recover),
            State::Running(running) => running.acts(cluster, add),
            State::Done => {}
        }
    }

    pub fn act(&mut self, act: PublisherAct, cluster: &mut Cluster) -> Result<Option<Verdict>, Violation> {
        match (act, &mut self.state) {
            (PublisherAct::Resume, _) => self.stopped = false,
            (PublisherAct::Deliver(topic), _) => self.deliver(topic, cluster)?,
            (PublisherAct::Claim, _) => self.state = State::Claimed { epoch: claim(&cluster.log, STEP).map_err(|e| e.to_string())? },
            (PublisherAct::Recover, State::Claimed { epoch }) => {
                let running = Running::recover(*epoch, cluster)?;
                self.state = State::Running(Box::new(running));
            }
            (PublisherAct::Read, State::Running(running)) => {
                running.read_one(cluster)?;
                if running.facts.superseded_by.is_some() {
                    self.dead = true;
                }
            }
            (PublisherAct::Publish, State::Running(running)) => {
                let messages = running.publish_one(cluster);
                self.send(messages);
            }
            (PublisherAct::Return, State::Running(running)) => {
                let messages = running.finish(cluster);
                self.send(messages);
            }
            (PublisherAct::Checkpoint, State::Running(running)) => {
                let checkpoint = running.checkpoint();
                self.send(checkpoint.map(|checkpoint| (Topic::Log, Message::Checkpoint(checkpoint))));
            }
            (PublisherAct::Advance, State::Running(running)) => {
                let (message, verdict) = running.advance(cluster)?;
                self.send(message);
                if verdict.is_some() {
                    self.state = State::Done;
                }
                return Ok(verdict);
            }
            _ => {}
        }
        Ok(None)
    }

    fn send(&mut self, messages: impl IntoIterator<Item = (Topic, Message)>) {
        for (topic, message) in messages {
            self.outbox.entry(topic).or_default().push_back(message);
        }
    }

    /// The client delivers the next message, and its acknowledgement comes.
    fn deliver(&mut self, topic: Topic, cluster: &mut Cluster) -> Result<(), Violation> {
        let Some(message) = self.outbox.get_mut(&topic).and_then(VecDeque::pop_front) else { return Ok(()) };
        let State::Running(running) = &mut self.state else { return Ok(()) };
        let append = |record: LogRecord| cluster.log.append(record).map_err(|error| error.to_string());
        match message {
            Message::Document(record) => {
                let Topic::Source(partition) = topic else { return Ok(()) };
                running.acknowledge(record.seq, partition, cluster.source[partition].len() as u64);
                cluster.source[partition].push(record);
            }
            Message::Letter(seq, event) => {
                cluster.dead_letters.insert((event.epoch, seq, 0));
                self.send([(Topic::Log, Message::OwnFailure(seq, event))]);
            }
            Message::OwnFailure(seq, event) => {
                append(LogRecord::Events(event))?;
                running.tracker.own_failure_logged(seq);
            }
            Message::Checkpoint(checkpoint) => {
                running.checkpoint_is_under_way = false;
                running.facts.end_is_safe |= checkpoint.end;
                append(LogRecord::Checkpoint(checkpoint))?;
            }
            Message::Complete(counts) => {
                append(LogRecord::Complete { epoch: running.epoch, counts })?;
            }
        }
        Ok(())
    }
}

impl Running {
    fn recover(epoch: u64, cluster: &Cluster) -> Result<Self, Violation> {
        let has_cursor = !cluster.hazards.no_cursor;
        let mut failed = HashSet::new();
        let mut on_failed = |detail: &Detail| {
            failed.insert(reference(detail));
        };
        let recovered = recover(&cluster.log, STEP, has_cursor, epoch, &mut on_failed).map_err(|error| error.to_string())?;
        let last = recovered.last_valid();
        let position = if recovered.ended {
            cluster.documents.len()
        } else {
            recovered.resume.as_ref().map_or(0, |resume| resume.cursor.record as usize)
        };
        if let Some(counts) = recovered.complete
            && counts != recovered.ledger.counts()
        {
            return Err(format!("complete with {counts:?}, but recovered {:?}", recovered.ledger.counts()));
        }
        let facts = Facts {
            source: if recovered.ended { Source::Exhausted } else { Source::Reading },
            end_is_safe: recovered.ended,
            is_complete: recovered.complete.is_some(),
            counts: recovered.ledger.counts(),
            ..Facts::default()
        };
        let mut tracker = CheckpointTracker::new(epoch, last, recovered.resume);
        tracker.split(serde_json::Value::from("the source"));
        Ok(Self {
            epoch,
            truth: recovered.truth,
            ledger: recovered.ledger,
            failed,
            tracker,
            collapse: Collapse::default(),
            position,
            seq: last,
            read: epoch + 1,
            unacknowledged: BTreeSet::new(),
            last_sent: last,
            source_offsets: recovered.source_offsets,
            checkpoint_is_under_way: false,
            complete_is_written: false,
            barrier: Barrier::Workers,
            facts,
        })
    }

    fn acts(&self, cluster: &Cluster, add: &mut dyn FnMut(f64, PublisherAct)) {
        if cluster.log.end().is_ok_and(|end| self.read < end) {
            add(2.0, PublisherAct::Read);
        }
        match next(&self.facts) {
            Next::Publish if self.facts.source == Source::Reading => {
                let has_more = self.position < cluster.documents.len();
                add(1.0, if has_more { PublisherAct::Publish } else { PublisherAct::Return });
            }
            Next::WriteComplete if self.complete_is_written => {}
            Next::PassBarrier | Next::WriteComplete | Next::RunPost | Next::End(_) => add(0.7, PublisherAct::Advance),
            Next::Publish | Next::Drain => {}
        }
        if !self.checkpoint_is_under_way && !self.facts.end_is_safe {
            add(0.4, PublisherAct::Checkpoint);
        }
    }

    fn read_one(&mut self, cluster: &Cluster) -> Result<(), Violation> {
        let records = cluster.log.read(self.read, 1).map_err(|error| error.to_string())?;
        let failed = &mut self.failed;
        let mut on_failed = |detail: &Detail| {
            failed.insert(reference(detail));
        };
        for (offset, record) in &records {
            self.read = offset + 1;
            match read_on(&mut self.ledger, self.epoch, *offset, record, &mut on_failed) {
                Seen::Superseded { by } => self.facts.superseded_by = Some(by),
                Seen::Complete => self.facts.is_complete = true,
                Seen::Events(_) | Seen::Nothing => {}
            }
        }
        self.check_counts()
    }

    fn check_counts(&mut self) -> Result<(), Violation> {
        let counts = self.ledger.counts();
        let before = std::mem::replace(&mut self.facts.counts, counts);
        if counts.published + counts.created != counts.finished + counts.failed + counts.dropped + counts.pending {
            return Err(format!("the invariant is broken: {counts:?}"));
        }
        let grows = counts.published >= before.published
            && counts.created >= before.created
            && counts.finished >= before.finished
            && counts.failed >= before.failed
            && counts.dropped >= before.dropped;
        if grows { Ok(()) } else { Err(format!("counts of an epoch shrink from {before:?} to {counts:?}")) }
    }

    fn publish_one(&mut self, cluster: &mut Cluster) -> Option<(Topic, Message)> {
        let at = self.position;
        self.position += 1;
        let cursor = Cursor { record: self.position as u64, ..Cursor::default() };
        if !cluster.hazards.collapse {
            return Some(self.number(at, cursor, cluster));
        }
        let mut document = Document::new(cluster.documents[at].id.as_str());
        document.fields_mut().insert("at", Value::Int(at as i64));
        let (document, cursor) = self.collapse.push(document, cursor)?;
        Some(self.number(last_line(&document), cursor, cluster))
    }

    fn finish(&mut self, cluster: &mut Cluster) -> Option<(Topic, Message)> {
        self.facts.source = Source::Exhausted;
        let (document, cursor) = self.collapse.flush()?;
        Some(self.number(last_line(&document), cursor, cluster))
    }

    fn number(&mut self, at: usize, cursor: Cursor, cluster: &mut Cluster) -> (Topic, Message) {
        let doc = cluster.documents[at].clone();
        self.seq += 1;
        let seq = self.seq;
        self.ledger.published_to(seq);
        self.facts.counts = self.ledger.counts();
        let is_own_failure = doc.fate == Fate::TooLarge;
        if is_own_failure {
            self.tracker.own_failure(seq);
        } else {
            self.unacknowledged.insert(seq);
            self.last_sent = seq;
        }
        self.tracker.handed_on(seq, (!cluster.hazards.no_cursor).then_some(cursor));
        if is_own_failure {
            cluster.begin_passage(self.epoch, seq, 0);
            return (Topic::DeadLetter, Message::Letter(seq, event(self.epoch, 0, Outcome::Failed, Tag::source(seq))));
        }
        let partition = cluster.partition_of(&doc.id);
        (Topic::Source(partition), Message::Document(SourceRecord { epoch: self.epoch, seq, doc }))
    }

    fn acknowledge(&mut self, seq: u64, partition: usize, offset: u64) {
        self.unacknowledged.remove(&seq);
        self.source_offsets.insert(partition as u32, offset);
        self.tracker.acknowledged_to(self.unacknowledged.first().map_or(self.last_sent, |first| first - 1));
    }

    fn checkpoint(&mut self) -> Option<Checkpoint> {
        let checkpoint = self.tracker.due(self.facts.source == Source::Exhausted, &self.source_offsets)?;
        self.checkpoint_is_under_way = true;
        Some(checkpoint)
    }

    fn advance(&mut self, cluster: &Cluster) -> Result<Advanced, Violation> {
        match next(&self.facts) {
            Next::PassBarrier => self.pass_barrier(cluster),
            Next::WriteComplete => {
                self.complete_is_written = true;
                return Ok((Some((Topic::Log, Message::Complete(self.ledger.counts()))), None));
            }
            Next::RunPost => {
                self.facts.post = Some(Post::Succeeded);
                return match next(&self.facts) {
                    Next::End(End::Complete) => Ok((None, Some(self.complete()))),
                    other => Err(format!("after post: {other:?}")),
                };
            }
            Next::End(End::Unaccounted(pending)) => return Ok((None, Some(Verdict::Unaccounted(pending)))),
            other => return Err(format!("unexpected: {other:?}")),
        }
        Ok((None, None))
    }

    fn pass_barrier(&mut self, cluster: &Cluster) {
        match &self.barrier {
            Barrier::Workers => {
                let is_past = |(partition, offset): (&u32, &u64)| cluster.committed(Group::Workers, *partition as usize).offset > *offset;
                if self.source_offsets.iter().all(is_past) {
                    self.barrier = Barrier::Indexers(cluster.dest.iter().map(|records| records.len() as u64).collect());
                }
            }
            Barrier::Indexers(ends) => {
                let is_past = |(partition, end): (usize, &u64)| cluster.committed(Group::Indexers, partition).offset >= *end;
                if cluster.hazards.hybrid || ends.iter().enumerate().all(is_past) {
                    self.barrier = Barrier::Log(cluster.log.end().unwrap_or(u64::MAX));
                }
            }
            Barrier::Log(end) => self.facts.barrier_passed |= self.read >= *end,
        }
    }

    fn complete(&self) -> Verdict {
        let first = self.truth.last().map_or(1, |range| range.last + 1);
        let mut truth = self.truth.clone();
        truth.push(ValidRange { epoch: self.epoch, first, last: self.seq });
        truth.retain(|range| range.first <= range.last);
        Verdict::Complete { counts: self.ledger.counts(), truth, failed: self.failed.clone() }
    }
}

fn last_line(document: &Document) -> usize {
    match document.fields().get("at").map(Value::as_slice) {
        Some([.., Value::Int(at)]) => *at as usize,
        _ => 0,
    }
}

/// The reference that [`event`] wrote into the detail.
fn reference(detail: &Detail) -> Reference {
    let mut parts = detail.id.split('/').map(|part| part.parse().unwrap_or(u64::MAX));
    let mut next = || parts.next().unwrap_or(u64::MAX);
    (next(), next(), next() as u32)
}
