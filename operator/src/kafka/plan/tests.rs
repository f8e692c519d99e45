//! Tables and properties of the plan for topics.

use super::*;
use crate::kafka::{Reachable, Snapshot};
use proptest::prelude::*;

fn wanted(partitions: i32) -> Wanted {
    Wanted {
        role: TopicRole::Source,
        name: "books_source".into(),
        partitions,
        defaults: BTreeMap::from([("cleanup.policy".into(), "delete".into())]),
        config: BTreeMap::new(),
        group: None,
    }
}

fn facts(id: &str, partitions: i32) -> TopicFacts {
    let config = BTreeMap::from([("cleanup.policy".to_owned(), "delete".to_owned()), ("retention.ms".to_owned(), "1".to_owned())]);
    TopicFacts { id: id.into(), partitions, replication_factor: 1, config: Some(config), retained: Some(0) }
}

fn seen(topic: Option<Topic>) -> Snapshot {
    let reachable = Reachable::Yes { cluster_id: None, brokers: 1 };
    Snapshot { reachable, topics: topic.into_iter().map(|topic| ("books_source".to_owned(), topic)).collect(), ..Snapshot::default() }
}

fn known(id: Option<&str>, adopted: bool) -> TopicStatus {
    TopicStatus { topic_id: id.map(str::to_owned), adopted, ..unknown(&wanted(1)) }
}

const FREE: Policy = Policy {
    management: TopicManagement::Create,
    adoption: Adoption::IfCompatible,
    increase: PartitionIncrease::WhenIdle,
    is_idle: true,
    has_active_run: false,
};
const BUSY: Policy = Policy { is_idle: false, has_active_run: true, ..FREE };

fn one(wanted: &Wanted, known: Option<TopicStatus>, topic: Option<Topic>, policy: Policy) -> TopicPlan {
    plan(std::slice::from_ref(wanted), known.as_slice(), &seen(topic), policy)
}

#[test]
fn a_missing_topic_is_created_as_ours_and_known_as_such_before_it_is_there() {
    let first = one(&wanted(4), None, Some(Topic::Missing), FREE);
    let config = wanted(4).defaults;
    assert_eq!(first.actions, [Action::Create { topic: "books_source".into(), partitions: 4, config }]);
    let intent = first.topics[0].clone();
    assert_eq!((intent.topic_id.as_deref(), intent.adopted), (None, false));
    let second = one(&wanted(4), Some(intent), Some(Topic::There(facts("a", 4))), FREE);
    assert_eq!(
        (second.topics[0].topic_id.as_deref(), second.topics[0].adopted),
        (Some("a"), false),
        "also if the operator died in between"
    );
    assert!(second.is_complete(1) && second.actions.is_empty());
}

#[test]
fn nothing_is_done_to_what_was_not_seen_or_while_no_broker_answers() {
    assert_eq!(one(&wanted(4), Some(known(Some("a"), false)), None, FREE).actions, []);
    assert_eq!(one(&wanted(4), None, None, FREE).topics, [], "what was not seen must not be taken for ours later");
    let mut stale = seen(Some(Topic::Missing));
    stale.reachable = Reachable::No(Trouble { reason: Reason::BrokersUnreachable, message: "away".into() });
    let plan = plan(&[wanted(4)], &[known(Some("a"), false)], &stale, FREE);
    assert_eq!((plan.actions.len(), plan.topics[0].topic_id.as_deref(), plan.problem), (0, Some("a"), None));
}

#[test]
fn a_topic_that_was_there_before_is_taken_over_if_it_fits_and_is_never_ours() {
    let adopted = one(&wanted(4), None, Some(Topic::There(facts("a", 6))), FREE);
    assert!(adopted.topics[0].adopted && adopted.problem.is_none());
    assert_eq!(adopted.note.expect("it is larger").reason, Reason::PartitionsExceedSpec);
    for (name, facts, policy, says) in [
        ("adoption is forbidden", facts("a", 4), Policy { adoption: Adoption::Never, ..FREE }, "adoption is Never"),
        ("too few partitions", facts("a", 3), FREE, "with 3 partitions, and 4 are wanted"),
        (
            "compacted",
            TopicFacts { config: Some([("cleanup.policy".to_owned(), "compact,delete".to_owned())].into()), ..facts("a", 4) },
            FREE,
            "is compacted",
        ),
    ] {
        let refused = one(&wanted(4), None, Some(Topic::There(facts)), policy);
        let problem = refused.problem.expect(name);
        assert_eq!(problem.reason, Reason::TopicNotAdoptable, "{name}");
        assert!(problem.message.contains(says), "{name}: {}", problem.message);
        assert_eq!((refused.actions.len(), refused.topics.len()), (0, 0), "{name}: it must not be taken for ours");
    }
}

#[test]
fn a_topic_deleted_behind_us_is_made_again_only_when_no_run_is_at_work() {
    let lost = one(&wanted(4), Some(known(Some("a"), false)), Some(Topic::Missing), BUSY);
    assert_eq!((lost.problem.map(|problem| problem.reason), lost.actions.len()), (Some(Reason::TopicLost), 0));
    assert_eq!(lost.topics[0].topic_id.as_deref(), Some("a"), "it stays known as lost");
    let again = one(&wanted(4), Some(known(Some("a"), false)), Some(Topic::Missing), FREE);
    assert_eq!((again.note.map(|note| note.reason), again.actions.len()), (Some(Reason::TopicRecreated), 1));
}

