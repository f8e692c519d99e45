//! The topics of a pipeline: names, settings and fate, and what is observed of them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names, settings and fate of a pipeline's topics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(concat!(
    "[[has(self.source) && has(self.source.name) ? self.source.name : '', ",
    "has(self.dest) && has(self.dest.name) ? self.dest.name : '', ",
    "has(self.fail) && has(self.fail.name) ? self.fail.name : '']]",
    ".all(names, names.all(name, name == '' || names.exists_one(other, other == name)))")).message("topics need different names"))]
pub struct Topics {
    /// What deleting the Pipeline does to its topics. Topics that were taken over are never deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// What happens to a topic that is there before the Pipeline.
    #[serde(default)]
    pub adoption: Adoption,
    /// The topic that connectors, or programs of your own, write to. Without it `{namePrefix}{pipeline}_source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Topic>,
    /// The topic between workers and indexers, in mode `Distributed`. Without it `{namePrefix}{pipeline}_dest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dest: Option<Topic>,
    /// The dead letter topic: failed documents with their reason. Without it `{namePrefix}{pipeline}_fail`. It has one partition, and
    /// keeps all unless its `config` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<Topic>,
}

/// What deleting a Pipeline does to its topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Topics stay.
    #[default]
    Retain,
    /// Topics are deleted with all that is in them.
    Delete,
}

/// What happens to a topic that is there before the Pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Adoption {
    /// It is used if it has partitions enough and is not compacted.
    #[default]
    IfCompatible,
    /// The Pipeline is not ready until it is gone or another name is given.
    Never,
}

/// One topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topic {
    /// Name of the topic, used literally: no prefix is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 249))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9._-]+$') && self != '.' && self != '..'").message("a topic name has letters, digits and the signs . _ - only"))]
    pub name: Option<String>,
    /// Settings of the topic, for example `{retention.ms: "604800000"}`. Only the keys that stand here are altered. What is older than
    /// `retention.ms` is removed, read or not: give source and dest more than the longest stop that you want to survive.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("!('cleanup.policy' in self) || self['cleanup.policy'] == 'delete'").message("cleanup.policy must be delete: a compacted topic loses documents"))]
    pub config: BTreeMap<String, String>,
}

/// What is observed of one topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicStatus {
    /// What the topic is for.
    pub role: TopicRole,
    /// Its name.
    pub name: String,
    /// The id that Kafka gave it: it tells a topic that was made again from the one that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    /// Whether it was there before the Pipeline; then it is never deleted.
    #[serde(default)]
    pub adopted: bool,
    /// Partitions that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<i32>,
    /// Replicas of each partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<i32>,
    /// Records in it, read or unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<i64>,
    /// Records in it that nobody has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// Age of the oldest record that nobody has finished, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_unread_seconds: Option<i64>,
    /// Settings that differ from the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub config_drift: Vec<String>,
}

/// What a topic is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TopicRole {
    /// What connectors write to.
    Source,
    /// Between workers and indexers.
    Dest,
    /// The dead letter.
    Fail,
}
