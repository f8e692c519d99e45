//! Conditions, their reasons, and the words that are derived from them. Conditions are the truth of a status; a phase
//! is computed from them for people and never read back.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IntoDeserializer};
use std::fmt;

/// What a condition speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    /// All kinds: it does what it is there for. Of a run: it has ended well.
    Ready,
    /// All kinds, present only while true: the wanted state is being brought about.
    Reconciling,
    /// All kinds, present only while true: nothing goes on without a person.
    Stalled,
    /// All kinds: the spec passed every check, also those that a schema cannot make.
    SpecValid,
    /// Pipeline, IngestRun, IngestSchedule: paused by `suspend`.
    Suspended,
    /// IngestRun: documents reach their end. False is a warning, never a failure.
    Progressing,
    /// IngestRun: cancelled, and what was accepted is being finished.
    Cancelling,
    /// IngestRun: every document is accounted for and every connector succeeded.
    Complete,
    /// IngestRun: it has ended, and not well. `Cancelled` is a reason of it.
    Failed,
    /// Pipeline, KafkaConnection: the brokers answer.
    KafkaReachable,
    /// Pipeline: the topics are there and fit.
    TopicsReady,
    /// Pipeline: as many workers work as are wanted.
    WorkersAvailable,
    /// Pipeline: as many indexers work as are wanted.
    IndexersAvailable,
    /// Pipeline: the backend answers.
    BackendReachable,
}

/// Why a condition is as it is. The list is closed: messages say the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// Everything is as wanted.
    AsSpecified,
    /// The change is under way.
    ChangePending,
    /// `suspend` is set.
    Suspended,
    /// The spec cannot work; the message lists every fault.
    InvalidSpec,
    /// A Secret, or a key of it, is not there.
    SecretMissing,

    /// The run waits until its pipelines are ready.
    WaitingForPipeline,
    /// The run, or an older one on the same pipeline, is exclusive.
    WaitingForRun,
    /// A connector is at work.
    ConnectorRunning,
    /// Documents reach their end.
    DocumentsCompleting,
    /// No document reached its end within `progressDeadline`.
    NoProgress,
    /// `cancel` is set; what was accepted is being finished.
    Cancelling,
    /// Every document was indexed or dropped.
    AllDocumentsIndexed,
    /// Every document is accounted for; some failed, as `failurePolicy` allows.
    CompletedWithFailures,
    /// More documents failed than `failurePolicy` allows.
    TooManyFailures,
    /// A connector failed.
    ConnectorFailed,
    /// A connector did not end within its `timeout`.
    ConnectorTimeout,
    /// Everything has come to rest and documents are still without an outcome.
    DocumentsUnaccounted,
    /// Documents could not be processed or kept, for a reason that no other word names; the message says it.
    ProcessingFailed,
    /// The publisher was lost more often than it may be.
    PublisherLost,
    /// The run was cancelled.
    Cancelled,
    /// The pipeline did not become ready within `pipelineWait`.
    PipelineNotReady,
    /// The pipeline was deleted while the run was at work.
    PipelineDeleted,
    /// The event topic lost its beginning, so the outcomes in it are gone.
    EventLogTruncated,

    /// The brokers answer.
    BrokersReachable,
    /// No broker answers.
    BrokersUnreachable,
    /// Kafka refuses the credentials.
    AuthenticationFailed,
    /// Kafka refuses an operation to these credentials.
    AuthorizationFailed,
    /// Two pipelines want one topic; the older one has it.
    TopicConflict,
    /// A topic is there that may not be taken over.
    TopicNotAdoptable,
    /// A topic was deleted behind the pipeline.
    TopicLost,
    /// A topic was deleted and made again behind the pipeline.
    TopicRecreated,
    /// The source topic dropped records that nobody had read.
    SourceTruncated,
    /// More partitions are wanted; they come when nothing runs.
    PartitionIncreasePending,
    /// A topic has more partitions than the spec asks for; all are used.
    PartitionsExceedSpec,
    /// There are fewer brokers than replicas asked for.
    ReplicationUnsatisfiable,
    /// Topic settings differ from the spec.
    ConfigDrift,

    /// There is nothing to do, so no pod runs.
    Idle,
    /// Unread records are not known, so the number of pods is left alone.
    LagUnknown,
    /// Pods crash again and again.
    CrashLoop,
    /// A pod did not get on with its work and was restarted.
    HeartbeatStale,
    /// An image cannot be pulled.
    ImagePullFailed,
    /// A quota forbids more pods.
    QuotaExceeded,
    /// The backend answers.
    BackendAnswers,
    /// The backend does not answer, or refuses everything.
    BackendUnreachable,

    /// The run before still works, and the schedule forbids a second one.
    RunStillActive,
    /// A run was not started within `startingDeadline`.
    StartMissed,
}

/// Both are written as they are called.
macro_rules! named_as_written {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }

        impl $name {
            /// The value of that name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::deserialize(IntoDeserializer::<serde::de::value::Error>::into_deserializer(name)).ok()
            }
        }
    )*};
}

named_as_written!(ConditionType, Reason);

/// Where a run stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RunPhase {
    /// It has not begun.
    Pending,
    /// Connectors are at work.
    Running,
    /// Publishing is paused.
    Suspended,
    /// It was cancelled; what was accepted is being finished.
    Cancelling,
    /// Every document is accounted for and every connector succeeded.
    Succeeded,
    /// It ended with an error.
    Failed,
    /// It ended because somebody wanted it to.
    Cancelled,
}

