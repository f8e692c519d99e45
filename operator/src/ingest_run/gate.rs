//! May the next connector start? Pure.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use penstock_crds::conditions::Reason;

/// Where the pipeline of a connector stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineState {
    /// There is none of that name.
    Missing,
    /// It is being deleted.
    Deleting,
    /// It cannot take documents.
    NotReady {
        /// Why.
        reason: Reason,
        /// Why, for people.
        message: String,
    },
    /// It takes documents.
    Ready,
}

/// What a start depends on.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Name of the connector's pipeline.
    pub pipeline: &'a str,
    /// Where it stands.
    pub state: &'a PipelineState,
    /// An older run that has to end first.
    pub older_run: Option<&'a str>,
    /// The run is suspended.
    pub is_suspended: bool,
    /// Since when the connector could start but for this.
    pub since: Timestamp,
    /// How long its pipeline is waited for.
    pub pipeline_wait: SignedDuration,
    /// The time.
    pub now: Timestamp,
}

/// Whether it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// It waits.
    Waits {
        /// For what.
        reason: Reason,
        /// For what, for people.
        message: String,
    },
    /// It has waited too long.
    Closed {
        /// Why.
        reason: Reason,
        /// Why, for people.
        message: String,
    },
}

/// Decides.
pub fn decide(facts: &Facts<'_>) -> Gate {
    if facts.is_suspended {
        return Gate::Waits { reason: Reason::Suspended, message: "suspend is set: nothing is published".into() };
    }
    if let Some(older) = facts.older_run {
        return Gate::Waits {
            reason: Reason::WaitingForRun,
            message: format!("waits for IngestRun `{older}`, which is older and has the same pipeline"),
        };
    }
    let why = match facts.state {
        PipelineState::Ready => return Gate::Open,
        PipelineState::Missing => format!("there is no Pipeline `{}`; create it", facts.pipeline),
        PipelineState::Deleting => format!("Pipeline `{}` is being deleted", facts.pipeline),
        PipelineState::NotReady { message, .. } => format!("Pipeline `{}` is not ready: {message}", facts.pipeline),
    };
    if facts.now.duration_since(facts.since) >= facts.pipeline_wait {
        return Gate::Closed {
            reason: Reason::PipelineNotReady,
            message: format!("{why} (waited for {} s)", facts.pipeline_wait.as_secs()),
        };
    }
    Gate::Waits { reason: Reason::WaitingForPipeline, message: why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(state: &PipelineState) -> Facts<'_> {
        let at = |second| Timestamp::from_second(second).expect("a time");
        Facts {
            pipeline: "books",
            state,
            older_run: None,
            is_suspended: false,
            since: at(0),
            pipeline_wait: SignedDuration::from_secs(600),
            now: at(10),
        }
    }

    #[test]
    fn a_connector_starts_only_when_its_pipeline_takes_documents() {
        assert_eq!(decide(&facts(&PipelineState::Ready)), Gate::Open);
        let trouble = PipelineState::NotReady { reason: Reason::TopicConflict, message: "owned by shop/a".into() };
        for (state, says) in [
            (PipelineState::Missing, "there is no Pipeline `books`"),
            (PipelineState::Deleting, "is being deleted"),
            (trouble, "is not ready: owned by shop/a"),
        ] {
            let Gate::Waits { reason, message } = decide(&facts(&state)) else { panic!("{state:?}") };
            assert_eq!(reason, Reason::WaitingForPipeline);
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn it_waits_for_its_pipeline_so_long_and_not_longer() {
        let late = Facts { now: Timestamp::from_second(600).expect("a time"), ..facts(&PipelineState::Missing) };
        let Gate::Closed { reason, message } = decide(&late) else { panic!("it waits") };
        assert_eq!(reason, Reason::PipelineNotReady);
        assert!(message.ends_with("(waited for 600 s)"), "{message}");
    }

    #[test]
    fn a_suspended_run_and_one_behind_an_exclusive_run_wait_without_a_limit() {
        let late = Timestamp::from_second(1_000_000).expect("a time");
        let suspended = Facts { is_suspended: true, now: late, ..facts(&PipelineState::Missing) };
        assert!(matches!(decide(&suspended), Gate::Waits { reason: Reason::Suspended, .. }));
        let behind = Facts { older_run: Some("first"), now: late, ..facts(&PipelineState::Ready) };
        assert!(matches!(decide(&behind), Gate::Waits { reason: Reason::WaitingForRun, .. }));
    }
}
