//! What tests of connectors need: a publisher that records, and the suite that every connector must pass.

use super::{Connector, Cursor, Publish, RecordFault, ResumeFrom, Stopped};
use crate::document::Document;

/// What was handed over.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A document.
    Document(Document),
    /// A record that cannot be read.
    Fault(RecordFault),
}

/// Keeps everything that a connector hands over.
#[derive(Debug, Default)]
pub struct Recording {
    /// In order, each with the cursor behind it.
    pub entries: Vec<(Entry, Cursor)>,
    /// What [`Publish::split`] was told.
    pub splits: Vec<serde_json::Value>,
    /// The last word of [`Publish::progress`].
    pub progress: Option<(u64, Option<u64>)>,
    /// How many entries had been handed over at the last [`Publish::flush`].
    pub flushed: usize,
    /// After so many entries the run ends.
    pub stop_after: Option<usize>,
    /// How often something was handed over after the end of the run.
    pub after_stop: usize,
}

impl Recording {
    /// One line an entry: id and fields, or the reason of a fault.
    pub fn lines(&self) -> Vec<String> {
        let line = |entry: &Entry| match entry {
            Entry::Document(document) => {
                format!("{} {}", document.id(), serde_json::to_string(document.fields()).expect("fields have a JSON form"))
            }
            Entry::Fault(fault) => format!("fault: {}", fault.reason),
        };
        self.entries.iter().map(|(entry, _)| line(entry)).collect()
    }

    /// The ids of the documents.
    pub fn ids(&self) -> Vec<&str> {
        self.entries
            .iter()
            .filter_map(|(entry, _)| match entry {
                Entry::Document(document) => Some(document.id()),
                Entry::Fault(_) => None,
            })
            .collect()
    }

    /// The records that could not be read.
    pub fn faults(&self) -> Vec<&RecordFault> {
        self.entries
            .iter()
            .filter_map(|(entry, _)| match entry {
                Entry::Document(_) => None,
                Entry::Fault(fault) => Some(fault),
            })
            .collect()
    }

    /// Where a new attempt would begin after that many entries.
    pub fn resume_after(&self, entries: usize) -> Option<ResumeFrom> {
        let (_, cursor) = self.entries[..entries].last()?;
        Some(ResumeFrom { cursor: *cursor, split: self.splits[cursor.split as usize].clone() })
    }

    fn take(&mut self, entry: Entry, after: Cursor) -> Result<(), Stopped> {
        if self.stop_after.is_some_and(|limit| self.entries.len() >= limit) {
            self.after_stop += 1;
            return Err(Stopped);
        }
        self.entries.push((entry, after));
        Ok(())
    }
}

impl Publish for Recording {
    fn split(&mut self, what: serde_json::Value) -> u32 {
        self.splits.push(what);
        self.splits.len() as u32 - 1
    }

    fn publish(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
        assert!(!document.id().is_empty(), "a document has an id");
        self.take(Entry::Document(document), after)
    }

    fn fail(&mut self, fault: RecordFault, after: Cursor) -> Result<(), Stopped> {
        assert!(!fault.reason.is_empty(), "a fault has a reason");
        self.take(Entry::Fault(fault), after)
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        self.flushed = self.entries.len();
        Ok(())
    }

    fn progress(&mut self, done: u64, total: Option<u64>) {
        assert!(total.is_none_or(|total| done <= total), "{done} of {total:?}");
        assert!(self.progress.is_none_or(|(before, _)| before <= done), "progress goes forward");
        self.progress = Some((done, total));
    }
}

/// Checks the contract of [`Connector`] for a source that can be read to its end: cursors grow, a stopped run is left at
/// once, and from behind every record a new attempt gives exactly the rest.
pub fn assert_compliance(make: impl Fn() -> Box<dyn Connector>) {
    let whole = run(&make, None, None);
    let position = |cursor: &Cursor| (cursor.split, cursor.offset);
    for pair in whole.entries.windows(2) {
        assert!(position(&pair[0].1) < position(&pair[1].1), "cursors grow: {pair:?}");
        assert!(pair[0].1.split != pair[1].1.split || pair[0].1.record + 1 == pair[1].1.record, "records are counted: {pair:?}");
        assert!(pair[0].1.split != pair[1].1.split || pair[0].1.line <= pair[1].1.line, "lines grow: {pair:?}");
    }
    let resumable = make().has_cursor();
    for cut in 0..=whole.entries.len() {
        let first = run(&make, None, Some(cut));
        assert_eq!(first.entries, whole.entries[..cut], "the part before the stop");
        assert!(first.after_stop <= 1, "a stopped run is left at once");
        if !resumable || cut == 0 {
            continue;
        }
        let rest = run(&make, first.resume_after(cut).as_ref(), None);
        let without_split = |entries: &[(Entry, Cursor)]| -> Vec<_> {
            entries.iter().map(|(entry, cursor)| (entry.clone(), Cursor { split: 0, ..*cursor })).collect()
        };
        assert_eq!(without_split(&rest.entries), without_split(&whole.entries[cut..]), "what a new attempt gives behind record {cut}");
    }
}

fn run(make: &impl Fn() -> Box<dyn Connector>, from: Option<&ResumeFrom>, stop_after: Option<usize>) -> Recording {
    let mut recording = Recording { stop_after, ..Recording::default() };
    let mut connector = make();
    connector.execute(&mut recording, from).expect("the source can be read");
    connector.close().expect("close");
    recording
}
