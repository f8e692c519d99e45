//! Documents: an id and an ordered JSON object of fields. Knows nobody else of this crate.

mod json;
mod path;
mod records;
mod rows;
mod value;

pub use json::DocumentJsonError;
pub use path::{Path, PathError};
pub use records::{JsonRecords, RecordTraits, Unreadable};
pub use rows::{Columns, Row, Rows};
pub use value::{Fields, Key, Value};

use compact_str::CompactString;
use penstock_crds::values::UpdateMode;
use std::sync::Arc;

/// The target of log lines that tell what becomes of a document, one for each change, at debug level.
pub const LOG_TARGET: &str = "penstock::document";

/// No document may take more bytes than this behind a stage, as [`Document::estimated_size`] tells them.
pub const LARGEST_DOCUMENT: usize = 64 << 20;

/// What travels through a pipeline: an id and fields.
///
/// The id is the key of the record and never one of the fields; a field called `id` is a field like any other.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    id: CompactString,
    parent_id: Option<Box<str>>,
    fields: Fields,
    origin: Origin,
}

/// Where a document came from, where that is known: over Kafka. Its children have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The offset of its record in its partition, if it came from one.
    pub offset: Option<u64>,
    /// The id of the run that published it; nothing if it came from outside, or the process works for one run only.
    pub run_id: Option<Arc<str>>,
}

impl Document {
    /// A document without fields. The id must not be empty; connectors see to that.
    pub fn new(id: impl Into<CompactString>) -> Self {
        Self::with_fields(id, Fields::new())
    }

    /// A document with these fields.
    pub fn with_fields(id: impl Into<CompactString>, fields: Fields) -> Self {
        Self { id: id.into(), parent_id: None, fields, origin: Origin::default() }
    }

    /// A document that a stage makes out of another.
    pub fn child_of(parent: &Document, id: impl Into<CompactString>) -> Self {
        Self { id: id.into(), parent_id: Some(parent.id.as_str().into()), fields: Fields::new(), origin: parent.origin.clone() }
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of the document that this one is a child of.
    pub fn parent_id(&self) -> Option<&str> {
        self.parent_id.as_deref()
    }

    /// Where it came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The same document, from there.
    pub fn from_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Puts text in front of the id.
    pub fn prefix_id(&mut self, prefix: &str) {
        if !prefix.is_empty() {
            self.id.insert_str(0, prefix);
        }
    }

    /// The id, taken out of a document that is no longer needed.
    pub fn into_id(self) -> CompactString {
        self.id
    }

    /// The fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The fields, taken out of a document that is no longer needed.
    pub fn into_fields(self) -> Fields {
        self.fields
    }

    /// The fields, to change.
    pub fn fields_mut(&mut self) -> &mut Fields {
        &mut self.fields
    }

    /// The value at a path.
    pub fn get(&self, path: &Path) -> Option<&Value> {
        path.get(&self.fields)
    }

    /// The value at a path, to change.
    pub fn get_mut(&mut self, path: &Path) -> Option<&mut Value> {
        path.get_mut(&mut self.fields)
    }

    /// Takes the value at a path out of the document.
    pub fn remove(&mut self, path: &Path) -> Option<Value> {
        path.remove(&mut self.fields)
    }

    /// Writes a value at a path; missing objects on the way are made, and a list grows by one element at most.
    ///
    /// # Errors
    /// Something on the way is neither an object nor a list, or a list is too short.
    pub fn set(&mut self, path: &Path, value: Value) -> Result<(), PathError> {
        path.set(&mut self.fields, value)
    }

    /// Writes a value at a path in one of the update modes.
    ///
    /// # Errors
    /// As [`Document::set`].
    pub fn update(&mut self, path: &Path, value: Value, mode: UpdateMode) -> Result<(), PathError> {
        match mode {
            UpdateMode::Overwrite => self.set(path, value),
            UpdateMode::Skip if self.get(path).is_some() => Ok(()),
            UpdateMode::Skip => self.set(path, value),
            UpdateMode::Append => match self.get_mut(path) {
                Some(present) => {
                    present.append(value);
                    Ok(())
                }
                None => self.set(path, value),
            },
        }
    }

    /// About how many bytes the document takes in memory. For bounding what is in flight.
    pub fn estimated_size(&self) -> usize {
        size_of::<Self>() + self.id.len() + self.fields.estimated_size()
    }
}
