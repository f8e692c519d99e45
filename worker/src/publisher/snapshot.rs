//! Snapshots in the log: the state of the ledger when the log was read to some place. A successor goes on from there, so it
//! reads less, and what stands before may be deleted.
//!
//! Counts cannot be taken back for single numbers, so a snapshot says only what stays valid: it is taken at any time, and
//! written once a CHECKPOINT covers every number that was given out by then. The CHECKPOINT stands behind the place, in front
//! of the snapshot. A snapshot is larger than a record may be, so it is written in parts, one behind the other.

use super::{
    ledger::{Ledger, LedgerSnapshot, ValidRange},
    log::LogRecord,
};
use penstock_crds::ingest_run::Counts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the first byte says; another layout gets another number.
const VERSION: u8 = 1;

/// Bytes of a part: with all around it, it fits into a record of a broker with default settings.
const PART: usize = 500_000;

/// The state of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The publisher that took it.
    pub epoch: u64,
    /// Its step.
    pub step: String,
    /// All records before this one are in it.
    pub read_to: u64,
    /// Published, created, finished, failed, dropped, pending of other steps in this log that are complete.
    completed: BTreeMap<String, [u64; 6]>,
    /// The ledger.
    pub ledger: LedgerSnapshot,
}

/// A part of a snapshot, as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPart {
    /// The publisher that wrote it.
    pub epoch: u64,
    /// Which part, from 0.
    pub part: u32,
    /// How many there are.
    pub parts: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Snapshot {
    /// The state of a step when its publisher has read the log up to `read_to`. `completed`: the other steps that share the
    /// log and are complete, as [`super::recovery::Recovered::others`] says.
    pub fn take(epoch: u64, step: &str, read_to: u64, ledger: &Ledger, completed: &BTreeMap<String, Counts>) -> Self {
        let numbers = |counts: &Counts| [counts.published, counts.created, counts.finished, counts.failed, counts.dropped, counts.pending];
        let completed = completed.iter().map(|(step, counts)| (step.clone(), numbers(counts))).collect();
        Self { epoch, step: step.to_owned(), read_to, completed, ledger: ledger.snapshot() }
    }

    /// The records to append, in this order, with no record of this publisher in between.
    pub fn records(&self) -> Vec<LogRecord> {
        let mut bytes = vec![VERSION];
        postcard::to_io(self, &mut bytes).expect("a vector takes every byte, and nothing here fails to be written");
        let parts = bytes.len().div_ceil(PART) as u32;
        let record =
            |(part, bytes): (u32, &[u8])| LogRecord::Snapshot(SnapshotPart { epoch: self.epoch, part, parts, bytes: bytes.to_vec() });
        (0..).zip(bytes.chunks(PART)).map(record).collect()
    }

    /// The other steps that are complete.
    pub fn completed(&self) -> BTreeMap<String, Counts> {
        let counts = |[published, created, finished, failed, dropped, pending]: [u64; 6]| Counts {
            published,
            created,
            finished,
            failed,
            dropped,
            pending,
        };
        self.completed.iter().map(|(step, numbers)| (step.clone(), counts(*numbers))).collect()
    }

    /// The numbers of publishers before the one that took it.
    pub fn earlier(&self) -> Vec<ValidRange> {
        self.ledger.ranges().filter(|range| range.epoch != self.epoch).collect()
    }
}

/// Decides when a snapshot is taken, and when it may be written.
#[derive(Debug)]
pub struct Snapshots {
    every: u64,
    events: u64,
    /// Taken, and not covered yet.
    waiting: Option<Snapshot>,
}

impl Snapshots {
    /// A snapshot for so many events.
    pub fn new(every: u64) -> Self {
        Self { every, events: 0, waiting: None }
    }

    /// Events were entered into the ledger; whether a snapshot is to be taken now.
    pub fn entered(&mut self, events: u64) -> bool {
        self.events += events;
        self.events >= self.every && self.waiting.is_none()
    }

    /// It was taken.
    pub fn taken(&mut self, snapshot: Snapshot) {
        self.events = 0;
        self.waiting = Some(snapshot);
    }

