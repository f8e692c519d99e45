//! A worker, an indexer, or both in one process.

use super::cluster::{Answer, Cluster, Committed, Fate, Group, Held, Operation, Output, Reference, SourceRecord, spread};
use crate::{
    event::{Detail, EventBatch, Outcome, Tag},
    messenger::{offsets::OffsetTracker, stale::StaleFilter},
    publisher::log::{EventLog, LogRecord},
};
use std::collections::{BTreeMap, HashSet, VecDeque};

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
    Commit(usize),
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
    committed: u64,
    offsets: OffsetTracker,
    stale: StaleFilter<u64>,
    lanes: [VecDeque<u64>; 2],
}

pub(super) struct Node {
    pub index: usize,
    pub dead: bool,
    pub stopped: bool,
    role: Role,
    parts: BTreeMap<usize, Part>,
    /// Partitions assigned and not taken over yet.
    assigned: BTreeMap<usize, u64>,
    outbox: BTreeMap<Topic, VecDeque<Message>>,
    waiting: Vec<Operation>,
    in_flight: HashSet<String>,
}

impl Node {
    pub fn new(index: usize, role: Role) -> Self {
        Self {
            index,
            dead: false,
            stopped: false,
            role,
            parts: BTreeMap::new(),
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
            && self.parts.values().all(|part| part.offsets.is_idle())
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
            if part.offsets.position() > part.committed {
                add(0.7, NodeAct::Commit(*partition));
            }
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
            NodeAct::Commit(partition) => self.commit(partition, cluster),
            NodeAct::Deliver(topic) => self.deliver(topic, cluster),
            NodeAct::Send => self.send(cluster),
            NodeAct::GiveUp(request) => self.give_up(request, cluster),
        }
    }

    /// Gives a partition back in order: what is done is committed.
    pub fn revoke(&mut self, partition: usize, cluster: &mut Cluster) -> bool {
        if !self.parts.contains_key(&partition) {
            return false;
        }
        self.commit(partition, cluster);
        self.forget(partition);
        true
    }

    fn end(&self, cluster: &Cluster, partition: usize) -> u64 {
        let records = if self.role == Role::Indexer { cluster.dest[partition].len() } else { cluster.source[partition].len() };
        records as u64
    }

    /// A takeover begins with a commit that raises the tenure.
    fn claim(&mut self, partition: usize, cluster: &mut Cluster) {
        let Some(generation) = self.assigned.remove(&partition) else { return };
        let mut committed = cluster.committed(self.group(), partition).clone();
        committed.tenure += 1;
        if !cluster.commit(self.group(), partition, self.index, generation, committed.clone()) {
            return;
        }
        self.forget(partition);
        let part = Part {
            generation,
            tenure: committed.tenure,
            position: committed.offset,
            committed: committed.offset,
            offsets: OffsetTracker::new(committed.offset),
            stale: StaleFilter::new(committed.generations),
            lanes: Default::default(),
        };
        self.parts.insert(partition, part);
    }

    fn forget(&mut self, partition: usize) {
        if let Some(part) = self.parts.remove(&partition) {
            self.waiting.retain(|operation| (operation.held.partition, operation.held.generation) != (partition, part.generation));
        }
    }

    fn commit(&mut self, partition: usize, cluster: &mut Cluster) {
        let Some(part) = self.parts.get_mut(&partition) else { return };
        let offset = part.offsets.position();
        if offset == part.committed {
            return;
        }
        let committed = Committed { offset, tenure: part.tenure, generations: part.stale.state_at(offset).clone() };
        let generation = part.generation;
        if cluster.commit(self.group(), partition, self.index, generation, committed)
            && let Some(part) = self.parts.get_mut(&partition)
        {
            part.committed = offset;
        }
    }

    fn poll(&mut self, partition: usize, cluster: &Cluster) {
        let is_indexer = self.role == Role::Indexer;
        let Some(part) = self.parts.get_mut(&partition) else { return };
        let offset = part.position;
        part.position += 1;
        part.offsets.begin(offset);
        let (origin, generation, id) = if is_indexer {
            let output = &cluster.dest[partition][offset as usize];
            (output.partition as u64, output.attempt, &output.id)
        } else {
            let record = &cluster.source[partition][offset as usize];
            (0, record.epoch, &record.doc.id)
        };
        if part.stale.passes(offset, &origin, generation) {
            part.lanes[spread(id) as usize / 7 % 2].push_back(offset);
        } else {
            part.offsets.release(offset);
        }
    }

    fn process(&mut self, partition: usize, lane: usize, cluster: &mut Cluster) {
        let Some(part) = self.parts.get_mut(&partition) else { return };
        let Some(offset) = part.lanes[lane].pop_front() else { return };
        let held = Held { partition, generation: part.generation, offset };
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
            if self.parts.get(&held.partition).is_none_or(|part| part.generation != held.generation) {
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
            part.offsets.hold(held.offset);
        }
    }

    fn release(&mut self, held: Held) {
        if let Some(part) = self.part(held) {
            part.offsets.release(held.offset);
        }
    }

    fn part(&mut self, held: Held) -> Option<&mut Part> {
        self.parts.get_mut(&held.partition).filter(|part| part.generation == held.generation)
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