impl RunPhase {
    /// The phase that conditions amount to.
    pub fn from_conditions(conditions: &[Condition]) -> Self {
        let find = |kind: ConditionType| conditions.iter().find(|condition| ConditionType::from_name(&condition.type_) == Some(kind));
        let holds = |kind| find(kind).is_some_and(|condition| condition.status == "True");
        match find(ConditionType::Failed) {
            Some(failed) if failed.status == "True" && Reason::from_name(&failed.reason) == Some(Reason::Cancelled) => Self::Cancelled,
            Some(failed) if failed.status == "True" => Self::Failed,
            _ if holds(ConditionType::Complete) => Self::Succeeded,
            _ if holds(ConditionType::Cancelling) => Self::Cancelling,
            _ if holds(ConditionType::Suspended) => Self::Suspended,
            _ if find(ConditionType::Progressing).is_some() => Self::Running,
            _ => Self::Pending,
        }
    }

    /// Whether the run has ended.
    pub fn is_final(self) -> bool {
        self.successors().is_empty()
    }

    /// The phases that may follow. What is not listed cannot happen.
    pub fn successors(self) -> &'static [Self] {
        match self {
            Self::Pending => &[Self::Running, Self::Suspended, Self::Cancelling, Self::Failed, Self::Cancelled],
            Self::Running => &[Self::Suspended, Self::Cancelling, Self::Succeeded, Self::Failed, Self::Cancelled],
            Self::Suspended => &[Self::Pending, Self::Running, Self::Cancelling, Self::Succeeded, Self::Failed, Self::Cancelled],
            Self::Cancelling => &[Self::Failed, Self::Cancelled],
            Self::Succeeded | Self::Failed | Self::Cancelled => &[],
        }
    }
}

/// Where one connector of a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConnectorState {
    /// Its turn has not come.
    #[default]
    Waiting,
    /// Its publisher is being started; `pre` actions run.
    Starting,
    /// It reads its source.
    Publishing,
    /// Everything is read; documents are on their way.
    Draining,
    /// Every document is accounted for; `post` actions run.
    Finishing,
    /// It is done.
    Succeeded,
    /// It ended with an error.
    Failed,
    /// One before it failed or the run was cancelled, so it never began.
    Skipped,
    /// It was cancelled at work.
    Cancelled,
}

impl ConnectorState {
    /// Whether the connector has ended.
    pub fn is_final(self) -> bool {
        self.successors().is_empty()
    }

    /// The states that may follow. A publisher that was lost brings back `Starting`.
    pub fn successors(self) -> &'static [Self] {
        match self {
            Self::Waiting => &[Self::Starting, Self::Skipped],
            Self::Starting => &[Self::Publishing, Self::Failed, Self::Cancelled],
            Self::Publishing => &[Self::Starting, Self::Draining, Self::Failed, Self::Cancelled],
            Self::Draining => &[Self::Starting, Self::Finishing, Self::Failed, Self::Cancelled],
            Self::Finishing => &[Self::Starting, Self::Succeeded, Self::Failed],
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    fn conditions(given: &[(ConditionType, bool, Reason)]) -> Vec<Condition> {
        let condition = |(kind, holds, reason): &(ConditionType, bool, Reason)| Condition {
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: String::new(),
            observed_generation: Some(1),
            reason: reason.to_string(),
            status: if *holds { "True".into() } else { "False".into() },
            type_: kind.to_string(),
        };
        given.iter().map(condition).collect()
    }

    #[test]
    fn the_phase_follows_from_conditions_alone() {
        use {ConditionType as C, Reason as R, RunPhase as P};
        let progressing = (C::Progressing, true, R::DocumentsCompleting);
        for (given, phase) in [
            (vec![], P::Pending),
            (vec![(C::SpecValid, true, R::AsSpecified), (C::Ready, false, R::WaitingForPipeline)], P::Pending),
            (vec![progressing], P::Running),
            (vec![(C::Progressing, false, R::NoProgress)], P::Running),
            (vec![progressing, (C::Suspended, true, R::Suspended)], P::Suspended),
            (vec![progressing, (C::Suspended, true, R::Suspended), (C::Cancelling, true, R::Cancelling)], P::Cancelling),
            (vec![progressing, (C::Complete, true, R::CompletedWithFailures)], P::Succeeded),
            (vec![progressing, (C::Complete, false, R::ConnectorRunning)], P::Running),
            (vec![(C::Failed, true, R::TooManyFailures)], P::Failed),
            (vec![(C::Cancelling, true, R::Cancelling), (C::Failed, true, R::Cancelled)], P::Cancelled),
        ] {
            assert_eq!(RunPhase::from_conditions(&conditions(&given)), phase, "{given:?}");
        }
    }

    #[test]
    fn names_are_read_back() {
        assert_eq!(Reason::TopicLost.to_string(), "TopicLost");
        assert_eq!(Reason::from_name("TopicLost"), Some(Reason::TopicLost));
        assert_eq!(Reason::from_name("Other"), None);
        assert_eq!(ConditionType::from_name("Ready"), Some(ConditionType::Ready));
    }

    #[test]
    fn every_phase_but_the_final_ones_can_end() {
        use RunPhase::*;
        for phase in [Pending, Running, Suspended, Cancelling] {
            assert!(!phase.is_final());
            assert!(phase.successors().iter().any(|next| next.is_final()), "{phase:?}");
        }
        for phase in [Succeeded, Failed, Cancelled] {
            assert!(phase.is_final());
        }
    }

    #[test]
    fn a_lost_publisher_starts_its_connector_again() {
        use ConnectorState::*;
        for state in [Publishing, Draining, Finishing] {
            assert!(state.successors().contains(&Starting), "{state:?}");
        }
        assert!(!Waiting.successors().contains(&Publishing));
        assert!(Succeeded.is_final());
    }
}
