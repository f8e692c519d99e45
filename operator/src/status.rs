//! Conditions and events, computed in one pure place: transition times move only with the status, a phase is never read back.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::runtime::events::{Event, EventType};
use penstock_crds::conditions::{ConditionType, Reason};

/// The longest message of a condition, in bytes.
const LONGEST_MESSAGE: usize = 2_048;
/// The longest note that the API server takes in an event.
pub(crate) const LONGEST_NOTE: usize = 1_024;

/// The conditions of one object, as they are put together in one pass.
pub struct Conditions<'a> {
    old: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    new: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    /// Nothing is known yet of this generation; the old ones lend their transition times.
    pub fn new(old: &'a [Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self { old, generation, now, new: Vec::new() }
    }

    /// Sets a condition; `None` is `Unknown`.
    pub fn set(&mut self, kind: ConditionType, status: Option<bool>, reason: Reason, message: impl Into<String>) -> &mut Self {
        let type_ = kind.to_string();
        let status = match status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let former = self.old.iter().find(|condition| condition.type_ == type_ && condition.status == status);
        let since = former.map_or(Time(self.now), |condition| condition.last_transition_time.clone());
        self.new.retain(|condition| condition.type_ != type_);
        self.new.push(Condition {
            type_,
            status: status.to_owned(),
            reason: reason.to_string(),
            message: cut(message.into(), LONGEST_MESSAGE),
            last_transition_time: since,
            observed_generation: self.generation,
        });
        self
    }

    /// Sets a condition that is there only while it holds.
    pub fn set_while(&mut self, holds: bool, kind: ConditionType, reason: Reason, message: impl Into<String>) -> &mut Self {
        if holds {
            self.set(kind, Some(true), reason, message);
        }
        self
    }

    /// The conditions, in the order in which they were set.
    pub fn finish(self) -> Vec<Condition> {
        self.new
    }
}

/// The condition of that type, if there is one.
pub fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| ConditionType::from_name(&condition.type_) == Some(kind))
}

/// Whether a condition is there and true.
pub fn holds(conditions: &[Condition], kind: ConditionType) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Cuts a text to so many bytes, at a character.
pub fn cut(mut text: String, longest: usize) -> String {
    const MARK: &str = " …";
    if text.len() > longest {
        let mut end = longest - MARK.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

/// The events that tell what changed between two states: one for each condition that has another status or reason, and says more than
/// that work goes on.
pub fn transitions(old: &[Condition], new: &[Condition]) -> Vec<Event> {
    let is_new = |condition: &&Condition| {
        !old.iter().any(|former| former.type_ == condition.type_ && former.status == condition.status && former.reason == condition.reason)
    };
    let mut told: Vec<&str> = Vec::new();
    let mut events = Vec::new();
    for condition in new.iter().filter(is_new) {
        let Some(reason) = Reason::from_name(&condition.reason).filter(|reason| is_worth_telling(*reason)) else { continue };
        // several conditions change for one cause
        if told.contains(&condition.reason.as_str()) || old.iter().any(|former| former.reason == condition.reason) {
            continue;
        }
        told.push(&condition.reason);
        events.push(Event {
            type_: if is_trouble(reason) { EventType::Warning } else { EventType::Normal },
            reason: condition.reason.clone(),
            note: Some(cut(condition.message.clone(), LONGEST_NOTE)),
            action: condition.type_.clone(),
            secondary: None,
        });
    }
    events
}

fn is_worth_telling(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::RunStillActive
            | Reason::StartMissed
            | Reason::AsSpecified
            | Reason::ChangePending
            | Reason::DocumentsCompleting
            | Reason::BrokersReachable
            | Reason::Idle
    )
}

/// Whether a reason asks for somebody's attention.
pub fn is_trouble(reason: Reason) -> bool {
    use Reason::*;
    match reason {
        AsSpecified
        | ChangePending
        | Suspended
        | WaitingForPipeline
        | WaitingForRun
        | ConnectorRunning
        | DocumentsCompleting
        | Cancelling
        | AllDocumentsIndexed
        | CompletedWithFailures
        | Cancelled
        | BrokersReachable
        | PartitionIncreasePending
        | PartitionsExceedSpec
        | Idle
        | BackendAnswers
        | RunStillActive => false,
        InvalidSpec
        | SecretMissing
        | NoProgress
        | TooManyFailures
        | ConnectorFailed
        | ConnectorTimeout
        | DocumentsUnaccounted
        | PublisherLost
        | ProcessingFailed
        | PipelineNotReady
        | PipelineDeleted
        | EventLogTruncated
        | BrokersUnreachable
        | AuthenticationFailed
        | AuthorizationFailed
        | TopicConflict
        | TopicNotAdoptable
        | TopicLost
        | TopicRecreated
        | SourceTruncated
        | ReplicationUnsatisfiable
        | ConfigDrift
        | LagUnknown
        | CrashLoop
        | HeartbeatStale
        | ImagePullFailed
        | QuotaExceeded
        | BackendUnreachable
        | StartMissed => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConditionType as C;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn ready(old: &[Condition], now: i64, status: bool, reason: Reason) -> Vec<Condition> {
        let mut conditions = Conditions::new(old, Some(now), at(now));
        conditions.set(C::Ready, Some(status), reason, format!("at {now}"));
        conditions.finish()
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let first = ready(&[], 1, false, Reason::ChangePending);
        let second = ready(&first, 2, false, Reason::TopicConflict);
        assert_eq!((second[0].last_transition_time.0, second[0].message.as_str()), (at(1), "at 2"));
        assert_eq!(second[0].observed_generation, Some(2));
        let third = ready(&second, 3, true, Reason::AsSpecified);
        assert_eq!(third[0].last_transition_time.0, at(3));
    }

    #[test]
    fn a_condition_that_no_longer_holds_is_not_there() {
        let mut conditions = Conditions::new(&[], None, at(1));
        conditions.set_while(true, C::Stalled, Reason::InvalidSpec, "a").set_while(false, C::Reconciling, Reason::ChangePending, "b");
        let conditions = conditions.finish();
        assert!(holds(&conditions, C::Stalled) && find(&conditions, C::Reconciling).is_none());
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let text = cut("ä".repeat(2_000), LONGEST_MESSAGE);
        assert!(text.len() <= LONGEST_MESSAGE && text.ends_with("ä …"), "{}", text.len());
        assert_eq!(cut("short".into(), LONGEST_MESSAGE), "short");
    }

    #[test]
    fn a_cause_is_told_once_when_it_begins() {
        let mut conditions = Conditions::new(&[], None, at(1));
        conditions.set(C::TopicsReady, Some(false), Reason::TopicConflict, "owned by shop/books");
        conditions.set(C::Ready, Some(false), Reason::TopicConflict, "owned by shop/books");
        conditions.set(C::SpecValid, Some(true), Reason::AsSpecified, "");
        let trouble = conditions.finish();
        let events = transitions(&[], &trouble);
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].reason.as_str(), events[0].note.as_deref()), ("TopicConflict", Some("owned by shop/books")));
        assert!(matches!(events[0].type_, EventType::Warning));
        assert!(transitions(&trouble, &trouble).is_empty(), "nothing changed");
    }
}
