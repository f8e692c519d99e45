//! Stages that run programs, end a document's way or look at it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changes the document by a program in VRL, the Vector Remap Language. It is compiled and type-checked before
/// anything runs. An error at run time fails the document with the program's line; `abort` drops it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remap {
    /// The program. `.` is the document's fields, `%id` its id (read only), `%parent_id` the parent's id of a child;
    /// for example `.price = to_float!(.price)`.
    #[schemars(length(min = 1, max = 65_536))]
    pub source: String,
}

/// Drops documents: they are counted as dropped and not indexed. Use it with `when`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drop {
    /// Why, as it stands in reports and at debug level in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// Sends documents straight to the indexer: no later stage sees them. Use it with `when`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skip {}

/// Writes documents to a file of JSON lines and passes them on, for debugging and replay: what it writes can be
/// read back by a `file` connector with the format `jsonLines` and `id: [id]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capture {
    /// File to append to. Without it documents are printed on standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
    /// Write only these top level fields. Without it all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub fields: Vec<String>,
    /// Stop writing after so many documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
}
