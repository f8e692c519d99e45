//! `KafkaConnection`: how to reach a Kafka cluster, and what may be done there.
#![expect(clippy::duplicated_attributes, reason = "columns and rules repeat their keys")]

use crate::values::Credential;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How to reach a Kafka cluster, and what may be done there.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "penstock.io",
    version = "v1alpha1",
    kind = "KafkaConnection",
    namespaced,
    shortname = "kconn",
    category = "penstock",
    status = "KafkaConnectionStatus",
    doc = "How to reach a Kafka cluster, and what may be done there. Pipelines name it in kafkaRef.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Brokers", type_ = "integer", json_path = ".status.brokers"),
    printcolumn(name = "Used By", type_ = "integer", json_path = ".status.usedBy", description = "Pipelines that use it"),
    printcolumn(name = "Servers", type_ = "string", json_path = ".spec.bootstrapServers", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct KafkaConnectionSpec {
    /// Brokers to begin with as `host:port`, separated by commas, for example `kafka-0:9092,kafka-1:9092`. They name the others.
    #[schemars(length(min = 3, max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^(\\\\[[0-9A-Fa-f:.]+\\\\]|[^,:\\\\s]+):[0-9]{1,5}(,(\\\\[[0-9A-Fa-f:.]+\\\\]|[^,:\\\\s]+):[0-9]{1,5})*$')")
        .message("write brokers as host:port, separated by commas without spaces, for example kafka-0:9092,kafka-1:9092"))]
    pub bootstrap_servers: String,
    /// Encrypt the connection. An empty block trusts the system's certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// How workers, indexers and publishers sign in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
    /// How topics are administered, so that data pods need no right to create or delete. Without it like `sasl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_sasl: Option<Sasl>,
    /// What may be done with topics.
    #[serde(default)]
    pub topics: TopicPolicy,
    /// More settings of the Kafka client, by librdkafka's names, for example `{socket.keepalive.enable: "true"}`.
    /// What the pipeline itself decides (groups, commits, acknowledgements) cannot be set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.all(name, !name.contains('password') && !name.contains('secret') && !name.startsWith('sasl.'))")
        .message("credentials belong into tls, sasl and adminSasl, where they are taken from Secrets"))]
    pub properties: BTreeMap<String, String>,
}

/// Encryption of the connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.clientCertificate) == has(self.clientKey)").message("clientCertificate and clientKey belong together").field_path(".clientKey"))]
pub struct Tls {
    /// Certificate authority of the brokers, as PEM. Without it the system's certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<Credential>,
    /// Client certificate, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<Credential>,
    /// Key of the client certificate, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<Credential>,
}

/// How clients sign in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.mechanism == 'OAUTHBEARER' || (has(self.username) && has(self.password))").message("this mechanism needs username and password").field_path(".mechanism"))]
#[x_kube(validation = Rule::new("(self.mechanism == 'OAUTHBEARER') == has(self.oauth)").message("mechanism OAUTHBEARER and the block oauth belong together").field_path(".oauth"))]
pub struct Sasl {
    /// The SASL mechanism.
    pub mechanism: SaslMechanism,
    /// User name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<Credential>,
    /// Password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Credential>,
    /// Where tokens come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<Oauth>,
}

/// A SASL mechanism, by the name that Kafka gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SaslMechanism {
    /// User and password in clear text; use it with `tls` only.
    #[serde(rename = "PLAIN")]
    Plain,
    /// Salted challenge and response with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// Salted challenge and response with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// Tokens of an OpenID Connect provider.
    #[serde(rename = "OAUTHBEARER")]
    Oauthbearer,
}

/// Where tokens come from: the client credentials flow of OpenID Connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Oauth {
    /// URL of the token endpoint.
    #[schemars(length(min = 1, max = 2048))]
    pub token_endpoint: String,
    /// Id of the client.
    pub client_id: Credential,
    /// Secret of the client.
    pub client_secret: Credential,
    /// Scopes to ask for, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub scope: Option<String>,
}

/// What may be done with topics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicPolicy {
    /// Whether topics are made and altered.
    #[serde(default)]
    pub management: TopicManagement,
    /// Text in front of the names of topics and consumer groups, for example `shop.`; `{namespace}` in it is replaced.
    /// Names that a Pipeline gives itself are left alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^([A-Za-z0-9._-]|[{]namespace[}])*$')").message("a prefix has letters, digits, the signs . _ - and {namespace} only"))]
    pub name_prefix: String,
    /// Replicas of each partition of new topics. Without it the broker's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32_767))]
    pub replication_factor: Option<i32>,
    /// Largest number of partitions that a Pipeline may ask for: a guard against typing errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_partitions: Option<i32>,
}

/// Whether topics are made and altered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TopicManagement {
    /// Missing topics are created, by the operator also grown, altered and, where that was asked for, deleted.
    #[default]
    Create,
    /// Topics are compared with the Pipeline only. Somebody else makes them; only the event topic of a run is made in any case.
    Observe,
}

/// What is observed of a KafkaConnection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KafkaConnectionStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The id that the cluster gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Brokers that answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brokers: Option<i32>,
    /// Whether the cluster makes topics that somebody names by mistake; it should not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_create_topics: Option<bool>,
    /// When the cluster last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_time: Option<Time>,
    /// Pipelines that use the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<i32>,
    /// Conditions: `Ready`, `SpecValid`, `KafkaReachable`; while they hold `Reconciling`, `Stalled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
