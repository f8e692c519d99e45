//! What was seen of Kafka at one moment.

use penstock::kafka::{Fault, KafkaError};
use penstock_crds::conditions::Reason;
use std::collections::BTreeMap;

/// Something does not work, in the words of conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of trouble.
    pub reason: Reason,
    /// What is wrong and what to do.
    pub message: String,
}

impl From<&KafkaError> for Trouble {
    fn from(error: &KafkaError) -> Self {
        let reason = match error {
            KafkaError::Connect { fault: Fault::Credentials | Fault::Mechanism | Fault::Token, .. } => Reason::AuthenticationFailed,
            KafkaError::Denied { .. } => Reason::AuthorizationFailed,
            KafkaError::TopicMissing { .. } => Reason::TopicLost,
            KafkaError::Connect { .. } | KafkaError::NoAnswer { .. } => Reason::BrokersUnreachable,
            _ if error.to_string().contains("REPLICATION") => Reason::ReplicationUnsatisfiable,
            _ => Reason::InvalidSpec,
        };
        Self { reason, message: error.to_string() }
    }
}

/// Whether the brokers answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reachable {
    /// They were not asked yet.
    #[default]
    Unknown,
    /// They do.
    Yes {
        /// The id of the cluster, if it has one.
        cluster_id: Option<String>,
        /// How many are known.
        brokers: usize,
    },
    /// They do not.
    No(Trouble),
}

/// What was seen of Kafka. What is not in it was not looked at yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Whether the brokers answer. While they do not, the rest is what was seen last.
    pub reachable: Reachable,
    /// Topics, by name.
    pub topics: BTreeMap<String, Topic>,
    /// Records that a group has not finished, by group and topic.
    pub lags: BTreeMap<(String, String), i64>,
    /// What was to be done with a topic and failed, by its name.
    pub failures: BTreeMap<String, Trouble>,
}

/// What was seen of one topic.
#[derive(Clone, Debug, PartialEq)]
pub enum Topic {
    /// There is none of that name.
    Missing,
    /// It cannot be looked at.
    Hidden(Trouble),
    /// It is there.
    There(TopicFacts),
}

/// What a topic is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicFacts {
    /// The id that Kafka gave it.
    pub id: String,
    /// How many partitions it has.
    pub partitions: i32,
    /// How many replicas each has.
    pub replication_factor: i32,
    /// Its settings; nothing if they were not read yet, or must not be.
    pub config: Option<BTreeMap<String, String>>,
    /// Records in it.
    pub retained: Option<i64>,
}

impl Snapshot {
    /// Whether the brokers answered when it was made.
    pub fn is_fresh(&self) -> bool {
        matches!(self.reachable, Reachable::Yes { .. })
    }

    /// A topic that is there.
    pub fn topic(&self, name: &str) -> Option<&TopicFacts> {
        match self.topics.get(name) {
            Some(Topic::There(facts)) => Some(facts),
            _ => None,
        }
    }

    /// Unread records of a group in a topic.
    pub fn lag(&self, group: &str, topic: &str) -> Option<i64> {
        self.lags.get(&(group.to_owned(), topic.to_owned())).copied()
    }
}
