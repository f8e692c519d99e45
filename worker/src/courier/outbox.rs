//! What a process writes to Kafka: results, letters, events. It says what is acknowledged, and in which order things may be sent:
//! the event of a failed document goes out only once its letter is acknowledged.
//!
//! A record that the broker refuses is never sent again by us (the client repeats by itself, in order): too large ones fail as
//! documents, events for a log that is gone are discarded, everything else ends the process, whose successor goes on from what
//! was committed.

use super::{lanes::Kept, producers::Producers};
use crate::{
    event::{EventBatch, Outcome, Tag},
    kafka::{
        self, Connection, KafkaError, Traffic,
        deliveries::{Deliveries, Delivery, Refused},
        header, largest_value,
        letter::{LetterHeaders, cut_to_fit},
    },
    messenger::kafka::intake::Offsets,
    publisher::{log::LogRecord, topic_log::codec},
};
use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
    types::RDKafkaErrorCode,
};
use std::{collections::VecDeque, sync::Arc};

/// Bytes of a record of events at most, about: far below what a log takes, and a quarter of what the client does.
const EVENT_BYTES: usize = 64 * 1024;

/// The outgoing side of a process. Used by one thread.
pub(super) struct Outbox {
    producers: Producers,
    deliveries: Deliveries,
    fail_topic: Arc<str>,
    largest_letter: usize,
    largest_events: usize,
    /// What is smaller than this is never refused for its size.
    largest_value: usize,
    /// What each record on its way will settle, by its number.
    shipments: VecDeque<Shipment>,
    first_shipment: usize,
    /// Letters by their number; the position is the first that is not acknowledged.
    letters: Offsets,
    next_letter: u64,
    /// What may be sent once all letters before a number are acknowledged.
    waiting: VecDeque<(u64, Events)>,
    /// What the client had no room for.
    backlog: VecDeque<Outgoing>,
    settled: Vec<Tag>,
    refused: Vec<Kept>,
    discarded: u64,
}

/// The dead letter topic.
#[derive(Clone, Debug)]
pub struct LetterTopic {
    /// Its name.
    pub name: String,
    /// The largest record that it takes.
    pub largest_record: usize,
}

/// Events of one publisher, on their way to its log.
pub(super) struct Events {
    /// The log and what to write; nothing for documents that belong to no run.
    pub record: Option<(Arc<str>, EventBatch)>,
    /// What is settled when it is there.
    pub settles: Vec<Tag>,
}

/// What the acknowledgement of a record sets off.
enum Shipment {
    Result(Tag),
    Letter(u64),
    Events(Vec<Tag>),
    Answered,
}

struct Outgoing {
    topic: Arc<str>,
    partition: Option<i32>,
    key: Vec<u8>,
    value: Vec<u8>,
    headers: OwnedHeaders,
    number: usize,
}

/// What became of what was sent.
#[derive(Default)]
pub(super) struct Answers {
    /// Documents for which all is acknowledged, by their local tag.
    pub settled: Vec<Tag>,
    /// Results that are too large for a record: their documents fail.
    pub refused: Vec<Kept>,
}

impl Outbox {
    /// An outbox for topics whose records have at most so many bytes.
    pub fn new(connection: &Connection, letters: LetterTopic, largest: usize, traffic: Traffic) -> Result<Self, KafkaError> {
        let deliveries = Deliveries::default();
        Ok(Self {
            producers: Producers::new(connection, connection.producer(traffic, largest), &deliveries)?,
            deliveries,
            fail_topic: letters.name.into(),
            largest_letter: largest_value(connection.largest_record(letters.largest_record)),
            largest_events: EVENT_BYTES.min(connection.largest_record(usize::MAX) / 4),
            largest_value: largest_value(connection.largest_record(largest)),
            shipments: VecDeque::new(),
            first_shipment: 0,
            letters: Offsets::new(0),
            next_letter: 0,
            waiting: VecDeque::new(),
            backlog: VecDeque::new(),
            settled: Vec::new(),
            refused: Vec::new(),
            discarded: 0,
        })
    }

    /// Whether results should wait: the client has no room.
    pub fn is_full(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.shipments.is_empty() && self.waiting.is_empty()
    }

    /// Whether what is handed over next goes at once, alone, or may wait for others to go with. That changes only while nothing is
    /// on its way, so no record overtakes another.
    ///
    /// # Errors
    /// The client refuses the settings of the connection.
    pub fn hurry(&mut self, is_urgent: bool) -> Result<(), KafkaError> {
        if self.shipments.is_empty() { self.producers.hurry(is_urgent, &self.deliveries) } else { Ok(()) }
    }

    /// Events that had no log any more, since the last call.
    pub fn take_discarded(&mut self) -> u64 {
        std::mem::take(&mut self.discarded)
    }

    /// Sends a result to the dest topic.
    pub fn result(&mut self, topic: &Arc<str>, header: &[u8], id: &str, value: &[u8], settles: Tag) {
        let headers = OwnedHeaders::new_with_capacity(1).insert(Header { key: header::NAME, value: Some(header) });
        self.send(topic, None, id.as_bytes(), value, headers, Shipment::Result(settles));
    }

    /// Sends a letter. Events that are handed over later wait for it.
    pub fn letter(&mut self, mut headers: LetterHeaders<'_>, id: &str, whole: &[u8]) {
        let number = self.next_letter;
        self.next_letter += 1;
        self.letters.begin(number);
        let value;
        (value, headers.truncated) = cut_to_fit(whole, self.largest_letter);
        let topic = Arc::clone(&self.fail_topic);
        self.send(&topic, None, id.as_bytes(), value, headers.to_kafka(), Shipment::Letter(number));
    }

