//! Between the role thread and its lanes: records go to the lanes by the hash of their id, reports and results come back.

use crate::{
    document::{Document, JsonRecords, Origin, RecordTraits},
    event::{Detail, EventBatch, Outcome, Tag},
    indexers::{Content, DeadLetter, EventSink, Letter},
    kafka::letter::{LetterContent, LetterHeaders},
    messenger::{
        Closed, Dest, Payload, Polled, SourceBatch, SourceReader,
        queue::{Limits, Queue, Taken},
    },
};
use compact_str::CompactString;
use crossbeam_channel::{Receiver, Sender};
use foldhash::fast::FixedState;
use jiff::Timestamp;
use std::{
    hash::BuildHasher,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// Records of a batch at most, and bytes (one record may be larger).
const BATCH_RECORDS: usize = 256;
const BATCH_BYTES: usize = 128 * 1024;
/// How long a result may wait for others.
const RESULT_WAIT: Duration = Duration::from_millis(5);
/// Batches of results that may wait for the role thread; then the lanes wait.
const RESULTS: usize = 8;

/// What lanes report.
pub(super) enum Report {
    /// Documents have ended. Their numbers are tickets.
    Events(EventBatch),
    /// A failed document is to be kept. Stands before its event.
    Letter(Kept),
}

/// A failed document on its way to the dead letter topic.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub tag: Tag,
    pub id: String,
    pub stage: String,
    pub reason: String,
    pub attempts: u32,
    pub value: Vec<u8>,
    /// The value is a document, not a record that could not be read.
    pub is_document: bool,
}

impl Kept {
    /// What its letter says of it. Whose document it is and where it stands is added by who knows that.
    pub fn headers(&self) -> LetterHeaders<'_> {
        LetterHeaders {
            stage: self.stage.as_str().into(),
            reason: self.reason.as_str().into(),
            attempts: Some(self.attempts),
            time: Some(Timestamp::now()),
            content: if self.is_document { LetterContent::Document } else { LetterContent::Raw },
            ..LetterHeaders::default()
        }
    }

    /// The event that it failed.
    pub fn into_events(self, epoch: u64, attempt: u64) -> EventBatch {
        let Self { tag, id, stage, reason, .. } = self;
        let mut events = EventBatch::new(epoch, attempt, Outcome::Failed);
        events.push_with(tag, Detail { seq: tag.seq, id, stage, reason });
        events
    }
}

impl From<Letter<'_>> for Kept {
    fn from(letter: Letter<'_>) -> Self {
        let Letter { tag, id, stage, reason, attempts, content } = letter;
        let mut value = Vec::new();
        match content {
            Content::Document(document) => document.write_json(&mut value),
            Content::Raw(raw) => value.extend_from_slice(raw),
        }
        let is_document = matches!(content, Content::Document(_));
        Self { tag, id: id.into(), stage: stage.into(), reason: reason.into(), attempts, value, is_document }
    }
}

/// Documents that have passed the stages, encoded.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub text: Vec<u8>,
    pub items: Vec<ResultItem>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct ResultItem {
    pub tag: Tag,
    pub id: CompactString,
    /// Where its text ends.
    pub end: usize,
}

impl Results {
    /// The text of an item.
    pub fn text(&self, index: usize) -> &[u8] {
        let begin = if index == 0 { 0 } else { self.items[index - 1].end };
        &self.text[begin..self.items[index].end]
    }
}

/// The role thread's end.
pub struct LaneEnds {
    lanes: Vec<Lane>,
    hasher: FixedState,
    /// Events and letters. Not bounded by itself: there are only as many as documents in work.
    pub(super) reports: Receiver<Report>,
    pub(super) results: Receiver<Results>,
}

struct Lane {
    queue: Arc<Queue<SourceBatch>>,
    open: JsonRecords,
    tickets: Vec<u64>,
}

/// Makes the ways between the role thread and so many lanes.
pub fn lanes(count: usize) -> (LaneEnds, Vec<KafkaReader>, Outlet, TopicDest) {
    // what waits in front of lanes is bounded for all of them together, by what is in work
    let limits = Limits { items: usize::MAX, bytes: usize::MAX };
    let queues: Vec<_> = (0..count.max(1)).map(|_| Queue::new(limits)).collect();
    let (report, reports) = crossbeam_channel::unbounded();
    let (result, results) = crossbeam_channel::bounded(RESULTS);
    let readers = queues.iter().map(|queue| KafkaReader(Arc::clone(queue))).collect();
    let lanes = queues.into_iter().map(|queue| Lane { queue, open: JsonRecords::default(), tickets: Vec::new() }).collect();
    let ends = LaneEnds { lanes, hasher: FixedState::default(), reports, results };
    (ends, readers, Outlet(report), TopicDest { open: Results::default(), due: None, results: result })
}

