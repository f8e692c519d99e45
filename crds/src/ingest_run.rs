//! `IngestRun`: connectors that run one after the other. One immutable piece of work.

use crate::{connectors::Connector, values::Duration};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connectors that run one after the other; ends when every document is accounted for.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(group = "penstock.io", version = "v1alpha1", kind = "IngestRun", namespaced, shortname = "irun", category = "penstock")]
#[serde(rename_all = "camelCase")]
pub struct IngestRunSpec {
    /// Connectors, in this order; the next starts only after the one before it succeeded.
    #[schemars(length(min = 1, max = 64))]
    pub connectors: Vec<Connector>,
    /// When failed documents fail the run. Without it they never do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// A run without any progress for this time is reported as not progressing.
    #[serde(default = "default_progress_deadline")]
    pub progress_deadline: Duration,
}

fn default_progress_deadline() -> Duration {
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
    /// Such a share of the published documents may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_failed_percent: Option<i32>,
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
