//! What the client alone takes: poll, produce, commit, one thread, every record the same bytes. It accounts for nothing.

use anyhow::Result;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::KafkaError,
    producer::{BaseProducer, BaseRecord, Producer},
    types::RDKafkaErrorCode,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

const COMMIT_INTERVAL: Duration = Duration::from_millis(200);

/// Copies so many records of a topic of four partitions.
pub fn relay(broker: &str, from: &str, to: &str, rows: u64) -> Result<()> {
    let (consumer, producer) = clients(broker)?;
    let mut assigned = TopicPartitionList::new();
    for partition in 0..4 {
        assigned.add_partition_offset(from, partition, Offset::Beginning)?;
    }
    consumer.assign(&assigned)?;
    let (mut copied, mut committed) = (0, Instant::now());
    let mut next: BTreeMap<i32, i64> = BTreeMap::new();
    while copied < rows {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        let mut record = BaseRecord::to(to).key(message.key().unwrap_or_default()).payload(message.payload().unwrap_or_default());
        record.headers = message.headers().map(|headers| headers.detach());
        while let Err((error, refused)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            record = refused;
            producer.poll(Duration::from_millis(1));
        }
        next.insert(message.partition(), message.offset() + 1);
        copied += 1;
        if copied % 256 == 0 {
            producer.poll(Duration::ZERO);
            if committed.elapsed() >= COMMIT_INTERVAL {
                committed = Instant::now();
                commit(&consumer, from, &next, CommitMode::Async)?;
            }
        }
    }
    producer.flush(Duration::from_secs(60))?;
    commit(&consumer, from, &next, CommitMode::Sync)
}

/// With the settings of Penstock's own.
fn clients(broker: &str) -> Result<(BaseConsumer, BaseProducer)> {
    let mut consumer = ClientConfig::new();
    consumer.set("bootstrap.servers", broker).set("group.id", "penstock-bench-relay").set("enable.auto.commit", "false");
    consumer.set("fetch.queue.backoff.ms", "2").set("queued.min.messages", "20000").set("queued.max.messages.kbytes", "16384");
    consumer.set("fetch.message.max.bytes", "1000000").set("fetch.wait.max.ms", "50");
    let mut producer = ClientConfig::new();
    producer.set("bootstrap.servers", broker).set("enable.idempotence", "true").set("linger.ms", "10");
    producer
        .set("partitioner", "murmur2_random")
        .set("batch.num.messages", "10000")
        .set("batch.size", "1000000")
        .set("compression.type", "lz4");
    producer.set("queue.buffering.max.kbytes", "16384").set("queue.buffering.max.messages", "100000");
    Ok((consumer.create()?, producer.create()?))
}

fn commit(consumer: &BaseConsumer, topic: &str, next: &BTreeMap<i32, i64>, mode: CommitMode) -> Result<()> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in next {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
    }
    Ok(consumer.commit(&list, mode)?)
}
