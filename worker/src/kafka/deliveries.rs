//! What a producer reports of the records that it was given.

use super::{KafkaContext, OnDelivery};
use parking_lot::Mutex;
use rdkafka::{Message, message::DeliveryResult, types::RDKafkaErrorCode};
use std::sync::Arc;

/// The context of a producer whose records have numbers.
pub type Numbered = OnDelivery<usize>;

/// The answers to the records of a producer. They are collected while it is polled, and taken by whoever polls it.
#[derive(Clone, Debug, Default)]
pub struct Deliveries(Arc<Mutex<Vec<Delivery>>>);

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
    /// The record itself, where it was too large: the document is to be kept.
    pub record: Option<(String, Vec<u8>)>,
}

impl Deliveries {
    /// The context for the producer.
    pub fn context(&self, connection: KafkaContext) -> Numbered {
        let answers = self.clone();
        OnDelivery::new(connection, move |result, number| answers.answered(result, number))
    }

    /// The answers since the last call.
    pub fn take(&self) -> Vec<Delivery> {
        std::mem::take(&mut *self.0.lock())
    }

    /// The client did not even take the record.
    pub fn refuse(&self, number: usize, topic: &str, code: RDKafkaErrorCode, key: &[u8], value: &[u8]) {
        let refused = Refused::new(topic, code, key, value);
        self.0.lock().push(Delivery { number, answer: Err(refused) });
    }

    fn answered(&self, result: &DeliveryResult<'_>, number: usize) {
        let answer = match result {
            Ok(message) => Ok((message.partition() as u32, message.offset() as u64)),
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
                Err(Refused::new(message.topic(), code, message.key().unwrap_or_default(), message.payload().unwrap_or_default()))
            }
        };
        self.0.lock().push(Delivery { number, answer });
    }
}

impl Refused {
    /// A record that was not taken.
    pub fn new(topic: &str, code: RDKafkaErrorCode, key: &[u8], value: &[u8]) -> Self {
        let is_too_large = code == RDKafkaErrorCode::MessageSizeTooLarge;
        let record = is_too_large.then(|| (String::from_utf8_lossy(key).into_owned(), value.to_vec()));
        Self { topic: topic.into(), code, record }
    }
}
