//! A worker, an indexer, or both in one process.

use super::cluster::{Answer, Cluster, Committed, Fate, Group, Held, Operation, Output, Reference, SourceRecord, spread};
use crate::{
    event::{Detail, EventBatch, Outcome, Tag},
    messenger::kafka::intake::{Admission, Commit, Generation, Intake, IntakeSettings},
    publisher::log::{EventLog, LogRecord},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};

/// Crashes are not the documents' fault here, so none is ever given up.
const SETTINGS: IntakeSettings = IntakeSettings { window: 4, max_attempts: u32::MAX, commit_interval: Duration::from_millis(200) };
const UNIX: usize = 1_800_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Worker,
    Indexer,
    Pair,
}

pub(super) enum NodeAct {
    Resume,
    Claim(usize),
    NoticeLoss(usize),
    Poll(usize),
    Process(usize, usize),
    /// Nothing but time has passed.
    Tick,
    CommitArrives,
    Deliver(Topic),
    Send,
    GiveUp(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Dest(usize),
    DeadLetter,
    Log,
}

/// What is on its way to a topic, and what its acknowledgement sets off.
enum Message {
    Output(Output, Held),
    /// The event is sent once the letter is there.
    Letter(Reference, EventBatch, Held),
    Event(EventBatch, Held),
}

/// A partition that the node believes it owns.
struct Part {
    generation: u64,
    tenure: u64,
    position: u64,
    /// For each record in flight, how many things are still to be acknowledged.
    open: HashMap<u64, u32>,
    lanes: [VecDeque<u64>; 2],
}

pub(super) struct Node {
    pub index: usize,
    pub dead: bool,
    pub stopped: bool,
    role: Role,
    intake: Intake,
    parts: BTreeMap<usize, Part>,
    /// Commits under way, each with the assignment that it belongs to.
    commits: VecDeque<(u64, Commit)>,
    /// Partitions assigned and not taken over yet.
    assigned: BTreeMap<usize, u64>,
    outbox: BTreeMap<Topic, VecDeque<Message>>,
    waiting: Vec<Operation>,
    in_flight: HashSet<String>,
}

impl Node {
    pub fn new(index: usize, role: Role, cluster: &mut Cluster) -> Self {
        // clocks differ
        let unix = (UNIX + cluster.random.below(100)) as u64;
        Self {
            index,
            dead: false,
            stopped: false,
            role,
            intake: Intake::new(SETTINGS, cluster.now, unix).without(cluster.hazards.off),
            parts: BTreeMap::new(),
            commits: VecDeque::new(),
            assigned: BTreeMap::new(),
            outbox: BTreeMap::new(),
            waiting: Vec::new(),
            in_flight: HashSet::new(),
        }
    }

    pub fn group(&self) -> Group {
        if self.role == Role::Indexer { Group::Indexers } else { Group::Workers }
    }

    pub fn assigned(&mut self, partition: usize, generation: u64) {
        self.assigned.insert(partition, generation);
    }

    pub fn is_quiet(&self) -> bool {
        !self.stopped
            && self.assigned.is_empty()
            && self.waiting.is_empty()
            && self.outbox.values().all(VecDeque::is_empty)
            && self.parts.values().all(|part| part.open.is_empty())
    }

    pub fn acts(&self, cluster: &Cluster, wake: f64, healed: bool, add: &mut dyn FnMut(f64, NodeAct)) {
        if self.dead {
            return;
        }
        if self.stopped {
            return add(wake, NodeAct::Resume);
        }
        self.assigned.keys().for_each(|partition| add(1.0, NodeAct::Claim(*partition)));
        for (partition, part) in &self.parts {
            if !cluster.owns(self.group(), *partition, self.index, part.generation) {
                add(0.3, NodeAct::NoticeLoss(*partition));
            }
            if part.position < self.end(cluster, *partition) {
                add(1.0, NodeAct::Poll(*partition));
            }
            for (lane, queue) in part.lanes.iter().enumerate() {
                if !queue.is_empty() {
                    add(1.0, NodeAct::Process(*partition, lane));
                }
            }
        }
        let waits = |(partition, part): (&usize, &Part)| part.position > cluster.committed(self.group(), *partition).offset;
        if self.parts.iter().any(waits) {
            add(0.2, NodeAct::Tick);
        }
        if !self.commits.is_empty() {
            add(1.0, NodeAct::CommitArrives);
        }
        for (topic, queue) in &self.outbox {
            if !queue.is_empty() {
                add(1.0, NodeAct::Deliver(*topic));
            }
        }
        if !self.sendable().is_empty() {
            add(1.0, NodeAct::Send);
        }
        if cluster.hazards.timeout > 0.0 && !healed {
            let mine = cluster.requests.iter().filter(|request| request.node == self.index && !request.abandoned);
            mine.for_each(|request| add(cluster.hazards.timeout, NodeAct::GiveUp(request.id)));
        }
    }

