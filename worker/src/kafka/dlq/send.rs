//! Sending records until all of them are acknowledged.

use super::DlqError;
use crate::kafka::{Access, Connection, OnDelivery, Resource};
use parking_lot::Mutex;
use rdkafka::{
    error::KafkaError as ClientError,
    message::{DeliveryResult, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
    types::RDKafkaErrorCode,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Sends records to one topic.
pub(super) struct Sender<'a> {
    connection: &'a Connection,
    topic: String,
    producer: BaseProducer<OnDelivery<()>>,
    answers: Arc<Answers>,
    patience: Duration,
}

/// A record to be sent.
pub(super) struct Outgoing<'a> {
    /// Without it the client chooses by the key.
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: OwnedHeaders,
    /// In milliseconds; now, if it is not given.
    pub timestamp: Option<i64>,
}

#[derive(Default)]
struct Answers {
    acknowledged: AtomicU64,
    refused: Mutex<Option<ClientError>>,
}

impl Answers {
    fn note(&self, result: &DeliveryResult<'_>) {
        match result {
            Ok(_) => {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => *self.refused.lock() = Some(error.clone()),
        }
    }
}

impl<'a> Sender<'a> {
    pub(super) fn new(connection: &'a Connection, topic: &str, patience: Duration) -> Result<Self, DlqError> {
        let mut config = connection.client();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // the partition of an id must be the one that publishers choose
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "20")
            .set("compression.type", "lz4")
            .set("message.timeout.ms", patience.as_millis().max(1_000).to_string());
        let answers = Arc::new(Answers::default());
        let noted = Arc::clone(&answers);
        let context = OnDelivery::new(connection.context(), move |result: &DeliveryResult<'_>, ()| noted.note(result));
        let made = config.create_with_context(context);
        let producer = made.map_err(|error| connection.error(&error, Access::Write, Resource::topic(topic)))?;
        Ok(Self { connection, topic: topic.to_owned(), producer, answers, patience })
    }

    /// Hands a record to the client; waits while its queue is full.
    pub(super) fn send(&self, outgoing: Outgoing<'_>) -> Result<(), DlqError> {
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).headers(outgoing.headers);
        record.partition = outgoing.partition;
        record.key = outgoing.key;
        record.payload = outgoing.value;
        record.timestamp = outgoing.timestamp;
        let deadline = Instant::now() + self.patience;
        loop {
            match self.producer.send(record) {
                Ok(()) => break,
                Err((error, again)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) && Instant::now() < deadline => {
                    record = again;
                    self.producer.poll(Duration::from_millis(10));
                }
                Err((error, _)) => return Err(self.not_sent(&error)),
            }
        }
        self.producer.poll(Duration::ZERO);
        self.refused()
    }

    /// Waits until all are acknowledged; says how many there were.
    pub(super) fn finish(self) -> Result<u64, DlqError> {
        let flushed = self.producer.flush(self.patience);
        self.refused()?;
        flushed.map_err(|error| self.not_sent(&error))?;
        Ok(self.acknowledged())
    }

    fn refused(&self) -> Result<(), DlqError> {
        match &*self.answers.refused.lock() {
            Some(error) => Err(self.not_sent(error)),
            None => Ok(()),
        }
    }

    fn acknowledged(&self) -> u64 {
        self.answers.acknowledged.load(Ordering::Relaxed)
    }

    fn not_sent(&self, error: &ClientError) -> DlqError {
        let source = self.connection.error(error, Access::Write, Resource::topic(&self.topic));
        DlqError::NotSent { topic: self.topic.clone(), source, sent: self.acknowledged() }
    }
}
