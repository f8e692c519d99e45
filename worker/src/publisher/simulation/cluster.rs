//! What lies between the processes: topics, the log, consumer groups and the backend; and the checks against one undisturbed
//! pass over the source.

use super::{Violation, publisher::Verdict};
use crate::{
    event::Tag,
    messenger::kafka::intake::Rule,
    publisher::{ledger::ValidRange, log::MemoryLog},
};
use penstock_crds::ingest_run::Counts;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Instant,
};

/// How likely things go wrong in a step, and what the documents are like.
#[derive(Clone, Copy, Default)]
pub(super) struct Hazards {
    pub publisher_crash: f64,
    pub publisher_zombie: f64,
    pub worker_crash: f64,
    pub worker_zombie: f64,
    pub indexer_crash: f64,
    pub indexer_zombie: f64,
    pub rebalance: f64,
    pub timeout: f64,
    pub retry: f64,
    pub duplicate_event: f64,
    /// One event is lost, though it was acknowledged.
    pub lose_event: bool,
    /// Worker and indexer in one process.
    pub hybrid: bool,
    pub no_cursor: bool,
    pub collapse: bool,
    pub children: bool,
    pub random_children: bool,
    pub random_outcome: bool,
    pub fails: bool,
    pub drops: bool,
    /// Some documents fail in the publisher.
    pub too_large: bool,
    /// A record cannot be sent, or nobody knows whether it was.
    pub failed_send: f64,
    /// A rule that is broken.
    pub off: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    Drop,
    Fail,
    FailInIndexer,
    TooLarge,
}

#[derive(Clone, Debug)]
pub(super) struct Doc {
    pub id: String,
    pub version: u64,
    pub delete: bool,
    pub children: u32,
    pub fate: Fate,
}

#[derive(Clone, Debug)]
pub(super) struct SourceRecord {
    pub epoch: u64,
    pub seq: u64,
    pub doc: Doc,
}

/// One result of a passage, on its way to the backend.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub epoch: u64,
    pub attempt: u64,
    pub tag: Tag,
    pub id: String,
    pub version: u64,
    pub delete: bool,
    pub fails: bool,
    /// The partition and the passage that it comes from.
    pub partition: usize,
    pub passage: usize,
}

/// Name of a document in the step: epoch, number, ordinal.
pub(super) type Reference = (u64, u64, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Workers,
    Indexers,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Committed {
    pub offset: u64,
    /// `None`: nobody has committed yet.
    pub metadata: Option<String>,
}

#[derive(Debug, Default)]
struct Assignment {
    owner: Option<usize>,
    generation: u64,
    committed: Committed,
}

/// A request on its way to the backend.
#[derive(Debug)]
pub(super) struct Request {
    pub id: u64,
    pub node: usize,
    pub operations: Vec<Operation>,
    /// The client no longer waits for the answer.
    pub abandoned: bool,
}

/// Where a record was read: it holds that offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub partition: usize,
    pub tenure: u64,
    pub offset: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub output: Output,
    pub held: Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Failed,
    Busy,
}

/// A small generator, so that a seed gives the same schedule everywhere.
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn chance(&mut self, chance: f64) -> bool {
        self.fraction() < chance
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// One of them, the heavier the likelier.
    pub fn weighted(&mut self, weights: impl Iterator<Item = f64> + Clone) -> Option<usize> {
        let mut drawn = self.fraction() * weights.clone().sum::<f64>();
        let mut last = None;
        for (at, weight) in weights.enumerate() {
            last = Some(at);
            drawn -= weight;
            if drawn <= 0.0 {
                break;
            }
        }
        last
    }
}

pub(super) struct Cluster {
    pub random: Random,
    pub hazards: Hazards,
    pub now: Instant,
    pub partitions: usize,
    pub documents: Vec<Doc>,
    pub source: Vec<Vec<SourceRecord>>,
    pub dest: Vec<Vec<Output>>,
    pub log: MemoryLog,
    pub dead_letters: HashSet<Reference>,
    pub requests: Vec<Request>,
    pub event_was_lost: bool,
    assignments: [Vec<Assignment>; 2],
    next_request: u64,
    index: BTreeMap<String, (u64, bool)>,
    index_versions: HashMap<String, u64>,
    /// For each numbered document its passages; for each passage whether its documents have ended, by ordinal.
    passages: HashMap<(u64, u64), Vec<Vec<bool>>>,
}