    pub fn act(&mut self, act: NodeAct, cluster: &mut Cluster) {
        match act {
            NodeAct::Resume => self.stopped = false,
            NodeAct::Claim(partition) => self.claim(partition, cluster),
            NodeAct::NoticeLoss(partition) => self.forget(partition),
            NodeAct::Poll(partition) => self.poll(partition, cluster),
            NodeAct::Process(partition, lane) => self.process(partition, lane, cluster),
            NodeAct::Tick => {}
            NodeAct::CommitArrives => self.commit_arrives(cluster),
            NodeAct::Deliver(topic) => self.deliver(topic, cluster),
            NodeAct::Send => self.send(cluster),
            NodeAct::GiveUp(request) => self.give_up(request, cluster),
        }
        for commit in self.intake.commit_due(cluster.now) {
            let generation = self.parts.get(&(commit.partition as usize)).map_or(0, |part| part.generation);
            self.commits.push_back((generation, commit));
        }
    }

    /// Gives a partition back: what is done is committed, behind all commits that are under way.
    pub fn revoke(&mut self, partition: usize, cluster: &mut Cluster) -> bool {
        let Some(part) = self.parts.get(&partition) else { return false };
        let generation = part.generation;
        self.intake.begin_revoke(partition as u32);
        while !self.commits.is_empty() {
            self.commit_arrives(cluster);
        }
        if let Some(commit) = self.intake.release(partition as u32, cluster.now) {
            self.store(generation, commit, cluster);
        }
        self.forget(partition);
        true
    }

    fn end(&self, cluster: &Cluster, partition: usize) -> u64 {
        let records = if self.role == Role::Indexer { cluster.dest[partition].len() } else { cluster.source[partition].len() };
        records as u64
    }

    fn claim(&mut self, partition: usize, cluster: &Cluster) {
        let Some(generation) = self.assigned.remove(&partition) else { return };
        self.forget(partition);
        let committed = cluster.committed(self.group(), partition);
        let before = committed.metadata.as_deref().map(|metadata| (committed.offset, metadata));
        let taken = self.intake.take_over(partition as u32, before, 0..self.end(cluster, partition), cluster.now);
        let part = Part { generation, tenure: taken.tenure, position: taken.offset, open: HashMap::new(), lanes: Default::default() };
        self.parts.insert(partition, part);
    }

    fn forget(&mut self, partition: usize) {
        self.intake.lost(partition as u32);
        self.parts.remove(&partition);
        self.waiting.retain(|operation| operation.held.partition != partition);
    }

    fn commit_arrives(&mut self, cluster: &mut Cluster) {
        let Some((generation, commit)) = self.commits.pop_front() else { return };
        let (partition, number) = (commit.partition, commit.number);
        let ok = self.store(generation, commit, cluster);
        self.intake.commit_answered(partition, number, ok);
    }

    fn store(&self, generation: u64, commit: Commit, cluster: &mut Cluster) -> bool {
        let committed = Committed { offset: commit.offset, metadata: Some(commit.metadata) };
        cluster.commit(self.group(), commit.partition as usize, self.index, generation, committed)
    }

    /// A send has failed: all work of the partition is dropped and done again.
    fn rewind(&mut self, partition: usize, cluster: &Cluster) {
        let Some(taken) = self.intake.rewind(partition as u32, cluster.now) else { return };
        let Some(part) = self.parts.get_mut(&partition) else { return };
        part.tenure = taken.tenure;
        part.position = taken.offset;
        part.open.clear();
        part.lanes = Default::default();
        self.waiting.retain(|operation| operation.held.partition != partition);
        for queue in self.outbox.values_mut() {
            queue.retain(|message| message.held().partition != partition);
        }
    }

