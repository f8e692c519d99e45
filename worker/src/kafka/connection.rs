//! A KafkaConnection → the settings of clients, and a first talk with the brokers.

use super::{
    context::KafkaContext,
    error::{Access, KafkaError, Resource},
    token::TokenSource,
};
use crate::secrets::{SecretText, Secrets};
use penstock_crds::kafka_connection::{KafkaConnectionSpec, Sasl, SaslMechanism, TopicManagement};
use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    error::{KafkaError as ClientError, RDKafkaErrorCode as Code},
    producer::{Producer, ThreadedProducer},
};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// Time for one try of a first talk: in between it is seen why the last one failed.
const ONE_TRY: Duration = Duration::from_millis(500);

/// What every client gets, unless `properties` say otherwise.
pub(super) const DEFAULTS: [(&str, &str); 6] = [
    ("client.id", crate::http::USER_AGENT),
    // topics are made by intent, never by a name that is misspelled
    ("allow.auto.create.topics", "false"),
    ("socket.keepalive.enable", "true"),
    ("socket.connection.setup.timeout.ms", "10000"),
    ("reconnect.backoff.max.ms", "5000"),
    // tells that a broker is back
    ("statistics.interval.ms", "3000"),
];

/// A Kafka cluster that a KafkaConnection describes, with the credentials of one user. Opens nothing by itself.
#[derive(Clone)]
pub struct Connection {
    servers: String,
    config: ClientConfig,
    context: KafkaContext,
    prefix: String,
    replication_factor: Option<i32>,
    management: TopicManagement,
}

/// What TLS needs, as PEM.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    pub ca: Option<SecretText>,
    pub certificate: Option<SecretText>,
    pub key: Option<SecretText>,
}

/// What a cluster says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The id that it gave itself.
    pub id: Option<String>,
    /// Its brokers that are known.
    pub brokers: usize,
}

impl Connection {
    /// The connection of workers, indexers and publishers: they sign in by `sasl`.
    ///
    /// # Errors
    /// A secret cannot be had.
    pub fn new(spec: &KafkaConnectionSpec, namespace: &str, secrets: &Secrets) -> Result<Self, KafkaError> {
        Self::build(spec, spec.sasl.as_ref(), namespace, secrets)
    }

    /// The connection of who makes and alters topics: it signs in by `adminSasl`, if there is one.
    ///
    /// # Errors
    /// A secret cannot be had.
    pub fn for_administration(spec: &KafkaConnectionSpec, namespace: &str, secrets: &Secrets) -> Result<Self, KafkaError> {
        Self::build(spec, spec.admin_sasl.as_ref().or(spec.sasl.as_ref()), namespace, secrets)
    }

    fn build(spec: &KafkaConnectionSpec, sasl: Option<&Sasl>, namespace: &str, secrets: &Secrets) -> Result<Self, KafkaError> {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Info);
        let properties = spec.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in DEFAULTS.into_iter().chain(properties) {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &spec.bootstrap_servers).set("security.protocol", protocol(spec.tls.is_some(), sasl.is_some()));
        let transport = transport(spec, secrets)?;
        let pems = [("ssl.ca.pem", &transport.ca), ("ssl.certificate.pem", &transport.certificate), ("ssl.key.pem", &transport.key)];
        for (name, pem) in pems {
            if let Some(pem) = pem {
                config.set(name, pem.expose());
            }
        }
        let tokens = sasl.map(|sasl| sign_in(&mut config, sasl, secrets)).transpose()?.flatten();
        Ok(Self {
            servers: spec.bootstrap_servers.clone(),
            context: KafkaContext::new(&spec.bootstrap_servers, transport, spec.tls.is_some() && sasl.is_some(), tokens),
            config,
            prefix: spec.topics.name_prefix.replace("{namespace}", namespace),
            replication_factor: spec.topics.replication_factor,
            management: spec.topics.management,
        })
    }

    /// The settings that every client begins with. They hold credentials and keys: never print them.
    pub fn client(&self) -> ClientConfig {
        self.config.clone()
    }

    /// What every client gets as its context, or delegates to.
    pub fn context(&self) -> KafkaContext {
        self.context.clone()
    }

    /// The brokers to begin with.
    pub fn servers(&self) -> &str {
        &self.servers
    }

    /// What stands in front of the names of topics and groups.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Replicas of new topics; without it the broker's default.
    pub fn replication_factor(&self) -> Option<i32> {
        self.replication_factor
    }

    /// Whether topics may be made and altered.
    pub fn management(&self) -> TopicManagement {
        self.management
    }

    /// Talks with the brokers for the first time. What may pass is waited for until the limit; what somebody must correct is
    /// answered at once.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn check(&self, limit: Duration) -> Result<Cluster, KafkaError> {
        let client: ThreadedProducer<KafkaContext> = self.client_of(|config| config.create_with_context(self.context()))?;
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let error = match client.client().fetch_metadata(None, left.min(ONE_TRY)) {
                Ok(metadata) => {
                    self.context.answered();
                    let id = client.client().fetch_cluster_id(Duration::ZERO);
                    return Ok(Cluster { id, brokers: metadata.brokers().len() });
                }
                Err(error) => self.error(&error, Access::Describe, Resource::Cluster),
            };
            if error.is_final() || left <= ONE_TRY {
                return Err(error.after(limit));
            }
        }
    }

    /// Builds a client of some kind from [`Connection::client`].
    ///
    /// # Errors
    /// The settings are refused.
    pub fn client_of<C>(&self, build: impl FnOnce(&ClientConfig) -> Result<C, ClientError>) -> Result<C, KafkaError> {
        build(&self.config).map_err(|error| KafkaError::Settings { detail: settings_detail(&error) })
    }

    /// Puts the error of a client into words: what was tried, and on what.
    pub fn error(&self, error: &ClientError, access: Access, resource: Resource) -> KafkaError {
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        let detail = error.rdkafka_error_code().is_none().then(|| error.to_string());
        self.error_of(code, detail.as_deref(), access, resource)
    }

    /// The same for the code of an answer.
    pub fn error_of(&self, code: Code, detail: Option<&str>, access: Access, resource: Resource) -> KafkaError {
        KafkaError::of(&self.servers, code, detail, access, resource, self.context.trouble())
    }

    /// The right that is missing to write to a topic, if that is what a code says.
    pub fn denied_to_write(&self, topic: &str, code: Code) -> Option<KafkaError> {
        let error = self.error_of(code, None, Access::Write, Resource::topic(topic));
        matches!(error, KafkaError::Denied { .. }).then_some(error)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// What the client says of a setting that it does not take, without the value: it may be a key.
fn settings_detail(error: &ClientError) -> String {
    match error {
        ClientError::ClientConfig(_, detail, name, _) => format!("{name}: {detail}"),
        other => other.to_string(),
    }
}

fn protocol(tls: bool, sasl: bool) -> &'static str {
    match (tls, sasl) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    }
}

