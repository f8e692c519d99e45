//! The writing half: a record at a time, each with its acknowledgement.

use super::{codec, refused, unreachable};
use crate::{
    kafka::failure::{Failure, classify},
    publisher::log::{LogError, LogRecord},
};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use rdkafka::{
    ClientConfig, Message,
    client::ClientContext,
    config::FromClientConfigAndContext,
    error::KafkaError,
    message::DeliveryResult,
    producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer},
};
use std::time::{Duration, Instant};

/// Sends records to the only partition of a topic.
pub(super) struct Appender {
    topic: String,
    producer: ThreadedProducer<Answers>,
}

/// A record on its way into the log. Letting go of it does not take the record back.
#[derive(Debug)]
pub struct Appending {
    topic: String,
    answer: Receiver<Result<u64, LogError>>,
}

/// Hands each acknowledgement to whoever waits for it.
struct Answers {
    topic: String,
}

impl ClientContext for Answers {}

impl ProducerContext for Answers {
    type DeliveryOpaque = Box<Sender<Result<u64, LogError>>>;

    fn delivery(&self, result: &DeliveryResult<'_>, answer: Self::DeliveryOpaque) {
        let said = match result {
            Ok(message) => Ok(message.offset().cast_unsigned()),
            Err((error, _)) => Err(match classify(error) {
                Failure::NoTopic => LogError::Lost { log: self.topic.clone() },
                _ => refused(&self.topic, error),
            }),
        };
        // nobody has to wait for it
        let _ = answer.send(said);
    }
}

impl Appender {
    pub(super) fn new(config: &ClientConfig, topic: &str) -> Result<Self, LogError> {
        let mut config = config.clone();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "0")
            .set("linger.ms", "0")
            .set("compression.type", "zstd")
            .set("allow.auto.create.topics", "false");
        let answers = Answers { topic: topic.to_owned() };
        let producer = ThreadedProducer::from_config_and_context(&config, answers).map_err(|error| refused(topic, &error))?;
        Ok(Self { topic: topic.to_owned(), producer })
    }

    pub(super) fn begin(&self, record: &LogRecord) -> Result<Appending, LogError> {
        let mut bytes = Vec::new();
        codec::encode(record, &mut bytes);
        let (answers, answer) = bounded(1);
        let sent = BaseRecord::<(), [u8], _>::with_opaque_to(&self.topic, Box::new(answers)).partition(0).payload(&bytes);
        match self.producer.send(sent) {
            Ok(()) => Ok(Appending { topic: self.topic.clone(), answer }),
            Err((error, _)) => Err(self.not_taken(&error)),
        }
    }

    fn not_taken(&self, error: &KafkaError) -> LogError {
        match classify(error) {
            Failure::NoTopic => LogError::Lost { log: self.topic.clone() },
            Failure::Final => refused(&self.topic, error),
            // its queue is full: nothing has been acknowledged for very long
            _ => unreachable(&self.topic, Some(error)),
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // what nobody waits for any more need not go out, and must not hold up the end of the process
        self.producer.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
    }
}

impl Appending {
    /// The offset of the record, once the broker has acknowledged it; `None` if that takes longer than the time given.
    /// An answer is given once.
    ///
    /// # Errors
    /// The record may or may not be in the log: the publisher ends, its successor reads what is there.
    pub fn wait(&self, at_most: Duration) -> Result<Option<u64>, LogError> {
        match self.answer.try_recv() {
            Ok(answer) => return answer.map(Some),
            Err(TryRecvError::Disconnected) => return Err(unreachable(&self.topic, None)),
            Err(TryRecvError::Empty) => {}
        }
        match self.answer.recv_deadline(Instant::now() + at_most) {
            Ok(answer) => answer.map(Some),
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => Ok(None),
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => Err(unreachable(&self.topic, None)),
        }
    }
}
