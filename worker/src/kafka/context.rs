//! What accompanies every client: log lines, tokens, and why the brokers cannot be reached.

use super::{
    connection::Transport,
    diagnosis,
    error::{Fault, TlsFault},
    states::{BrokerStates, Trouble, broker_address, split_broker},
    token::TokenSource,
};
use parking_lot::Mutex;
use rdkafka::{
    ClientContext,
    client::OAuthToken,
    config::RDKafkaLogLevel as Level,
    consumer::ConsumerContext,
    error::{KafkaError as ClientError, RDKafkaErrorCode as Code},
    producer::{DeliveryResult, ProducerContext},
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The same warning of the client is shown this often.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// The context of all clients of one connection. A clone is the same one.
#[derive(Clone)]
pub struct KafkaContext {
    shared: Arc<Shared>,
}

struct Shared {
    servers: String,
    transport: Transport,
    /// It has both TLS and a user.
    guarded: bool,
    tokens: Option<TokenSource>,
    states: Mutex<BrokerStates>,
    /// A broker has been of use: what ends early from now on is a broker that stops or starts.
    was_of_use: AtomicBool,
    warned: Mutex<HashMap<String, Instant>>,
}

impl KafkaContext {
    pub(super) fn new(servers: &str, transport: Transport, guarded: bool, tokens: Option<TokenSource>) -> Self {
        let (states, was_of_use, warned) = Default::default();
        Self { shared: Arc::new(Shared { servers: servers.to_owned(), transport, guarded, tokens, states, was_of_use, warned }) }
    }

    /// The brokers have answered.
    pub(super) fn answered(&self) {
        self.shared.was_of_use.store(true, Ordering::Relaxed);
    }

    /// Why Kafka cannot be used at present; nothing if it can, as far as is known.
    pub fn trouble(&self) -> Option<Trouble> {
        self.shared.states.lock().worst().cloned()
    }

    fn failed(&self, code: Code, reason: &str) {
        let (broker, detail) = split_broker(reason).unwrap_or((&self.shared.servers, reason));
        let fault = match Fault::of(code, detail) {
            // what the client says of a certificate does not tell what is wrong with it
            Fault::Tls(TlsFault::Other) => Fault::Tls(self.tls_fault(broker)),
            Fault::Tls(TlsFault::Expected) if self.shared.guarded || self.shared.was_of_use.load(Ordering::Relaxed) => Fault::Unreachable,
            fault => fault,
        };
        let trouble = Trouble { broker: broker.to_owned(), fault, detail: detail.to_owned() };
        if self.shared.states.lock().failed(trouble) {
            tracing::warn!(target: "penstock::kafka", broker, "{fault} ({detail})");
        }
    }

    /// Looked into once, as long as the broker stays in that trouble.
    fn tls_fault(&self, broker: &str) -> TlsFault {
        let known = self.shared.states.lock().fault(broker);
        match known {
            Some(Fault::Tls(known)) => known,
            _ => diagnosis::tls_fault(broker, &self.shared.transport),
        }
    }

    fn well(&self, broker: &str) {
        if self.shared.states.lock().well(broker) {
            tracing::info!(target: "penstock::kafka", broker, "the broker answers again");
        }
    }

    /// Whether a warning of that kind is due.
    fn is_due(&self, facility: &str) -> bool {
        let now = Instant::now();
        let mut warned = self.shared.warned.lock();
        let due = warned.get(facility).is_none_or(|last| now.duration_since(*last) >= WARNING_PAUSE);
        if due {
            warned.insert(facility.to_owned(), now);
        }
        due
    }
}

/// What a broker does not like about us: it closed a connection before or soon after it was of use. That comes as a log line
/// only, since brokers also close connections that were idle: `[thrd:x]: x:9092/1: Disconnected: … (after 27ms in state UP)`.
fn early_end(line: &str) -> Option<&str> {
    let (_, message) = line.split_once("]: ")?;
    let (_, end) = message.split_once(": Disconnected").and(message.rsplit_once("(after "))?;
    let (millis, state) = end.split_once("ms in state ")?;
    let early = !state.starts_with("UP") || millis.parse::<u64>().is_ok_and(|millis| millis < 2000);
    early.then_some(message)
}

/// What is read of the statistics.
#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    brokers: BTreeMap<String, BrokerStatistics>,
}

