//! Indexers: where documents go. One file or folder a backend, behind [`Backend`]; batching, retries and order are common.

mod batch;
mod blocking;
mod build;
#[cfg(test)]
mod compliance;
pub mod csv;
#[cfg(feature = "embedded")]
pub mod embedded;
mod file_backend;
mod id_field;
pub mod json_lines;
mod lane;
#[cfg(test)]
mod lane_tests;
pub mod nop;
pub mod opensearch;
mod output_file;
mod projection;
mod retry;
mod schedule;
mod sender;
mod stats;

pub use build::{build, check};
pub use lane::{IndexerLane, IndexerOutputs, LaneClosed};
pub use projection::{Projection, write_json_text, write_number};
pub use stats::IndexerStats;

use crate::{
    document::Document,
    event::{EventBatch, Tag},
};
use async_trait::async_trait;
use compact_str::CompactString;
use std::time::Duration;

/// A place where documents go, built for one step and shared by all of its lanes.
///
/// # Contract
/// * `check` is called once, before anything is read.
/// * `encode` is called by the lanes, many at once: it appends what the backend will be sent for one document. What it
///   appends must be self-contained, so that any selection of items can be sent again.
/// * `send` sends items of a request in their order and answers each. It tries once: repetition, waiting and splitting are
///   the caller's. For one id there is at most one request at a time, and with `distinct_ids` one item in it.
/// * `commit` is called once when all documents of the step are accounted for and the step succeeded; `abandon` instead
///   when it did not. Only `commit` makes visible what must not be seen half-done.
#[async_trait]
pub trait Backend: Send + Sync {
    /// What the common part must take care of.
    fn needs(&self) -> Needs;

    /// Whether the backend can be reached and takes our credentials.
    ///
    /// # Errors
    /// It does not: names it, says why and what to do.
    async fn check(&self) -> Result<(), BackendError>;

    /// Appends the operation for a document to the body of a request.
    ///
    /// # Errors
    /// The backend cannot take this document; nothing was appended.
    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected>;

    /// Sends the items of the request with these indexes, in this order, once.
    async fn send(&self, request: &Request, items: &[u32]) -> Answer;

    /// Makes everything durable and visible.
    ///
    /// # Errors
    /// It could not be: the step fails.
    async fn commit(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Gives up what was not committed, as far as the backend can.
    async fn abandon(&self) {}
}

/// What the common part must take care of for a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// An id may be only once in a request, since the backend does not promise the order within one, or may refuse one
    /// operation of an id and take the next. Whoever answers [`ItemAnswer::Busy`] needs this. Without it a lane has one
    /// request in flight at a time.
    pub distinct_ids: bool,
    /// The backend may refuse single documents, so they are kept (for the dead letter) until it has answered.
    pub keep_documents: bool,
}

/// One request: operations in one body.
#[derive(Debug, Default)]
pub struct Request {
    /// The body: the encoded operations one after the other.
    pub body: Vec<u8>,
    /// One for each operation, in order.
    pub items: Vec<Item>,
    /// The documents, one for each operation, if the backend [needs](Needs) them kept.
    pub documents: Vec<Document>,
}

/// One operation of a request.
#[derive(Clone, Debug)]
pub struct Item {
    /// Whose operation it is.
    pub tag: Tag,
    /// The id of the document.
    pub id: CompactString,
    /// Where its part of the body ends.
    pub end: usize,
}

impl Request {
    /// The part of the body of one operation.
    pub fn part(&self, index: u32) -> &[u8] {
        let index = index as usize;
        let begin = if index == 0 { 0 } else { self.items[index - 1].end };
        &self.body[begin..self.items[index].end]
    }
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// All items were taken. Shorter than an answer for each.
    Done,
    /// One for each item sent, in order.
    Items(Vec<ItemAnswer>),
    /// The request as a whole was not taken: no connection, 429, 502 to 504. An outage, not the documents' fault.
    Outage(Refusal),
    /// The request was refused as a whole for something in it: too large (413), or an operation that spoils it (400). Sent
    /// again in halves; an operation that is refused when it stands alone fails.
    Split(Refusal),
    /// The backend is broken for us in a way that waiting does not cure (wrong credentials, disk full): the run must end.
    Fatal(BackendError),
}

/// What the backend said to one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemAnswer {
    /// It is there (or gone, for a deletion).
    Done,
    /// The backend has a newer version: success, counted.
    Stale,
    /// Not now; later perhaps.
    Busy(Refusal),
    /// Never: the document fails.
    Failed(String),
}

/// Why something was not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// For people: status and reason.
    pub reason: String,
    /// How long the backend asks us to wait.
    pub retry_after: Option<Duration>,
}

/// The backend cannot take a document; the reason for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Rejected(pub String);

/// The backend as a whole failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// For people: which backend, what failed, what to do.
    pub message: String,
    /// It could not be reached (exit code 69), in contrast to being used wrongly.
    pub unreachable: bool,
    /// What lies beneath.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Where terminal events go. Never blocks for long: events may not be held up by documents.
pub trait EventSink: Send + Sync {
    /// Hands over events. For failed documents the dead letter has been written before.
    fn report(&self, events: EventBatch);
}

/// Where failed documents are kept. An event about a failed document may be reported only after this has returned.
pub trait DeadLetter: Send + Sync {
    /// Keeps a failed document.
    ///
    /// # Errors
    /// It could not be kept: the run must end, without the document's event.
    fn keep(&self, letter: Letter<'_>) -> std::io::Result<()>;
}

/// One failed document.
#[derive(Clone, Copy, Debug)]
pub struct Letter<'a> {
    /// Which document of the step.
    pub tag: Tag,
    /// The id; empty where it has none.
    pub id: &'a str,
    /// The stage, `indexer`, or empty for a record that could not be read.
    pub stage: &'a str,
    /// Why it failed.
    pub reason: &'a str,
    /// How often it was tried.
    pub attempts: u32,
    /// What is kept of it.
    pub content: Content<'a>,
}

/// What is kept of a failed document.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// The document: a source document as it was received, a child as it entered the stage that failed, for the indexer as it
    /// left the stages.
    Document(&'a Document),
    /// A record that could not be read, as it is.
    Raw(&'a [u8]),
}
