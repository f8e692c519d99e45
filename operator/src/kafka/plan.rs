//! What is to be done with a pipeline's topics, from what is wanted, what was known of them, and what is seen. Pure.

use super::{Action, Snapshot, Topic, TopicFacts, Trouble};
use penstock_crds::{
    conditions::Reason,
    kafka_connection::TopicManagement,
    pipeline::PartitionIncrease,
    topics::{Adoption, TopicRole, TopicStatus},
};
use std::collections::BTreeMap;

/// A topic as the pipeline wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What it is for.
    pub role: TopicRole,
    /// Its name.
    pub name: String,
    /// How many partitions it is to have at least.
    pub partitions: i32,
    /// Settings of a new one that nobody asked for.
    pub defaults: BTreeMap<String, String>,
    /// Settings that the user gave: they are kept as they are given.
    pub config: BTreeMap<String, String>,
    /// The group that reads it.
    pub group: Option<String>,
}

/// What may be done.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether topics are made and altered at all.
    pub management: TopicManagement,
    /// Whether topics that are there may be taken over.
    pub adoption: Adoption,
    /// When partitions may be added.
    pub increase: PartitionIncrease,
    /// Nothing runs and nothing is unread.
    pub is_idle: bool,
    /// A run is at work: a topic that is gone took documents along.
    pub has_active_run: bool,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicPlan {
    /// What is to be done, in this order. To be done only after `topics` was written down.
    pub actions: Vec<Action>,
    /// What is known of the topics from now on.
    pub topics: Vec<TopicStatus>,
    /// Why the pipeline cannot use its topics.
    pub problem: Option<Trouble>,
    /// The topics can be used, but there is something to say.
    pub note: Option<Trouble>,
}

impl TopicPlan {
    fn problem(&mut self, reason: Reason, message: String) {
        self.problem.get_or_insert(Trouble { reason, message });
    }

    fn note(&mut self, reason: Reason, message: String) {
        self.note.get_or_insert(Trouble { reason, message });
    }

    /// Whether so many topics are there, and can be used.
    pub fn is_complete(&self, topics: usize) -> bool {
        self.problem.is_none() && self.topics.len() == topics && self.topics.iter().all(|topic| topic.topic_id.is_some())
    }
}

/// Decides. Nothing is done to a topic that was not seen yet, or while brokers do not answer.
pub fn plan(wanted: &[Wanted], known: &[TopicStatus], seen: &Snapshot, policy: Policy) -> TopicPlan {
    let mut plan = TopicPlan::default();
    for wanted in wanted {
        if let Some(failure) = seen.failures.get(&wanted.name) {
            plan.problem(failure.reason, failure.message.clone());
        }
        let known = known.iter().find(|known| known.role == wanted.role && known.name == wanted.name);
        let status = match seen.topics.get(&wanted.name) {
            Some(_) if !seen.is_fresh() => known.cloned(),
            None => known.cloned(),
            Some(Topic::Hidden(trouble)) => {
                plan.problem(trouble.reason, trouble.message.clone());
                known.cloned()
            }
            Some(Topic::Missing) => missing(&mut plan, wanted, known, policy),
            Some(Topic::There(facts)) => there(&mut plan, wanted, known, facts, policy),
        };
        // what is written down without an id is what we are about to make, so nothing else may be
        let Some(mut status) = status else { continue };
        if let Some(group) = &wanted.group {
            status.lag = seen.lag(group, &wanted.name);
        }
        plan.topics.push(status);
    }
    plan
}

fn unknown(wanted: &Wanted) -> TopicStatus {
    TopicStatus {
        role: wanted.role,
        name: wanted.name.clone(),
        topic_id: None,
        adopted: false,
        partitions: None,
        replication_factor: None,
        retained: None,
        lag: None,
        oldest_unread_seconds: None,
        config_drift: Vec::new(),
    }
}

fn missing(plan: &mut TopicPlan, wanted: &Wanted, known: Option<&TopicStatus>, policy: Policy) -> Option<TopicStatus> {
    let name = &wanted.name;
    let was_there = known.is_some_and(|known| known.topic_id.is_some());
    if was_there && policy.has_active_run {
        plan.problem(Reason::TopicLost, format!("topic `{name}` was deleted while a run is at work: documents in it are gone"));
        return known.cloned();
    }
    if policy.management == TopicManagement::Observe {
        let cure = "create it, or set topics.management of the KafkaConnection to Create";
        plan.problem(Reason::TopicLost, format!("topic `{name}` is not there and may not be created here; {cure}"));
        return known.cloned();
    }
    if was_there {
        plan.note(Reason::TopicRecreated, format!("topic `{name}` was deleted behind the pipeline while nothing ran; it is made again"));
    }
    let mut config = wanted.defaults.clone();
    config.extend(wanted.config.clone());
    plan.actions.push(Action::Create { topic: name.clone(), partitions: wanted.partitions, config });
    // written down before it is created: so it is known as ours whatever happens then
    Some(unknown(wanted))
}