#[derive(Deserialize)]
struct BrokerStatistics {
    state: String,
}

impl ClientContext for KafkaContext {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: Level, facility: &str, message: &str) {
        if facility == "FAIL"
            && let Some(message) = early_end(message)
        {
            self.failed(Code::BrokerTransportFailure, message);
        }
        // failures come once more through `error`, with their code
        let repeated = ["FAIL", "ERROR", "CONFWARN"].contains(&facility);
        let serious = matches!(level, Level::Emerg | Level::Alert | Level::Critical | Level::Error | Level::Warning);
        if serious && !repeated && self.is_due(facility) {
            tracing::warn!(target: "penstock::kafka", facility, "{message}");
        } else {
            tracing::debug!(target: "penstock::kafka", facility, "{message}");
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        let Ok(statistics) = serde_json::from_slice::<Statistics>(statistics) else { return };
        let up = statistics.brokers.iter().filter(|(_, broker)| broker.state == "UP");
        for address in up.filter_map(|(name, _)| broker_address(name)) {
            self.answered();
            self.well(address);
            self.well(&self.shared.servers); // troubles that name no broker
        }
    }

    fn error(&self, error: ClientError, reason: &str) {
        match error.rdkafka_error_code() {
            // says only that every broker has failed, and each was entered
            Some(Code::AllBrokersDown) | None => tracing::debug!(target: "penstock::kafka", "{error}: {reason}"),
            Some(code @ (Code::Resolve | Code::Authentication | Code::SSL | Code::BrokerTransportFailure)) => self.failed(code, reason),
            Some(code @ (Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism | Code::BadMessage)) => self.failed(code, reason),
            Some(code) => {
                let due = self.is_due(&code.to_string());
                if due {
                    tracing::warn!(target: "penstock::kafka", "{code}: {reason}");
                }
            }
        }
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let tokens = self.shared.tokens.as_ref().ok_or("this connection has no oauth")?;
        Ok(tokens.fetch()?)
    }
}

impl ConsumerContext for KafkaContext {}

impl ProducerContext for KafkaContext {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_has_been_of_use_and_goes_away_is_not_taken_for_one_that_expects_tls() {
        let context = KafkaContext::new("k:1", Transport::default(), false, None);
        let ended = "k:1/bootstrap: Disconnected: connection reset by peer (after 2ms in state APIVERSION_QUERY)";
        context.failed(Code::BrokerTransportFailure, ended);
        assert_eq!(context.trouble().map(|trouble| trouble.fault), Some(Fault::Tls(TlsFault::Expected)), "it was never of use");
        context.stats_raw(br#"{"brokers": {"k:1/bootstrap": {"state": "UP"}}}"#);
        assert_eq!(context.trouble(), None);
        context.failed(Code::BrokerTransportFailure, ended);
        assert_eq!(context.trouble().map(|trouble| trouble.fault), Some(Fault::Unreachable));
    }

    #[test]
    fn only_a_connection_that_ended_early_is_a_bad_sign() {
        let line = |end: &str| format!("[thrd:k:1/bootstrap]: k:1/bootstrap: {end}");
        for (end, bad) in [
            ("Disconnected: connection closed by peer: receive 0 after POLLIN (after 27ms in state APIVERSION_QUERY)", true),
            ("Disconnected (after 3ms in state UP, 1 identical error(s) suppressed)", true),
            ("Disconnected (after 600123ms in state UP)", false),
            ("Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)", false),
        ] {
            assert_eq!(early_end(&line(end)).is_some(), bad, "{end}");
        }
    }
}
