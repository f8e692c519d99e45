//! What tests do with a broker: make topics, write records, read all of a topic.

use super::Kafka;
use crate::services::poll_until;
use anyhow::{Context, Result, bail, ensure};
use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, Headers, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext},
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time for one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// Time for a topic to be read or written.
const TOPIC_LIMIT: Duration = Duration::from_secs(60);

/// A record, as it is written and read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// The partition; with -1 the broker's client chooses by key.
    pub partition: i32,
    /// The offset, of a record that was read.
    pub offset: i64,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// Names and values of the headers.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Record {
    /// A record with a key and a value.
    pub fn new(key: &str, value: &str) -> Self {
        Self { partition: -1, key: Some(key.into()), value: Some(value.into()), ..Self::default() }
    }

    /// The key as text.
    pub fn key_text(&self) -> String {
        self.key.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
    }

    /// The value as text.
    pub fn value_text(&self) -> String {
        self.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
    }
}

/// What the broker did not take.
#[derive(Default)]
struct Refused(Mutex<Vec<KafkaError>>);

impl ClientContext for Refused {}

impl ProducerContext for Refused {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(error.clone());
        }
    }
}

impl Kafka {
    /// What a client needs to connect with all rights.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap()).set("allow.auto.create.topics", "false");
        // a broker that was started again is found at once
        config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "200");
        config
    }

    pub(super) fn wait_until_ready(&self, limit: Duration) -> Result<()> {
        let client: BaseConsumer = self.client().create().context("failed to build a client")?;
        let ready = || client.fetch_metadata(None, Duration::from_secs(1)).is_ok_and(|metadata| !metadata.brokers().is_empty());
        poll_until("Kafka is ready", limit, ready)
    }

    /// Makes a topic, empty, with so many partitions.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        self.create_topic_with(name, partitions, &[])
    }

    /// Makes a topic with settings of its own.
    pub fn create_topic_with(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<()> {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        topic.config.extend(settings);
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_LIMIT)).request_timeout(Some(REQUEST_LIMIT));
        let made = wait_for(self.admin()?.create_topics([&topic], &options))?.pop().context("no answer")?;
        made.map(drop).map_err(|(name, code)| anyhow::anyhow!("topic {name} was not made: {code}"))
    }

    /// Deletes a topic and waits until it is gone.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_LIMIT)).request_timeout(Some(REQUEST_LIMIT));
        let gone = wait_for(self.admin()?.delete_topics(&[name], &options))?.pop().context("no answer")?;
        gone.map(drop).map_err(|(name, code)| anyhow::anyhow!("topic {name} was not deleted: {code}"))?;
        poll_until("the topic is gone", REQUEST_LIMIT, || self.partitions(name).is_ok_and(|partitions| partitions == 0))
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        self.client().create().context("failed to build an administrator")
    }

    /// How many partitions a topic has; none if there is no such topic.
    pub fn partitions(&self, topic: &str) -> Result<usize> {
        let client: BaseConsumer = self.client().create().context("failed to build a client")?;
        let metadata = client.fetch_metadata(Some(topic), REQUEST_LIMIT).context("failed to ask for a topic")?;
        Ok(metadata.topics().first().map_or(0, |topic| topic.partitions().len()))
    }

    /// Writes records and waits until all are acknowledged.
    pub fn produce(&self, topic: &str, records: &[Record]) -> Result<()> {
        let mut config = self.client();
        config.set("enable.idempotence", "true").set("partitioner", "murmur2_random").set("linger.ms", "5");
        let producer: BaseProducer<Refused> = config.create_with_context(Refused::default()).context("failed to build a producer")?;
        for record in records {
            produce_one(&producer, topic, record)?;
        }
        producer.flush(TOPIC_LIMIT).context("not all records were acknowledged")?;
        let refused = producer.context().0.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(refused.is_empty(), "{} records for {topic} were refused: {}", refused.len(), refused[0]);
        Ok(())
    }

    /// All records of a topic up to its present end, by partition and offset.
    pub fn read(&self, topic: &str) -> Result<Vec<Record>> {
        let mut config = self.client();
        config.set("group.id", "unused").set("enable.auto.commit", "false").set("fetch.queue.backoff.ms", "2");
        let consumer: BaseConsumer = config.create().context("failed to build a consumer")?;
        let (mut list, mut missing) = (TopicPartitionList::new(), BTreeMap::new());
        for partition in 0..i32::try_from(self.partitions(topic)?)? {
            let mut ends = None;
            // a broker that has just started does not lead its partitions yet
            poll_until("a partition has a leader", REQUEST_LIMIT, || {
                ends = consumer.fetch_watermarks(topic, partition, REQUEST_LIMIT).ok();
                ends.is_some()
            })?;
            let (low, high) = ends.context("no answer")?;
            if low < high {
                list.add_partition_offset(topic, partition, Offset::Offset(low))?;
                missing.insert(partition, high);
            }
        }
        consumer.assign(&list).context("failed to read a topic")?;
        let end = Instant::now() + TOPIC_LIMIT;
        let mut records = Vec::new();
        while !missing.is_empty() {
            ensure!(Instant::now() < end, "topic {topic} was not read within {TOPIC_LIMIT:?}");
            // control records of transactions have offsets too, and are not given out
            let Some(record) = consumer.poll(Duration::from_millis(50)) else {
                missing.retain(|partition, high| consumer_position(&consumer, topic, *partition).is_none_or(|at| at < *high));
                continue;
            };
            let record = record.context("failed to read a record")?;
            if missing.get(&record.partition()).is_some_and(|high| record.offset() + 1 >= *high) {
                missing.remove(&record.partition());
            }
            records.push(owned(&record));
        }
        records.sort();
        Ok(records)
    }

    /// The committed offset and metadata of a group in a partition.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Result<Option<(i64, String)>> {
        let consumer: BaseConsumer = self.client().set("group.id", group).create().context("failed to build a consumer")?;
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition(topic, partition);
        let offsets = consumer.committed_offsets(wanted, REQUEST_LIMIT).context("failed to ask for committed offsets")?;
        let found = offsets.find_partition(topic, partition).context("no answer")?;
        Ok(found.offset().to_raw().filter(|offset| *offset >= 0).map(|offset| (offset, found.metadata().to_owned())))
    }
}

fn produce_one(producer: &BaseProducer<Refused>, topic: &str, record: &Record) -> Result<()> {
    let headers =
        record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(value) }));
    let mut message = BaseRecord::<[u8], [u8], _>::to(topic).headers(headers);
    message.partition = (record.partition >= 0).then_some(record.partition);
    message.key = record.key.as_deref();
    message.payload = record.value.as_deref();
    let end = Instant::now() + TOPIC_LIMIT;
    loop {
        match producer.send(message) {
            Ok(()) => return Ok(()),
            Err((error, again)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) && Instant::now() < end => {
                message = again;
                producer.poll(Duration::from_millis(10));
            }
            Err((error, _)) => bail!("failed to write to {topic}: {error}"),
        }
    }
}

fn consumer_position(consumer: &BaseConsumer, topic: &str, partition: i32) -> Option<i64> {
    let positions = consumer.position().ok()?;
    positions.find_partition(topic, partition)?.offset().to_raw().filter(|offset| *offset >= 0)
}

fn owned(message: &impl Message) -> Record {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec())).collect(),
    }
}

/// Waits for an answer, outside of any runtime.
fn wait_for<T>(answer: impl Future<Output = rdkafka::error::KafkaResult<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("failed to start a runtime")?;
    runtime.block_on(answer).context("the broker did not do it")
}