    /// The records to append now, and up to where the log is in them: a CHECKPOINT up to this number is acknowledged.
    pub fn covered(&mut self, seq: u64) -> Option<(u64, Vec<LogRecord>)> {
        self.waiting.take_if(|snapshot| snapshot.ledger.published() <= seq).map(|snapshot| (snapshot.read_to, snapshot.records()))
    }
}

/// Puts parts together.
#[derive(Debug, Default)]
pub struct Assembly {
    /// Parts that came so far; of which publisher, and how many there will be.
    begun: Option<(u64, u32, u32, Vec<u8>)>,
}

impl Assembly {
    /// Adds a part; the answer is the snapshot, with its last part. What does not follow on is given up.
    pub fn add(&mut self, part: &SnapshotPart) -> Option<Snapshot> {
        let follows = |(epoch, next, parts, _): &(u64, u32, u32, Vec<u8>)| (*epoch, *next, *parts) == (part.epoch, part.part, part.parts);
        let (.., mut bytes) = match self.begun.take() {
            Some(begun) if follows(&begun) => begun,
            _ if part.part == 0 => (part.epoch, 0, part.parts, Vec::new()),
            _ => return None,
        };
        bytes.extend_from_slice(&part.bytes);
        if part.part + 1 < part.parts {
            self.begun = Some((part.epoch, part.part + 1, part.parts, bytes));
            return None;
        }
        let body = bytes.strip_prefix(&[VERSION])?;
        postcard::from_bytes(body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventBatch, Outcome, Tag};

    /// A ledger with so many documents, every third of them finished.
    fn ledger(documents: u64) -> Ledger {
        let mut ledger = Ledger::new(7);
        ledger.published_to(documents);
        let mut events = EventBatch::new(7, 1, Outcome::Finished);
        (1..=documents).step_by(3).for_each(|seq| events.push(Tag::source(seq)));
        ledger.apply(&events, &mut |_| {});
        ledger
    }

    fn parts(snapshot: &Snapshot) -> Vec<SnapshotPart> {
        let part = |record| match record {
            LogRecord::Snapshot(part) => part,
            other => unreachable!("{other:?}"),
        };
        snapshot.records().into_iter().map(part).collect()
    }

    #[test]
    fn a_large_snapshot_is_put_together_from_its_parts() {
        let completed = BTreeMap::from([("first".to_owned(), Counts { published: 3, finished: 3, ..Counts::default() })]);
        let snapshot = Snapshot::take(7, "products", 44, &ledger(8_000_000), &completed);
        let parts = parts(&snapshot);
        assert!(parts.len() > 1 && parts.iter().all(|part| part.bytes.len() <= PART), "{}", parts.len());
        let mut assembly = Assembly::default();
        let read: Vec<_> = parts.iter().filter_map(|part| assembly.add(part)).collect();
        assert_eq!(read, std::slice::from_ref(&snapshot));
        assert_eq!(read[0].completed(), completed);
    }

    #[test]
    fn parts_that_do_not_follow_on_make_no_snapshot() {
        let parts = parts(&Snapshot::take(7, "products", 44, &ledger(8_000_000), &BTreeMap::new()));
        let mut assembly = Assembly::default();
        assert!(parts[1..].iter().all(|part| assembly.add(part).is_none()), "without the first");
        let other = SnapshotPart { epoch: 8, ..parts[1].clone() };
        assert_eq!((assembly.add(&parts[0]), assembly.add(&other), assembly.add(&parts[1])), (None, None, None), "of another publisher");
        assert!(parts.iter().filter_map(|part| assembly.add(part)).count() == 1, "and then one that does");
    }

    #[test]
    fn it_is_written_once_a_checkpoint_covers_what_was_given_out() {
        let mut snapshots = Snapshots::new(100);
        assert!(!snapshots.entered(99) && snapshots.entered(1));
        snapshots.taken(Snapshot::take(7, "products", 44, &ledger(50), &BTreeMap::new()));
        assert!(!snapshots.entered(500), "one at a time");
        assert_eq!(snapshots.covered(49), None);
        assert_eq!(snapshots.covered(50).map(|(_, records)| records.len()), Some(1));
        assert_eq!(snapshots.covered(50), None);
        assert!(snapshots.entered(0), "the next one is due");
    }
}
