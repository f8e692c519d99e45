//! The log of a step: what the publisher must know again if it dies, and the terminal events. Over Kafka it is the event topic;
//! in one process it is a queue in memory.

use super::snapshot::SnapshotPart;
use crate::{connectors::ResumeFrom, event::EventBatch};
use parking_lot::Mutex;
use penstock_crds::ingest_run::Counts;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// One record of the log. Steps may share a log: the epoch says whose record it is.
#[derive(Clone, Debug, PartialEq)]
pub enum LogRecord {
    /// A publisher claims the log. Its epoch is the offset of this record; every publisher with a lower one is superseded.
    Epoch {
        /// The step that it publishes.
        step: String,
    },
    /// How far the step is safe.
    Checkpoint(Checkpoint),
    /// How documents ended.
    Events(EventBatch),
    /// The step is complete.
    Complete {
        /// The publisher that says so.
        epoch: u64,
        /// The final counts of the step.
        counts: Counts,
    },
    /// A part of what a publisher knows, so that a successor need not read everything.
    Snapshot(SnapshotPart),
}

/// All documents up to a number are acknowledged: a successor goes on behind them.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The publisher that says so.
    pub epoch: u64,
    /// The number.
    pub seq: u64,
    /// The place in the source behind that document; `None` if the connector has no cursor or has given nothing yet.
    pub resume: Option<ResumeFrom>,
    /// For each partition of the source topic the highest offset that the step's documents have.
    pub source_offsets: BTreeMap<u32, u64>,
    /// The connector has returned and this is its last document.
    pub end: bool,
}

/// Where log records go, and come from.
///
/// # Contract
/// * One order for all: records stand in the log in the order in which `append` answered, at growing offsets, the first at 0.
/// * When `append` has answered, the record is there to stay.
pub trait EventLog: Send + Sync {
    /// Appends a record; answers with its offset.
    ///
    /// # Errors
    /// The record may or may not be in the log: the publisher ends, its successor reads what is there.
    fn append(&self, record: LogRecord) -> Result<u64, LogError>;

    /// Records from an offset on, so many at most; none, if the end is reached.
    ///
    /// # Errors
    /// The log cannot be read from there.
    fn read(&self, from: u64, most: usize) -> Result<Vec<(u64, Arc<LogRecord>)>, LogError>;

    /// The offset that the next record will have.
    ///
    /// # Errors
    /// The log cannot be reached.
    fn end(&self) -> Result<u64, LogError>;
}

/// The log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Its head is gone.
    #[error("the event log begins at record {first}, but record {wanted} is needed: its head was removed, so the step cannot be counted")]
    Truncated {
        /// The record asked for.
        wanted: u64,
        /// The first record that is there.
        first: u64,
    },
    /// It was deleted, or never made.
    #[error("the event log `{log}` does not exist (any more), so the step cannot be counted: its topic was not created, or deleted")]
    Lost {
        /// Its name.
        log: String,
    },
    /// It is no single log.
    #[error("the event log `{log}` has {partitions} partitions, but a log has one: delete the topic, it is created anew with one")]
    Partitions {
        /// Its name.
        log: String,
        /// How many there are.
        partitions: usize,
    },
    /// A record that nobody of us wrote, or another build.
    #[error("record {offset} of the event log `{log}` cannot be read: {reason}")]
    Unreadable {
        /// The log's name.
        log: String,
        /// The record.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// No answer in time.
    #[error("the event log `{log}` cannot be reached: {reason}; start the run again with the same id once the broker is back")]
    Unreachable {
        /// The log's name.
        log: String,
        /// What is known.
        reason: String,
    },
    /// The broker does not take or give a record, and will not.
    #[error("the broker refuses to let the event log `{log}` be used: {reason}")]
    Refused {
        /// The log's name.
        log: String,
        /// What it says.
        reason: String,
    },
}

/// A log in memory. It holds records until [`MemoryLog::forget_before`] lets go of them.
#[derive(Debug, Default)]
pub struct MemoryLog(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    first: u64,
    records: VecDeque<Arc<LogRecord>>,
}

impl MemoryLog {
    /// Lets go of the records before an offset.
    pub fn forget_before(&self, offset: u64) {
        let mut held = self.0.lock();
        while held.first < offset && held.records.pop_front().is_some() {
            held.first += 1;
        }
    }
}

impl EventLog for MemoryLog {
    fn append(&self, record: LogRecord) -> Result<u64, LogError> {
        let mut held = self.0.lock();
        held.records.push_back(Arc::new(record));
        Ok(held.first + held.records.len() as u64 - 1)
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<(u64, Arc<LogRecord>)>, LogError> {
        let held = self.0.lock();
        let Some(skip) = from.checked_sub(held.first) else {
            return Err(LogError::Truncated { wanted: from, first: held.first });
        };
        Ok((from..).zip(held.records.iter().skip(skip as usize).take(most).cloned()).collect())
    }

    fn end(&self) -> Result<u64, LogError> {
        let held = self.0.lock();
        Ok(held.first + held.records.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_stay_when_the_head_is_let_go() {
        let log = MemoryLog::default();
        for offset in 0..5 {
            assert_eq!(log.append(LogRecord::Epoch { step: offset.to_string() }), Ok(offset));
        }
        log.forget_before(3);
        let read = log.read(3, 10).expect("there");
        assert_eq!(read.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(*read[0].1, LogRecord::Epoch { step: "3".into() });
        assert_eq!(log.read(5, 10), Ok(Vec::new()));
        assert_eq!(log.read(2, 10), Err(LogError::Truncated { wanted: 2, first: 3 }));
        assert_eq!(log.end(), Ok(5));
        log.forget_before(100);
        assert_eq!(log.append(LogRecord::Epoch { step: String::new() }), Ok(5));
    }
}
