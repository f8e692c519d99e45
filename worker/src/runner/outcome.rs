//! Why a step ended, in terms of what a caller does about it.

use crate::{
    actions::ActionError,
    connectors::ConnectorError,
    courier::CourierError,
    indexers::BackendError,
    kafka::{KafkaError, names::NameError},
    pipeline::BuildError,
    publisher::log::LogError,
    wording::counted,
    worker_lane::LaneError,
};

/// A step could not do its work: structural, not a matter of single documents.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The connector failed, or could not be built.
    #[error("connector failed: {0}")]
    Connector(#[source] ConnectorError),
    /// The connector panicked.
    #[error("the connector panicked: {0}; this is a fault of the program")]
    ConnectorPanic(String),
    /// The stages cannot be built.
    #[error(transparent)]
    Stages(#[from] BuildError),
    /// The backend failed or cannot be reached.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A request before or after the step failed.
    #[error(transparent)]
    Action(#[from] ActionError),
    /// A lane ended early.
    #[error(transparent)]
    Lane(LaneError),
    /// A lane panicked.
    #[error("a worker panicked: {0}; this is a fault of the program")]
    LanePanic(String),
    /// A failed document could not be kept.
    #[error("failed to keep a failed document in the dead letter; make room or name another file with --dead-letter")]
    DeadLetter(#[source] std::io::Error),
    /// The step took too long.
    #[error("not done within its timeout of {timeout}, with {} pending", counted(*.pending, "document"))]
    Timeout {
        /// The limit.
        timeout: String,
        /// Documents that are not accounted for.
        pending: u64,
    },
    /// Everything has ended and documents are not accounted for.
    #[error("{} unaccounted for, among them number {}; this is a fault of the program", counted(*.pending, "document"), numbers(.sample))]
    Unaccounted {
        /// How many.
        pending: u64,
        /// The numbers of some.
        sample: Vec<u64>,
    },
    /// More documents failed than the failure policy allows.
    #[error("{} failed, more than the {allowed} that are allowed", counted(*.failed, "document"))]
    FailurePolicy {
        /// Failed documents.
        failed: u64,
        /// The policy, in words.
        allowed: String,
    },
    /// A stage does not return and `--exit-on-stuck` is set.
    #[error("stage {stage} does not return for document `{id}` since {seconds} s")]
    Stuck {
        /// The stage.
        stage: String,
        /// The document.
        id: String,
        /// Since when.
        seconds: u64,
    },
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// A client of Kafka failed.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// The way of the documents through Kafka is broken.
    #[error(transparent)]
    Courier(#[from] CourierError),
    /// The run's log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The manifests lack the pipeline of a connector.
    #[error("there is no pipeline `{pipeline}`")]
    NoPipeline {
        /// The pipeline.
        pipeline: String,
    },
    /// The manifests lack the connection of a pipeline.
    #[error("there is no KafkaConnection `{connection}`, which pipeline `{pipeline}` names in kafkaRef")]
    NoKafkaConnection {
        /// The pipeline.
        pipeline: String,
        /// The connection.
        connection: String,
    },
    /// The id of the run cannot stand in the name of a topic.
    #[error(transparent)]
    RunId(NameError),
    /// Topics are missing, or not as they must be.
    #[error("{faults}")]
    Topics {
        /// All that is wrong with them.
        faults: String,
        /// Some are not there at all.
        are_missing: bool,
    },
    /// Kafka refused a document or an event of the publisher.
    #[error(
        "Kafka refused a record for topic `{topic}` for good: {reason}; what is acknowledged stays, start the run again with the same id"
    )]
    Refused {
        /// The topic.
        topic: String,
        /// Why.
        reason: String,
    },
    /// Another publisher goes on with the step.
    #[error("a newer publisher (epoch {by}) has taken over; this one has ended, nothing is lost")]
    Superseded {
        /// Its epoch.
        by: u64,
    },
    /// The system does not give what is needed.
    #[error("failed to {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

fn numbers(sample: &[u64]) -> String {
    sample.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// What kind of failure it is: decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// The run failed.
    Failed,
    /// A backend cannot be reached.
    Unreachable,
    /// A fault of the program, or it was stuck.
    Internal,
    /// A newer publisher goes on.
    Superseded,
}

impl StepError {
    /// What kind of failure it is.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Backend(error) if error.unreachable => FailureClass::Unreachable,
            Self::Kafka(error) | Self::Courier(CourierError::Kafka(error)) if error.is_unreachable() => FailureClass::Unreachable,
            Self::Log(LogError::Unreachable { .. }) => FailureClass::Unreachable,
            Self::Superseded { .. } => FailureClass::Superseded,
            Self::Courier(CourierError::Ill) => FailureClass::Internal,
            Self::Action(error) if error.is_unreachable() => FailureClass::Unreachable,
            Self::ConnectorPanic(_) | Self::LanePanic(_) | Self::Unaccounted { .. } | Self::Stuck { .. } | Self::System { .. } => {
                FailureClass::Internal
            }
            _ => FailureClass::Failed,
        }
    }

    /// The message with all of its causes.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let more = error.to_string();
            // transparent layers repeat what stands there already
            if !text.contains(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            cause = error.source();
        }
        text
    }
}