impl LaneEnds {
    /// Hands a record to the lane of its id.
    pub(super) fn push(&mut self, ticket: u64, id: &[u8], json: &[u8], traits: RecordTraits, origin: Origin) {
        let index = (u64::from(self.hasher.hash_one(id) as u32) * self.lanes.len() as u64) >> 32;
        let lane = &mut self.lanes[index as usize];
        lane.open.push(id, json, traits, origin);
        lane.tickets.push(ticket);
        if lane.tickets.len() >= BATCH_RECORDS || lane.open.text_len() >= BATCH_BYTES {
            lane.flush(false);
        }
    }

    /// Hands over what is held back. With `is_urgent` lanes that get something hold nothing back behind it.
    pub(super) fn flush(&mut self, is_urgent: bool) {
        self.lanes.iter_mut().filter(|lane| !lane.tickets.is_empty()).for_each(|lane| lane.flush(is_urgent));
    }

    /// Lanes are to hold nothing back of what they have.
    pub(super) fn hurry(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.flush(true));
    }

    /// No more records will come: lanes end once they are done with what they have.
    pub(super) fn finish(&mut self) {
        self.flush(false);
        self.lanes.iter().for_each(|lane| lane.queue.finish());
    }
}

impl Drop for LaneEnds {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.queue.abort());
    }
}

impl Lane {
    fn flush(&mut self, is_urgent: bool) {
        let bytes = self.open.text_len();
        let fresh = JsonRecords::with_capacity(BATCH_RECORDS, bytes + bytes / 8);
        let payload = Payload::Json(std::mem::replace(&mut self.open, fresh));
        let seqs = std::mem::replace(&mut self.tickets, Vec::with_capacity(BATCH_RECORDS));
        // a lane that is gone has said why by another way
        let _ = self.queue.put(SourceBatch { seqs, payload, is_urgent }, bytes);
    }
}

/// The reading end of one lane.
pub struct KafkaReader(Arc<Queue<SourceBatch>>);

impl SourceReader for KafkaReader {
    fn poll(&mut self, until: Option<Instant>) -> Polled {
        match self.0.take(until) {
            Taken::Item(batch) => Polled::Batch(batch),
            Taken::Nothing => Polled::Nothing,
            Taken::End => Polled::End,
        }
    }
}

/// Where lanes report to.
#[derive(Clone)]
pub struct Outlet(Sender<Report>);

impl Outlet {
    pub(super) fn new(reports: Sender<Report>) -> Self {
        Self(reports)
    }
}

impl EventSink for Outlet {
    fn report(&self, events: EventBatch) {
        // without the role thread nobody listens any more, and nothing more is committed
        let _ = self.0.send(Report::Events(events));
    }
}

impl DeadLetter for Outlet {
    /// Hands the letter over. That it is acknowledged before its event is sent is the role thread's care.
    fn keep(&self, letter: Letter<'_>) -> io::Result<()> {
        self.0.send(Report::Letter(letter.into())).map_err(|_| io::Error::other("the connection to Kafka has ended"))
    }
}

/// Where the lanes of a worker put documents that have passed the stages: encoded, in batches, to the role thread.
pub struct TopicDest {
    open: Results,
    due: Option<Instant>,
    results: Sender<Results>,
}

impl Clone for TopicDest {
    fn clone(&self) -> Self {
        Self { open: Results::default(), due: None, results: self.results.clone() }
    }
}

impl Dest for TopicDest {
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), Closed> {
        if self.due.is_none() {
            self.due = Some(Instant::now() + RESULT_WAIT);
        }
        document.write_json(&mut self.open.text);
        self.open.items.push(ResultItem { tag, id: document.id().into(), end: self.open.text.len() });
        if self.open.items.len() >= BATCH_RECORDS || self.open.text.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn deadline(&self) -> Option<Instant> {
        self.due
    }

    fn flush(&mut self) -> Result<(), Closed> {
        self.due = None;
        if self.open.items.is_empty() {
            return Ok(());
        }
        let text = Vec::with_capacity(self.open.text.len());
        let items = Vec::with_capacity(self.open.items.len());
        let results = std::mem::replace(&mut self.open, Results { text, items });
        self.results.send(results).map_err(|_| Closed)
    }

    fn drain(mut self) -> Result<(), Closed> {
        self.flush()
    }
}
