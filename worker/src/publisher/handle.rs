//! The publisher's side that the connector sees: numbers, counts and sends what it reads.

use super::{
    gate::{Gate, Verdict},
    state::StepState,
};
use crate::{
    connectors::{Cursor, Publish, RecordFault, Stopped},
    document::{Document, Row},
    event::{Detail, EventBatch, Outcome, Tag},
    indexers::{Content, DeadLetter, EventSink, Letter},
    messenger::{Closed, SourceWriter},
};
use std::sync::Arc;

/// What a publisher works with.
pub struct PublisherSettings {
    /// Documents that may be pending at once.
    pub max_pending: u64,
    /// Documents a second at most.
    pub max_rate: Option<u32>,
    /// Merge documents of one id that come one after the other.
    pub collapse: bool,
    /// Stop after so many documents.
    pub limit: Option<u64>,
    /// The publisher's epoch.
    pub epoch: u64,
}

/// Numbers, counts and sends documents.
pub struct Publisher<W> {
    writer: W,
    state: Arc<StepState>,
    gate: Gate,
    events: Arc<dyn EventSink>,
    dead_letter: Arc<dyn DeadLetter>,
    settings: PublisherSettings,
    /// Documents that may pass before the gate is asked again.
    credit: u64,
    seq: u64,
    received: u64,
    splits: Vec<serde_json::Value>,
    merging: Option<(Document, Cursor)>,
    /// The place behind the last document that was sent.
    cursor: Cursor,
    end: Option<PublisherEnd>,
}

/// Why the publisher takes no more documents, if the connector has not come to its end.
#[derive(Debug)]
pub enum PublisherEnd {
    /// The step is ending.
    Stopped,
    /// The limit of documents is reached.
    Limit,
    /// A record that cannot be read could not be kept.
    DeadLetter(std::io::Error),
}

impl<W: SourceWriter> Publisher<W> {
    /// A publisher that begins at number 1.
    pub fn new(
        writer: W,
        state: Arc<StepState>,
        events: Arc<dyn EventSink>,
        dead_letter: Arc<dyn DeadLetter>,
        settings: PublisherSettings,
    ) -> Self {
        let gate = Gate::new(Arc::clone(&state), settings.max_pending, settings.max_rate);
        let (credit, seq, received) = (0, 0, 0);
        let (splits, merging, cursor, end) = (Vec::new(), None, Cursor::default(), None);
        Self { writer, state, gate, events, dead_letter, settings, credit, seq, received, splits, merging, cursor, end }
    }

    /// The connector has returned: sends what is held back, and says why if the publisher had stopped it.
    pub fn finish(mut self) -> Option<PublisherEnd> {
        if self.end.is_none() {
            // stopped while sending the rest: `end` says so
            let _ = self.send_merged();
        }
        self.writer.finish();
        self.end
    }

    /// A record has come: is one more allowed?
    fn receive(&mut self) -> Result<(), Stopped> {
        if self.end.is_some() {
            return Err(Stopped);
        }
        if self.settings.limit.is_some_and(|limit| self.received >= limit) {
            return Err(self.stop(PublisherEnd::Limit));
        }
        self.received += 1;
        self.state.set_received(self.received);
        Ok(())
    }

    /// The number of the next document; waits until it may be published.
    fn next_seq(&mut self) -> Result<u64, Stopped> {
        while self.credit == 0 {
            match self.gate.ask() {
                Ok(Verdict::Pass(credit)) => self.credit = credit,
                Ok(Verdict::Wait(at_most)) => {
                    // nothing may be held back while the connector stands still
                    self.flush_writer()?;
                    self.gate.wait(at_most);
                }
                Err(Stopped) => return Err(self.stop(PublisherEnd::Stopped)),
            }
        }
        self.credit -= 1;
        self.seq += 1;
        self.state.set_published(self.seq);
        Ok(self.seq)
    }

    fn send(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
        let seq = self.next_seq()?;
        self.cursor = after;
        self.writer.send(seq, document).map_err(|Closed| self.stop(PublisherEnd::Stopped))
    }

    fn send_merged(&mut self) -> Result<(), Stopped> {
        match self.merging.take() {
            Some((document, after)) => self.send(document, after),
            None => Ok(()),
        }
    }

    fn merge(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
        match &mut self.merging {
            Some((earlier, cursor)) if earlier.id() == document.id() => {
                for (key, value) in document.into_fields() {
                    match earlier.fields_mut().get_mut(&key) {
                        Some(present) => present.append(value),
                        None => earlier.fields_mut().insert(key, value),
                    }
                }
                *cursor = after;
                Ok(())
            }
            _ => {
                self.send_merged()?;
                self.merging = Some((document, after));
                Ok(())
            }
        }
    }

    fn flush_writer(&mut self) -> Result<(), Stopped> {
        self.writer.flush().map_err(|Closed| self.stop(PublisherEnd::Stopped))
    }

    fn stop(&mut self, end: PublisherEnd) -> Stopped {
        self.end.get_or_insert(end);
        Stopped
    }
}

impl<W: SourceWriter> Publish for Publisher<W> {
    fn split(&mut self, what: serde_json::Value) -> u32 {
        self.splits.push(what);
        self.splits.len() as u32 - 1
    }

    fn publish(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
        self.receive()?;
        if self.settings.collapse { self.merge(document, after) } else { self.send(document, after) }
    }

    fn publish_row(&mut self, row: Row<'_>, after: Cursor) -> Result<(), Stopped> {
        if self.settings.collapse {
            return self.publish(row.to_document(), after);
        }
        self.receive()?;
        let seq = self.next_seq()?;
        self.cursor = after;
        self.writer.send_row(seq, row).map_err(|Closed| self.stop(PublisherEnd::Stopped))
    }

    fn fail(&mut self, fault: RecordFault, after: Cursor) -> Result<(), Stopped> {
        self.receive()?;
        self.send_merged()?;
        let seq = self.next_seq()?;
        self.cursor = after;
        let RecordFault { id, reason, raw } = fault;
        // kept before it is counted, and counted before a checkpoint can cover it
        let letter = Letter { id: &id, stage: "", reason: &reason, attempts: 1, content: Content::Raw(&raw) };
        if let Err(error) = self.dead_letter.keep(letter) {
            return Err(self.stop(PublisherEnd::DeadLetter(error)));
        }
        tracing::debug!(target: "penstock::document", doc_id = id, reason, "unreadable");
        let mut events = EventBatch::new(self.settings.epoch, 1, Outcome::Failed);
        events.push_with(Tag::source(seq), Detail { seq, id, stage: String::new(), reason });
        self.events.report(events);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        self.flush_writer()
    }

    fn progress(&mut self, done: u64, total: Option<u64>) {
        self.state.set_source(done, total);
    }
}
