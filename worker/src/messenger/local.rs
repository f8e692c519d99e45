//! Documents through memory: one queue a lane, lanes by the hash of the id.

use super::{
    Closed, Payload, Polled, SourceBatch, SourceReader, SourceWriter,
    queue::{Limits, Queue, Taken},
};
use crate::document::{Document, Row, Rows};
use foldhash::fast::FixedState;
use std::{hash::BuildHasher, sync::Arc, time::Instant};

/// Documents of a batch at most. Measured: less costs hops, more only memory.
const BATCH_DOCUMENTS: usize = 256;
/// Bytes of a batch at most (one document may be larger).
const BATCH_BYTES: usize = 128 * 1024;
/// What waits in front of one lane at most.
const LANE_LIMITS: Limits = Limits { items: 8, bytes: 4 * 1024 * 1024 };

/// The writing end, one for all lanes.
pub struct LocalWriter {
    lanes: Vec<Lane>,
    hasher: FixedState,
    sent: u64,
}

struct Lane {
    queue: Arc<Queue<SourceBatch>>,
    open: Payload,
    seqs: Vec<u64>,
    bytes: usize,
}

/// The reading end of one lane.
pub struct LocalReader {
    queue: Arc<Queue<SourceBatch>>,
}

/// Ends both sides at once.
#[derive(Clone)]
pub struct Abort {
    queues: Vec<Arc<Queue<SourceBatch>>>,
}

/// Makes the way for that many lanes.
pub fn channel(lanes: usize) -> (LocalWriter, Vec<LocalReader>, Abort) {
    let queues: Vec<_> = (0..lanes.max(1)).map(|_| Queue::new(LANE_LIMITS)).collect();
    let readers = queues.iter().map(|queue| LocalReader { queue: Arc::clone(queue) }).collect();
    let lanes = queues.iter().map(|queue| Lane::new(Arc::clone(queue))).collect();
    (LocalWriter { lanes, hasher: FixedState::default(), sent: 0 }, readers, Abort { queues })
}

impl LocalWriter {
    /// The lane of an id: multiply and shift instead of a division.
    fn lane(&mut self, id: &str) -> &mut Lane {
        let hash = self.hasher.hash_one(id);
        let index = (u64::from(hash as u32) * self.lanes.len() as u64) >> 32;
        &mut self.lanes[index as usize]
    }
}

impl Lane {
    fn new(queue: Arc<Queue<SourceBatch>>) -> Self {
        Self { queue, open: Payload::Documents(Vec::new()), seqs: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, seq: u64, document: Document) -> Result<(), Closed> {
        if matches!(self.open, Payload::Rows(_)) {
            self.flush()?;
            self.open = Payload::Documents(Vec::with_capacity(BATCH_DOCUMENTS));
        }
        if let Payload::Documents(documents) = &mut self.open {
            self.bytes += document.estimated_size();
            documents.push(document);
        }
        self.count(seq)
    }

    fn push_row(&mut self, seq: u64, row: Row<'_>) -> Result<(), Closed> {
        if !matches!(&self.open, Payload::Rows(rows) if Arc::ptr_eq(rows.columns(), row.columns)) {
            self.flush()?;
            self.open = Payload::Rows(Rows::new(Arc::clone(row.columns)));
        }
        if let Payload::Rows(rows) = &mut self.open {
            rows.push(row);
            self.bytes = rows.text_len();
        }
        self.count(seq)
    }

    fn count(&mut self, seq: u64) -> Result<(), Closed> {
        self.seqs.push(seq);
        if self.seqs.len() >= BATCH_DOCUMENTS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Closed> {
        if self.seqs.is_empty() {
            return Ok(());
        }
        let fresh = match &self.open {
            Payload::Documents(_) | Payload::Json(_) => Payload::Documents(Vec::with_capacity(BATCH_DOCUMENTS)),
            Payload::Rows(rows) => Payload::Rows(Rows::with_capacity_of(rows)),
        };
        let payload = std::mem::replace(&mut self.open, fresh);
        let seqs = std::mem::replace(&mut self.seqs, Vec::with_capacity(BATCH_DOCUMENTS));
        let bytes = std::mem::take(&mut self.bytes);
        if self.queue.put(SourceBatch { seqs, payload, is_urgent: false }, bytes) { Ok(()) } else { Err(Closed) }
    }
}

impl SourceWriter for LocalWriter {
    fn send(&mut self, seq: u64, document: Document) -> Result<(), Closed> {
        self.sent = seq;
        self.lane(document.id()).push(seq, document)
    }

    fn send_row(&mut self, seq: u64, row: Row<'_>) -> Result<(), Closed> {
        self.sent = seq;
        self.lane(row.id).push_row(seq, row)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        self.lanes.iter_mut().try_for_each(Lane::flush)
    }

    fn acknowledged(&self) -> u64 {
        self.sent
    }

    fn finish(&mut self) {
        // an aborted queue takes nothing any more, and then nobody waits for it
        let _ = self.flush();
        self.lanes.iter().for_each(|lane| lane.queue.finish());
    }
}

impl Drop for LocalWriter {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.queue.finish());
    }
}

impl SourceReader for LocalReader {
    fn poll(&mut self, until: Option<Instant>) -> Polled {
        match self.queue.take(until) {
            Taken::Item(batch) => Polled::Batch(batch),
            Taken::Nothing => Polled::Nothing,
            Taken::End => Polled::End,
        }
    }
}

impl Drop for LocalReader {
    fn drop(&mut self) {
        // a lane that is gone must not leave the publisher waiting
        self.queue.abort();
    }
}

impl Abort {
    /// Ends both sides of all lanes at once; what is on the way is dropped.
    pub fn abort(&self) {
        self.queues.iter().for_each(|queue| queue.abort());
    }
}
