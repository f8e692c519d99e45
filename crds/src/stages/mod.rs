//! Stages: what a pipeline does to a document, one documented struct per stage.

mod children;
mod fields;
mod programs;
mod text;

pub use children::{Chunk, ChunkUnit, Explode};
pub use fields::{Copy, Keep, Remove, Rename, Set};
pub use programs::{Capture, Drop, Remap, Skip};
pub use text::{ChangeCase, Concatenate, Extract, LetterCase, Replace};

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One step of the pipeline: exactly one stage key, and beside it what every stage may carry.
#[derive(Clone, Debug, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Name of the stage in metrics, logs and failure reports. Must be unique in the pipeline.
    /// Without it the stage is called `<key>-<position>`, for example `rename-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Run the stage only for documents for which this VRL predicate is true, for example
    /// `.lang == "en" && exists(.title)`. All other documents pass unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub when: Option<String>,
    /// What happens to a document for which the stage fails.
    #[serde(default)]
    pub on_error: OnError,
    /// The stage itself.
    #[serde(flatten)]
    pub kind: StageKind,
}

impl Stage {
    /// The name that reports use: the given one, or `<key>-<position>` with positions from 1.
    pub fn display_name(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("{}-{}", kebab(self.kind.key()), index + 1))
    }
}

/// `changeCase` as a name: `change-case`.
fn kebab(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 2);
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// What happens to a document for which a stage fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnError {
    /// The document fails: it is counted as failed and goes to the dead letter with the reason.
    #[default]
    Fail,
    /// The document goes on as it was before the stage; the error is counted.
    Continue,
    /// The document is dropped and counted as dropped.
    Drop,
}

/// The stages, one key each.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StageKind {
    /// Writes documents to a file and passes them on, for debugging and replay.
    Capture(Capture),
    /// Changes the case of the letters of text fields.
    ChangeCase(ChangeCase),
    /// Cuts a long text into pieces that become documents of their own.
    Chunk(Chunk),
    /// Joins fields and fixed text to one field by a template.
    Concatenate(Concatenate),
    /// Copies fields to one or more other fields. Values keep their type.
    Copy(Copy),
    /// Drops documents: they are counted as dropped and not indexed. Use it with `when`.
    Drop(Drop),
    /// Makes a document of each element of a list field.
    Explode(Explode),
    /// Takes parts of a text into fields by the named groups of a regular expression.
    Extract(Extract),
    /// Removes all fields but the given ones.
    Keep(Keep),
    /// Changes the document by a VRL program.
    Remap(Remap),
    /// Removes fields.
    Remove(Remove),
    /// Gives fields another name; their place among the fields stays.
    Rename(Rename),
    /// Replaces what a regular expression finds in a text field.
    Replace(Replace),
    /// Sets fields to fixed values.
    Set(Set),
    /// Sends documents straight to the indexer: no later stage sees them. Use it with `when`.
    Skip(Skip),
}

impl StageKind {
    /// The key of the stage in a manifest.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Capture(_) => "capture",
            Self::ChangeCase(_) => "changeCase",
            Self::Chunk(_) => "chunk",
            Self::Concatenate(_) => "concatenate",
            Self::Copy(_) => "copy",
            Self::Drop(_) => "drop",
            Self::Explode(_) => "explode",
            Self::Extract(_) => "extract",
            Self::Keep(_) => "keep",
            Self::Remap(_) => "remap",
            Self::Remove(_) => "remove",
            Self::Rename(_) => "rename",
            Self::Replace(_) => "replace",
            Self::Set(_) => "set",
            Self::Skip(_) => "skip",
        }
    }
}
