//! The publisher's side that the connector sees: numbers, counts and sends what it reads.

use super::{
    checkpoint::CheckpointTracker,
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
use parking_lot::Mutex;
use std::{sync::Arc, time::Instant};

/// Documents handed on between two marks for the checkpoints.
const MARK: u64 = 256;

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
    /// The last number of earlier publishers that counts; the first document gets the next one.
    pub after: u64,
    /// Where it is kept how far the step is safe, if anything outlives the process.
    pub checkpoints: Option<Arc<Mutex<CheckpointTracker>>>,
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
    /// The cursor behind the last document, if no checkpoint knows it yet, and how many documents that are.
    cursor: Option<Cursor>,
    unmarked: u64,
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
    /// A publisher that begins behind the last valid number.
    pub fn new(
        writer: W,
        state: Arc<StepState>,
        events: Arc<dyn EventSink>,
        dead_letter: Arc<dyn DeadLetter>,
        settings: PublisherSettings,
    ) -> Self {
        let gate = Gate::new(Arc::clone(&state), settings.max_pending, settings.max_rate);
        let (credit, seq, received) = (0, settings.after, 0);
        let collapse = settings.collapse.then(Collapse::default);
        let (splits, end, begun) = (0, None, Instant::now());
        let (cursor, unmarked) = (None, 0);
        Self { begun, writer, state, gate, events, dead_letter, settings, credit, seq, received, splits, collapse, cursor, unmarked, end }
    }

    /// The connector has returned: sends what is held back, and says why if the publisher had stopped it.
    pub fn finish(mut self) -> Option<PublisherEnd> {
        // a limit ends the source early, but what was merged up to there belongs to it
        if matches!(self.end, None | Some(PublisherEnd::Limit)) && self.send_merged().is_err() {
            self.end = Some(PublisherEnd::Stopped);
        }
        self.mark();
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
        if self.seq == self.settings.after + 1 {
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

    fn send(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
        let seq = self.next_seq()?;
        tracing::debug!(target: LOG_TARGET, doc_id = document.id(), seq, "published");
        let sent = self.writer.send(seq, document);
        self.sent(sent, after)
    }

    fn sent(&mut self, sent: Result<(), Closed>, after: Cursor) -> Result<(), Stopped> {
        sent.map_err(|Closed| self.stop(PublisherEnd::Stopped))?;
        self.handed_on(after);
        Ok(())
    }

    /// The document of the last number is handed on, with the cursor behind it.
    fn handed_on(&mut self, after: Cursor) {
        if self.settings.checkpoints.is_none() {
            return;
        }
        self.cursor = Some(after);
        self.unmarked += 1;
        if self.unmarked >= MARK {
            self.mark();
        }
    }

    /// Tells the checkpoints how far the documents are that were handed on.
    fn mark(&mut self) {
        let (cursor, unmarked) = (self.cursor.take(), std::mem::take(&mut self.unmarked));
        if unmarked > 0
            && let Some(checkpoints) = &self.settings.checkpoints
        {
            checkpoints.lock().handed_on(self.seq, cursor);
        }
    }

    /// The publisher itself fails the document of a number: kept before it is counted, and counted before a checkpoint covers it.
    fn fail_numbered(&mut self, seq: u64, fault: RecordFault, after: Cursor) -> Result<(), Stopped> {
        if let Some(checkpoints) = &self.settings.checkpoints {
            checkpoints.lock().own_failure(seq);
        }
        let RecordFault { id, reason, raw } = fault;
        let letter = Letter { tag: Tag::source(seq), id: &id, stage: "", reason: &reason, attempts: 1, content: Content::Raw(&raw) };
        if let Err(error) = self.dead_letter.keep(letter) {
            return Err(self.stop(PublisherEnd::DeadLetter(error)));
        }
        tracing::debug!(target: LOG_TARGET, doc_id = id, reason, "unreadable");
        let mut events = EventBatch::new(self.settings.epoch, 1, Outcome::Failed);
        events.push_with(Tag::source(seq), Detail { seq, id, stage: String::new(), reason });
        self.events.report(events);
        self.handed_on(after);
        Ok(())
    }

    /// Sends what `collapse` holds.
    fn send_merged(&mut self) -> Result<(), Stopped> {
        match self.collapse.as_mut().and_then(Collapse::flush) {
            Some((document, after)) => self.send(document, after),
            None => Ok(()),
        }
    }

    fn flush_writer(&mut self) -> Result<(), Stopped> {
        self.mark();
        self.writer.flush().map_err(|Closed| self.stop(PublisherEnd::Stopped))
    }

    fn stop(&mut self, end: PublisherEnd) -> Stopped {
        self.end.get_or_insert(end);
        Stopped
    }
}

impl<W: SourceWriter> Publish for Publisher<W> {
    fn split(&mut self, what: serde_json::Value) -> u32 {
        self.splits += 1;
        match &self.settings.checkpoints {
            Some(checkpoints) => checkpoints.lock().split(what),
            None => self.splits - 1,
        }
    }

    fn publish(&mut self, document: Document, after: Cursor) -> Result<(), Stopped> {
        self.receive()?;
        let Some(collapse) = &mut self.collapse else { return self.send(document, after) };
        match collapse.push(document, after) {
            Some((merged, after)) => self.send(merged, after),
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
        let sent = self.writer.send_row(seq, row);
        self.sent(sent, after)
    }

    fn fail(&mut self, fault: RecordFault, after: Cursor) -> Result<(), Stopped> {
        self.receive()?;
        self.send_merged()?;
        let seq = self.next_seq()?;
        self.fail_numbered(seq, fault, after)
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        self.flush_writer()
    }

    fn progress(&mut self, done: u64, total: Option<u64>) {
        self.state.set_source(done, total);
    }
}
