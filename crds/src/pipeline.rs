//! `Pipeline`: topics, stages, workers and the indexer of one ingest path. Long-lived.

use crate::{
    indexers::Indexer,
    pool::{Pool, PoolStatus},
    stages::Stage,
    topics::{TopicStatus, Topics},
    values::LocalRef,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Topics, stages, workers and the indexer of one ingest path.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(group = "penstock.io", version = "v1alpha1", kind = "Pipeline", namespaced, shortname = "ppl", category = "penstock", status = "PipelineStatus",
    doc = "Topics, stages, workers and the indexer of one ingest path. It is long-lived: IngestRuns bring documents to it.",
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name may have 63 characters at most: it becomes a label of pods"),
    scale(spec_replicas_path = ".spec.workers.replicas", status_replicas_path = ".status.workers.replicas", label_selector_path = ".status.workers.selector"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Workers", type_ = "string", json_path = ".status.workers.summary", description = "Ready and wanted workers"),
    printcolumn(name = "Indexers", type_ = "string", json_path = ".status.indexers.summary", description = "Ready and wanted indexers"),
    printcolumn(name = "Partitions", type_ = "integer", json_path = ".status.partitions", description = "Partitions that the source topic has"),
    printcolumn(name = "Lag", type_ = "integer", format = "int64", json_path = ".status.lag", description = "Records that wait"),
    printcolumn(name = "Dead", type_ = "integer", format = "int64", json_path = ".status.deadLetters", description = "Records in the dead letter topic"),
    printcolumn(name = "Runs", type_ = "integer", json_path = ".status.activeRuns.count", description = "Runs at work on the pipeline"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode", priority = 1),
    printcolumn(name = "Kafka", type_ = "string", json_path = ".spec.kafkaRef.name", priority = 1),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision.current", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.mode) && self.mode in ['Distributed', 'WorkerIndexer']) || has(self.kafkaRef)")
    .message("this mode needs kafkaRef: name a KafkaConnection, or take mode Local").field_path(".mode"))]
#[x_kube(validation = Rule::new("!(has(self.mode) && self.mode == 'Local') || !has(self.kafkaRef)")
    .message("mode Local works without Kafka: remove kafkaRef, or take mode Distributed or WorkerIndexer").field_path(".kafkaRef"))]
#[x_kube(validation = Rule::new("!(has(self.mode) ? self.mode in ['Distributed', 'WorkerIndexer'] : has(self.kafkaRef)) || has(self.partitions)")
    .message("with Kafka the pipeline needs partitions, for example 12").field_path(".partitions"))]
#[x_kube(validation = Rule::new("!(has(self.mode) ? self.mode in ['Local', 'WorkerIndexer'] : !has(self.kafkaRef)) || !has(self.indexers)")
    .message("only mode Distributed has indexers in pods of their own: remove indexers").field_path(".indexers"))]
#[x_kube(validation = Rule::new("!(has(self.mode) ? self.mode in ['Distributed', 'WorkerIndexer'] : has(self.kafkaRef)) || !has(self.indexer.embedded)")
    .message("the embedded index becomes visible at the end of a step, which indexers over Kafka do not know: use another indexer, or mode Local without kafkaRef").field_path(".indexer.embedded"))]
#[x_kube(validation = Rule::new("!has(self.partitions) || !has(self.workers) || !has(self.workers.scaling) || !has(self.workers.scaling.maxReplicas) || self.workers.scaling.maxReplicas <= self.partitions")
    .message("workers.scaling.maxReplicas exceeds partitions: the workers above it would sit idle").field_path(".workers.scaling.maxReplicas"))]
#[x_kube(validation = Rule::new("!has(self.partitions) || !has(self.indexers) || !has(self.indexers.scaling) || !has(self.indexers.scaling.maxReplicas) || self.indexers.scaling.maxReplicas <= self.partitions")
    .message("indexers.scaling.maxReplicas exceeds partitions: the indexers above it would sit idle").field_path(".indexers.scaling.maxReplicas"))]
#[x_kube(validation = Rule::new("has(self.kafkaRef) == has(oldSelf.kafkaRef) && (!has(self.kafkaRef) || self.kafkaRef.name == oldSelf.kafkaRef.name)")
    .message("kafkaRef cannot change: create a new Pipeline").field_path(".kafkaRef"))]
#[x_kube(validation = Rule::new("(has(self.mode) ? self.mode : has(self.kafkaRef) ? 'Distributed' : 'Local') == (has(oldSelf.mode) ? oldSelf.mode : has(oldSelf.kafkaRef) ? 'Distributed' : 'Local')")
    .message("mode cannot change: create a new Pipeline").field_path(".mode"))]
