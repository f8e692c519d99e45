//! The log of a step as a topic with one partition: the offset of a record is its place in the log.

mod append;
pub mod codec;
mod reader;

pub use append::Appending;

use super::log::{EventLog, LogError, LogRecord};
use crate::kafka::{Connection, KafkaContext, failure};
use append::Appender;
use parking_lot::Mutex;
use rdkafka::error::KafkaError;
use reader::Reader;
use std::{fmt, sync::Arc, time::Duration};

/// The event topic of a run. Trouble of the broker is waited out, as long as `patience` says for each call.
pub struct TopicLog {
    topic: String,
    patience: Duration,
    context: KafkaContext,
    appender: Appender,
    reader: Mutex<Reader>,
}

impl TopicLog {
    /// Opens the log.
    ///
    /// # Errors
    /// The topic does not exist, has more than one partition, or the broker does not answer in time or refuses.
    pub fn open(connection: &Connection, topic: &str, patience: Duration) -> Result<Self, LogError> {
        let reader = Mutex::new(Reader::open(connection, topic, patience)?);
        let appender = Appender::new(connection, topic)?;
        Ok(Self { topic: topic.to_owned(), patience, context: connection.context(), appender, reader })
    }

    /// The name of the topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Sends a record without waiting for its acknowledgement. Records stand in the log in the order in which they were sent.
    ///
    /// # Errors
    /// It was not sent.
    pub fn begin_append(&self, record: &LogRecord) -> Result<Appending, LogError> {
        self.appender.begin(record)
    }

    /// Records from an offset on, so many at most. Waits for the first so long at most, and for no other: to read on at the end.
    ///
    /// # Errors
    /// The log cannot be read from there.
    pub fn read_some(&self, from: u64, most: usize, timeout: Duration) -> Result<Vec<(u64, Arc<LogRecord>)>, LogError> {
        let mut records = Vec::new();
        self.reader.lock().read_some(from, most, timeout, &mut records)?;
        Ok(records)
    }

    /// The offset of the first record that is there, or would be.
    ///
    /// # Errors
    /// The log cannot be reached.
    pub fn first(&self) -> Result<u64, LogError> {
        self.reader.lock().bounds(self.patience).map(|(first, _)| first)
    }
}

impl EventLog for TopicLog {
    fn append(&self, record: LogRecord) -> Result<u64, LogError> {
        let appended = self.begin_append(&record)?.wait(self.patience)?;
        appended.ok_or_else(|| unreachable(&self.topic, None, &self.context))
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<(u64, Arc<LogRecord>)>, LogError> {
        self.reader.lock().read(from, most, self.patience)
    }

    fn end(&self) -> Result<u64, LogError> {
        self.reader.lock().bounds(self.patience).map(|(_, end)| end)
    }
}

impl fmt::Debug for TopicLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicLog").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// The log cannot be used, and trying again will not help.
fn refused(topic: &str, error: &KafkaError) -> LogError {
    LogError::Refused { log: topic.to_owned(), reason: failure::reason(error) }
}

/// Nobody has answered in time.
fn unreachable(topic: &str, error: Option<&KafkaError>, context: &KafkaContext) -> LogError {
    let reason = match (context.trouble(), error) {
        (Some(trouble), _) => format!("{} ({})", trouble.fault, trouble.detail),
        (None, Some(error)) => failure::reason(error),
        (None, None) => "no answer from the brokers".to_owned(),
    };
    LogError::Unreachable { log: topic.to_owned(), reason }
}
