//! `Pipeline`: topics, stages, workers and the indexer of one ingest path. Long-lived.

use crate::{
    indexers::Indexer,
    stages::Stage,
    values::{Duration, LocalRef},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Topics, stages, workers and indexer of one ingest path.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(group = "penstock.io", version = "v1alpha1", kind = "Pipeline", namespaced, shortname = "ppl", category = "penstock")]
#[serde(rename_all = "camelCase")]
pub struct PipelineSpec {
    /// Where the parts of the pipeline run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The KafkaConnection to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka_ref: Option<LocalRef>,
    /// Partitions of the source and the dest topic. Can only grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub partitions: Option<i32>,
    /// Stages, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub stages: Vec<Stage>,
    /// Where documents go.
    pub indexer: Indexer,
    /// The worker processes.
    #[serde(default)]
    pub workers: Pool,
}

/// Where the parts of a pipeline run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// One process with connector, workers and indexer, over memory.
    Local,
    /// Worker and indexer paired in one process.
    WorkerIndexer,
    /// Workers and indexers in processes of their own.
    Distributed,
}

/// The processes of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Lanes of a process: documents of one id stay in one lane, so their order is kept. Without it as many as cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub threads: Option<u32>,
    /// Longest time that one document may take before its process counts as stuck.
    #[serde(default = "default_max_processing")]
    pub max_processing: Duration,
}

fn default_max_processing() -> Duration {
    Duration::from_secs(600)
}

impl Default for Pool {
    fn default() -> Self {
        Self { threads: None, max_processing: default_max_processing() }
    }
}
