//! Connectors: where documents come from. One file or folder a connector. They know documents and a [`Publish`] handle.

mod file;
mod sequence;
#[cfg(test)]
pub(crate) mod testing;

use crate::{
    actions::{self, When},
    context::StepContext,
    document::{Document, Row},
    problem::Problems,
};
use penstock_crds::connectors as spec;

/// Builds the connector of a step. Opens nothing: that is [`Connector::execute`]'s.
///
/// # Errors
/// The specification has a problem that [`check`] reports.
pub fn build(spec: &spec::Connector, context: &StepContext) -> Result<Box<dyn Connector>, ConnectorError> {
    Ok(match &spec.kind {
        spec::ConnectorKind::File(file) => Box::new(file::FileConnector::new(file, &spec.id_prefix, &context.run_base_dir)?),
        spec::ConnectorKind::Sequence(sequence) => Box::new(sequence::SequenceConnector::new(sequence, &spec.id_prefix)),
    })
}

/// Reports everything that is wrong with a connector and its actions. Opens nothing.
pub fn check(spec: &spec::Connector, problems: &mut Problems<'_>) {
    match &spec.kind {
        spec::ConnectorKind::File(file) => file::check(file, &mut problems.below("file")),
        spec::ConnectorKind::Sequence(sequence) => sequence::check(sequence, &mut problems.below("sequence")),
    }
    actions::check(&spec.pre, When::Pre, problems);
    actions::check(&spec.post, When::Post, problems);
}

/// The files that a connector reads, as far as they are named one by one: no patterns. Opens nothing.
pub fn file_paths(spec: &spec::Connector) -> Vec<String> {
    match &spec.kind {
        spec::ConnectorKind::File(file) => file::named_paths(file),
        spec::ConnectorKind::Sequence(_) => Vec::new(),
    }
}

/// A source of documents, built for one step.
///
/// # Contract
/// * The runner calls, each at most once and in this order: `execute` (on a thread of its own: it may block) and `close`.
///   `close` is always called, also after an error.
/// * `execute` hands over every record of the source, in the source's order, by [`Publish`], each with the cursor *after* it.
///   A record that cannot be read is handed over as well, by [`Publish::fail`]: nothing is passed over in silence.
/// * With a cursor from an earlier attempt `execute` goes on behind it and gives the very same records in the same order;
///   if the source has changed since (its fingerprint), it returns an error instead of going on at a wrong place.
/// * As soon as [`Publish`] answers [`Stopped`], `execute` returns `Ok` at once.
pub trait Connector: Send {
    /// Whether [`Connector::execute`] can go on behind a cursor.
    fn has_cursor(&self) -> bool;

    /// Reads the source from the beginning, or from behind the cursor.
    ///
    /// # Errors
    /// The source cannot be read (on); names the object, what failed and what to do.
    fn execute(&mut self, publish: &mut dyn Publish, from: Option<&ResumeFrom>) -> Result<(), ConnectorError>;

    /// Lets go of everything.
    ///
    /// # Errors
    /// Something could not be let go of in order.
    fn close(&mut self) -> Result<(), ConnectorError> {
        Ok(())
    }
}

/// Where in its source a connector is, after a record. Cheap: one travels with every document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Which part of the source, for example which file: the number that [`Publish::split`] gave.
    pub split: u32,
    /// Where behind the record the next one begins: bytes of the (uncompressed) file, or a number of the source's own.
    pub offset: u64,
    /// Records of the split up to here.
    pub record: u64,
    /// Lines of the split up to here.
    pub line: u64,
}

/// The place behind the last checkpoint, for a new attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeFrom {
    /// The place.
    pub cursor: Cursor,
    /// What [`Publish::split`] was told of that split: which object, and its fingerprint.
    pub split: serde_json::Value,
}

/// The publisher has stopped taking documents: the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// A record that cannot be read. It is counted as published and failed, and kept in the dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// The id, where one could be read.
    pub id: String,
    /// What is wrong, with file and line.
    pub reason: String,
    /// The record as it is, where it could be kept.
    pub raw: Vec<u8>,
}

/// What a connector hands its records to.
pub trait Publish {
    /// Begins a part of the source, for example a file. `what` names it and holds its fingerprint (size, time, etag, query);
    /// the answer is the number for [`Cursor::split`].
    fn split(&mut self, what: serde_json::Value) -> u32;

    /// Hands over a document. Blocks while the pipeline is full, the rate is reached or the run suspended.
    ///
    /// # Errors
    /// The run ends: return at once.
    fn publish(&mut self, document: Document, after: Cursor) -> Result<(), Stopped>;

    /// Hands over a row; the lanes make the document.
    ///
    /// # Errors
    /// The run ends: return at once.
    fn publish_row(&mut self, row: Row<'_>, after: Cursor) -> Result<(), Stopped> {
        self.publish(row.to_document(), after)
    }

    /// Hands over a record that cannot be read.
    ///
    /// # Errors
    /// The run ends: return at once.
    fn fail(&mut self, fault: RecordFault, after: Cursor) -> Result<(), Stopped>;

    /// Hands over what is held back. To be called before waiting for the source, so that a source that pauses
    /// does not hold up what it gave before.
    ///
    /// # Errors
    /// The run ends: return at once.
    fn flush(&mut self) -> Result<(), Stopped>;

    /// Says how far the connector is, in units of its own (bytes): for the progress display only.
    fn progress(&mut self, done: u64, total: Option<u64>);
}

/// A connector failed: object, what failed, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConnectorError {
    /// For people.
    pub message: String,
    /// What lies beneath.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ConnectorError {
    /// A failure without an error beneath.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// A failure with what lies beneath.
    pub fn with(message: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { message: message.into(), source: Some(source.into()) }
    }
}
