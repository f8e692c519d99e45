//! `KafkaConnection`: how to reach a Kafka cluster, and what may be done there.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// How to reach a Kafka cluster, and what may be done there.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(group = "penstock.io", version = "v1alpha1", kind = "KafkaConnection", namespaced, shortname = "kconn", category = "penstock")]
#[serde(rename_all = "camelCase")]
pub struct KafkaConnectionSpec {
    /// Brokers as `host:port`, separated by commas.
    #[schemars(length(min = 3, max = 2048))]
    pub bootstrap_servers: String,
}
