//! Search clusters with the bulk API of Elasticsearch.

use crate::values::{Credential, Duration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An OpenSearch or Elasticsearch cluster, by its bulk API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.username) == has(self.password)").message("username and password belong together").field_path(".password"))]
#[x_kube(validation = Rule::new("!(has(self.apiKey) && has(self.username))").message("set apiKey or username and password, not both").field_path(".apiKey"))]
#[x_kube(validation = Rule::new("has(self.clientCertificate) == has(self.clientKey)").message("clientCertificate and clientKey belong together").field_path(".clientKey"))]
pub struct Opensearch {
    /// URLs of the nodes, for example `https://search:9200`; used in turn, and the next one if one does not answer. No credentials in them.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 2048)))]
    pub urls: Vec<String>,
    /// The index, alias or data stream to write to.
    #[schemars(length(min = 1, max = 255))]
    pub index: String,
    /// What is done with a document.
    #[serde(default)]
    pub operation: Operation,
    /// The ingest pipeline of the cluster that documents pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub ingest_pipeline: Option<String>,
    /// User for basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<Credential>,
    /// Password for basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Credential>,
    /// API key, sent as `Authorization: ApiKey …`, instead of user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Credential>,
    /// Certificate authority of the cluster, as PEM. Without it the system's certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<Credential>,
    /// Client certificate, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<Credential>,
    /// Key of the client certificate, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<Credential>,
    /// How the certificate of the cluster is checked.
    #[serde(default)]
    pub tls_trust: TlsTrust,
    /// Compress request bodies with gzip.
    #[serde(default)]
    pub gzip: bool,
    /// Time for one request. Without external versioning keep it at 60 s or more: a request that the cluster carries out after
    /// it was given up could overwrite a newer document. Default: `1m`.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
}

fn default_timeout() -> Duration {
    Duration::from_secs(60)
}

/// What is done with a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operation {
    /// Replaces the whole document of that id, or creates it.
    #[default]
    Index,
    /// Creates the document; one that exists already is refused, and that fails the document.
    Create,
    /// Changes the given fields of a document that must exist.
    Update,
    /// Changes the given fields, or creates the document.
    Upsert,
    /// Deletes the document of that id.
    Delete,
}

/// How the certificate of a server is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsTrust {
    /// Signed by a trusted authority and for that name.
    #[default]
    Verify,
    /// Not at all. Anybody in between can read and change everything: for experiments only.
    Insecure,
}
