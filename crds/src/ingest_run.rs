//! `IngestRun`: connectors that run one after the other. One immutable piece of work.

use crate::{
    conditions::{ConnectorState, RunPhase},
    connectors::Connector,
    values::Duration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connectors that run one after the other; ends when every document is accounted for.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(group = "penstock.io", version = "v1alpha1", kind = "IngestRun", namespaced, shortname = "irun", category = "penstock", status = "IngestRunStatus",
    doc = "Connectors that run one after the other. A run is one immutable piece of work; it ends when every document is accounted for.",
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name may have 63 characters at most: it becomes a label of pods"),
    validation = Rule::new("self.spec.connectors == oldSelf.spec.connectors")
        .message("connectors of a run cannot change, not even a default written out: create a new IngestRun, or use an IngestSchedule and its triggerNonce").field_path(".spec.connectors"),
    validation = Rule::new("has(self.spec.failurePolicy) == has(oldSelf.spec.failurePolicy) && (!has(self.spec.failurePolicy) || self.spec.failurePolicy == oldSelf.spec.failurePolicy)")
        .message("failurePolicy of a run cannot change: create a new IngestRun").field_path(".spec.failurePolicy"),
    validation = Rule::new("!(has(oldSelf.spec.cancel) && oldSelf.spec.cancel) || (has(self.spec.cancel) && self.spec.cancel)")
        .message("a cancelled run cannot be revived: create a new IngestRun").field_path(".spec.cancel"),
    selectable = ".spec.suspend",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Connector", type_ = "string", json_path = ".status.progress", description = "Position and name of the connector at work"),
    printcolumn(name = "Published", type_ = "integer", format = "int64", json_path = ".status.totals.published"),
    printcolumn(name = "Pending", type_ = "integer", format = "int64", json_path = ".status.totals.pending"),
    printcolumn(name = "Indexed", type_ = "integer", format = "int64", json_path = ".status.totals.finished"),
    printcolumn(name = "Failed", type_ = "integer", format = "int64", json_path = ".status.totals.failed"),
    printcolumn(name = "Dropped", type_ = "integer", format = "int64", json_path = ".status.totals.dropped", priority = 1),
    printcolumn(name = "Rate", type_ = "integer", format = "int64", json_path = ".status.docsPerSecond", description = "Documents a second", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase")]
pub struct IngestRunSpec {
    /// Connectors, in this order; the next starts only after the one before it succeeded. Cannot change once the run is made.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.all(connector, self.exists_one(other, other.name == connector.name))")
        .message("connector names must be unique"), merge_strategy = ListMerge::Atomic)]
    pub connectors: Vec<Connector>,
    /// When failed documents fail the run. Without it they never do. Cannot change once the run is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// Pause: nothing is published until this is false again. What was published is processed.
    #[serde(default)]
    pub suspend: bool,
    /// End the run: nothing more is published, what was published is processed, later connectors are skipped.
    /// Cannot be taken back.
    #[serde(default)]
    pub cancel: bool,
    /// How long a cancelled run waits for what was published; then it ends with the number that is left.
    #[serde(default = "default_cancel_grace_period")]
    pub cancel_grace_period: Duration,
    /// A run without any progress for this time is reported as not progressing; it does not fail for it.
    #[serde(default = "default_progress_deadline")]
    pub progress_deadline: Duration,
    /// How long the run waits for its pipelines to be there and ready; then it fails.
    #[serde(default = "default_pipeline_wait")]
    pub pipeline_wait: Duration,
    /// Whether other runs may be at work on the same pipelines.
    #[serde(default)]
    pub concurrency: RunConcurrency,
    /// The topic of the run's events, the record of every outcome.
    #[serde(default)]
    pub event_topic: EventTopic,
    /// Delete the run so many seconds after it ended. Without it it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

fn default_cancel_grace_period() -> Duration {
    Duration::from_secs(300)
}

fn default_progress_deadline() -> Duration {
    Duration::from_secs(600)
}

fn default_pipeline_wait() -> Duration {
    Duration::from_secs(600)
}

/// When failed documents fail the run: one bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.maxFailed) && has(self.maxFailedPercent))").message("set maxFailed or maxFailedPercent, not both").field_path(".maxFailedPercent"))]
pub struct FailurePolicy {
    /// So many failed documents are tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_failed: Option<i64>,
    /// Such a percentage of all documents, children included, may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_failed_percent: Option<i32>,
}

/// Whether other runs may be at work on the same pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunConcurrency {
    /// They may. Each run counts its own documents.
    #[default]
    Shared,
    /// The run waits until no older one is at work on its pipelines, and younger ones wait for it.
    Exclusive,
}

/// The topic of a run's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventTopic {
    /// Keep the topic for this time after the run ended, to look into. Without it it is removed with the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Duration>,
}

/// What is observed of an IngestRun.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngestRunStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the run stands, in one word. It follows from the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// The id that marks the run's documents and events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The image that the run's pods have; an upgrade of the operator does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Position and name of the connector at work, for example `2/3 products`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Documents a second that reach their end, over the last minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs_per_second: Option<i64>,
    /// Documents of all connectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Counts>,
    /// One entry a connector, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub connectors: Vec<ConnectorStatus>,
    /// Conditions: `Ready`, `SpecValid`, `Progressing`, at the end `Complete` or `Failed`;
    /// while they hold `Reconciling`, `Stalled`, `Suspended`, `Cancelling`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What is observed of one connector of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorStatus {
    /// Name of the connector.
    pub name: String,
    /// Where it stands.
    #[serde(default)]
    pub state: ConnectorState,
    /// Which publisher works on it, from 1; more than 1 if one was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// The Job of its publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When its source was read to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Its documents.
    #[serde(default)]
    pub counts: Counts,
    /// Documents a second that reach their end, over the last minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs_per_second: Option<i64>,
    /// Age of the oldest document without an outcome, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_pending_seconds: Option<i64>,
    /// Some of the failed documents: the dead letter has them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub failures: Vec<FailureSample>,
    /// What it waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A failed document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureSample {
    /// Id of the document; empty for a record that could not be read.
    #[serde(default)]
    pub id: String,
    /// The stage that failed; empty for the connector and the indexer.
    #[serde(default)]
    pub stage: String,
    /// Why.
    pub reason: String,
}

/// Documents by state. Always: published + created = finished + failed + dropped + pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Documents that the connector gave.
    pub published: u64,
    /// Children that stages made.
    pub created: u64,
    /// Documents that the index has.
    pub finished: u64,
    /// Documents that failed; they are in the dead letter.
    pub failed: u64,
    /// Documents that a stage dropped.
    pub dropped: u64,
    /// Documents that are none of these yet.
    pub pending: u64,
}

impl Counts {
    /// Adds the counts of another connector.
    pub fn add(&mut self, other: &Counts) {
        self.published += other.published;
        self.created += other.created;
        self.finished += other.finished;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.pending += other.pending;
    }
}
