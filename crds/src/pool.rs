//! The pods of one role, and how their number follows the work.

use crate::values::{Duration, FreeObject, Resources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The processes of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.scaling) && has(self.scaling.mode) && self.scaling.mode == 'Fixed') || has(self.replicas)")
    .message("scaling mode Fixed needs replicas").field_path(".replicas"))]
pub struct Pool {
    /// Number of pods in the scaling modes `Fixed` and `External`; `kubectl scale` and autoscalers write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1024))]
    pub replicas: Option<i32>,
    /// Lanes of a process: documents of one id stay in one lane, so their order is kept. Without it as many as cores;
    /// the number of pods is then reckoned with 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub threads: Option<u32>,
    /// How the number of pods follows the work.
    #[serde(default)]
    pub scaling: Scaling,
    /// CPU and memory of a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Partial pod templates, merged over the generated one in this order, for example
    /// `- spec: {nodeSelector: {pool: ingest}}`. The container is called `penstock`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub pod_patches: Vec<FreeObject>,
    /// Longest time that one document may take before its process counts as stuck.
    #[serde(default = "default_max_processing")]
    pub max_processing: Duration,
    /// End a stuck process, so that its documents are taken up by another one. Otherwise it is left to the liveness probe.
    #[serde(default)]
    pub exit_on_stuck: bool,
    /// Time that a pod has to finish what it took before it is killed.
    #[serde(default = "default_grace_period")]
    pub termination_grace_period: Duration,
}

fn default_max_processing() -> Duration {
    Duration::from_secs(600)
}

fn default_grace_period() -> Duration {
    Duration::from_secs(60)
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            replicas: None,
            threads: None,
            scaling: Scaling::default(),
            resources: None,
            pod_patches: Vec::new(),
            max_processing: default_max_processing(),
            exit_on_stuck: false,
            termination_grace_period: default_grace_period(),
        }
    }
}

/// How the number of pods follows the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas")
    .message("minReplicas must not exceed maxReplicas").field_path(".minReplicas"))]
#[x_kube(validation = Rule::new("!(has(self.mode) && self.mode == 'Lag') || has(self.lag)")
    .message("scaling mode Lag needs lag, for example {perPod: 10000}").field_path(".lag"))]
#[x_kube(validation = Rule::new("!has(self.lag) || (has(self.mode) && self.mode == 'Lag')")
    .message("lag is for scaling mode Lag: set that mode, or remove lag").field_path(".lag"))]
pub struct Scaling {
    /// What decides about the number of pods.
    #[serde(default)]
    pub mode: ScalingMode,
    /// Least number of pods while there is work, and at all times if above 0. With 0 the last pod goes after `idleBeforeZero`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1024))]
    pub min_replicas: i32,
    /// Largest number of pods. Without it as many as partitions can share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_replicas: Option<i32>,
    /// How long nothing must run and nothing be unread before the last pod goes. Only with `minReplicas: 0`.
    #[serde(default = "default_idle_before_zero")]
    pub idle_before_zero: Duration,
    /// Settings of mode `Lag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<LagScaling>,
}

fn default_idle_before_zero() -> Duration {
    Duration::from_secs(300)
}

impl Default for Scaling {
    fn default() -> Self {
        Self { mode: ScalingMode::default(), min_replicas: 0, max_replicas: None, idle_before_zero: default_idle_before_zero(), lag: None }
    }
}

/// What decides about the number of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScalingMode {
    /// `replicas`.
    Fixed,
    /// Partitions divided by `threads`, rounded up.
    #[default]
    Partitions,
    /// Unread records.
    Lag,
    /// Somebody else writes `replicas`, for example a HorizontalPodAutoscaler.
    External,
}

/// Settings of scaling by unread records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LagScaling {
    /// Unread records that one pod is meant to take.
    #[schemars(range(min = 1))]
    pub per_pod: i64,
}

/// What is observed of the pods of one role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Pods that are wanted.
    #[serde(default)]
    pub desired: i32,
    /// Pods that are there.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready: i32,
    /// Pods that have the current revision.
    #[serde(default)]
    pub updated: i32,
    /// Partitions that members of the group have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_partitions: Option<i32>,
    /// Ready and wanted pods as text, for example `3/6`.
    #[serde(default)]
    pub summary: String,
    /// Label selector of the pods, for autoscalers.
    #[serde(default)]
    pub selector: String,
    /// When the wanted number last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
    /// Why it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_reason: Option<String>,
}
