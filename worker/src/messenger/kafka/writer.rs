//! The publisher's way into the source topic. Many documents are on their way at once; the client keeps the order of each id.

use crate::{
    document::{Document, Row},
    kafka::{
        Connection, KafkaError, Traffic,
        deliveries::{Deliveries, Numbered, Refused},
        header::{self, Origin, RecordHeader},
    },
    messenger::{Closed, SourceWriter, kafka::intake::Offsets},
};
use parking_lot::Mutex;
use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord},
    types::RDKafkaErrorCode,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Documents sent between two looks at what is acknowledged.
const LOOK: u64 = 256;
/// How long to wait for room before looking again.
const ROOM: Duration = Duration::from_millis(10);

/// Who publishes: what stands in the header of each record.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The id of the run.
    pub run: String,
    /// The connector.
    pub step: String,
    /// The publisher's epoch.
    pub epoch: u64,
    /// The step had publishers before this one.
    pub replaced: bool,
}

/// Writes documents to the source topic.
pub struct TopicWriter {
    topic: String,
    publication: Publication,
    acks: Arc<SourceAcks>,
    stop: CancellationToken,
    value: Vec<u8>,
    header: Vec<u8>,
    since_look: u64,
}

/// What is acknowledged of the documents of a step. Shared by the connector's thread and the accounting.
pub struct SourceAcks {
    producer: BaseProducer<Numbered>,
    deliveries: Deliveries,
    state: Mutex<State>,
}

struct State {
    on_their_way: Offsets,
    /// For each partition the highest offset that a document has.
    offsets: BTreeMap<u32, u64>,
    /// Documents that the client or the broker found too large.
    too_large: Vec<TooLarge>,
    fault: Option<Refused>,
}

/// A document that is too large for a record of the topic.
#[derive(Debug)]
pub struct TooLarge {
    /// Its number.
    pub seq: u64,
    /// Its id.
    pub id: String,
    /// Its JSON.
    pub value: Vec<u8>,
}

/// What was learned about documents that are on their way.
#[derive(Debug)]
pub struct Acknowledged {
    /// Every document up to this number that was sent is in the source topic.
    pub up_to: u64,
    /// Documents that are too large for a record of the topic: they fail.
    pub too_large: Vec<TooLarge>,
}

impl SourceAcks {
    /// Starts the producer for a topic whose records have at most so many bytes. Numbers begin behind the last valid one of earlier
    /// publishers, whose offsets are known.
    ///
    /// # Errors
    /// The client refuses the settings of the connection.
    pub fn start(connection: &Connection, largest: usize, last_valid: u64, offsets: BTreeMap<u32, u64>) -> Result<Arc<Self>, KafkaError> {
        let deliveries = Deliveries::default();
        let producer = connection.start(&connection.producer(Traffic::Source, largest), deliveries.context(connection.context()))?;
        let on_their_way = Offsets::new(last_valid + 1);
        let state = Mutex::new(State { on_their_way, offsets, too_large: Vec::new(), fault: None });
        Ok(Arc::new(Self { producer, deliveries, state }))
    }

    /// Lets the client work, and says what is acknowledged.
    ///
    /// # Errors
    /// The broker refused a document for good: the step must end.
    pub fn poll(&self) -> Result<Acknowledged, Refused> {
        self.serve(Duration::ZERO);
        let mut state = self.state.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let too_large = std::mem::take(&mut state.too_large);
        Ok(Acknowledged { up_to: state.on_their_way.position() - 1, too_large })
    }

    /// For each partition the highest offset that a document has.
    pub fn offsets(&self) -> BTreeMap<u32, u64> {
        self.state.lock().offsets.clone()
    }

    fn serve(&self, wait: Duration) {
        self.producer.poll(wait);
        let deliveries = self.deliveries.take();
        if deliveries.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for delivery in deliveries {
            let seq = delivery.number as u64;
            match delivery.answer {
                Ok((partition, offset)) => {
                    let highest = state.offsets.entry(partition).or_default();
                    *highest = offset.max(*highest);
                    state.on_their_way.settle(seq);
                }
                // it stays on its way until its event is in the log
                Err(Refused { record: Some((id, value)), .. }) => state.too_large.push(TooLarge { seq, id, value }),
                Err(refused) => state.fault = Some(refused),
            }
        }
    }

    /// The event of a document that was too large is in the log.
    pub fn failed_by_itself(&self, seq: u64) {
        self.state.lock().on_their_way.settle(seq);
    }

    fn begin(&self, seq: u64) {
        self.state.lock().on_their_way.begin(seq);
    }

    fn has_fault(&self) -> bool {
        self.state.lock().fault.is_some()
    }
}

impl TopicWriter {
    /// A writer for the documents of one publisher. `stop` ends the wait for room.
    pub fn new(topic: &str, publication: Publication, acks: Arc<SourceAcks>, stop: CancellationToken) -> Self {
        let (value, header) = (Vec::new(), Vec::new());
        Self { topic: topic.into(), publication, acks, stop, value, header, since_look: 0 }
    }

    /// Sends the encoded document in `value`.
    fn send_value(&mut self, seq: u64, id: &str) -> Result<(), Closed> {
        let Publication { run, step, epoch, replaced } = &self.publication;
        let origin = Origin { run, step, epoch: *epoch, replaced: *replaced, seq };
        self.header.clear();
        RecordHeader { origin: Some(origin), passage: None }.encode(&mut self.header);
        let headers = OwnedHeaders::new_with_capacity(1).insert(Header { key: header::NAME, value: Some(&self.header) });
        let mut record = BaseRecord::with_opaque_to(&self.topic, seq as usize).key(id).payload(&self.value).headers(headers);
        self.acks.begin(seq);
        self.since_look += 1;
        if self.since_look >= LOOK {
            self.since_look = 0;
            self.acks.serve(Duration::ZERO);
        }
        loop {
            let (error, refused) = match self.acks.producer.send(record) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) if !self.stop.is_cancelled() && !self.acks.has_fault() => {
                    self.acks.serve(ROOM);
                    record = refused;
                }
                // the same as if the broker had refused it
                Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                    let too_large = TooLarge { seq, id: id.into(), value: self.value.clone() };
                    self.acks.state.lock().too_large.push(too_large);
                    return Ok(());
                }
                Some(RDKafkaErrorCode::QueueFull) | None => return Err(Closed),
                Some(code) => {
                    let fault = Refused::new(&self.topic, code, &[], &[]);
                    self.acks.state.lock().fault = Some(fault);
                    return Err(Closed);
                }
            }
        }
    }
}

impl SourceWriter for TopicWriter {
    fn send(&mut self, seq: u64, document: Document) -> Result<(), Closed> {
        self.value.clear();
        document.write_json(&mut self.value);
        self.send_value(seq, document.id())
    }

    fn send_row(&mut self, seq: u64, row: Row<'_>) -> Result<(), Closed> {
        self.value.clear();
        row.write_json(&mut self.value);
        self.send_value(seq, row.id)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        self.acks.serve(Duration::ZERO);
        if self.acks.has_fault() { Err(Closed) } else { Ok(()) }
    }

    fn acknowledged(&self) -> u64 {
        self.acks.state.lock().on_their_way.position() - 1
    }

    fn finish(&mut self) {
        self.acks.serve(Duration::ZERO);
    }
}
