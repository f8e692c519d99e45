//! What a producer reports of the records that it was given.

use crate::kafka::KafkaContext;
use parking_lot::Mutex;
use rdkafka::{
    ClientContext, Message,
    client::OAuthToken,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::DeliveryResult,
    producer::{NoCustomPartitioner, ProducerContext},
    types::RDKafkaErrorCode,
};
use std::error::Error;

/// The context of a producer. Answers are collected while the producer is polled, and taken by whoever polls it.
pub struct Deliveries {
    context: KafkaContext,
    answers: Mutex<Vec<Delivery>>,
}

/// The answer to one record.
#[derive(Debug)]
pub struct Delivery {
    /// The number that it was sent with.
    pub number: usize,
    /// Partition and offset, or why it was refused.
    pub answer: Result<(u32, u64), Refused>,
}

/// A record that the broker did not take.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The topic.
    pub topic: String,
    /// Why.
    pub code: RDKafkaErrorCode,
    /// The record's value, where it was too large: the document is to be kept.
    pub value: Vec<u8>,
}

impl Deliveries {
    /// The context of a new producer.
    pub fn new(context: KafkaContext) -> Self {
        Self { context, answers: Mutex::default() }
    }

    /// The answers since the last call.
    pub fn take(&self) -> Vec<Delivery> {
        std::mem::take(&mut *self.answers.lock())
    }
}

impl Deliveries {
    /// The client did not even take the record.
    pub fn refuse(&self, number: usize, refused: Refused) {
        self.answers.lock().push(Delivery { number, answer: Err(refused) });
    }
}

impl ClientContext for Deliveries {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.context.stats_raw(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.context.generate_oauth_token(config)
    }
}

impl ProducerContext<NoCustomPartitioner> for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let answer = match result {
            Ok(message) => Ok((message.partition() as u32, message.offset() as u64)),
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
                let value = if code == RDKafkaErrorCode::MessageSizeTooLarge { message.payload().unwrap_or_default() } else { &[] };
                Err(Refused { topic: message.topic().into(), code, value: value.into() })
            }
        };
        self.answers.lock().push(Delivery { number, answer });
    }
}
