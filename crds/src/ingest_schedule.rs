//! `IngestSchedule`: runs by cron, or by a changed nonce.

use crate::ingest_run::IngestRunSpec;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Starts IngestRuns by cron with time zone, or by a changed `triggerNonce`.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(group = "penstock.io", version = "v1alpha1", kind = "IngestSchedule", namespaced, shortname = "isch", category = "penstock")]
#[serde(rename_all = "camelCase")]
pub struct IngestScheduleSpec {
    /// The run to start.
    pub run_template: RunTemplate,
}

/// The run that a schedule starts.
#[derive(Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunTemplate {
    /// Spec of the run.
    pub spec: IngestRunSpec,
}
