//! What goes wrong with Kafka, in words that say who must do what.

use super::states::Trouble;
use crate::{http::HttpError, secrets::SecretError};
use rdkafka::error::RDKafkaErrorCode as Code;
use std::{fmt, time::Duration};

/// Kafka does not do what is needed.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    /// Credentials of the KafkaConnection cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The certificates or the address of the token endpoint cannot be used.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The Kafka client refuses its settings.
    #[error("the Kafka client cannot be set up: {detail}; correct the KafkaConnection")]
    Settings {
        /// What the client says.
        detail: String,
    },
    /// There is no working connection.
    #[error("Kafka at {servers} cannot be used: {fault} ({detail})")]
    Connect {
        /// The brokers that were tried.
        servers: String,
        /// What is wrong.
        fault: Fault,
        /// What the client says.
        detail: String,
    },
    /// The brokers can be reached, and do not answer in time.
    #[error("Kafka at {servers} did not {what} within {} s; it may be overloaded or without a leader", limit.as_secs())]
    NoAnswer {
        /// The brokers that were asked.
        servers: String,
        /// What they did not do.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A right is missing.
    #[error("Kafka at {servers} does not allow {access} on {resource}; give the user of the KafkaConnection that right (an ACL)")]
    Denied {
        /// The brokers that were asked.
        servers: String,
        /// The operation that is not allowed, as ACLs call it.
        access: Access,
        /// On what.
        resource: Resource,
    },
    /// There is no such topic.
    #[error("Kafka at {servers} has no topic `{topic}`; create it, or correct its name in the Pipeline")]
    TopicMissing {
        /// The brokers that were asked.
        servers: String,
        /// The topic.
        topic: String,
    },
    /// A record or request is larger than is allowed.
    #[error(
        "{resource} does not take a record of that size: {detail}; raise max.message.bytes of the topic, message.max.bytes of the \
         brokers and `message.max.bytes` in the properties of the KafkaConnection"
    )]
    TooLarge {
        /// Where it was to go.
        resource: Resource,
        /// What the broker or the client says.
        detail: String,
    },
    /// Something else.
    #[error("Kafka at {servers} failed to {} {resource}: {detail}", access.verb())]
    Failed {
        /// The brokers that were asked.
        servers: String,
        /// What was tried.
        access: Access,
        /// On what.
        resource: Resource,
        /// The code of the answer.
        code: Code,
        /// What the broker or the client says.
        detail: String,
    },
}

impl KafkaError {
    /// Puts an answer into words. `trouble` is what is known of the connection.
    pub(super) fn of(
        servers: &str,
        code: Code,
        detail: Option<&str>,
        access: Access,
        resource: Resource,
        trouble: Option<Trouble>,
    ) -> Self {
        let servers = servers.to_owned();
        let detail = detail.map_or_else(|| code.to_string(), str::to_owned);
        match (code, resource) {
            (Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed | Code::ClusterAuthorizationFailed, resource) => {
                Self::Denied { servers, access, resource }
            }
            (Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownTopicId, Resource::Topic(topic)) => {
                Self::TopicMissing { servers, topic }
            }
            (Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge, resource) => {
                Self::TooLarge { resource, detail }
            }
            (code, resource) if is_about_the_connection(code) => match trouble {
                Some(trouble) => trouble.into_error(servers),
                None if is_vague(code) => Self::NoAnswer { servers, what: format!("{} {resource}", access.verb()), limit: Duration::ZERO },
                None => Self::Connect { servers, fault: Fault::of(code, &detail), detail },
            },
            (code, resource) => Self::Failed { servers, access, resource, code, detail },
        }
    }

    /// The same with the time that it was waited, where that is part of the message.
    pub(super) fn after(mut self, waited: Duration) -> Self {
        if let Self::NoAnswer { limit, .. } = &mut self {
            *limit = waited;
        }
        self
    }

    /// Whether nothing of the work was done because Kafka cannot be used as things are: exit code 69.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::NoAnswer { .. } | Self::Denied { .. })
    }

    /// Whether waiting longer does not help: somebody must correct something.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Connect { fault, .. } => fault.is_final(),
            Self::NoAnswer { .. } | Self::Failed { .. } => false,
            _ => true,
        }
    }

    /// The code of the answer, where nothing more is known of it.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Says only that nothing came about so far; why is known of the connection, or unknown.
