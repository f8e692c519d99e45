//! One file being read: what a format works with.

use super::reader::Source;
use crate::{
    connectors::{ConnectorError, Cursor, Publish, RecordFault, Stopped},
    document::{Document, Row},
};
use std::{error::Error, io};

/// How much of a record that is too large is kept.
pub(super) const RAW_LIMIT: usize = 64 * 1024;

/// A format: cuts the records of one file after the other and hands them over.
///
/// # Contract
/// * `read` begins at the beginning of the file, learns what it must (a header), calls [`Reading::resume`] and then hands over
///   every record, until the window is empty and [`Reading::ended`].
/// * What a record is may depend on nothing but the text from its beginning on, so that reading can go on behind any of them.
/// * A record that cannot be read is handed over by [`Reading::fail`]; an error means that the file as a whole cannot be.
pub(super) trait Format: Send {
    fn read(&self, reading: &mut Reading<'_>) -> Result<(), End>;
}

/// Why a file is left before its end.
#[derive(Debug)]
pub(super) enum End {
    /// The run ends.
    Stopped,
    /// The file cannot be read (on).
    Unreadable(Unreadable),
    /// The connector fails, whatever `onFileError` says.
    Failed(ConnectorError),
}

impl From<ConnectorError> for End {
    fn from(error: ConnectorError) -> Self {
        Self::Failed(error)
    }
}

impl From<Stopped> for End {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<Unreadable> for End {
    fn from(fault: Unreadable) -> Self {
        Self::Unreadable(fault)
    }
}

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) message: String,
    pub(super) source: Option<io::Error>,
}

impl Unreadable {
    /// Everything that is known, in one line.
    pub(super) fn reason(&self) -> String {
        match &self.source {
            Some(source) => format!("{}: {source}", self.message),
            None => self.message.clone(),
        }
    }
}

impl From<Unreadable> for ConnectorError {
    fn from(fault: Unreadable) -> Self {
        let source = fault.source.map(|source| Box::new(source) as Box<dyn Error + Send + Sync>);
        Self { message: fault.message, source }
    }
}

/// Bytes read, for the display.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// In the files before this one.
    pub(super) before: u64,
    /// In all files together.
    pub(super) total: u64,
}

/// One file being read, and where in it we are.
pub(super) struct Reading<'a> {
    pub(super) path: &'a str,
    pub(super) source: Source,
    /// Reading may have to wait for whoever writes.
    pub(super) waits: bool,
    pub(super) publish: &'a mut dyn Publish,
    pub(super) progress: Progress,
    /// Behind the last record.
    pub(super) at: Cursor,
    /// Where to go on, if not at the beginning.
    pub(super) from: Option<Cursor>,
}

impl Reading<'_> {
    /// The path of the file, as people know it.
    pub(super) fn path(&self) -> &str {
        self.path
    }

    /// The encoding of the file.
    pub(super) fn encoding(&self) -> &'static str {
        self.source.encoding()
    }

    /// What was read and not yet consumed.
    pub(super) fn window(&self) -> &[u8] {
        self.source.window()
    }

    /// Whether nothing follows behind the window.
    pub(super) fn ended(&self) -> bool {
        self.source.ended()
    }

    /// Lines consumed.
    pub(super) fn line(&self) -> u64 {
        self.at.line
    }

    /// Reads on, so that the window grows.
    pub(super) fn fill(&mut self) -> Result<(), End> {
        if self.waits {
            self.publish.flush()?;
        }
        let filled = self.source.fill();
        self.tell_progress();
        filled.map_err(|error| self.broken(error))
    }

    /// Goes to where the attempt before had got, if there was one.
    pub(super) fn resume(&mut self) -> Result<(), End> {
        let Some(from) = self.from.take() else { return Ok(()) };
        if let Err(error) = self.source.go_to(from.offset) {
            return Err(self.broken(error));
        }
        self.at = Cursor { split: self.at.split, ..from };
        self.tell_progress();
        Ok(())
    }

    /// Consumes bytes of the window, in which that many lines end.
    pub(super) fn advance(&mut self, bytes: usize, lines: u64) {
        self.source.consume(bytes);
        self.at.line += lines;
    }

    /// Consumes the rest of the line, however long it is.
    pub(super) fn skip_line(&mut self, lone_cr: bool) -> Result<(), End> {
        self.at.line += 1;
        let skipped = self.source.skip_line(lone_cr);
        self.tell_progress();
        skipped.map_err(|error| self.broken(error))
    }

    /// Hands over the row that was consumed last.
    pub(super) fn publish_row(&mut self, row: Row<'_>) -> Result<(), End> {
        let after = self.after();
        Ok(self.publish.publish_row(row, after)?)
    }

    /// Hands over the document whose record was consumed last.
    pub(super) fn publish(&mut self, document: Document) -> Result<(), End> {
        let after = self.after();
        Ok(self.publish.publish(document, after)?)
    }

    /// Hands over the record that was consumed last and cannot be read. It began on that line, its fault may be at a column.
    pub(super) fn fail(&mut self, line: u64, column: Option<usize>, reason: &str, raw: Vec<u8>) -> Result<(), End> {
        let column = column.map(|column| format!(":{column}")).unwrap_or_default();
        let reason = format!("{}:{line}{column}: {reason}", self.path);
        let after = self.after();
        Ok(self.publish.fail(RecordFault { id: String::new(), reason, raw }, after)?)
    }

    /// The file as a whole cannot be read, and why.
    pub(super) fn unreadable(&self, reason: impl Into<String>) -> End {
        Unreadable { message: format!("{}: {}", self.path, reason.into()), source: None }.into()
    }

    fn broken(&self, error: io::Error) -> End {
        let read = self.source.bytes_read();
        let message = format!("failed to read {} behind byte {read}; the file may be cut off or damaged", self.path);
        Unreadable { message, source: Some(error) }.into()
    }

    fn after(&mut self) -> Cursor {
        self.at.record += 1;
        self.at.offset = self.source.offset();
        self.at
    }

    fn tell_progress(&mut self) {
        let Progress { before, total } = self.progress;
        self.publish.progress((before + self.source.bytes_read()).min(total), Some(total));
    }
}
