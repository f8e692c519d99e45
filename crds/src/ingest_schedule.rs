//! `IngestSchedule`: runs by cron, or by a changed nonce.

use crate::{ingest_run::IngestRunSpec, values::Duration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Starts IngestRuns by cron with time zone, or by a changed `triggerNonce`.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(group = "penstock.io", version = "v1alpha1", kind = "IngestSchedule", namespaced, shortname = "isch", category = "penstock", status = "IngestScheduleStatus",
    doc = "Starts IngestRuns by cron with time zone, or by a changed triggerNonce.",
    validation = Rule::new("self.metadata.name.size() <= 52").message("the name may have 52 characters at most: runs add the time to it"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Active", type_ = "integer", json_path = ".status.active", description = "Runs at work"),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastScheduleTime", description = "When the last run was due"),
    printcolumn(name = "Last Run", type_ = "string", json_path = ".status.lastRun", priority = 1),
    printcolumn(name = "Time Zone", type_ = "string", json_path = ".spec.timeZone", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.schedule) || has(self.triggerNonce)").message("set schedule, triggerNonce or both: nothing else starts a run"))]
pub struct IngestScheduleSpec {
    /// When runs start: a cron expression of five fields (minute, hour, day of month, month, day of week),
    /// for example `15 2 * * *`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = Rule::new("!self.contains('TZ=')").message("write the time zone into timeZone, not into the schedule"))]
    #[x_kube(validation = Rule::new("self.matches('^\\\\s*(\\\\S+\\\\s+){4}\\\\S+\\\\s*$') || self.contains('TZ=')").message("not a cron expression: five fields are wanted, for example 15 2 * * *"))]
    pub schedule: Option<String>,
    /// Time zone of the schedule, for example `Europe/Berlin`. An hour that summer time leaves out is made up for after it;
    /// one that it doubles counts once, unless runs start in every hour.
    #[serde(default = "default_time_zone")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$')").message("not a time zone: write for example UTC or Europe/Berlin"))]
    pub time_zone: String,
    /// A new value starts one run at once: change it in Git to run again. The first value starts one as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub trigger_nonce: Option<String>,
    /// What happens if the run before is still at work when the next is due.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// A run that could not be started within this time is left out. Without it it is started however late, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting_deadline: Option<Duration>,
    /// Start nothing while this is true; what is due meanwhile is left out. Runs at work go on.
    #[serde(default)]
    pub suspend: bool,
    /// How many runs that ended well are kept.
    #[serde(default = "default_history_limit")]
    #[schemars(range(min = 0, max = 1000))]
    pub successful_runs_history_limit: i32,
    /// How many runs that ended otherwise are kept.
    #[serde(default = "default_history_limit")]
    #[schemars(range(min = 0, max = 1000))]
    pub failed_runs_history_limit: i32,
    /// The run to start.
    pub run_template: RunTemplate,
}

fn default_time_zone() -> String {
    "UTC".into()
}

fn default_history_limit() -> i32 {
    3
}

/// What happens if the run before is still at work when the next is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// The new run is left out.
    #[default]
    Forbid,
    /// Both are at work.
    Allow,
    /// The old run is cancelled; the new one starts when it has ended.
    Replace,
}

/// The run that a schedule starts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunTemplate {
    /// Labels and annotations of the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the runs.
    pub spec: IngestRunSpec,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels of the runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
}

/// What is observed of an IngestSchedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngestScheduleStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Runs at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<i32>,
    /// When the last run was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// When the next run is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,
    /// When a run last ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
    /// Name of the run that was started last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<String>,
    /// The `triggerNonce` that a run was started for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_nonce: Option<String>,
    /// Conditions: `Ready`, `SpecValid`; while they hold `Reconciling`, `Stalled`, `Suspended`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
