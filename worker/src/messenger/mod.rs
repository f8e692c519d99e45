//! The seam that hides where documents flow: memory or Kafka. A worker lane sees three traits only:
//! [`SourceWriter`] (the publisher's side), [`SourceReader`] (its own) and [`Dest`] (where results go).
//! Terminal events take the way of [`crate::indexers::EventSink`].
//!
//! Documents of one id always take the same lane, so their order is kept at any number of threads.

pub mod compliance;
pub mod kafka;
pub mod local;
mod paired;
pub(crate) mod queue;
pub mod recording;

use crate::document::{Document, JsonRecords, Row, Rows, Unreadable};
use crate::event::Tag;
use std::{borrow::Cow, time::Instant};

/// The other side is gone or the run ends: stop working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// Where the publisher puts documents.
///
/// # Contract
/// * Called from one thread. Sequence numbers are dense and growing.
/// * Documents of one id arrive in the order in which they were sent. Nothing is lost, nothing arrives twice
///   (within one attempt).
/// * `send` blocks while the way is full (bounded in documents and bytes) and may hold documents back until `flush`.
pub trait SourceWriter: Send {
    /// Sends a document.
    ///
    /// # Errors
    /// The readers are gone, or the run ends.
    fn send(&mut self, seq: u64, document: Document) -> Result<(), Closed>;

    /// Sends a row; the reader makes the document of it.
    ///
    /// # Errors
    /// As [`SourceWriter::send`].
    fn send_row(&mut self, seq: u64, row: Row<'_>) -> Result<(), Closed> {
        self.send(seq, row.to_document())
    }

    /// Hands over what was held back.
    ///
    /// # Errors
    /// The readers are gone, or the run ends.
    fn flush(&mut self) -> Result<(), Closed>;

    /// The highest number up to which everything is acknowledged: it will be read, whatever happens to the publisher.
    fn acknowledged(&self) -> u64;

    /// No more documents will come: readers end once they have read the rest.
    fn finish(&mut self);
}

/// Where a worker lane gets documents from.
///
/// # Contract
/// One lane, one thread. The lane asks for the next batch only after everything that the one before led to has been
/// handed on (to the [`Dest`], or as an event).
pub trait SourceReader: Send {
    /// Waits for a batch, at most until the given moment.
    fn poll(&mut self, until: Option<Instant>) -> Polled;
}

/// What [`SourceReader::poll`] found.
#[derive(Debug)]
pub enum Polled {
    /// Documents.
    Batch(SourceBatch),
    /// Nothing until the given moment.
    Nothing,
    /// Nothing will come any more.
    End,
}

/// Where a worker lane puts the documents that have passed the stages.
///
/// # Contract
/// Documents are taken in order; for one id that is the order in which they reach the index. `forward` blocks while the
/// indexer is busy, so that a slow backend slows the source.
pub trait Dest {
    /// Hands a document over.
    ///
    /// # Errors
    /// The run ends.
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), Closed>;

    /// When what is held back must be handed on, if anything is.
    fn deadline(&self) -> Option<Instant>;

    /// Hands on what is held back.
    ///
    /// # Errors
    /// The run ends.
    fn flush(&mut self) -> Result<(), Closed>;

    /// Hands on what is held back and waits until everything is accounted for.
    ///
    /// # Errors
    /// The run ended before.
    fn drain(self) -> Result<(), Closed>
    where
        Self: Sized;
}

/// Source documents for one lane.
#[derive(Debug)]
pub struct SourceBatch {
    /// The number of each document, growing.
    pub seqs: Vec<u64>,
    /// The documents.
    pub payload: Payload,
    /// Somebody waits for them: the lane holds nothing back behind them. Such a batch may be empty.
    pub is_urgent: bool,
}

/// The documents of a batch: finished, as rows, or as JSON. The lane makes documents of the latter two, so that building them is
/// not the one reader's work.
#[derive(Debug)]
pub enum Payload {
    /// Documents.
    Documents(Vec<Document>),
    /// Rows.
    Rows(Rows),
    /// JSON; a record may turn out to be unreadable.
    Json(JsonRecords),
}

impl SourceBatch {
    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }

    /// A document of the batch, as it was received; the batch keeps its own.
    ///
    /// # Errors
    /// The record is no document.
    pub fn document(&self, index: usize) -> Result<Document, Unreadable> {
        match &self.payload {
            Payload::Documents(documents) => Ok(documents[index].clone()),
            Payload::Rows(rows) => Ok(rows.document(index)),
            Payload::Json(records) => records.document(index),
        }
    }

    /// Whether a document has passed the stages already.
    pub fn skips_stages(&self, index: usize) -> bool {
        matches!(&self.payload, Payload::Json(records) if records.skips_stages(index))
    }

    /// The id and the text of a record that is no document.
    pub fn raw(&self, index: usize) -> (Cow<'_, str>, &[u8]) {
        match &self.payload {
            Payload::Json(records) => (String::from_utf8_lossy(records.id(index)), records.text(index)),
            Payload::Documents(_) | Payload::Rows(_) => (Cow::Borrowed(""), &[]),
        }
    }
}