pub struct PipelineSpec {
    /// Stop workers and indexers once they have finished what they took. Topics stay, and runs wait.
    #[serde(default)]
    pub suspend: bool,
    /// Where the parts of the pipeline run. Cannot change. Without it `Distributed` if there is a `kafkaRef`, else `Local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The KafkaConnection to use, an object of the same namespace. Cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka_ref: Option<LocalRef>,
    /// Partitions of the source and the dest topic: the largest number of workers that can share the work.
    /// Needed with a `kafkaRef`. Can only grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self >= oldSelf").message(Message::Expression("'partitions can only grow (%d now, %d asked for), Kafka cannot shrink a topic: create a new Pipeline'.format([oldSelf, self])".into())))]
    pub partitions: Option<i32>,
    /// What a larger number of partitions does to topics that are there already.
    #[serde(default)]
    pub partition_increase: PartitionIncrease,
    /// Names, settings and fate of the topics.
    #[serde(default)]
    pub topics: Topics,
    /// What is done to each document, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("self.all(stage, !has(stage.name) || self.exists_one(other, has(other.name) && other.name == stage.name))")
        .message("stage names must be unique"), merge_strategy = ListMerge::Atomic)]
    pub stages: Vec<Stage>,
    /// Where documents go.
    pub indexer: Indexer,
    /// The processes that run the stages; in mode `WorkerIndexer` also the indexer, in mode `Local` everything.
    #[serde(default)]
    pub workers: Pool,
    /// The processes that write to the backend, in mode `Distributed`. Without it like the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexers: Option<Pool>,
    /// Documents that kill the process that works on them.
    #[serde(default)]
    pub dead_letter: DeadLetter,
    /// When a change of stages, indexer or image reaches the pods.
    #[serde(default)]
    pub rollout: Rollout,
}

impl PipelineSpec {
    /// The given mode, or the one that follows from `kafkaRef`.
    pub fn effective_mode(&self) -> Mode {
        let implied = if self.kafka_ref.is_some() { Mode::Distributed } else { Mode::Local };
        self.mode.unwrap_or(implied)
    }
}

/// Where the parts of a pipeline run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// One process with connector, workers and indexer, over memory. No Kafka is needed; a crash starts the step again.
    Local,
    /// Worker and indexer paired in one process, over Kafka. No dest topic.
    WorkerIndexer,
    /// Workers and indexers in processes of their own, with a topic between them.
    Distributed,
}

/// What a larger number of partitions does to topics that are there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PartitionIncrease {
    /// They grow when no run is at work and nothing is unread: ids move to other partitions, which would break their
    /// order in mid-run.
    #[default]
    WhenIdle,
    /// They stay as they are; the pipeline says that it is not as specified.
    Forbid,
}

/// Documents that kill the process that works on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// How often a document may kill its process before it is set aside as failed.
    #[serde(default = "default_max_attempts")]
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: i32,
}

fn default_max_attempts() -> i32 {
    3
}

impl Default for DeadLetter {
    fn default() -> Self {
        Self { max_attempts: default_max_attempts() }
    }
}

/// When a change reaches the pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// When a change of stages, indexer or image reaches the pods.
    #[serde(default)]
    pub policy: RolloutPolicy,
}

/// When a change reaches the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutPolicy {
    /// When no run is at work and nothing is unread, so that a run sees one revision from its start to its end.
    #[default]
    WhenIdle,
    /// At once.
    Immediate,
}

/// What is observed of a Pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Partitions that the source topic has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<i32>,
    /// Records that wait in the source and the dest topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// Records in the dead letter topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<i64>,
    /// The topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["role".into()]))]
    pub topics: Vec<TopicStatus>,
    /// The worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<PoolStatus>,
    /// The indexer pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexers: Option<PoolStatus>,
    /// Which revision of stages, indexer and image the pods have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Runs at work on the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_runs: Option<ActiveRuns>,
    /// Since when nothing runs and nothing is unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Time>,
    /// The upper part of document versions under `versioning: External`: minutes from 2020 to the creation, or the last
    /// growth, of the topic that positions are taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_generation: Option<i64>,
    /// Conditions: `Ready`, `SpecValid`, `KafkaReachable`, `TopicsReady`, `WorkersAvailable`, `IndexersAvailable`,
    /// `BackendReachable`; while they hold `Reconciling`, `Stalled`, `Suspended`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Which revision the pods have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// The one at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The one that waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<String>,
}

/// Runs at work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRuns {
    /// How many.
    pub count: i32,
    /// Names of the oldest of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_follows_from_kafka_ref() {
        for (spec, mode) in [
            (serde_json::json!({"indexer": {"nop": {}}}), Mode::Local),
            (serde_json::json!({"indexer": {"nop": {}}, "kafkaRef": {"name": "main"}}), Mode::Distributed),
            (serde_json::json!({"indexer": {"nop": {}}, "kafkaRef": {"name": "main"}, "mode": "WorkerIndexer"}), Mode::WorkerIndexer),
        ] {
            let spec: PipelineSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(spec.effective_mode(), mode);
        }
    }
}
