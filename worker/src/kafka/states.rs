//! Which brokers cannot be reached, and what is worth a line in the log: only a change.

use super::error::{Fault, KafkaError};
use std::collections::BTreeMap;

/// Why a broker cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The broker as `host:port`.
    pub broker: String,
    /// What is wrong.
    pub fault: Fault,
    /// What the client says.
    pub detail: String,
}

impl Trouble {
    /// As the error of something that could not be done.
    pub fn into_error(self, servers: String) -> KafkaError {
        KafkaError::Connect { servers, fault: self.fault, detail: self.detail }
    }
}

/// The brokers that are in trouble.
#[derive(Debug, Default)]
pub struct BrokerStates {
    down: BTreeMap<String, (u64, Trouble)>,
    failures: u64,
}

impl BrokerStates {
    /// Enters a failure. Whether that is news: the broker was well, or something else was wrong with it.
    pub fn failed(&mut self, trouble: Trouble) -> bool {
        self.failures += 1;
        let before = self.down.insert(trouble.broker.clone(), (self.failures, trouble.clone()));
        before.is_none_or(|(_, before)| before.fault != trouble.fault)
    }

    /// Enters that a broker is well. Whether that is news.
    pub fn well(&mut self, broker: &str) -> bool {
        self.down.remove(broker).is_some()
    }

    /// What is wrong with a broker.
    pub fn fault(&self, broker: &str) -> Option<Fault> {
        self.down.get(broker).map(|(_, trouble)| trouble.fault)
    }

    /// What keeps us from working: what only people can cure before what may pass, and the newest of those.
    pub fn worst(&self) -> Option<&Trouble> {
        self.down.values().max_by_key(|(number, trouble)| (trouble.fault.is_final(), *number)).map(|(_, trouble)| trouble)
    }
}

/// The broker that a message of the client is about: `sasl_ssl://host:9092/bootstrap: what happened` → `host:9092`, and the rest.
pub fn split_broker(message: &str) -> Option<(&str, &str)> {
    let (name, rest) = message.split_once(": ")?;
    Some((broker_address(name)?, rest))
}

/// `host:9092` of `sasl_ssl://host:9092/1`.
pub fn broker_address(name: &str) -> Option<&str> {
    let name = name.split_once("://").map_or(name, |(_, name)| name);
    let (address, id) = name.rsplit_once('/')?;
    let (host, port) = address.rsplit_once(':')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (!host.is_empty() && !host.contains(' ') && is_number(port) && (id == "bootstrap" || is_number(id))).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(broker: &str, fault: Fault) -> Trouble {
        Trouble { broker: broker.into(), fault, detail: String::new() }
    }

    #[test]
    fn only_changes_are_news() {
        let mut states = BrokerStates::default();
        assert!(states.failed(trouble("a:1", Fault::Unreachable)));
        assert!(!states.failed(trouble("a:1", Fault::Unreachable)));
        assert!(states.failed(trouble("b:1", Fault::Unreachable)));
        assert!(states.failed(trouble("a:1", Fault::Credentials)), "it is another fault now");
        assert!(states.well("a:1") && !states.well("a:1") && !states.well("c:1"));
        assert!(states.failed(trouble("a:1", Fault::Credentials)));
    }

    #[test]
    fn what_only_people_can_cure_is_the_worst() {
        let mut states = BrokerStates::default();
        assert_eq!(states.worst(), None);
        for (broker, fault) in [("a:1", Fault::Unreachable), ("b:1", Fault::Credentials), ("c:1", Fault::UnknownHost)] {
            states.failed(trouble(broker, fault));
        }
        assert_eq!(states.worst().map(|trouble| trouble.broker.as_str()), Some("b:1"));
        states.well("b:1");
        assert_eq!(states.worst().map(|trouble| trouble.broker.as_str()), Some("c:1"));
    }

    #[test]
    fn the_broker_is_found_in_a_message() {
        for (message, want) in [
            ("sasl_ssl://kafka-0.kafka:9092/bootstrap: SSL handshake failed: x", Some(("kafka-0.kafka:9092", "SSL handshake failed: x"))),
            ("localhost:9092/1: Connect failed", Some(("localhost:9092", "Connect failed"))),
            ("ssl://[::1]:9092/2: x", Some(("[::1]:9092", "x"))),
            ("GroupCoordinator: localhost:9092: x", None),
            ("Failed to acquire SASL OAUTHBEARER token: no", None),
            ("3/3 brokers are down", None),
        ] {
            assert_eq!(split_broker(message), want, "{message}");
        }
    }
}
