//! `properties` of a KafkaConnection: which settings of the Kafka client may be given, and why the others may not.

use crate::{problem::Problems, suggest::did_you_mean};
use penstock_crds::KafkaConnectionSpec;
use rdkafka::{ClientConfig, error::KafkaError as ClientError};

/// What may be set: connections, TLS details, timeouts, sizes, batching.
const ALLOWED: [&str; 56] = [
    "batch.num.messages",
    "batch.size",
    "broker.address.family",
    "broker.address.ttl",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "compression.codec",
    "compression.level",
    "compression.type",
    "connections.max.idle.ms",
    "coordinator.query.interval.ms",
    "enable.ssl.certificate.verification",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "heartbeat.interval.ms",
    "linger.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "message.copy.max.bytes",
    "message.max.bytes",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "session.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.max.fails",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.endpoint.identification.algorithm",
    "ssl.sigalgs.list",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse",
];

/// What is decided elsewhere: the beginning of its name, and where.
const DECIDED: [(&str, &str); 31] = [
    ("acks", "every record is acknowledged by all replicas in sync, or documents could get lost"),
    ("allow.auto.create.topics", "topics are made by intent, never by a name that is misspelled"),
    ("auto.commit", "offsets are committed once everything that a record led to is safe"),
    ("auto.offset.reset", "what was not read yet is read from the beginning"),
    ("bootstrap.servers", "write `bootstrapServers`"),
    ("debug", "set the level of the log with --log-level"),
    ("delivery.timeout.ms", "how long is waited is the `timeout` of the run's connector"),
    ("enable.auto", "offsets are committed once everything that a record led to is safe"),
    ("enable.gapless.guarantee", "records are numbered and counted by the pipeline"),
    ("enable.idempotence", "records are written once and in order, or documents could be doubled"),
    ("enable.partition.eof", "the end of a topic is known by its offsets"),
    ("group.", "the consumer group follows from the name of the Pipeline"),
    ("isolation.level", "no transactions are used"),
    ("log", "set the level of the log with --log-level"),
    ("max.in.flight", "records are written once and in order, or documents could be doubled"),
    ("message.send.max.retries", "records are repeated until they are acknowledged"),
    ("message.timeout.ms", "how long is waited is the `timeout` of the run's connector"),
    ("metadata.broker.list", "write `bootstrapServers`"),
    ("offset.store.method", "offsets are kept by the brokers"),
    ("partition.assignment.strategy", "partitions move one by one, so that nothing stands still"),
    ("partitioner", "an id has one partition, the same that Java clients choose"),
    ("plugin.library.paths", "no other code is loaded"),
    ("queuing.strategy", "records are written once and in order, or documents could be doubled"),
    ("request.required.acks", "every record is acknowledged by all replicas in sync, or documents could get lost"),
    ("retries", "records are repeated until they are acknowledged"),
    ("security.protocol", "it follows from `tls` and `sasl`"),
    ("ssl.ca", "write `tls.ca`"),
    ("ssl.certificate", "write `tls.clientCertificate`"),
    ("ssl.key", "write `tls.clientKey`"),
    ("statistics.interval.ms", "it tells whether brokers are back"),
    ("transaction", "no transactions are used"),
];

/// Reports what is wrong with the properties of a KafkaConnection. `problems` are those of its `spec`.
pub fn check(spec: &KafkaConnectionSpec, problems: &mut Problems<'_>) {
    let mut problems = problems.below("properties");
    for (name, value) in &spec.properties {
        if let Some(message) = fault(name, value) {
            problems.add(name, message);
        }
    }
}

fn fault(name: &str, value: &str) -> Option<String> {
    if ALLOWED.contains(&name) {
        return value_fault(name, value);
    }
    // a rule of the schema speaks about these
    if name.contains("password") || name.contains("secret") || name.starts_with("sasl.") {
        return None;
    }
    if let Some((_, why)) = DECIDED.iter().find(|(beginning, _)| name.starts_with(beginning)) {
        return Some(format!("`{name}` cannot be set: {why}"));
    }
    let hint = did_you_mean(name, ALLOWED);
    let cure = if hint.is_empty() { "; the guide to Kafka security lists what may be set" } else { &hint };
    Some(format!("there is no property `{name}` that may be set{cure}"))
}

/// Why the client would not take a value. It opens nothing.
fn value_fault(name: &str, value: &str) -> Option<String> {
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => None,
        Err(ClientError::ClientConfig(_, detail, ..)) => Some(format!("the value `{value}` cannot be used: {detail}")),
        Err(error) => Some(format!("the value `{value}` cannot be used: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::connection::DEFAULTS;

    #[test]
    fn every_property_that_may_be_set_is_one_of_the_client() {
        for name in ALLOWED {
            let said = value_fault(name, "").unwrap_or_default();
            assert!(!said.contains("No such configuration property"), "{name}: {said}");
            assert!(!DECIDED.iter().any(|(beginning, _)| name.starts_with(beginning)), "{name}");
        }
        let mut sorted = ALLOWED;
        sorted.sort_unstable();
        assert_eq!(sorted, ALLOWED);
    }

    #[test]
    fn our_own_settings_are_taken_by_the_client() {
        for (name, value) in DEFAULTS {
            assert_eq!(value_fault(name, value), None);
        }
    }

    #[test]
    fn what_may_not_be_set_says_why() {
        for (name, value, want) in [
            ("linger.ms", "5", None),
            ("linger.ms", "soon", Some("the value `soon` cannot be used: ")),
            ("linger.sm", "5", Some("did you mean `linger.ms`?")),
            ("frobnicate", "5", Some("there is no property `frobnicate` that may be set; ")),
            ("group.id", "mine", Some("follows from the name of the Pipeline")),
            ("acks", "1", Some("documents could get lost")),
            ("enable.auto.commit", "true", Some("offsets are committed once")),
            ("sasl.password", "x", None),
        ] {
            match (fault(name, value), want) {
                (None, None) => {}
                (Some(said), Some(want)) => assert!(said.contains(want), "{said}"),
                (said, want) => assert_eq!(said.as_deref(), want, "{name}"),
            }
        }
    }
}
