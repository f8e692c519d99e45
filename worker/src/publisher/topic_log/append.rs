//! The writing half: a record at a time, each with its acknowledgement.

use super::{codec, refused, unreachable};
use crate::{
    kafka::{
        Connection, KafkaContext, OnDelivery,
        failure::{Failure, classify},
    },
    publisher::log::{LogError, LogRecord},
};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use rdkafka::{
    Message,
    error::KafkaError,
    message::DeliveryResult,
    producer::{BaseRecord, Producer, ThreadedProducer},
};
use std::time::{Duration, Instant};

/// Sends records to the only partition of a topic.
pub(super) struct Appender {
    topic: String,
    context: KafkaContext,
    producer: ThreadedProducer<OnDelivery<Box<Answers>>>,
}

/// A record on its way into the log. Letting go of it does not take the record back.
pub struct Appending {
    topic: String,
    context: KafkaContext,
    answer: Receiver<Result<u64, LogError>>,
}

type Answers = Sender<Result<u64, LogError>>;

impl Appender {
    pub(super) fn new(connection: &Connection, topic: &str) -> Result<Self, LogError> {
        let mut config = connection.client();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "0")
            .set("linger.ms", "0")
            .set("compression.type", "zstd")
            // it was there when the log was opened: if it is not to be found for so long, it is gone
            .set("topic.metadata.propagation.max.ms", "5000");
        let log = topic.to_owned();
        let context = OnDelivery::new(connection.context(), move |result: &DeliveryResult<'_>, answers: Box<Answers>| {
            // nobody has to wait for it
            let _ = answers.send(answer(result, &log));
        });
        let producer = config.create_with_context(context).map_err(|error| refused(topic, &error))?;
        Ok(Self { topic: topic.to_owned(), context: connection.context(), producer })
    }

    pub(super) fn begin(&self, record: &LogRecord) -> Result<Appending, LogError> {
        let mut bytes = Vec::new();
        codec::encode(record, &mut bytes);
        let (answers, answer) = bounded(1);
        let sent = BaseRecord::<(), [u8], _>::with_opaque_to(&self.topic, Box::new(answers)).partition(0).payload(&bytes);
        match self.producer.send(sent) {
            Ok(()) => Ok(Appending { topic: self.topic.clone(), context: self.context.clone(), answer }),
            Err((error, _)) => Err(self.not_taken(&error)),
        }
    }

    fn not_taken(&self, error: &KafkaError) -> LogError {
        match classify(error) {
            Failure::NoTopic => LogError::Lost { log: self.topic.clone() },
            Failure::Final => refused(&self.topic, error),
            // its queue is full: nothing has been acknowledged for very long
            _ => unreachable(&self.topic, Some(error), &self.context),
        }
    }
}

/// What an acknowledgement says.
fn answer(result: &DeliveryResult<'_>, topic: &str) -> Result<u64, LogError> {
    match result {
        Ok(message) => Ok(message.offset().cast_unsigned()),
        Err((error, _)) if classify(error) == Failure::NoTopic => Err(LogError::Lost { log: topic.to_owned() }),
        Err((error, _)) => Err(refused(topic, error)),
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
            Err(TryRecvError::Disconnected) => return Err(unreachable(&self.topic, None, &self.context)),
            Err(TryRecvError::Empty) => {}
        }
        match self.answer.recv_deadline(Instant::now() + at_most) {
            Ok(answer) => answer.map(Some),
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => Ok(None),
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => Err(unreachable(&self.topic, None, &self.context)),
        }
    }
}
