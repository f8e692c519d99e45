//! Reading what stands in a topic at present: from the first record, or any other, to the end as it is now. Without a group.

use super::{
    Access, Connection, KafkaContext, KafkaError, Resource,
    failure::{Failure, classify},
};
use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError as ClientError,
    message::BorrowedMessage,
    types::RDKafkaErrorCode,
};
use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};

/// A question to the broker is repeated after so long without an answer.
const ASK: Duration = Duration::from_secs(5);

/// Between two tries where the answer comes at once.
const PAUSE: Duration = Duration::from_millis(100);

/// By partition, which offsets.
pub type Ranges = BTreeMap<i32, Range<i64>>;

/// A reader of a topic.
pub struct Scan<'a> {
    connection: &'a Connection,
    topic: String,
    consumer: BaseConsumer<KafkaContext>,
    patience: Duration,
}

impl<'a> Scan<'a> {
    /// A reader that waits so long for an answer, or for the next record.
    ///
    /// # Errors
    /// The configuration is refused.
    pub fn open(connection: &'a Connection, topic: &str, patience: Duration) -> Result<Self, KafkaError> {
        let mut config = connection.client();
        config
            // needed by the client; the group is never joined
            .set("group.id", "penstock-scan")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            .set("fetch.queue.backoff.ms", "2")
            .set("queued.max.messages.kbytes", "16384");
        let made = config.create_with_context(connection.context());
        let consumer = made.map_err(|error| connection.error(&error, Access::Read, Resource::topic(topic)))?;
        Ok(Self { connection, topic: topic.to_owned(), consumer, patience })
    }

    /// The name of the topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// What is there at present.
    ///
    /// # Errors
    /// The topic is not there, or nobody answers.
    pub fn present(&self) -> Result<Ranges, KafkaError> {
        let partitions = self.ask(|at_most| partitions_of(&self.consumer, &self.topic, at_most))?;
        let mut ranges = Ranges::new();
        for partition in partitions {
            let (first, end) = self.ask(|at_most| self.consumer.fetch_watermarks(&self.topic, partition, at_most))?;
            ranges.insert(partition, first..end);
        }
        Ok(ranges)
    }

    /// Reads these records, those of a partition in their order, until all are read or `each` has seen enough.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn read(&self, ranges: &Ranges, each: &mut dyn FnMut(&BorrowedMessage<'_>) -> ControlFlow<()>) -> Result<(), KafkaError> {
        let mut left: BTreeMap<i32, i64> =
            ranges.iter().filter(|(_, range)| !range.is_empty()).map(|(partition, range)| (*partition, range.end)).collect();
        self.go_to(ranges)?;
        let mut deadline = Instant::now() + self.patience;
        while !left.is_empty() {
            match self.consumer.poll(deadline.saturating_duration_since(Instant::now())) {
                None => return Err(self.no_answer()),
                Some(Ok(message)) => {
                    let (partition, offset) = (message.partition(), message.offset());
                    let Some(end) = left.get(&partition).copied() else { continue };
                    if offset < end && each(&message).is_break() {
                        break;
                    }
                    if offset + 1 >= end {
                        left.remove(&partition);
                    }
                    deadline = Instant::now() + self.patience;
                }
                // the last offsets may belong to no record: those of transactions
                Some(Err(ClientError::PartitionEOF(partition))) => {
                    left.remove(&partition);
                }
                Some(Err(error)) => self.judge(&error)?,
            }
        }
        let _ = self.consumer.unassign();
        Ok(())
    }

    fn go_to(&self, ranges: &Ranges) -> Result<(), KafkaError> {
        let mut places = TopicPartitionList::new();
        for (partition, range) in ranges.iter().filter(|(_, range)| !range.is_empty()) {
            let added = places.add_partition_offset(&self.topic, *partition, Offset::Offset(range.start));
            added.map_err(|error| self.error(&error))?;
        }
        self.consumer.assign(&places).map_err(|error| self.error(&error))
    }

    /// An error that the client does not get over by itself.
    fn judge(&self, error: &ClientError) -> Result<(), KafkaError> {
        match classify(error) {
            Failure::Passing | Failure::OutOfRange => Ok(()),
            Failure::NoTopic | Failure::Final => Err(self.error(error)),
        }
    }

    /// Asks until there is an answer.
    fn ask<T>(&self, question: impl Fn(Duration) -> Result<T, ClientError>) -> Result<T, KafkaError> {
        let deadline = Instant::now() + self.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match question(left.min(ASK)) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.judge(&error)?;
            if left <= PAUSE {
                return Err(self.error(&error).after(self.patience));
            }
            // serves the client, for example with a token; nothing is assigned, so there is nothing to miss
            drop(self.consumer.poll(PAUSE));
        }
    }

    fn error(&self, error: &ClientError) -> KafkaError {
        self.connection.error(error, Access::Read, Resource::topic(&self.topic))
    }

    fn no_answer(&self) -> KafkaError {
        self.error(&ClientError::Global(RDKafkaErrorCode::OperationTimedOut)).after(self.patience)
    }
}

/// The partitions of a topic, in one question.
///
/// # Errors
/// There is no such topic, or no answer in time.
pub fn partitions_of<C: ConsumerContext>(consumer: &BaseConsumer<C>, topic: &str, at_most: Duration) -> Result<Vec<i32>, ClientError> {
    let metadata = consumer.fetch_metadata(Some(topic), at_most)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    match found.map(|found| (found.error(), found.partitions())) {
        Some((None, partitions)) => Ok(partitions.iter().map(|partition| partition.id()).collect()),
        Some((Some(code), _)) => Err(ClientError::MetadataFetch(code.into())),
        None => Err(ClientError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)),
    }
}
