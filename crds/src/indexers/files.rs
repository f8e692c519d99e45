//! Backends that write into the file system, and the one that writes nowhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A full-text index in a directory, made by this program itself. `penstock search DIR QUERY` finds documents in it.
/// Every field is searchable without a schema; a document replaces the one of the same id. One writer at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Embedded {
    /// Directory of the index. It is made if it is not there. Relative paths start at the folder of the manifest.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
}

/// A file with one JSON object a line. It is written beside its place and moved there when the step succeeds;
/// a later step of the same run appends. The id stands in the field `idName`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JsonLinesFile {
    /// The file. Folders are made if they are not there. `{instance}` is replaced where several processes write.
    /// Relative paths start at the folder of the manifest.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
    /// Field of the line that receives the id. Default: `id`.
    #[serde(default = "default_id_name")]
    #[schemars(length(min = 1, max = 256))]
    pub id_name: String,
    /// Add to a file that is there already instead of replacing it.
    #[serde(default)]
    pub append: bool,
}

/// A file of separated values. It is written beside its place and moved there when the step succeeds;
/// a later step of the same run appends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsvFile {
    /// The file. Folders are made if they are not there. `{instance}` is replaced where several processes write.
    /// Relative paths start at the folder of the manifest.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
    /// The columns, in this order: fields of the document (nested ones as `a.b`); `idName` is the id. Lists are joined by `|`,
    /// objects are written as JSON, fields that a document does not have are empty.
    #[schemars(length(min = 1, max = 10_000), inner(length(min = 1, max = 256)))]
    pub columns: Vec<String>,
    /// Column that receives the id. Default: `id`.
    #[serde(default = "default_id_name")]
    #[schemars(length(min = 1, max = 256))]
    pub id_name: String,
    /// The character between values: one character, or `\t`. Default: `,`.
    #[serde(default = "default_delimiter")]
    #[schemars(length(min = 1, max = 2))]
    pub delimiter: String,
    /// Write a first line with the names of the columns. Default: `true`.
    #[serde(default = "default_true")]
    pub header: bool,
    /// Add to a file that is there already instead of replacing it.
    #[serde(default)]
    pub append: bool,
}

/// Writes nothing. For measuring and trying out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nop {}

fn default_id_name() -> String {
    "id".into()
}

fn default_delimiter() -> String {
    ",".into()
}

fn default_true() -> bool {
    true
}