    /// Sends events, or keeps them until the letters are acknowledged that they speak of.
    pub fn events(&mut self, outcome: Outcome, events: Events) {
        if outcome == Outcome::Failed && self.letters.position() < self.next_letter {
            self.waiting.push_back((self.next_letter, events));
        } else {
            self.send_events(events);
        }
    }

    /// Lets the client work, and says what became of what was sent.
    ///
    /// # Errors
    /// The broker refused a record for good: the process must end.
    pub fn poll(&mut self) -> Result<Answers, Fault> {
        self.producers.poll();
        loop {
            let deliveries = self.deliveries.take();
            if deliveries.is_empty() {
                break;
            }
            for delivery in deliveries {
                self.answered(delivery)?;
            }
            self.producers.poll();
        }
        self.send_waiting();
        self.send_backlog();
        Ok(Answers { settled: std::mem::take(&mut self.settled), refused: std::mem::take(&mut self.refused) })
    }

    fn answered(&mut self, delivery: Delivery) -> Result<(), Fault> {
        let Delivery { number, answer } = delivery;
        let shipment = std::mem::replace(&mut self.shipments[number - self.first_shipment], Shipment::Answered);
        while matches!(self.shipments.front(), Some(Shipment::Answered)) {
            self.shipments.pop_front();
            self.first_shipment += 1;
        }
        match (shipment, answer) {
            (Shipment::Result(tag), Ok(_)) => self.settled.push(tag),
            (Shipment::Letter(letter), Ok(_)) => {
                self.letters.settle(letter);
            }
            (Shipment::Events(tags), Ok(_)) => self.settled.extend(tags),
            (Shipment::Events(tags), Err(refused)) if is_gone(refused.code) => {
                // the run is over and its log removed: nobody counts any more
                self.discarded += tags.len() as u64;
                self.settled.extend(tags);
            }
            (Shipment::Result(tag), Err(Refused { record: Some((id, value)), .. })) if value.len() > self.largest_value => {
                self.refused.push(too_large(tag, id, value))
            }
            (Shipment::Answered, _) => {}
            (_, Err(Refused { topic, code, .. })) => return Err(Fault { topic, code }),
        }
        Ok(())
    }

    fn send_waiting(&mut self) {
        while self.waiting.front().is_some_and(|(letter, _)| *letter <= self.letters.position()) {
            let Some((_, events)) = self.waiting.pop_front() else { break };
            self.send_events(events);
        }
    }

    fn send_events(&mut self, events: Events) {
        match events.record {
            None => self.settled.extend(events.settles),
            Some((log, batch)) => self.send_batch(&log, batch, events.settles),
        }
    }

    /// Sends a batch, in halves if it is too large for a record. It has an event for each that it settles.
    fn send_batch(&mut self, log: &Arc<str>, batch: EventBatch, mut settles: Vec<Tag>) {
        let (mut value, half) = (Vec::new(), batch.len().div_ceil(2));
        let record = LogRecord::Events(batch);
        codec::encode(&record, &mut value);
        if let LogRecord::Events(batch) = record
            && value.len() > self.largest_events
            && half < batch.len()
        {
            let rest = settles.split_off(half);
            for (part, settles) in batch.split(half).into_iter().zip([settles, rest]) {
                self.send_batch(log, part, settles);
            }
            return;
        }
        self.send(log, Some(0), &[], &value, OwnedHeaders::new(), Shipment::Events(settles));
    }

    fn send_backlog(&mut self) {
        while let Some(mut outgoing) = self.backlog.pop_front() {
            let Outgoing { topic, partition, key, value, headers, number } = &mut outgoing;
            if let Some(left) = self.try_send(topic, *partition, key, value, std::mem::take(headers), *number) {
                *headers = left;
                self.backlog.push_front(outgoing);
                break;
            }
        }
    }

    fn send(&mut self, topic: &Arc<str>, partition: Option<i32>, key: &[u8], value: &[u8], headers: OwnedHeaders, shipment: Shipment) {
        let number = self.first_shipment + self.shipments.len();
        self.shipments.push_back(shipment);
        // what waits goes first
        let left = if self.backlog.is_empty() { self.try_send(topic, partition, key, value, headers, number) } else { Some(headers) };
        if let Some(headers) = left {
            let topic = Arc::clone(topic);
            self.backlog.push_back(Outgoing { topic, partition, key: key.into(), value: value.into(), headers, number });
        }
    }

    /// Hands a record to the client; gives its headers back if there is no room.
    fn try_send(
        &mut self,
        topic: &str,
        partition: Option<i32>,
        key: &[u8],
        value: &[u8],
        headers: OwnedHeaders,
        number: usize,
    ) -> Option<OwnedHeaders> {
        let mut record = BaseRecord::with_opaque_to(topic, number).key(key).payload(value).headers(headers);
        record.partition = partition;
        let (error, record) = self.producers.current().send(record).err()?;
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Some(record.headers.unwrap_or_default()),
            // the client itself refuses it: the same as if the broker had
            code => {
                self.deliveries.refuse(number, topic, code.unwrap_or(RDKafkaErrorCode::Unknown), key, value);
                None
            }
        }
    }
}

/// The topic does not exist (any more).
pub(crate) fn is_gone(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownPartition)
}

fn too_large(tag: Tag, id: String, value: Vec<u8>) -> Kept {
    let reason = kafka::too_large(value.len(), "dest");
    Kept { tag, id, stage: String::new(), reason, attempts: 1, value, is_document: true }
}

/// The broker refused a record for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Kafka refused a record for topic `{topic}` for good: {code}; what was not committed is done again by the next start")]
pub struct Fault {
    /// The topic.
    pub topic: String,
    /// Why.
    pub code: RDKafkaErrorCode,
}
