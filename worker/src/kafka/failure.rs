//! What an error of a client means: go on, since the client tries again by itself, or give up.

use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
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
pub fn classify(error: &KafkaError) -> Failure {
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

/// What a client says of an error, in a few words.
pub fn reason(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}
