//! The settings of producers and consumers, as measured; `properties` of the connection may change those that are about speed.

use super::{Connection, KafkaError};
use rdkafka::{ClientConfig, ClientContext, config::FromClientConfigAndContext};

/// What every producer must have: nothing is lost, and the order of each id is kept.
const SAFE_PRODUCER: [(&str, &str); 5] = [
    ("enable.idempotence", "true"),
    ("acks", "all"),
    // trouble of a broker is waited out: a step has its own timeout
    ("message.timeout.ms", "0"),
    // as the Java client does, so that documents of outside producers meet theirs
    ("partitioner", "murmur2_random"),
    ("topic.metadata.propagation.max.ms", "10000"),
];
/// A small queue costs nothing and saves memory. What does not fit waits in front of it.
const FAST_PRODUCER: [(&str, &str); 3] = [("batch.size", "1000000"), ("compression.type", "lz4"), ("queue.buffering.max.kbytes", "16384")];
/// Many small records. The client has one request on its way for each partition, and does not sleep while one is out and another
/// record is older than `linger.ms`: so batches go by their number, `linger.ms` is longer than a request takes, and no more waits
/// than goes in that time.
const SOURCE: [(&str, &str); 3] = [("linger.ms", "100"), ("batch.num.messages", "500"), ("queue.buffering.max.messages", "10000")];
/// The same, but where documents are tried one by one each of them waits that long.
const RESULTS: [(&str, &str); 3] = [("linger.ms", "20"), SOURCE[1], SOURCE[2]];
/// Few records of many events. An offset waits for them to be committed.
const REPORTS: [(&str, &str); 3] = [("linger.ms", "10"), ("batch.num.messages", "10000"), ("queue.buffering.max.messages", "100000")];
/// What every member of a group must have: only what is done is committed, by us.
const SAFE_CONSUMER: [(&str, &str); 5] = [
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("partition.assignment.strategy", "cooperative-sticky"),
    // we say where to begin; records that are gone are an error, not a reason to jump
    ("auto.offset.reset", "error"),
    ("enable.partition.eof", "false"),
];
/// Each partition that is read has a queue of this size. With a small queue the default pause of a second between two fetches
/// would cost nine tenths of the speed.
const FAST_CONSUMER: [(&str, &str); 5] = [
    ("fetch.queue.backoff.ms", "2"),
    ("queued.min.messages", "5000"),
    ("queued.max.messages.kbytes", "2048"),
    ("fetch.message.max.bytes", "262144"),
    ("fetch.wait.max.ms", "50"),
];

/// The largest record of the client, where nothing else is said.
const CLIENT_LARGEST: usize = 1_000_000;
/// Room in a record for key and headers.
const RECORD_OVERHEAD: usize = 16 * 1024;

/// How large a value may be in a record of at most so many bytes, with key and headers.
pub fn largest_value(record: usize) -> usize {
    record.saturating_sub(RECORD_OVERHEAD).max(record / 4)
}

/// Why a document fails that is too large for a topic (`source`, `dest`).
pub fn too_large(bytes: usize, topic: &str) -> String {
    format!(
        "the document has {bytes} bytes, more than a record of the {topic} topic may have; make it smaller, or raise \
         max.message.bytes of the topic and message.max.bytes in the KafkaConnection's properties"
    )
}

/// What a producer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A publisher's documents, one to a record.
    Source,
    /// What a worker makes of them.
    Results,
    /// Events, many to a record, and letters.
    Reports,
}

impl Connection {
    /// Starts a client.
    ///
    /// # Errors
    /// The client refuses the settings.
    pub fn start<C: ClientContext, T: FromClientConfigAndContext<C>>(&self, config: &ClientConfig, context: C) -> Result<T, KafkaError> {
        self.client_of(|_| config.create_with_context(context))
    }

    /// The settings of a producer for topics that take records of so many bytes at most.
    pub fn producer(&self, traffic: Traffic, largest: usize) -> ClientConfig {
        let of_traffic = match traffic {
            Traffic::Source => &SOURCE,
            Traffic::Results => &RESULTS,
            Traffic::Reports => &REPORTS,
        };
        let mut config = with(with(self.client(), &[], of_traffic), &SAFE_PRODUCER, &FAST_PRODUCER);
        // a broker refuses a batch as a whole: one record that is too large must be alone in it
        if number(&config, "batch.size").is_none_or(|size| size > largest) {
            config.set("batch.size", largest.max(1).to_string());
        }
        config
    }

    /// The largest record that the client sends to a topic that takes so many bytes.
    pub fn largest_record(&self, largest: usize) -> usize {
        number(&self.client(), "message.max.bytes").unwrap_or(CLIENT_LARGEST).min(largest)
    }

    /// The settings of a member of a consumer group.
    pub fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = with(self.client(), &SAFE_CONSUMER, &FAST_CONSUMER);
        config.set("group.id", group);
        config
    }
}

fn number(config: &ClientConfig, name: &str) -> Option<usize> {
    config.get(name)?.parse().ok()
}

fn with(mut config: ClientConfig, safe: &[(&str, &str)], fast: &[(&str, &str)]) -> ClientConfig {
    for (name, value) in fast {
        if config.get(name).is_none() {
            config.set(*name, *value);
        }
    }
    for (name, value) in safe {
        config.set(*name, *value);
    }
    config
}
