//! The publisher's side that the connector sees: numbers, counts and sends what it reads.

use super::{
    collapse::Collapse,
    gate::{Gate, Verdict},
    state::StepState,
};
use crate::{
    connectors::{Cursor, Publish, RecordFault, Stopped},
    document::{Document, LOG_TARGET, Row},
    event::{Detail, EventBatch, Outcome, Tag},
    indexers::{Content, DeadLetter, EventSink, Letter},
    messenger::{Closed, SourceWriter},
};
use std::{sync::Arc, time::Instant};

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
    begun: Instant,
    /// Documents that may pass before the gate is asked again.
    credit: u64,
    seq: u64,
    received: u64,
    splits: u32,
    collapse: Option<Collapse>,
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
        let collapse = settings.collapse.then(Collapse::default);
        let (splits, end, begun) = (0, None, Instant::now());
        Self { begun, writer, state, gate, events, dead_letter, settings, credit, seq, received, splits, collapse, end }
    }

    /// The connector has returned: sends what is held back, and says why if the publisher had stopped it.
    pub fn finish(mut self) -> Option<PublisherEnd> {
        // a limit ends the source early, but what was merged up to there belongs to it
        if matches!(self.end, None | Some(PublisherEnd::Limit)) && self.send_merged().is_err() {
            self.end = Some(PublisherEnd::Stopped);
        }
        self.show_received();
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
        Ok(())
    }

    /// The number of the next document; waits until it may be published.
    fn next_seq(&mut self) -> Result<u64, Stopped> {
        while self.credit == 0 {
            self.show_received();
            match self.gate.ask() {
                Ok(Verdict::Pass(credit)) => self.credit = credit,
                Ok(Verdict::Wait(pause)) => {
                    // nothing may be held back while the connector stands still
                    self.flush_writer()?;
                    self.gate.wait(pause);
                }
                Err(Stopped) => return Err(self.stop(PublisherEnd::Stopped)),
            }
        }
        self.credit -= 1;
        self.seq += 1;
        if self.seq == 1 {
            tracing::info!(after_ms = self.begun.elapsed().as_millis() as u64, "first document");
        }
        self.state.set_published(self.seq);
        Ok(self.seq)
    }

    /// Shows how many records came, where they are not the documents that go. Once a credit is often enough.
    fn show_received(&self) {
        if self.collapse.is_some() {
            self.state.set_received(self.received);
        }
    }

    fn send(&mut self, document: Document) -> Result<(), Stopped> {
        let seq = self.next_seq()?;
        tracing::debug!(target: LOG_TARGET, doc_id = document.id(), seq, "published");
        self.writer.send(seq, document).map_err(|Closed| self.stop(PublisherEnd::Stopped))
    }

    /// Sends what `collapse` holds.
    fn send_merged(&mut self) -> Result<(), Stopped> {
        match self.collapse.as_mut().and_then(Collapse::flush) {
            Some((document, _)) => self.send(document),
            None => Ok(()),
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

/// In memory nothing outlives the process, so the cursors that come with the documents are not kept.
impl<W: SourceWriter> Publish for Publisher<W> {
    fn split(&mut self, _: serde_json::Value) -> u32 {
        self.splits += 1;
        self.splits - 1
    }

    fn publish(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
        self.receive()?;
        let Some(collapse) = &mut self.collapse else { return self.send(document) };
        match collapse.push(document, after) {
            Some((merged, _)) => self.send(merged),
            None => Ok(()),
        }
    }

    fn publish_row(&mut self, row: Row<'_>, after: Cursor) -> Result<(), Stopped> {
        if self.collapse.is_some() {
            return self.publish(row.to_document(), after);
        }
        self.receive()?;
        let seq = self.next_seq()?;
        tracing::debug!(target: LOG_TARGET, doc_id = row.id, seq, "published");
        self.writer.send_row(seq, row).map_err(|Closed| self.stop(PublisherEnd::Stopped))
    }

    fn fail(&mut self, fault: RecordFault, _: Cursor) -> Result<(), Stopped> {
        self.receive()?;
        self.send_merged()?;
        let seq = self.next_seq()?;
        let RecordFault { id, reason, raw } = fault;
        // kept before it is counted, and counted before a checkpoint can cover it
        let letter = Letter { tag: Tag::source(seq), id: &id, stage: "", reason: &reason, attempts: 1, content: Content::Raw(&raw) };
        if let Err(error) = self.dead_letter.keep(letter) {
            return Err(self.stop(PublisherEnd::DeadLetter(error)));
        }
        tracing::debug!(target: LOG_TARGET, doc_id = id, reason, "unreadable");
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
