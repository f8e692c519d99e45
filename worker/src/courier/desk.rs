//! The publisher's own letters and events: records that its connector could not read, documents too large to be sent.

use super::{
    lanes::{Kept, Outlet, Report},
    outbox::{Events, Fault, LetterTopic, Outbox},
};
use crate::{
    event::{EventBatch, Tag},
    kafka::{self, Connection, KafkaError, Traffic, letter::LetterHeaders},
};
use crossbeam_channel::Receiver;
use std::sync::Arc;

/// Whose desk it is.
#[derive(Clone, Debug)]
pub struct DeskOwner {
    /// The id of the run.
    pub run: String,
    /// The connector.
    pub step: String,
    /// The pipeline.
    pub pipeline: String,
    /// The publisher's epoch.
    pub epoch: u64,
    /// The topic of the run's events.
    pub log: String,
}

/// Sends what the publisher itself has to say of documents. Used by one thread.
pub struct Desk {
    outbox: Outbox,
    owner: DeskOwner,
    log: Arc<str>,
    reports: Receiver<Report>,
}

impl Desk {
    /// A desk, and where the connector's thread hands things to it.
    ///
    /// # Errors
    /// The client refuses the settings of the connection.
    pub fn new(connection: &Connection, letters: LetterTopic, owner: DeskOwner) -> Result<(Self, Outlet), KafkaError> {
        let (sender, reports) = crossbeam_channel::unbounded();
        let log = owner.log.as_str().into();
        let largest = letters.largest_record;
        Ok((Self { outbox: Outbox::new(connection, letters, largest, Traffic::Reports)?, owner, log, reports }, Outlet::new(sender)))
    }

    /// A document that Kafka found too large: it fails.
    pub fn too_large(&mut self, seq: u64, id: String, value: Vec<u8>) {
        let reason = kafka::too_large(value.len(), "source");
        let failed = Kept { tag: Tag::source(seq), id, stage: String::new(), reason, attempts: 1, value, is_document: true };
        self.letter(&failed);
        self.events(failed.into_events(self.owner.epoch, 1));
    }

    /// Lets the client work. The answer: numbers of documents whose event is in the log.
    ///
    /// # Errors
    /// The broker refused a record for good.
    pub fn poll(&mut self) -> Result<Vec<u64>, Fault> {
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::Letter(letter) => self.letter(&letter),
                Report::Events(events) => self.events(events),
            }
        }
        Ok(self.outbox.poll()?.settled.into_iter().map(|tag| tag.seq).collect())
    }

    fn events(&mut self, events: EventBatch) {
        let settles = events.tags().collect();
        self.outbox.events(events.outcome, Events { record: Some((Arc::clone(&self.log), events)), settles });
    }

    fn letter(&mut self, letter: &Kept) {
        let headers = LetterHeaders {
            run: self.owner.run.as_str().into(),
            step: self.owner.step.as_str().into(),
            pipeline: self.owner.pipeline.as_str().into(),
            epoch: Some(self.owner.epoch),
            seq: Some(letter.tag.seq),
            ..letter.headers()
        };
        self.outbox.letter(headers, &letter.id, &letter.value);
    }
}
