//! Stages that work on text.

use crate::values::UpdateMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Joins fields and fixed text to one field by a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Concatenate {
    /// Field that receives the text.
    #[schemars(length(min = 1, max = 256))]
    pub target: String,
    /// Template with field names in braces, for example `{author} - {title}`. `{id}` is the document's id;
    /// `\{` is a literal brace. Lists are joined with a comma and a space.
    #[schemars(length(min = 1, max = 4096))]
    pub template: String,
    /// Text for fields that the document does not have, by field name. A field with neither is empty text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub defaults: BTreeMap<String, String>,
    /// What happens if the document has the target field already.
    #[serde(default)]
    pub update_mode: UpdateMode,
}

/// Changes the case of the letters of text fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeCase {
    /// Source to target, for example `{category: category_lc}`; the same name twice changes the field in place.
    /// Each text of a list is changed. A field that the document does not have is passed over.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 256))]
    pub fields: BTreeMap<String, String>,
    /// The case of the result.
    pub to: LetterCase,
    /// What happens if the document has a target field already.
    #[serde(default)]
    pub update_mode: UpdateMode,
}

/// The case of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LetterCase {
    /// All letters small.
    Lower,
    /// All letters capital.
    Upper,
    /// The first letter of each word capital, all others small.
    Title,
    /// The first letter of the text capital, all others small.
    Sentence,
}

/// Takes parts of a text into fields by the named groups of a regular expression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Extract {
    /// Field that holds the text. A document without it is passed on unchanged.
    #[schemars(length(min = 1, max = 256))]
    pub source: String,
    /// Regular expression whose named groups are the target fields, for example `SKU-(?P<sku_num>\d+)`.
    /// Rust's `regex` syntax: linear time, no look-around. A text without a match changes nothing.
    #[schemars(length(min = 1, max = 4096))]
    pub pattern: String,
    /// Take every match, so that target fields become lists.
    #[serde(default)]
    pub all: bool,
    /// What happens if the document has a target field already.
    #[serde(default)]
    pub update_mode: UpdateMode,
}

/// Replaces what a regular expression finds in a text field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replace {
    /// Field that holds the text; each text of a list is changed. A document without it is passed on unchanged.
    #[schemars(length(min = 1, max = 256))]
    pub source: String,
    /// Field that receives the result. Without it the source is changed in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub target: Option<String>,
    /// Regular expression in Rust's `regex` syntax: linear time, no look-around. `(?i)` in front ignores case.
    #[schemars(length(min = 1, max = 4096))]
    pub pattern: String,
    /// What stands in the place of each match; `$1` and `${name}` are groups, `$$` is a dollar sign.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub with: String,
    /// What happens if the document has the target field already (only with `target`).
    #[serde(default)]
    pub update_mode: UpdateMode,
}
