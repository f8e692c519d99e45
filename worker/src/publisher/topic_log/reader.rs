//! The reading half: records in their order, without a group, from a place on and then onwards.

use super::{codec, refused, unreachable};
use crate::{
    kafka::{
        Connection, KafkaContext,
        failure::{Failure, classify},
        scan::partitions_of,
    },
    publisher::log::{LogError, LogRecord},
};
use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A question to the broker is repeated after so long without an answer.
const ASK: Duration = Duration::from_secs(5);

/// Between two tries where the answer comes at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Records and their offsets.
pub(super) type Read = Vec<(u64, Arc<LogRecord>)>;

pub(super) struct Reader {
    topic: String,
    context: KafkaContext,
    consumer: BaseConsumer<KafkaContext>,
    /// The record that the consumer gives next; `None` before the first.
    next: Option<u64>,
    /// Where the log ended when it was asked last.
    end: u64,
}

impl Reader {
    /// Opens the log, which has to be there, with one partition.
    pub(super) fn open(connection: &Connection, topic: &str, patience: Duration) -> Result<Self, LogError> {
        let mut config = connection.client();
        config
            // needed by the client; the group is never joined
            .set("group.id", "penstock-event-log")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("fetch.queue.backoff.ms", "2")
            .set("fetch.wait.max.ms", "50")
            .set("queued.min.messages", "20000")
            .set("queued.max.messages.kbytes", "16384");
        let context = connection.context();
        let consumer: BaseConsumer<KafkaContext> = config.create_with_context(context.clone()).map_err(|error| refused(topic, &error))?;
        let reader = Self { topic: topic.to_owned(), context, consumer, next: None, end: 0 };
        reader.check_topic(patience)?;
        Ok(reader)
    }

    /// The first offset, and the one that the next record will have.
    pub(super) fn bounds(&mut self, patience: Duration) -> Result<(u64, u64), LogError> {
        let (first, end) = self.ask(patience, |consumer, topic, at_most| consumer.fetch_watermarks(topic, 0, at_most))?;
        self.end = end.max(0).cast_unsigned();
        Ok((first.max(0).cast_unsigned(), self.end))
    }

    /// Records from an offset on, so many at most; none if the log ends there. Waits for records that are there already.
    pub(super) fn read(&mut self, from: u64, most: usize, patience: Duration) -> Result<Read, LogError> {
        let deadline = Instant::now() + patience;
        if from >= self.end {
            let (first, end) = self.bounds(patience)?;
            if from >= end {
                return if from == end { Ok(Vec::new()) } else { Err(self.not_there(from, first, end)) };
            }
        }
        let most = most.min(usize::try_from(self.end - from).unwrap_or(usize::MAX));
        let mut records = Vec::with_capacity(most);
        while records.len() < most {
            if Instant::now() >= deadline {
                return Err(unreachable(&self.topic, None, &self.context));
            }
            self.read_some(from + records.len() as u64, most - records.len(), ASK.min(patience), &mut records)?;
        }
        Ok(records)
    }

    /// Appends the records from an offset on that come within the time given: waits for the first only.
    pub(super) fn read_some(&mut self, from: u64, most: usize, timeout: Duration, records: &mut Read) -> Result<(), LogError> {
        if self.next != Some(from) {
            self.go_to(from)?;
        }
        let (enough, deadline) = (records.len() + most, Instant::now() + timeout);
        let mut wait = timeout;
        while records.len() < enough {
            match self.consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => {
                    let offset = message.offset().cast_unsigned();
                    let wanted = from.max(records.last().map_or(0, |(last, _)| last + 1));
                    if offset != wanted {
                        return Err(LogError::Truncated { wanted, first: offset });
                    }
                    let record = codec::decode(message.payload().unwrap_or_default()).map_err(|error| LogError::Unreadable {
                        log: self.topic.clone(),
                        offset,
                        reason: error.to_string(),
                    })?;
                    records.push((offset, Arc::new(record)));
                    self.next = Some(offset + 1);
                    wait = Duration::ZERO;
                }
                Some(Err(error)) => {
                    self.judge(&error, timeout)?;
                    wait = wait.min(deadline.saturating_duration_since(Instant::now()));
                    if wait.is_zero() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn go_to(&mut self, offset: u64) -> Result<(), LogError> {
        self.next = None;
        let mut place = TopicPartitionList::new();
        let place =
            place.add_partition_offset(&self.topic, 0, Offset::Offset(offset.cast_signed())).and_then(|()| self.consumer.assign(&place));
        place.map_err(|error| refused(&self.topic, &error))?;
        self.next = Some(offset);
        Ok(())
    }

    /// An error that the client does not get over by itself.
    fn judge(&mut self, error: &KafkaError, patience: Duration) -> Result<(), LogError> {
        let failure = classify(error);
        let wanted = self.next.unwrap_or(0);
        // the client asks again only if it is sent there anew
        if failure != Failure::Passing {
            self.next = None;
        }
        match failure {
            Failure::Passing => Ok(()),
            Failure::Final => Err(refused(&self.topic, error)),
            Failure::NoTopic => self.check_topic(patience.max(ASK)),
            Failure::OutOfRange => {
                let (first, end) = self.bounds(patience.max(ASK))?;
                if first <= wanted && wanted <= end { Ok(()) } else { Err(self.not_there(wanted, first, end)) }
            }
        }
    }

    /// A record is in front of the first, or behind an end where there was one before.
    fn not_there(&self, wanted: u64, first: u64, end: u64) -> LogError {
        if wanted > end { LogError::Lost { log: self.topic.clone() } } else { LogError::Truncated { wanted, first } }
    }

    /// The topic is there, and one log.
    fn check_topic(&self, patience: Duration) -> Result<(), LogError> {
        match self.ask(patience, partitions_of)?.len() {
            1 => Ok(()),
            partitions => Err(LogError::Partitions { log: self.topic.clone(), partitions }),
        }
    }

    /// Asks until there is an answer.
    fn ask<T>(
        &self,
        patience: Duration,
        question: impl Fn(&BaseConsumer<KafkaContext>, &str, Duration) -> Result<T, KafkaError>,
    ) -> Result<T, LogError> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match question(&self.consumer, &self.topic, left.min(ASK)) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match classify(&error) {
                Failure::NoTopic => return Err(LogError::Lost { log: self.topic.clone() }),
                Failure::Final => return Err(refused(&self.topic, &error)),
                _ if left <= PAUSE => return Err(unreachable(&self.topic, Some(&error), &self.context)),
                // serves the client, for example with a token; as long as nothing is assigned there is nothing to miss
                _ if self.next.is_none() => drop(self.consumer.poll(PAUSE)),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}
