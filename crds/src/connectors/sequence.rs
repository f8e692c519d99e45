//! Numbered documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes numbered documents, for tests and load. The id is the number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sequence {
    /// How many documents.
    #[schemars(range(min = 0))]
    pub count: u64,
    /// The first number.
    #[serde(default)]
    pub start: u64,
    /// Field that receives the number. Without it documents are empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub field: Option<String>,
}
