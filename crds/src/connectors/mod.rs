//! Connectors: where documents come from, one documented struct per connector.

mod file;
mod sequence;

pub use file::{Compression, Csv, File, FileFormat, JsonLines, OnFileError};
pub use sequence::Sequence;

use crate::values::{Credential, Duration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One connector of a run: exactly one connector key, and beside it what every connector has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// Name of the connector. Must be unique in the run.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The Pipeline that receives the documents, an object of the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub pipeline: String,
    /// Text in front of every document id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub id_prefix: String,
    /// Documents a second that are published at most. Without it as many as the pipeline takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_rate: Option<u32>,
    /// Publishing waits while so many documents are neither finished, failed nor dropped. Default: `10000000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_pending: Option<i64>,
    /// Merge documents of one id that come one after the other: fields of the later are added to the earlier.
    #[serde(default)]
    pub collapse: bool,
    /// Outer limit for the whole step, reading and processing. Time while suspended does not count.
    #[serde(default = "default_timeout")]
    pub timeout: Duration,
    /// What a new attempt does after the publisher was lost.
    #[serde(default)]
    pub restart_policy: RestartPolicy,
    /// HTTP requests before anything is read, for example to create an index. In this order; one that fails stops
    /// the step before a document is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pre: Vec<Action>,
    /// HTTP requests after every document of the step is accounted for, for example to swap an alias. In this order.
    /// They may run again after a crash, so they must be idempotent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub post: Vec<Action>,
    /// The connector itself.
    #[serde(flatten)]
    pub kind: ConnectorKind,
}

fn default_timeout() -> Duration {
    Duration::from_secs(24 * 3600)
}

/// What a new attempt does after the publisher was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// Goes on from the last checkpoint where the connector has a cursor, else reads everything again.
    #[default]
    OnFailure,
    /// The step fails.
    Never,
}

/// The connectors, one key each.
#[expect(clippy::large_enum_variant, reason = "a run has few connectors")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ConnectorKind {
    /// Reads the records of files.
    File(File),
    /// Makes numbered documents, for tests and load.
    Sequence(Sequence),
}

impl ConnectorKind {
    /// The key of the connector in a manifest.
    pub fn key(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Sequence(_) => "sequence",
        }
    }
}

/// One action before or after a step: exactly one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// An HTTP request.
    Http(HttpAction),
}

/// An HTTP request before or after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpAction {
    /// The method.
    #[serde(default)]
    pub method: HttpMethod,
    /// The URL; `{runId}`, `{run}` and `{connector}` are replaced.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// The body, sent as JSON unless a header says otherwise; `{runId}`, `{run}` and `{connector}` are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub body: Option<String>,
    /// Headers in clear text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub headers: BTreeMap<String, String>,
    /// Headers whose value is a secret, for example `Authorization`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub secret_headers: BTreeMap<String, Credential>,
    /// User for basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<Credential>,
    /// Password for basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Credential>,
    /// Certificate authority of the server, as PEM. Without it the system's certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<Credential>,
    /// Status codes that mean success. Without it every code from 200 to 299; name 404 to delete what may not be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 100, max = 599)))]
    pub expect: Vec<u16>,
    /// Time for one try.
    #[serde(default = "default_action_timeout")]
    pub timeout: Duration,
    /// Tries after the first, with exponential backoff; transport errors and the codes 429, 502, 503 and 504 are tried again.
    #[serde(default = "default_action_retries")]
    #[schemars(range(min = 0, max = 100))]
    pub max_retries: u32,
}

fn default_action_timeout() -> Duration {
    Duration::from_secs(60)
}

fn default_action_retries() -> u32 {
    5
}

/// The method of an HTTP request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// DELETE
    Delete,
    /// GET
    Get,
    /// HEAD
    Head,
    /// PATCH
    Patch,
    /// POST
    #[default]
    Post,
    /// PUT
    Put,
}
