//! Stages that make documents out of one.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a document of each element of a list field. Children pass the later stages only and reach the index
/// before their parent; all of them are counted. Example:
/// `explode: {source: variants, idTemplate: "{id}#{sku}", copyFields: [lang], parentIdField: product}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explode {
    /// Field that holds the list. A document where it is absent, null or an empty list has no children;
    /// anything but a list makes the document fail.
    #[schemars(length(min = 1, max = 256))]
    pub source: String,
    /// Field of the child that receives the element. Without it each element must be an object, whose fields
    /// become the child's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub target: Option<String>,
    /// Id of a child: `{id}` is the parent's id, `{index}` the position from 0, every other name a field of the child.
    /// A field that the child does not have, or an empty id, makes the parent fail; the children before it stay. Children of
    /// the same id follow each other in their order.
    #[serde(default = "default_child_id")]
    #[schemars(length(min = 1, max = 1024))]
    pub id_template: String,
    /// Fields of the parent that each child receives as well, unless it has them itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub copy_fields: Vec<String>,
    /// Field of the child that receives the id of the parent. Without it the parent's id is no field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub parent_id_field: Option<String>,
    /// Drop the parent once its children are made: it is counted as dropped.
    #[serde(default)]
    pub drop_parent: bool,
}

fn default_child_id() -> String {
    "{id}#{index}".into()
}

/// Cuts a long text into pieces that become documents of their own, at the best boundary that fits: paragraphs,
/// sentences, words, characters. White space around a piece is left out. Example:
/// `chunk: {source: body, size: 800, overlap: 80, copyFields: [title], offsetField: offset}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.overlap) ? self.overlap : 0) < (has(self.size) ? self.size : 1000)").message("overlap must be smaller than size").field_path(".overlap"))]
pub struct Chunk {
    /// Field that holds the text. A document where it is absent, null or without anything but white space has no children;
    /// anything but text makes the document fail.
    #[schemars(length(min = 1, max = 256))]
    pub source: String,
    /// Field of the child that receives the piece.
    #[serde(default = "default_chunk_target")]
    #[schemars(length(min = 1, max = 256))]
    pub target: String,
    /// Largest size of a piece, in `unit`.
    #[serde(default = "default_chunk_size")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub size: u32,
    /// How much of the piece before it a piece repeats, in `unit`.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub overlap: u32,
    /// What `size` and `overlap` count.
    #[serde(default)]
    pub unit: ChunkUnit,
    /// The text is Markdown: prefer its headings, lists and blocks as boundaries.
    #[serde(default)]
    pub markdown: bool,
    /// Id of a child: `{id}` is the parent's id, `{index}` the position from 0, every other name a field of the child.
    #[serde(default = "default_child_id")]
    #[schemars(length(min = 1, max = 1024))]
    pub id_template: String,
    /// Fields of the parent that each child receives as well, unless it has them itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub copy_fields: Vec<String>,
    /// Field of the child that receives the id of the parent. Without it the parent's id is no field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub parent_id_field: Option<String>,
    /// Field of the child that receives its position, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub index_field: Option<String>,
    /// Field of the child that receives the byte offset of the piece in the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub offset_field: Option<String>,
    /// Drop the parent once its children are made: it is counted as dropped.
    #[serde(default)]
    pub drop_parent: bool,
}

fn default_chunk_target() -> String {
    "text".into()
}

fn default_chunk_size() -> u32 {
    1000
}

/// What the size of a piece counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ChunkUnit {
    /// Unicode characters.
    #[default]
    Characters,
    /// Words, separated by white space.
    Words,
}