    fn poll(&mut self, partition: usize, cluster: &Cluster) {
        let is_indexer = self.role == Role::Indexer;
        let Some(part) = self.parts.get_mut(&partition) else { return };
        let offset = part.position;
        let (generation, id) = if is_indexer {
            let output = &cluster.dest[partition][offset as usize];
            (Generation { origin: output.partition as u64, number: output.attempt, remember: true }, &output.id)
        } else {
            let record = &cluster.source[partition][offset as usize];
            (Generation { origin: 0, number: record.epoch, remember: record.epoch > 0 }, &record.doc.id)
        };
        match self.intake.offer(partition as u32, offset, Some(generation)) {
            Admission::Start { tenure } => {
                assert_eq!(tenure, part.tenure);
                part.position += 1;
                part.open.insert(offset, 1);
                part.lanes[spread(id) as usize / 7 % 2].push_back(offset);
            }
            Admission::Stale => part.position += 1,
            Admission::Hold => {}
            other => panic!("{partition}/{offset}: {other:?}"),
        }
    }

    fn process(&mut self, partition: usize, lane: usize, cluster: &mut Cluster) {
        let Some(part) = self.parts.get_mut(&partition) else { return };
        let Some(offset) = part.lanes[lane].pop_front() else { return };
        let held = Held { partition, tenure: part.tenure, offset };
        if self.role == Role::Indexer {
            self.waiting.push(Operation { output: cluster.dest[partition][offset as usize].clone(), held });
            return;
        }
        let tenure = part.tenure;
        let record = cluster.source[partition][offset as usize].clone();
        self.pass(record, tenure, held, cluster);
        self.release(held);
    }

    /// One passage of a source document: children first.
    fn pass(&mut self, record: SourceRecord, tenure: u64, held: Held, cluster: &mut Cluster) {
        let SourceRecord { epoch, seq, doc } = record;
        let children = if cluster.hazards.random_children { *cluster.random.pick(&[0, 1, 2, 3]) } else { doc.children };
        let fate =
            if cluster.hazards.random_outcome { *cluster.random.pick(&[Fate::Pass, Fate::Pass, Fate::Drop, Fate::Fail]) } else { doc.fate };
        let passage = cluster.begin_passage(epoch, seq, children as usize + 1);
        let output = |tag: Tag, id: String| Output {
            epoch,
            attempt: tenure,
            tag,
            id,
            version: doc.version,
            delete: tag.ordinal == 0 && doc.delete,
            fails: tag.ordinal == 0 && fate == Fate::FailInIndexer,
            partition: held.partition,
            passage,
        };
        for ordinal in 1..=children {
            self.emit(output(Tag { seq, ordinal, children: 0 }, format!("{}/{ordinal}", doc.id)), held, cluster);
        }
        let tag = Tag { seq, ordinal: 0, children };
        let outcome = match fate {
            Fate::Pass | Fate::FailInIndexer | Fate::TooLarge => return self.emit(output(tag, doc.id.clone()), held, cluster),
            Fate::Drop => Outcome::Dropped,
            Fate::Fail => Outcome::Failed,
        };
        cluster.ended(epoch, seq, passage, 0);
        self.report((epoch, seq, 0), event(epoch, tenure, outcome, tag), held);
    }

    fn emit(&mut self, output: Output, held: Held, cluster: &Cluster) {
        self.hold(held);
        if self.role == Role::Pair {
            self.waiting.push(Operation { output, held });
        } else {
            let partition = cluster.partition_of(&output.id);
            self.outbox.entry(Topic::Dest(partition)).or_default().push_back(Message::Output(output, held));
        }
    }

    /// Sends a terminal event; for a failed document after its letter.
    fn report(&mut self, reference: Reference, event: EventBatch, held: Held) {
        self.hold(held);
        let (topic, message) = if event.outcome == Outcome::Failed {
            (Topic::DeadLetter, Message::Letter(reference, event, held))
        } else {
            (Topic::Log, Message::Event(event, held))
        };
        self.outbox.entry(topic).or_default().push_back(message);
    }

    fn deliver(&mut self, topic: Topic, cluster: &mut Cluster) {
        let Some(message) = self.outbox.get_mut(&topic).and_then(VecDeque::pop_front) else { return };
        let held = message.held();
        let fails = self.part(held).is_some() && cluster.random.chance(cluster.hazards.failed_send);
        if fails && cluster.random.chance(0.5) {
            return self.rewind(held.partition, cluster);
        }
        self.write(message, cluster);
        if fails {
            self.rewind(held.partition, cluster);
        }
    }