fn there(plan: &mut TopicPlan, wanted: &Wanted, known: Option<&TopicStatus>, facts: &TopicFacts, policy: Policy) -> Option<TopicStatus> {
    let name = &wanted.name;
    let mut adopted = known.is_some_and(|known| known.adopted);
    match known.map(|known| known.topic_id.as_deref()) {
        None => {
            if let Some(why) = why_not_adopt(wanted, facts, policy.adoption) {
                plan.problem(Reason::TopicNotAdoptable, why);
                return None;
            }
            adopted = true;
        }
        Some(Some(id)) if id != facts.id => {
            if policy.has_active_run {
                plan.problem(
                    Reason::TopicLost,
                    format!("topic `{name}` was deleted and made again while a run is at work: its documents are gone"),
                );
                return known.cloned();
            }
            plan.note(
                Reason::TopicRecreated,
                format!("topic `{name}` was deleted and made again by somebody else; it is used, and never deleted"),
            );
            adopted = true;
        }
        Some(_) => {}
    }
    if facts.config.as_ref().is_some_and(is_compacted) {
        plan.problem(Reason::TopicNotAdoptable, compacted(name));
    }
    check_partitions(plan, wanted, facts, policy);
    let drift = drift(wanted, facts);
    if !drift.is_empty() {
        match policy.management {
            TopicManagement::Create => plan.actions.push(Action::Alter { topic: name.clone(), config: drift.clone() }),
            TopicManagement::Observe => {
                plan.note(Reason::ConfigDrift, format!("settings of topic `{name}` differ: {}", in_words(&drift, facts)))
            }
        }
    }
    Some(TopicStatus {
        topic_id: Some(facts.id.clone()),
        adopted,
        partitions: Some(facts.partitions),
        replication_factor: Some(facts.replication_factor),
        retained: facts.retained,
        config_drift: drift.into_keys().collect(),
        ..unknown(wanted)
    })
}

fn why_not_adopt(wanted: &Wanted, facts: &TopicFacts, adoption: Adoption) -> Option<String> {
    let name = &wanted.name;
    if adoption == Adoption::Never {
        return Some(format!("topic `{name}` is there already and topics.adoption is Never; delete it, or give the topic another name"));
    }
    if facts.partitions < wanted.partitions {
        let (has, wants) = (facts.partitions, wanted.partitions);
        return Some(format!(
            "topic `{name}` is there already with {has} partitions, and {wants} are wanted; add partitions, or give the topic another name"
        ));
    }
    facts.config.as_ref().filter(|config| is_compacted(config)).map(|_| compacted(name))
}

fn compacted(name: &str) -> String {
    format!("topic `{name}` is compacted, so it loses documents; set its cleanup.policy to delete, or give the topic another name")
}

fn is_compacted(config: &BTreeMap<String, String>) -> bool {
    config.get("cleanup.policy").is_some_and(|policy| policy.contains("compact"))
}

fn check_partitions(plan: &mut TopicPlan, wanted: &Wanted, facts: &TopicFacts, policy: Policy) {
    let (name, has, wants) = (&wanted.name, facts.partitions, wanted.partitions);
    if has > wants {
        let text = format!("topic `{name}` has {has} partitions, more than the {wants} of the spec; all are used");
        return plan.note(Reason::PartitionsExceedSpec, text);
    }
    if has == wants {
        return;
    }
    let pending = |plan: &mut TopicPlan, why: &str| {
        plan.note(Reason::PartitionIncreasePending, format!("topic `{name}` has {has} partitions, {wants} are wanted: {why}"));
    };
    match (policy.management, policy.increase) {
        (TopicManagement::Observe, _) => pending(plan, "they may not be added here"),
        (_, PartitionIncrease::Forbid) => pending(plan, "partitionIncrease is Forbid"),
        (_, PartitionIncrease::WhenIdle) if policy.is_idle => {
            plan.actions.push(Action::Grow { topic: name.clone(), partitions: wants });
        }
        (_, PartitionIncrease::WhenIdle) => pending(plan, "they are added when no run is at work and nothing is unread"),
    }
}

/// Settings that the user gave and the topic has not.
fn drift(wanted: &Wanted, facts: &TopicFacts) -> BTreeMap<String, String> {
    let Some(config) = &facts.config else { return BTreeMap::new() };
    wanted.config.iter().filter(|(key, value)| config.get(*key) != Some(value)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn in_words(drift: &BTreeMap<String, String>, facts: &TopicFacts) -> String {
    let has = |key: &str| facts.config.as_ref().and_then(|config| config.get(key)).map_or("nothing", String::as_str);
    drift.iter().map(|(key, wants)| format!("{key} is {} instead of {wants}", has(key))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
