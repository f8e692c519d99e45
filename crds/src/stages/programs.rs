//! Stages that run programs, end a document's way or look at it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changes the document by a program in VRL, the Vector Remap Language. It is compiled and type-checked before
/// anything runs. An error at run time fails the document with the program's line and changes nothing of it; `abort "why"`
/// drops the document with that reason. A program that works on one document for more than 10 seconds is stopped.
/// Example: `remap: {source: ".price = to_float!(.price)"}`.
///
/// Fields keep their order, new ones come last; what a program does not write stays as it is, exactly. Times become RFC 3339
/// text, bytes that are not UTF-8 become base64; times without a zone are read as UTC. `now`, `random_*` and `uuid_*` make
/// a run unrepeatable. The function `log` is not available.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remap {
    /// The program. `.` is the document's fields, `%id` its id (read only), `%parent_id` the parent's id of a child;
    /// for example `.price = to_float!(.price)`.
    #[schemars(length(min = 1, max = 65_536))]
    pub source: String,
}

/// Drops documents: they are counted as dropped and not indexed. Use it with `when`. Example:
/// `when: .category == "test"` and `drop: {reason: test data}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drop {
    /// Why, as it stands in reports and at debug level in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// Sends documents straight to the indexer: no later stage sees them. Use it with `when`. Example:
/// `when: .ready == true` and `skip: {}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skip {}

/// Writes documents to a file of JSON lines and passes them on, for debugging and replay: what it writes can be
/// read back by a `file` connector with the format `jsonLines` and `id: [id]`. Each line is in the file before the document
/// goes on. Example: `capture: {path: out/odd.jsonl, limit: 100}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capture {
    /// File to append to; `{run}`, `{runId}` and `{connector}` are replaced. Without it documents are printed on standard
    /// error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
    /// Write only the id and these top level fields. Without it all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub fields: Vec<String>,
    /// Stop writing after so many documents of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
}
