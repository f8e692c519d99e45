//! Indexers: where documents go, one documented struct per backend.

mod files;
mod search;

pub use files::{CsvFile, Embedded, JsonLinesFile, Nop};
pub use search::{Opensearch, Operation, TlsTrust};

use crate::values::{ByteSize, Duration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where documents go: exactly one backend key, and beside it what every indexer has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.includeFields) && has(self.excludeFields))").message("set includeFields or excludeFields, not both").field_path(".excludeFields"))]
pub struct Indexer {
    /// When a batch is sent.
    #[serde(default)]
    pub batch: Batch,
    /// What happens if the backend refuses.
    #[serde(default)]
    pub retry: Retry,
    /// Field whose value is the id in the index, instead of the document's id. A document without it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub id_field: Option<String>,
    /// Field whose value is the index a document goes to, instead of the backend's. A document without it goes to the backend's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub index_field: Option<String>,
    /// Field whose value is the routing of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub routing_field: Option<String>,
    /// Write only these top level fields. Not together with `excludeFields`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 256)))]
    pub include_fields: Vec<String>,
    /// Write all top level fields but these. Not together with `includeFields`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 256)))]
    pub exclude_fields: Vec<String>,
    /// Documents that delete instead of being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// Whether the backend refuses what is older than what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versioning: Option<Versioning>,
    /// Field whose value, a whole number, is the version of the document. Needs `versioning: External`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub version_field: Option<String>,
    /// Under `versioning: External` over Kafka, without a `versionField`, the place of a document in the topic is its version; this
    /// number stands in front of it. Give the minutes from 2020 to the creation of the topic. Give those to now when the topic was made
    /// anew or got partitions: offsets begin anew there, and would be refused as older than what the index has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 134_217_727))]
    pub version_generation: Option<u32>,
    /// Field of the index that receives the id of the run. Without it nothing internal reaches the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub run_id_field: Option<String>,
    /// The backend itself.
    #[serde(flatten)]
    pub kind: IndexerKind,
}

/// The backends, one key each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IndexerKind {
    /// A file of separated values.
    Csv(CsvFile),
    /// An Elasticsearch cluster, by its bulk API.
    Elasticsearch(Opensearch),
    /// A full-text index in a directory, made by this program itself: nothing else is needed to search it.
    Embedded(Embedded),
    /// A file with one JSON object a line.
    JsonLines(JsonLinesFile),
    /// Writes nothing. For measuring and trying out.
    Nop(Nop),
    /// An OpenSearch cluster, by its bulk API.
    Opensearch(Opensearch),
}

impl IndexerKind {
    /// The key of the backend in a manifest.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Csv(_) => "csv",
            Self::Elasticsearch(_) => "elasticsearch",
            Self::Embedded(_) => "embedded",
            Self::JsonLines(_) => "jsonLines",
            Self::Nop(_) => "nop",
            Self::Opensearch(_) => "opensearch",
        }
    }
}

/// When a batch is sent: as soon as one of the limits is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// Documents in one request at most. Default: `500`.
    #[serde(default = "default_max_documents")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_documents: u32,
    /// Bytes in one request at most; a larger document travels alone. Default: `5Mi`.
    #[serde(default = "default_max_bytes")]
    pub max_bytes: ByteSize,
    /// Longest time that a document waits for others, from the first of the batch. Default: `1s`.
    #[serde(default = "default_max_age")]
    pub max_age: Duration,
    /// Requests of one lane in flight at most. A document is in at most one of them with all others of its id waiting. Default: `2`.
    #[serde(default = "default_max_in_flight")]
    #[schemars(range(min = 1, max = 64))]
    pub max_in_flight: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            max_documents: default_max_documents(),
            max_bytes: default_max_bytes(),
            max_age: default_max_age(),
            max_in_flight: default_max_in_flight(),
        }
    }
}

fn default_max_documents() -> u32 {
    500
}

fn default_max_bytes() -> ByteSize {
    ByteSize::mebibytes(5)
}

fn default_max_age() -> Duration {
    Duration::from_secs(1)
}

fn default_max_in_flight() -> u32 {
    2
}

/// What happens if the backend refuses. Only the refused documents are sent again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How often a document is sent again after an answer that may pass, while others pass; then it fails. Default: `5`.
    #[serde(default = "default_max_retries")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_retries: u32,
    /// Wait before the first repetition; it doubles each time, with jitter. Default: `1s`.
    #[serde(default = "default_initial_backoff")]
    pub initial_backoff: Duration,
    /// Longest wait between repetitions. A `Retry-After` of the backend is honoured up to it. Default: `30s`.
    #[serde(default = "default_max_backoff")]
    pub max_backoff: Duration,
    /// How long a backend that takes nothing at all is waited for; then the run ends with its documents pending, not failed. Default: `10m`.
    #[serde(default = "default_max_elapsed")]
    pub max_elapsed: Duration,
    /// Status codes that may pass. Default: `[429, 502, 503, 504]`.
    #[serde(default = "default_codes")]
    #[schemars(length(min = 1, max = 32), inner(range(min = 400, max = 599)))]
    pub codes: Vec<u16>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_retries: default_max_retries(),
            initial_backoff: default_initial_backoff(),
            max_backoff: default_max_backoff(),
            max_elapsed: default_max_elapsed(),
            codes: default_codes(),
        }
    }
}

fn default_max_retries() -> u32 {
    5
}

fn default_initial_backoff() -> Duration {
    Duration::from_secs(1)
}

fn default_max_backoff() -> Duration {
    Duration::from_secs(30)
}

fn default_max_elapsed() -> Duration {
    Duration::from_secs(600)
}

fn default_codes() -> Vec<u16> {
    vec![429, 502, 503, 504]
}

/// Documents that delete instead of being written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// A document whose field has the value `value` deletes the document of its id.
    #[schemars(length(min = 1, max = 256))]
    pub field: String,
    /// The value that deletes. Text, numbers and booleans are compared as text, so that `true` and `"true"` both fit. Default: `true`.
    #[serde(default = "default_deletion_value")]
    #[schemars(length(max = 256))]
    pub value: String,
}

fn default_deletion_value() -> String {
    "true".into()
}

/// Whether the backend refuses what is older than what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Versioning {
    /// The backend decides by order of arrival.
    None,
    /// Each operation carries a version (`versionField`, over Kafka the position in the topic) and an older one is refused;
    /// that refusal is a success and counted.
    External,
}