#[test]
fn a_topic_made_again_by_somebody_is_known_by_its_id() {
    let busy = one(&wanted(4), Some(known(Some("a"), false)), Some(Topic::There(facts("b", 4))), BUSY);
    assert_eq!(busy.problem.map(|problem| problem.reason), Some(Reason::TopicLost));
    let free = one(&wanted(4), Some(known(Some("a"), false)), Some(Topic::There(facts("b", 4))), FREE);
    assert_eq!(free.note.map(|note| note.reason), Some(Reason::TopicRecreated));
    assert_eq!((free.topics[0].topic_id.as_deref(), free.topics[0].adopted), (Some("b"), true), "it is not ours to delete");
}

#[test]
fn partitions_are_added_when_idle_only() {
    let known = || Some(known(Some("a"), false));
    let there = || Some(Topic::There(facts("a", 4)));
    assert_eq!(one(&wanted(8), known(), there(), FREE).actions, [Action::Grow { topic: "books_source".into(), partitions: 8 }]);
    for policy in [BUSY, Policy { increase: PartitionIncrease::Forbid, ..FREE }, Policy { management: TopicManagement::Observe, ..FREE }] {
        let waits = one(&wanted(8), known(), there(), policy);
        assert_eq!((waits.actions.len(), waits.note.map(|note| note.reason)), (0, Some(Reason::PartitionIncreasePending)), "{policy:?}");
    }
}

#[test]
fn only_settings_that_the_user_gave_are_set_and_only_while_they_differ() {
    let mut wants = wanted(4);
    wants.config = [("retention.ms".to_owned(), "2".to_owned())].into();
    let known = || Some(known(Some("a"), false));
    let differs = one(&wants, known(), Some(Topic::There(facts("a", 4))), FREE);
    assert_eq!(differs.actions, [Action::Alter { topic: "books_source".into(), config: wants.config.clone() }]);
    assert_eq!(differs.topics[0].config_drift, ["retention.ms"]);
    let observed = one(&wants, known(), Some(Topic::There(facts("a", 4))), Policy { management: TopicManagement::Observe, ..FREE });
    let note = observed.note.expect("it is said");
    assert_eq!((observed.actions.len(), note.reason), (0, Reason::ConfigDrift));
    assert!(note.message.contains("retention.ms is 1 instead of 2"), "{}", note.message);
}

#[test]
fn nothing_is_made_where_topics_may_only_be_observed() {
    let plan = one(&wanted(4), None, Some(Topic::Missing), Policy { management: TopicManagement::Observe, ..FREE });
    assert!(plan.actions.is_empty() && plan.problem.expect("it is said").message.contains("may not be created here"));
}

/// What Kafka has after the actions were done.
fn after(actions: &[Action], topic: Option<Topic>) -> Option<Topic> {
    let mut topic = topic;
    for action in actions {
        topic = Some(match (action, topic) {
            (Action::Create { partitions, config, .. }, _) => {
                Topic::There(TopicFacts { config: Some(config.clone()), ..facts("new", *partitions) })
            }
            (Action::Grow { partitions, .. }, Some(Topic::There(facts))) => Topic::There(TopicFacts { partitions: *partitions, ..facts }),
            (Action::Alter { config, .. }, Some(Topic::There(mut facts))) => {
                facts.config.get_or_insert_default().extend(config.clone());
                Topic::There(facts)
            }
            (Action::Delete { .. }, _) => Topic::Missing,
            (_, other) => panic!("{action:?} is no action for {other:?}"),
        });
    }
    topic
}

proptest! {
    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_do(
        has in prop::option::of((0..3u8, 1..6i32)),
        id in prop::option::of(0..3u8),
        is_known: bool,
        wants in 1..6i32,
        retention in prop::option::of(1..3u8),
        is_idle: bool,
        has_active_run: bool,
        observe: bool,
    ) {
        let mut wanted = wanted(wants);
        wanted.config = retention.map(|retention| ("retention.ms".to_owned(), retention.to_string())).into_iter().collect();
        let topic = has.map_or(Topic::Missing, |(id, partitions)| Topic::There(facts(&id.to_string(), partitions)));
        let known = is_known.then(|| known(id.map(|id| id.to_string()).as_deref(), false));
        let management = if observe { TopicManagement::Observe } else { TopicManagement::Create };
        let policy = Policy { management, is_idle, has_active_run, ..FREE };
        let first = one(&wanted, known, Some(topic.clone()), policy);
        let second = one(&wanted, first.topics.first().cloned(), after(&first.actions, Some(topic)), policy);
        prop_assert_eq!(&second.actions, &[]);
        prop_assert!(!observe || first.actions.is_empty());
        let creates = first.actions.iter().any(|action| matches!(action, Action::Create { .. }));
        prop_assert!(!(creates && has_active_run && id.is_some() && is_known), "what a run lost is not made again");
    }
}
