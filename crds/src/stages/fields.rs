//! Stages that move fields around.

use crate::values::{FreeObject, UpdateMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Gives fields another name; their place among the fields stays. Example: `rename: {fields: {titel: title, a.b: b}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rename {
    /// Old name to new name, for example `{titel: title}`. Applied in the order of the old names;
    /// a field that the document does not have is passed over. Nested fields are written `a.b[2].c`.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 256))]
    pub fields: BTreeMap<String, String>,
    /// What happens if the document has a field of the new name already: it is replaced, or the value is added to it, or
    /// with `Skip` the field keeps its old name.
    #[serde(default)]
    pub update_mode: UpdateMode,
}

/// Copies fields to one or more other fields. Values keep their type. Example: `copy: {fields: {title: [title_sort]}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Copy {
    /// Source to its targets, for example `{title: [title_sort, title_exact]}`. Applied in the order of the sources;
    /// a source that the document does not have is passed over.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 256,
        "additionalProperties" = {"type": "array", "items": {"type": "string", "maxLength": 256}, "minItems": 1, "maxItems": 64}))]
    pub fields: BTreeMap<String, Vec<String>>,
    /// What happens if the document has a target field already.
    #[serde(default)]
    pub update_mode: UpdateMode,
}

/// Removes fields. Example: `remove: {fields: [raw, meta.internal, tmp_*]}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    /// The fields to remove. A trailing `*` takes every field that begins with what stands before it (top level only).
    /// A field that the document does not have is passed over.
    #[schemars(length(min = 1, max = 256))]
    pub fields: Vec<String>,
}

/// Removes all fields but the given ones. Example: `keep: {fields: [title, price, attr_*]}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Keep {
    /// The top level fields to keep; they keep their order. A trailing `*` takes every field that begins with what stands
    /// before it.
    #[schemars(length(min = 1, max = 256))]
    pub fields: Vec<String>,
}

/// Sets fields to fixed values. Example: `set: {values: {lang: en, source.name: shop}, updateMode: Skip}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Set {
    /// Field to value, for example `{lang: en, boost: 1.5}`. Values keep their JSON type. Nested fields are written
    /// `a.b[2].c`; missing objects on the way are made.
    pub values: FreeObject,
    /// What happens if the document has the field already.
    #[serde(default)]
    pub update_mode: UpdateMode,
}
