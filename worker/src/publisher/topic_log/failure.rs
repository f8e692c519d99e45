//! What an error of the client means for the log: go on, since the client tries again, or give up.

use crate::publisher::log::LogError;
use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client tries again by itself.
    Passing,
    /// The topic seems to be gone.
    NoTopic,
    /// The record asked for is not there.
    OutOfRange,
    /// It stays so.
    Final,
}

/// What an error of the client means.
pub(super) fn classify(error: &KafkaError) -> Failure {
    if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
        return Failure::Final;
    }
    match error.rdkafka_error_code() {
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId) => Failure::NoTopic,
        Some(Code::OffsetOutOfRange | Code::AutoOffsetReset) => Failure::OutOfRange,
        Some(
            Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::MessageSizeTooLarge
            | Code::InvalidMessage
            | Code::Fatal
            | Code::InvalidArgument
            | Code::UnsupportedFeature,
        ) => Failure::Final,
        _ => Failure::Passing,
    }
}

/// The log cannot be used, and trying again will not help.
pub(super) fn refused(topic: &str, error: &KafkaError) -> LogError {
    LogError::Refused { log: topic.to_owned(), reason: reason(error) }
}

/// Nobody has answered in time.
pub(super) fn unreachable(topic: &str, error: Option<&KafkaError>) -> LogError {
    let reason = error.map_or_else(|| "no answer from the broker".to_owned(), reason);
    LogError::Unreachable { log: topic.to_owned(), reason }
}

fn reason(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}