impl Cluster {
    pub fn new(seed: u64, hazards: Hazards, documents: usize) -> Self {
        let mut random = Random(seed);
        let partitions = 2;
        let documents = (1..=documents as u64).map(|version| some_document(&mut random, &hazards, version)).collect();
        let assignments = || (0..partitions).map(|_| Assignment::default()).collect();
        Self {
            random,
            hazards,
            now: Instant::now(),
            partitions,
            documents,
            source: vec![Vec::new(); partitions],
            dest: vec![Vec::new(); partitions],
            log: MemoryLog::default(),
            dead_letters: HashSet::new(),
            requests: Vec::new(),
            event_was_lost: false,
            assignments: [assignments(), assignments()],
            next_request: 0,
            index: BTreeMap::new(),
            index_versions: HashMap::new(),
            passages: HashMap::new(),
        }
    }

    pub fn groups(&self) -> &'static [Group] {
        if self.hazards.hybrid { &[Group::Workers] } else { &[Group::Workers, Group::Indexers] }
    }

    /// Partition of an id.
    pub fn partition_of(&self, id: &str) -> usize {
        spread(id) as usize % self.partitions
    }

    pub fn assign(&mut self, group: Group, partition: usize, member: usize) -> u64 {
        let assignment = &mut self.assignments[group as usize][partition];
        assignment.owner = Some(member);
        assignment.generation += 1;
        assignment.generation
    }

    pub fn owns(&self, group: Group, partition: usize, member: usize, generation: u64) -> bool {
        let assignment = &self.assignments[group as usize][partition];
        assignment.owner == Some(member) && assignment.generation == generation
    }

    pub fn owned_by(&self, group: Group, member: usize) -> Vec<usize> {
        (0..self.partitions).filter(|partition| self.assignments[group as usize][*partition].owner == Some(member)).collect()
    }

    pub fn committed(&self, group: Group, partition: usize) -> &Committed {
        &self.assignments[group as usize][partition].committed
    }

    /// Only the owner may commit.
    pub fn commit(&mut self, group: Group, partition: usize, member: usize, generation: u64, committed: Committed) -> bool {
        let owns = self.owns(group, partition, member, generation);
        if owns {
            self.assignments[group as usize][partition].committed = committed;
        }
        owns
    }

    pub fn all_is_committed(&self) -> bool {
        (0..self.partitions).all(|partition| {
            self.committed(Group::Workers, partition).offset >= self.source[partition].len() as u64
                && (self.hazards.hybrid || self.committed(Group::Indexers, partition).offset >= self.dest[partition].len() as u64)
        })
    }

    pub fn begin_passage(&mut self, epoch: u64, seq: u64, documents: usize) -> usize {
        let passages = self.passages.entry((epoch, seq)).or_default();
        passages.push(vec![false; documents]);
        passages.len() - 1
    }

    pub fn ended(&mut self, epoch: u64, seq: u64, passage: usize, ordinal: u32) {
        if let Some(passages) = self.passages.get_mut(&(epoch, seq)) {
            passages[passage][ordinal as usize] = true;
        }
    }

    pub fn request(&mut self, node: usize, operations: Vec<Operation>) {
        self.next_request += 1;
        self.requests.push(Request { id: self.next_request, node, operations, abandoned: false });
    }

    /// The backend carries out a request, with external versions; whom to tell what.
    pub fn carry_out(&mut self, at: usize) -> (usize, Option<Vec<(Operation, Answer)>>) {
        let request = self.requests.swap_remove(at);
        let mut answers = Vec::new();
        for operation in request.operations {
            let answer = self.apply(&operation);
            answers.push((operation, answer));
        }
        (request.node, (!request.abandoned).then_some(answers))
    }

    fn apply(&mut self, operation: &Operation) -> Answer {
        let Operation { output, held } = operation;
        if self.random.chance(self.hazards.retry) {
            return Answer::Busy;
        }
        self.ended(output.epoch, output.tag.seq, output.passage, output.tag.ordinal);
        if output.fails {
            return Answer::Failed;
        }
        let highest = self.index_versions.entry(output.id.clone()).or_insert(0);
        if held.offset >= *highest {
            *highest = held.offset;
            self.index.insert(output.id.clone(), (output.version, output.delete));
        }
        Answer::Done
    }

    /// What one undisturbed pass would publish.
    fn expected_documents(&self) -> Vec<&Doc> {
        let mut expected: Vec<&Doc> = Vec::new();
        for document in &self.documents {
            if self.hazards.collapse && expected.last().is_some_and(|last| last.id == document.id) {
                expected.pop();
            }
            expected.push(document);
        }
        expected
    }

    pub fn check_verdict(&self, verdict: &Verdict) -> Result<(), Violation> {
        match verdict {
            Verdict::Unaccounted(_) if self.event_was_lost => Ok(()),
            Verdict::Unaccounted(pending) => Err(format!("false alarm: {pending} unaccounted for")),
            Verdict::Complete { truth, .. } => {
                truth.iter().try_for_each(|range| self.check_really_complete(range))?;
                self.check_index("when complete")
            }
        }
    }

    fn check_really_complete(&self, range: &ValidRange) -> Result<(), Violation> {
        for seq in range.first..=range.last {
            let passages = self.passages.get(&(range.epoch, seq)).ok_or(format!("early: {seq} of {} was never processed", range.epoch))?;
            let whole = passages.iter().any(|passage| passage.iter().all(|ended| *ended));
            let deterministic = !self.hazards.random_children && !self.hazards.random_outcome;
            // the indexer may have done a part for each of two equal passages
            let together = || {
                let documents = passages[0].len();
                (0..documents).all(|ordinal| passages.iter().any(|passage| passage[ordinal]))
            };
            if !(whole || deterministic && together()) {
                return Err(format!("early: {seq} of epoch {} has no complete passage", range.epoch));
            }
        }
        Ok(())
    }

    pub fn check_counts(&self, counts: &Counts) -> Result<(), Violation> {
        let documents = self.expected_documents();
        let mut expected = Counts { published: documents.len() as u64, ..Counts::default() };
        for document in documents {
            let children = if document.fate == Fate::TooLarge { 0 } else { u64::from(document.children) };
            expected.created += children;
            expected.finished += children;
            match document.fate {
                Fate::Pass => expected.finished += 1,
                Fate::Drop => expected.dropped += 1,
                Fate::Fail | Fate::FailInIndexer | Fate::TooLarge => expected.failed += 1,
            }
        }
        let fits = if self.hazards.random_children || self.hazards.random_outcome {
            counts.published == expected.published && counts.pending == 0
        } else {
            *counts == expected
        };
        if fits { Ok(()) } else { Err(format!("counted {counts:?}, expected {expected:?}")) }
    }

    pub fn check_dead_letters(&self, failed: &HashSet<Reference>) -> Result<(), Violation> {
        match failed.difference(&self.dead_letters).next() {
            Some(missing) => Err(format!("{missing:?} failed and is not in the dead letter")),
            None => Ok(()),
        }
    }

    pub fn check_index(&self, when: &str) -> Result<(), Violation> {
        if self.hazards.random_outcome {
            return Ok(());
        }
        let mut expected: BTreeMap<String, (u64, bool)> = BTreeMap::new();
        for document in self.expected_documents() {
            if document.fate == Fate::Pass {
                expected.insert(document.id.clone(), (document.version, document.delete));
            }
            if document.fate != Fate::TooLarge && !self.hazards.random_children {
                for child in 1..=document.children {
                    expected.insert(format!("{}/{child}", document.id), (document.version, false));
                }
            }
        }
        let differs = expected.iter().find(|(id, operation)| self.index.get(*id) != Some(operation));
        if let Some((id, operation)) = differs {
            return Err(format!("{when} the index has {id} as {:?} instead of {operation:?}", self.index.get(id)));
        }
        let extra = self.index.keys().find(|id| !expected.contains_key(*id) && !self.hazards.random_children);
        extra.map_or(Ok(()), |id| Err(format!("{when} the index has {id}")))
    }
}

fn some_document(random: &mut Random, hazards: &Hazards, version: u64) -> Doc {
    let fate = if hazards.too_large && random.chance(0.2) {
        Fate::TooLarge
    } else if hazards.fails && random.chance(0.2) {
        Fate::Fail
    } else if hazards.fails && random.chance(0.15) {
        Fate::FailInIndexer
    } else if hazards.drops && random.chance(0.2) {
        Fate::Drop
    } else {
        Fate::Pass
    };
    let children = if hazards.children { *random.pick(&[0, 0, 1, 2, 3]) } else { 0 };
    Doc { id: format!("a{}", random.below(2)), version, delete: random.chance(0.3), children, fate }
}

/// A hash of an id.
pub(super) fn spread(id: &str) -> u64 {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ (hash >> 32)
}