    fn write(&mut self, message: Message, cluster: &mut Cluster) {
        match message {
            Message::Output(output, held) => {
                let partition = cluster.partition_of(&output.id);
                cluster.dest[partition].push(output);
                self.release(held);
            }
            Message::Letter(reference, event, held) => {
                cluster.dead_letters.insert(reference);
                self.outbox.entry(Topic::Log).or_default().push_back(Message::Event(event, held));
            }
            Message::Event(event, held) => {
                if cluster.hazards.lose_event && !cluster.event_was_lost && cluster.random.chance(0.1) {
                    cluster.event_was_lost = true;
                } else {
                    let times = if cluster.random.chance(cluster.hazards.duplicate_event) { 2 } else { 1 };
                    (0..times).for_each(|_| drop(cluster.log.append(LogRecord::Events(event.clone()))));
                }
                self.release(held);
            }
        }
    }

    /// The first operation of each id that is not in a request.
    fn sendable(&self) -> Vec<usize> {
        let mut seen: HashSet<&str> = HashSet::new();
        let is_first = |operation: &Operation| !self.in_flight.contains(&operation.output.id);
        (0..self.waiting.len()).filter(|at| seen.insert(&self.waiting[*at].output.id) && is_first(&self.waiting[*at])).collect()
    }

    fn send(&mut self, cluster: &mut Cluster) {
        let mut chosen = self.sendable();
        chosen.truncate(1 + cluster.random.below(chosen.len()));
        let mut operations: Vec<Operation> = chosen.iter().rev().map(|at| self.waiting.remove(*at)).collect();
        operations.reverse();
        self.in_flight.extend(operations.iter().map(|operation| operation.output.id.clone()));
        cluster.request(self.index, operations);
    }

    /// The client's own limit of time is over; the request may still be carried out.
    fn give_up(&mut self, id: u64, cluster: &mut Cluster) {
        let Some(request) = cluster.requests.iter_mut().find(|request| request.id == id) else { return };
        request.abandoned = true;
        for operation in request.operations.iter().rev() {
            self.in_flight.remove(&operation.output.id);
            self.waiting.insert(0, operation.clone());
        }
    }

    pub fn answered(&mut self, answers: Vec<(Operation, Answer)>) {
        if self.dead {
            return;
        }
        let mut again = Vec::new();
        for (operation, answer) in answers {
            let Operation { output, held } = &operation;
            self.in_flight.remove(&output.id);
            if self.part(*held).is_none() {
                continue;
            }
            let outcome = match answer {
                Answer::Busy => {
                    again.push(operation);
                    continue;
                }
                Answer::Done => Outcome::Finished,
                Answer::Failed => Outcome::Failed,
            };
            let reference = (output.epoch, output.tag.seq, output.tag.ordinal);
            self.report(reference, event(output.epoch, output.attempt, outcome, output.tag), *held);
            self.release(*held);
        }
        self.waiting.splice(0..0, again);
    }

    fn hold(&mut self, held: Held) {
        if let Some(part) = self.part(held) {
            *part.open.entry(held.offset).or_insert(0) += 1;
        }
    }

    fn release(&mut self, held: Held) {
        let Some(part) = self.part(held) else { return };
        let Some(open) = part.open.get_mut(&held.offset) else { return };
        *open -= 1;
        if *open == 0 {
            part.open.remove(&held.offset);
            self.intake.settled(held.partition as u32, held.tenure, held.offset);
        }
    }

    fn part(&mut self, held: Held) -> Option<&mut Part> {
        self.parts.get_mut(&held.partition).filter(|part| part.tenure == held.tenure)
    }
}

impl Message {
    fn held(&self) -> Held {
        match self {
            Self::Output(_, held) | Self::Letter(_, _, held) | Self::Event(_, held) => *held,
        }
    }
}

/// One terminal event. The id in the detail is the reference, so that the dead letter can be checked.
pub(super) fn event(epoch: u64, attempt: u64, outcome: Outcome, tag: Tag) -> EventBatch {
    let mut event = EventBatch::new(epoch, attempt, outcome);
    if outcome == Outcome::Finished {
        event.push(tag);
    } else {
        let id = format!("{epoch}/{}/{}", tag.seq, tag.ordinal);
        event.push_with(tag, Detail { seq: tag.seq, id, ..Detail::default() });
    }
    event
}