fn is_vague(code: Code) -> bool {
    let time = matches!(code, Code::OperationTimedOut | Code::RequestTimedOut | Code::MessageTimedOut | Code::TimedOutQueue);
    time || matches!(code, Code::BrokerTransportFailure | Code::AllBrokersDown | Code::BrokerDestroy | Code::WaitingForCoordinator)
}

fn is_about_the_connection(code: Code) -> bool {
    let sasl = matches!(code, Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism);
    sasl || is_vague(code) || matches!(code, Code::Resolve | Code::SSL)
}

/// What is wrong with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nobody listens there, or nothing of the network answers.
    Unreachable,
    /// There is no such host.
    UnknownHost,
    /// TLS does not come about.
    Tls(TlsFault),
    /// No token could be had.
    Token,
    /// User and password, or the token, are not taken.
    Credentials,
    /// The broker does not offer that SASL mechanism.
    Mechanism,
}

/// Why TLS does not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsFault {
    /// It is not known more exactly.
    Other,
    /// The broker does not speak TLS at that address.
    NotSpoken,
    /// The broker expects TLS.
    Expected,
    /// The certificate of the broker has expired.
    Expired,
    /// Nobody whom we trust has signed the certificate of the broker.
    UnknownAuthority,
    /// The certificate of the broker is for other names.
    OtherName,
    /// The broker does not take our certificate, or we have none.
    ClientCertificate,
}

impl Fault {
    /// What a code and the message of the client mean.
    pub(super) fn of(code: Code, reason: &str) -> Self {
        let says = |words: &str| reason.contains(words);
        match code {
            Code::Resolve => Self::UnknownHost,
            Code::UnsupportedSASLMechanism => Self::Mechanism,
            _ if says("Failed to acquire SASL OAUTHBEARER token") => Self::Token,
            Code::Authentication | Code::SaslAuthenticationFailed if says("Unsupported mechanism") || says("not supported by broker") => {
                Self::Mechanism
            }
            Code::Authentication | Code::SaslAuthenticationFailed => Self::Credentials,
            _ if says("PLAINTEXT broker listener") || says("wrong version number") => Self::Tls(TlsFault::NotSpoken),
            _ if says("Disconnected") && (says("in state APIVERSION_QUERY") || is_closed_at_once(reason)) => Self::Tls(TlsFault::Expected),
            _ if says("SSL alert") || says("client SSL authentication might be required") => Self::Tls(TlsFault::ClientCertificate),
            Code::SSL => Self::Tls(TlsFault::Other),
            _ => Self::Unreachable,
        }
    }

    /// Whether waiting does not help.
    pub fn is_final(self) -> bool {
        // a broker that starts or stops also closes connections early
        !matches!(self, Self::Unreachable | Self::UnknownHost | Self::Token | Self::Tls(TlsFault::Expected))
    }
}

/// Whether a broker closed a connection as soon as it was up. One that stops closes connections that have been of use.
fn is_closed_at_once(reason: &str) -> bool {
    const AT_ONCE_MS: u64 = 100;
    let before = reason.split_once("ms in state UP").map(|(before, _)| before);
    let after = before.and_then(|before| before.rsplit_once("after ")).and_then(|(_, after)| after.parse::<u64>().ok());
    after.is_some_and(|after| after <= AT_ONCE_MS)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "nothing answers there; check that the brokers run, and host and port in bootstrapServers",
            Self::UnknownHost => "there is no host of that name; correct bootstrapServers, or advertised.listeners of the brokers",
            Self::Tls(fault) => return fault.fmt(f),
            Self::Token => "no token could be had; check tokenEndpoint, client id and client secret in oauth",
            Self::Credentials => "the brokers do not take these credentials; correct the Secret that sasl names, or the mechanism",
            Self::Mechanism => "the brokers do not offer this SASL mechanism; choose another one in sasl",
        })
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Other => "TLS does not come about; check tls, and the certificate of the brokers",
            Self::NotSpoken => "the brokers do not speak TLS at that port; remove tls, or name their TLS port",
            Self::Expected => "the brokers expect TLS or a user at that port; add tls or sasl, or name another port",
            Self::Expired => "the certificate of the brokers has expired; renew it there",
            Self::UnknownAuthority => "the certificate of the brokers is signed by nobody whom we trust; put its authority into tls.ca",
            Self::OtherName => "the certificate of the brokers is for another host name; use that name, or correct the certificate",
            Self::ClientCertificate => "the brokers ask for a client certificate that they trust; correct tls.clientCertificate",
        })
    }
}