fn transport(spec: &KafkaConnectionSpec, secrets: &Secrets) -> Result<Transport, KafkaError> {
    let Some(tls) = &spec.tls else { return Ok(Transport::default()) };
    let resolve = |credential: &Option<_>| credential.as_ref().map(|credential| secrets.resolve(credential)).transpose();
    Ok(Transport { ca: resolve(&tls.ca)?, certificate: resolve(&tls.client_certificate)?, key: resolve(&tls.client_key)? })
}

fn sign_in(config: &mut ClientConfig, sasl: &Sasl, secrets: &Secrets) -> Result<Option<TokenSource>, KafkaError> {
    let mechanism = match sasl.mechanism {
        SaslMechanism::Plain => "PLAIN",
        SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
        SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        SaslMechanism::Oauthbearer => "OAUTHBEARER",
    };
    config.set("sasl.mechanism", mechanism);
    for (name, credential) in [("sasl.username", &sasl.username), ("sasl.password", &sasl.password)] {
        if let Some(credential) = credential {
            config.set(name, secrets.resolve(credential)?.expose());
        }
    }
    sasl.oauth.as_ref().map(|oauth| TokenSource::new(oauth, secrets)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secrets() -> (tempfile::TempDir, Secrets) {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::create_dir(folder.path().join("k")).expect("folder");
        std::fs::write(folder.path().join("k/user"), "ulla\n").expect("file");
        std::fs::write(folder.path().join("k/word"), "opensesame").expect("file");
        let secrets = Secrets::new(Some(folder.path().to_owned()));
        (folder, secrets)
    }

    fn credential(key: &str) -> serde_json::Value {
        json!({ "valueFrom": { "secretKeyRef": { "name": "k", "key": key } } })
    }

    fn spec(more: serde_json::Value) -> KafkaConnectionSpec {
        let mut spec = json!({ "bootstrapServers": "k:9092" });
        for (key, value) in more.as_object().expect("object") {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).expect("a spec")
    }

    #[test]
    fn the_settings_follow_from_the_manifest() {
        let (_folder, secrets) = secrets();
        let sasl = json!({ "mechanism": "SCRAM-SHA-512", "username": credential("user"), "password": credential("word") });
        let spec = spec(json!({
            "tls": { "ca": credential("word") }, "sasl": sasl, "properties": { "linger.ms": "7", "client.id": "mine" },
            "topics": { "namePrefix": "{namespace}.", "replicationFactor": 3, "management": "Observe" },
        }));
        let connection = Connection::new(&spec, "shop", &secrets).expect("connection");
        let config = connection.client();
        for (name, value) in [
            ("security.protocol", "sasl_ssl"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "ulla"),
            ("sasl.password", "opensesame"),
            ("ssl.ca.pem", "opensesame"),
            ("linger.ms", "7"),
            ("client.id", "mine"),
            ("allow.auto.create.topics", "false"),
        ] {
            assert_eq!(config.get(name), Some(value), "{name}");
        }
        assert_eq!((connection.prefix(), connection.replication_factor()), ("shop.", Some(3)));
        assert_eq!(connection.management(), TopicManagement::Observe);
        let printed = format!("{connection:?}");
        assert!(!printed.contains("opensesame"), "{printed}");
    }

    #[test]
    fn administration_has_credentials_of_its_own_which_others_need_not_have() {
        let (_folder, secrets) = secrets();
        let missing = json!({ "mechanism": "PLAIN", "username": credential("user"), "password": credential("nowhere") });
        let spec = spec(json!({ "adminSasl": missing }));
        let data = Connection::new(&spec, "shop", &secrets).expect("connection");
        assert_eq!(data.client().get("security.protocol"), Some("plaintext"));
        let error = Connection::for_administration(&spec, "shop", &secrets).expect_err("its secret is missing");
        assert!(error.to_string().contains("PENSTOCK_SECRET_K_NOWHERE"), "{error}");
    }

    #[test]
    fn a_certificate_that_is_none_is_refused_without_repeating_it() {
        let (_folder, secrets) = secrets();
        let spec = spec(json!({ "tls": { "ca": credential("word") } }));
        let connection = Connection::new(&spec, "shop", &secrets).expect("connection");
        let error = connection.check(Duration::from_secs(1)).expect_err("no certificate");
        assert!(error.to_string().contains("ssl.ca.pem") && !format!("{error:?}").contains("opensesame"), "{error:?}");
    }
}
