//! What comes from Kafka: which records may start, and on which lane.

use super::{
    Courier, CourierError, Role,
    lanes::Kept,
    record::Record,
    tickets::{Passage, RunStep},
};
use crate::{
    document::{Fields, Origin, RecordTraits, Value},
    event::Tag,
    kafka::header::{HeaderError, RecordHeader},
    messenger::kafka::intake::{Admission, Condemned, Generation},
};
use rdkafka::{error::KafkaError, message::BorrowedMessage, types::RDKafkaErrorCode};
use std::{rc::Rc, time::Instant};

/// What is to be done with a record.
enum Fate {
    Done,
    Hold,
}

impl Courier {
    /// Something came from the client.
    pub(super) fn arrived(&mut self, polled: Result<BorrowedMessage<'_>, KafkaError>) -> Result<(), CourierError> {
        let message = match polled {
            Ok(message) => message,
            Err(error) => return self.broken(&error),
        };
        let partition = rdkafka::Message::partition(&message) as u32;
        if !self.owned.contains_key(&partition) || self.is_draining {
            return Ok(());
        }
        self.read += 1;
        let record = Record::of(&message);
        if let Fate::Hold = self.offer(partition, record) {
            self.held.insert(partition, record.to_held());
        }
        Ok(())
    }

    /// The client reports an error. Most of them pass by themselves; it says so in the log.
    fn broken(&self, error: &KafkaError) -> Result<(), CourierError> {
        let topic = || self.topic.clone();
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicId) => {
                Err(CourierError::TopicLost { topic: topic() })
            }
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => Err(CourierError::Overtaken { topic: topic() }),
            Some(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::GroupAuthorizationFailed | RDKafkaErrorCode::Fatal) => {
                Err(self.error(error))
            }
            _ => Ok(()),
        }
    }

    /// Offers the records again that wait; whether one could start.
    pub(super) fn offer_held(&mut self, now: Instant) -> Result<bool, CourierError> {
        if self.intake.is_ill() {
            return Err(CourierError::Ill);
        }
        let mut moved = self.fail_condemned(now);
        let waiting: Vec<u32> = self.held.keys().copied().collect();
        for partition in waiting {
            let Some(held) = self.held.remove(&partition) else { continue };
            match self.offer(partition, held.as_record()) {
                Fate::Done => moved = true,
                Fate::Hold => {
                    self.held.insert(partition, held);
                }
            }
        }
        Ok(moved)
    }

    fn offer(&mut self, partition: u32, record: Record<'_>) -> Fate {
        let header = record.header();
        let generation = header.as_ref().ok().and_then(Option::as_ref).and_then(|header| generation(self.settings.role, header));
        match self.intake.offer(partition, record.offset, generation) {
            Admission::Start { tenure } => self.start(partition, tenure, record, header),
            Admission::Stale => self.settings.figures.add_stale(),
            Admission::NotOurs => {}
            Admission::Hold => return Fate::Hold,
            Admission::SetAside => {
                self.set_aside.insert((partition, record.offset), record.to_held());
            }
        }
        Fate::Done
    }

    fn start(&mut self, partition: u32, tenure: u64, record: Record<'_>, header: Result<Option<RecordHeader<'_>>, HeaderError>) {
        let (header, fault) = match header {
            Ok(header) => (header, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let ticket = self.issue(partition, tenure, record, header);
        let (None, Some(value)) = (&fault, record.value) else {
            let reason = fault.unwrap_or_else(|| "the record has no value".into());
            return self.fail(unreadable(ticket, record, reason, 1));
        };
        let is_outside = header.is_none();
        // documents of one id take one lane, also where the id stands in the document only
        let named = (is_outside && record.key.is_empty()).then(|| id_of(value)).flatten();
        let run_id = self.tickets.get(ticket).and_then(|record| record.passage.run.as_ref()).map(|run| run.run.clone());
        let origin = Origin { offset: Some(record.offset), run_id };
        let traits = RecordTraits { is_outside, skips_stages: record.skips_stages };
        self.lanes.push(ticket, named.as_deref().unwrap_or(record.key), value, traits, origin);
    }

    /// Documents that were set aside fail once it is sure that it was them; whether there were some.
    fn fail_condemned(&mut self, now: Instant) -> bool {
        let condemned = if self.set_aside.is_empty() { Vec::new() } else { self.intake.condemned(now) };
        for Condemned { partition, offset, attempts } in &condemned {
            let Some(held) = self.set_aside.remove(&(*partition, *offset)) else { continue };
            let Some(tenure) = self.owned.get(partition).copied() else { continue };
            let record = held.as_record();
            let ticket = self.issue(*partition, tenure, record, record.header().ok().flatten());
            let reason = format!("the process ended {attempts} times while it worked on this document");
            let failed = Kept { is_document: record.value.is_some(), ..unreadable(ticket, record, reason, *attempts) };
            tracing::error!(topic = self.topic, partition, offset, attempts, doc_id = failed.id, "a document ends the process: it fails");
            self.fail(failed);
        }
        !condemned.is_empty()
    }

    fn issue(&mut self, partition: u32, tenure: u64, record: Record<'_>, header: Option<RecordHeader<'_>>) -> u64 {
        let (tag, source_offset) = match header {
            None => (Tag::source(0), record.offset),
            Some(RecordHeader { origin, passage }) => {
                let seq = origin.map_or(0, |origin| origin.seq);
                match passage {
                    None => (Tag::source(seq), record.offset),
                    Some(passage) => (Tag { seq, ordinal: passage.ordinal, children: passage.children }, passage.offset),
                }
            }
        };
        let passage = self.passage(partition, tenure, header.as_ref());
        self.tickets.issue(passage, record.offset, source_offset, tag, record.len())
    }

    /// What the record has in common with others: most often the same as the one before it.
    fn passage(&mut self, partition: u32, tenure: u64, header: Option<&RecordHeader<'_>>) -> Rc<Passage> {
        let origin = header.and_then(|header| header.origin);
        let place = header.and_then(|header| header.passage);
        let is_source = place.is_none();
        let (attempt, source_partition) = place.map_or((tenure, partition), |place| (place.attempt, place.partition));
        if let Some(last) = self.passages.get(&partition)
            && last.tenure == tenure
            && (last.attempt, last.is_source, last.source_partition) == (attempt, is_source, source_partition)
            && match (&last.run, &origin) {
                (None, None) => true,
                (Some(run), Some(origin)) => run.epoch == origin.epoch && *run.run == *origin.run && run.step == origin.step,
                _ => false,
            }
        {
            return Rc::clone(last);
        }
        let run = origin.map(|origin| RunStep {
            run: origin.run.into(),
            step: origin.step.into(),
            epoch: origin.epoch,
            replaced: origin.replaced,
        });
        let passage = Rc::new(Passage { partition, tenure, run, attempt, is_source, source_partition });
        self.passages.insert(partition, Rc::clone(&passage));
        passage
    }
}

/// By what a record may turn out to be stale: workers by the publisher, indexers by the worker.
fn generation(role: Role, header: &RecordHeader<'_>) -> Option<Generation> {
    if role == Role::Indexer {
        let passage = header.passage?;
        return Some(Generation { origin: u64::from(passage.partition), number: passage.attempt, remember: true });
    }
    let origin = header.origin?;
    Some(Generation { origin: name_of_step(origin.run, origin.step), number: origin.epoch, remember: origin.replaced })
}

/// A number for a step, the same in every build: it is kept in commits. FNV-1a.
fn name_of_step(run: &str, step: &str) -> u64 {
    let bytes = run.bytes().chain([0]).chain(step.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The id of an outside record without a key. What is not understood here is found unreadable by the lane.
fn id_of(value: &[u8]) -> Option<Vec<u8>> {
    let fields = Fields::from_json(value).ok()?;
    match fields.get("id")? {
        Value::Text(text) => Some(text.as_bytes().to_vec()),
        number @ (Value::Int(_) | Value::Uint(_)) => serde_json::to_vec(number).ok(),
        _ => None,
    }
}

fn unreadable(ticket: u64, record: Record<'_>, reason: String, attempts: u32) -> Kept {
    Kept {
        tag: Tag::source(ticket),
        id: String::from_utf8_lossy(record.key).into_owned(),
        stage: String::new(),
        reason,
        attempts,
        value: record.value.unwrap_or_default().into(),
        is_document: false,
    }
}