/// What is done to a resource, by the names that ACLs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Read records, or take part in a group.
    Read,
    /// Write records.
    Write,
    /// Create it.
    Create,
    /// Delete it, or records of it.
    Delete,
    /// Alter it.
    Alter,
    /// Look at it.
    Describe,
    /// Look at its settings.
    DescribeConfigs,
    /// Alter its settings.
    AlterConfigs,
}

impl Access {
    fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write to",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Alter => "alter",
            Self::Describe => "describe",
            Self::DescribeConfigs => "show the settings of",
            Self::AlterConfigs => "alter the settings of",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self:?}`")
    }
}

/// What is worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A topic.
    Topic(String),
    /// A consumer group.
    Group(String),
    /// The cluster as a whole.
    Cluster,
}

impl Resource {
    /// A topic.
    pub fn topic(name: &str) -> Self {
        Self::Topic(name.to_owned())
    }

    /// A consumer group.
    pub fn group(name: &str) -> Self {
        Self::Group(name.to_owned())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic `{name}`"),
            Self::Group(name) => write!(f, "consumer group `{name}`"),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let topic = || Resource::topic("t");
        let of = |code, resource| KafkaError::of("k:1", code, None, Access::Write, resource, None).to_string();
        for (message, want) in [
            (of(Code::TopicAuthorizationFailed, topic()), "Kafka at k:1 does not allow `Write` on topic `t`"),
            (of(Code::GroupAuthorizationFailed, Resource::group("g")), "on consumer group `g`"),
            (of(Code::UnknownTopicOrPartition, topic()), "has no topic `t`"),
            (of(Code::MessageSizeTooLarge, topic()), "raise max.message.bytes of the topic"),
            (of(Code::PolicyViolation, topic()), "failed to write to topic `t`: "),
            (of(Code::Resolve, topic()), "there is no host of that name"),
            (of(Code::BrokerTransportFailure, topic()), "did not write to topic `t` within"),
            (of(Code::OperationTimedOut, topic()), "did not write to topic `t` within"),
        ] {
            assert!(message.contains(want), "{message}\n  lacks: {want}");
        }
    }

    #[test]
    fn what_is_known_of_the_connection_explains_a_timeout() {
        let trouble = Trouble { broker: "k:1".into(), fault: Fault::Credentials, detail: "no".into() };
        let error = KafkaError::of("k:1,k:2", Code::OperationTimedOut, None, Access::Describe, Resource::Cluster, Some(trouble));
        assert!(error.is_unreachable() && error.is_final() && error.to_string().contains("these credentials"), "{error}");
    }

    #[test]
    fn the_words_of_the_client_are_understood() {
        let tls = Fault::Tls;
        for (code, reason, want) in [
            (Code::Resolve, "Failed to resolve 'x:1': Name or service not known", Fault::UnknownHost),
            (Code::Authentication, "SASL authentication error: Authentication failed", Fault::Credentials),
            (Code::Authentication, "Failed to acquire SASL OAUTHBEARER token: no", Fault::Token),
            (Code::BrokerTransportFailure, "Connect to ipv4#127.0.0.1:1 failed: Connection refused", Fault::Unreachable),
            (
                Code::BrokerTransportFailure,
                "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
                tls(TlsFault::NotSpoken),
            ),
            (Code::SSL, "SSL handshake failed: ssl/tls alert bad certificate: SSL alert number 42", tls(TlsFault::ClientCertificate)),
            (Code::SSL, "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed", tls(TlsFault::Other)),
        ] {
            assert_eq!(Fault::of(code, reason), want, "{reason}");
        }
    }
}
