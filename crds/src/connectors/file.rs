//! Files.

use crate::values::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reads the records of files, one file after the other. Files are streamed: memory does not grow with their size.
/// A record that cannot be read is a failed document with file and line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Files, directories (read with all that is below them) or glob patterns such as `data/**/*.csv`, read in this order;
    /// files below a directory or pattern in the order of their paths. A file that is found twice is read once.
    /// Relative paths start at the folder of the manifest. A `file://` URL is a path as well.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 4096)))]
    pub paths: Vec<String>,
    /// Of the files found below directories and globs take only those whose name (`*.csv`) or path (`2026/**`) fits one
    /// of these patterns. Without it all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub include: Vec<String>,
    /// Leave files whose name or path fits one of these patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub exclude: Vec<String>,
    /// How the content is read: exactly one format.
    pub format: FileFormat,
    /// How files are compressed.
    #[serde(default)]
    pub compression: Compression,
    /// Character encoding of the content, by its WHATWG label, for example `windows-1252` or `utf-16le`. A byte order mark wins.
    /// Default: `utf-8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub encoding: Option<String>,
    /// Largest record, at most `1Gi`. A larger one is a failed document. Default: `16Mi`.
    #[serde(default = "default_max_record")]
    pub max_record_size: ByteSize,
    /// Allow that a path or pattern finds no file; otherwise that fails the connector.
    #[serde(default)]
    pub allow_empty: bool,
    /// What happens if a file cannot be opened or read to its end, or changes while it is read.
    #[serde(default)]
    pub on_file_error: OnFileError,
    /// Field that receives the path of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub path_field: Option<String>,
    /// Field that receives the line on which the record begins, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub line_field: Option<String>,
}

fn default_max_record() -> ByteSize {
    ByteSize::mebibytes(16)
}

/// How files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Compression {
    /// By the ending of the name: `.gz`, `.zst`, else not at all.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// gzip, also of several members.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// What happens if a file cannot be opened or read to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFileError {
    /// The connector fails.
    #[default]
    Fail,
    /// The file is counted as one failed document, with the reason; reading goes on with the next file.
    Continue,
}

/// How the content of a file is read: exactly one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FileFormat {
    /// Values separated by commas or another character (RFC 4180). All values are text; an empty cell is empty text.
    Csv(Csv),
    /// One JSON object a line.
    JsonLines(JsonLines),
}

/// Values separated by commas or another character (RFC 4180). All values are text; an empty cell is empty text.
/// A record with another number of cells than the header is a failed document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Csv {
    /// Columns that make the id, joined by `_` unless `idTemplate` says otherwise. They stay fields.
    /// Without both the column `id`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub id: Vec<String>,
    /// Template of the id with columns in braces, for example `{shop}-{sku}`; also `{file}` (the file's name) and `{line}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub id_template: Option<String>,
    /// The character between values: one character, or `\t`.
    #[serde(default = "default_delimiter")]
    #[schemars(length(min = 1, max = 2))]
    pub delimiter: String,
    /// The character around values that hold delimiters or line breaks. Empty: quotes have no meaning.
    #[serde(default = "default_quote")]
    #[schemars(length(max = 1))]
    pub quote: String,
    /// The file has no header: these are the names of the columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(min = 1, max = 256)))]
    pub columns: Vec<String>,
    /// Remove blanks and tabs around values and names; inside quotes they stay.
    #[serde(default)]
    pub trim: bool,
    /// Pass over lines that begin with this character.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1))]
    pub comment: Option<String>,
}

fn default_delimiter() -> String {
    ",".into()
}

fn default_quote() -> String {
    "\"".into()
}

/// One JSON object a line. Blank lines are passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JsonLines {
    /// Fields that make the id, joined by `_` unless `idTemplate` says otherwise; nested fields are written `a.b`.
    /// Their values are text, whole numbers or booleans. They stay fields. Without both the field `id`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub id: Vec<String>,
    /// Template of the id with fields in braces, for example `{shop}-{sku}`; also `{file}` (the file's name) and `{line}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub id_template: Option<String>,
}
