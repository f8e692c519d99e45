//! Stages that work on text.

use crate::values::UpdateMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Joins fields and fixed text to one field by a template. Example:
/// `concatenate: {target: label, template: "{author} - {title}", defaults: {author: unknown}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Concatenate {
    /// Field that receives the text.
    #[schemars(length(min = 1, max = 256))]
    pub target: String,
    /// Template with field names in braces, for example `{author} - {title}`. `{id}` is the document's id;
    /// `\{` is a literal brace. Numbers and booleans are written as in JSON, lists joined with a comma and a space,
    /// objects as JSON.
    #[schemars(length(min = 1, max = 4096))]
    pub template: String,
    /// Text for fields that are absent or null, by field name. A field with neither is empty text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub defaults: BTreeMap<String, String>,
    /// What happens if the document has the target field already.
    #[serde(default)]
    pub update_mode: UpdateMode,
}

/// Changes the case of the letters of text fields. Example: `changeCase: {fields: {category: category_lc}, to: Lower}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeCase {
    /// Source to target, for example `{category: category_lc}`; the same name twice changes the field in place.
    /// Each text of a list is changed. A field that is absent or null is passed over; any other value that is not text
    /// makes the document fail.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 256))]
    pub fields: BTreeMap<String, String>,
    /// The case of the result.
    pub to: LetterCase,
    /// What happens if the document has a target field already. Without meaning where a field is changed in place.
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
    /// The first letter of each word capital, all others small. Words are separated by white space.
    Title,
    /// The first letter of the text capital, all others small.
    Sentence,
}

/// Takes parts of a text into fields by the named groups of a regular expression. Example:
/// `extract: {source: sku, pattern: 'SKU-(?P<number>\d+)-(?P<land>[A-Z]{2})'}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Extract {
    /// Field that holds the text, or a list of texts of which the first that matches counts. A document where it is absent
    /// or null is passed on unchanged; anything else makes the document fail.
    #[schemars(length(min = 1, max = 256))]
    pub source: String,
    /// Regular expression whose named groups are the target fields, for example `SKU-(?P<sku_num>\d+)`.
    /// Rust's `regex` syntax: linear time, no look-around. A text without a match changes nothing, nor
    /// does a group that took no part in it.
    #[schemars(length(min = 1, max = 4096))]
    pub pattern: String,
    /// Take every match, of every text of a list, so that target fields become lists.
    #[serde(default)]
    pub all: bool,
    /// What happens if the document has a target field already.
    #[serde(default)]
    pub update_mode: UpdateMode,
}

/// Replaces what a regular expression finds in a text field. Example:
/// `replace: {source: body, target: plain, pattern: '<[^>]*>', with: " "}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replace {
    /// Field that holds the text; each text of a list is changed. A document where it is absent is passed on unchanged;
    /// a value that is neither text nor null makes the document fail.
    #[schemars(length(min = 1, max = 256))]
    pub source: String,
    /// Field that receives the result, also if nothing was found. Without it the source is changed in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub target: Option<String>,
    /// Regular expression in Rust's `regex` syntax: linear time, no look-around. `(?i)` in front ignores case.
    #[schemars(length(min = 1, max = 4096))]
    pub pattern: String,
    /// What stands in the place of each match; `$1` and `${name}` are groups, `$$` is a dollar sign;
    /// `${1}x` where a letter, digit or `_` follows. Without it what is found is removed.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub with: String,
    /// What happens if the document has the target field already (only with `target`).
    #[serde(default)]
    pub update_mode: UpdateMode,
}
