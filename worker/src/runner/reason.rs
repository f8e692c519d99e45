//! Why a step did not succeed, in the one word that conditions and scripts use.

use super::StepError;
use crate::{
    courier::CourierError,
    kafka::{Fault, KafkaError, TlsFault},
    publisher::log::LogError,
    secrets::SecretError,
};
use penstock_crds::conditions::Reason;
use std::error::Error;

impl StepError {
    /// Why, in one word. Nothing if nothing is wrong: another publisher goes on.
    pub fn reason(&self) -> Option<Reason> {
        Some(match self {
            Self::Superseded { .. } => return None,
            Self::Action(_) | Self::Backend(_) if lacks_a_secret(self) => Reason::SecretMissing,
            Self::Connector(_) | Self::ConnectorPanic(_) | Self::Action(_) => Reason::ConnectorFailed,
            Self::Backend(_) => Reason::BackendUnreachable,
            Self::Stages(_) | Self::NoPipeline { .. } | Self::NoKafkaConnection { .. } | Self::RunId(_) => Reason::InvalidSpec,
            Self::Timeout { .. } => Reason::ConnectorTimeout,
            Self::Unaccounted { .. } => Reason::DocumentsUnaccounted,
            Self::FailurePolicy { .. } => Reason::TooManyFailures,
            Self::Stuck { .. } => Reason::HeartbeatStale,
            Self::Cancelled => Reason::Cancelled,
            Self::Kafka(error) | Self::Courier(CourierError::Kafka(error)) => of_kafka(error),
            Self::Courier(CourierError::TopicLost { .. }) | Self::Topics { are_missing: true, .. } => Reason::TopicLost,
            Self::Courier(CourierError::Truncated { .. } | CourierError::Overtaken { .. }) => Reason::SourceTruncated,
            Self::Topics { are_missing: false, .. } => Reason::TopicNotAdoptable,
            Self::Log(error) => of_log(error),
            Self::Lane(_) | Self::LanePanic(_) | Self::DeadLetter(_) | Self::System { .. } | Self::Courier(_) | Self::Refused { .. } => {
                Reason::ProcessingFailed
            }
        })
    }
}

fn of_kafka(error: &KafkaError) -> Reason {
    match error {
        KafkaError::Secret(_) => Reason::SecretMissing,
        KafkaError::Http(_) | KafkaError::Settings { .. } => Reason::InvalidSpec,
        KafkaError::Connect { fault, .. } => match fault {
            Fault::Credentials | Fault::Mechanism | Fault::Token | Fault::Tls(TlsFault::ClientCertificate) => Reason::AuthenticationFailed,
            Fault::Unreachable | Fault::UnknownHost | Fault::Tls(_) => Reason::BrokersUnreachable,
        },
        KafkaError::NoAnswer { .. } => Reason::BrokersUnreachable,
        KafkaError::Denied { .. } => Reason::AuthorizationFailed,
        KafkaError::TopicMissing { .. } => Reason::TopicLost,
        KafkaError::TooLarge { .. } | KafkaError::Failed { .. } => Reason::ProcessingFailed,
    }
}

fn of_log(error: &LogError) -> Reason {
    match error {
        LogError::Truncated { .. } => Reason::EventLogTruncated,
        LogError::Lost { .. } => Reason::TopicLost,
        LogError::Partitions { .. } => Reason::TopicNotAdoptable,
        LogError::Unreachable { .. } => Reason::BrokersUnreachable,
        LogError::Unreadable { .. } | LogError::Refused { .. } => Reason::ProcessingFailed,
    }
}

/// Whether a secret that is not there lies beneath it.
fn lacks_a_secret(error: &StepError) -> bool {
    std::iter::successors(error.source(), |&error| error.source()).any(|error| error.is::<SecretError>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{connectors::ConnectorError, indexers::BackendError};

    #[test]
    fn each_error_has_the_reason_that_tells_whom_to_ask() {
        let secret = || SecretError::NoName { name: "s".into(), key: "k".into() };
        let backend = |source| BackendError { message: "no".into(), unreachable: true, source };
        let connect = |fault| StepError::Kafka(KafkaError::Connect { servers: "k:9092".into(), fault, detail: String::new() });
        let topics = |are_missing| StepError::Topics { faults: "x".into(), are_missing };
        for (error, reason) in [
            (StepError::Connector(ConnectorError::new("no such file")), Some(Reason::ConnectorFailed)),
            (StepError::Backend(backend(None)), Some(Reason::BackendUnreachable)),
            (StepError::Backend(backend(Some(secret().into()))), Some(Reason::SecretMissing)),
            (StepError::Kafka(secret().into()), Some(Reason::SecretMissing)),
            (connect(Fault::Credentials), Some(Reason::AuthenticationFailed)),
            (connect(Fault::Tls(TlsFault::ClientCertificate)), Some(Reason::AuthenticationFailed)),
            (connect(Fault::Tls(TlsFault::Expired)), Some(Reason::BrokersUnreachable)),
            (connect(Fault::Unreachable), Some(Reason::BrokersUnreachable)),
            (topics(true), Some(Reason::TopicLost)),
            (topics(false), Some(Reason::TopicNotAdoptable)),
            (CourierError::TopicLost { topic: "t".into() }.into(), Some(Reason::TopicLost)),
            (LogError::Truncated { wanted: 1, first: 2 }.into(), Some(Reason::EventLogTruncated)),
            (StepError::FailurePolicy { failed: 2, allowed: "1".into() }, Some(Reason::TooManyFailures)),
            (StepError::Cancelled, Some(Reason::Cancelled)),
            (StepError::Superseded { by: 3 }, None),
        ] {
            assert_eq!(error.reason(), reason, "{error}");
        }
    }
}
