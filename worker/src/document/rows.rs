//! Many documents of the same columns in one buffer: what a tabular source hands over, so that the lanes, not the one
//! reader, build the documents.

use super::{Document, Fields, Key, Value};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::sync::Arc;

/// The columns that all rows of a buffer share.
#[derive(Debug, Default, PartialEq)]
pub struct Columns {
    /// Names of the cells, in order, without repetition.
    pub names: Vec<Key>,
    /// Fields that every document has besides, for example the path of the file.
    pub fixed: Vec<(Key, Value)>,
    /// Field that receives the line on which the row begins.
    pub line: Option<Key>,
}

/// One row, borrowed from a reader's buffer.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its columns.
    pub columns: &'a Arc<Columns>,
    /// The id of the document.
    pub id: &'a str,
    /// The cells one after the other, without anything between them.
    pub text: &'a str,
    /// Where each cell ends in the text; as many as there are columns.
    pub ends: &'a [usize],
    /// The line on which the row begins, from 1.
    pub line: u64,
}

impl Row<'_> {
    /// Appends the fields of the document as a JSON object, without making the document.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let columns = self.columns;
        let is_set_later = |name: &Key| columns.fixed.iter().any(|(fixed, _)| fixed == name) || columns.line.as_ref() == Some(name);
        if columns.names.iter().any(is_set_later) {
            // rare: fixed fields replace a column's
            return self.to_document().write_json(out);
        }
        // writing into memory cannot fail, and no value here is without a JSON form
        let written = sonic_rs::to_writer(&mut *out, self);
        debug_assert!(written.is_ok());
    }

    /// The row as a document.
    pub fn to_document(&self) -> Document {
        let mut start = 0;
        let cells = self.ends.iter().map(|end| {
            let cell = &self.text[start..*end];
            start = *end;
            cell
        });
        build(self.columns, self.id, cells, self.line)
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut start = 0;
        for (name, end) in self.columns.names.iter().zip(self.ends) {
            map.serialize_entry(name.as_str(), &self.text[start..*end])?;
            start = *end;
        }
        for (name, value) in &self.columns.fixed {
            map.serialize_entry(name.as_str(), value)?;
        }
        if let Some(name) = &self.columns.line {
            map.serialize_entry(name.as_str(), &self.line)?;
        }
        map.end()
    }
}

fn build<'a>(columns: &Columns, id: &str, cells: impl Iterator<Item = &'a str>, line: u64) -> Document {
    // room for a few more fields, so that the usual stages do not make it grow
    let mut fields = Fields::with_capacity(columns.names.len() + columns.fixed.len() + 6);
    for (name, cell) in columns.names.iter().zip(cells) {
        fields.push_unchecked(name.clone(), cell.into());
    }
    for (name, value) in &columns.fixed {
        fields.insert(name.clone(), value.clone());
    }
    if let Some(name) = &columns.line {
        fields.insert(name.clone(), line.into());
    }
    Document::with_fields(id, fields)
}

/// Rows in one buffer.
#[derive(Debug)]
pub struct Rows {
    columns: Arc<Columns>,
    text: String,
    /// For each row: the end of the id, then the end of each cell.
    ends: Vec<u32>,
    lines: Vec<u64>,
}

impl Rows {
    /// No rows yet, of these columns.
    pub fn new(columns: Arc<Columns>) -> Self {
        Self { columns, text: String::new(), ends: Vec::new(), lines: Vec::new() }
    }

    /// No rows yet, of the same columns as others and with room for as many.
    pub fn with_capacity_of(other: &Self) -> Self {
        Self {
            columns: Arc::clone(&other.columns),
            text: String::with_capacity(other.text.len() + other.text.len() / 8),
            ends: Vec::with_capacity(other.ends.len()),
            lines: Vec::with_capacity(other.lines.len()),
        }
    }

    /// The columns.
    pub fn columns(&self) -> &Arc<Columns> {
        &self.columns
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Bytes of text held.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Adds a row of the same columns.
    pub fn push(&mut self, row: Row<'_>) {
        debug_assert_eq!(row.ends.len(), self.columns.names.len());
        self.text.push_str(row.id);
        let base = self.text.len();
        self.ends.push(base as u32);
        self.text.push_str(&row.text[..row.ends.last().copied().unwrap_or(0)]);
        self.ends.extend(row.ends.iter().map(|end| (base + end) as u32));
        self.lines.push(row.line);
    }

    /// Makes the document of a row.
    pub fn document(&self, index: usize) -> Document {
        let width = self.columns.names.len() + 1;
        let begin = if index == 0 { 0 } else { self.ends[index * width - 1] as usize };
        let ends = &self.ends[index * width..(index + 1) * width];
        let mut start = ends[0] as usize;
        let cells = ends[1..].iter().map(|end| {
            let cell = &self.text[start..*end as usize];
            start = *end as usize;
            cell
        });
        build(&self.columns, &self.text[begin..ends[0] as usize], cells, self.lines[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_the_documents_that_they_were() {
        let columns = Arc::new(Columns {
            names: vec!["a".into(), "b".into()],
            fixed: vec![("file".into(), "x.csv".into())],
            line: Some("line".into()),
        });
        let first = Row { columns: &columns, id: "1", text: "onetwo", ends: &[3, 6], line: 2 };
        let second = Row { columns: &columns, id: "22", text: "", ends: &[0, 0], line: 3 };
        let mut rows = Rows::new(Arc::clone(&columns));
        rows.push(first);
        rows.push(second);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows.document(0), first.to_document());
        assert_eq!(rows.document(1), second.to_document());
        assert_eq!(serde_json::to_string(rows.document(0).fields()).expect("json"), r#"{"a":"one","b":"two","file":"x.csv","line":2}"#);
        assert_eq!(rows.document(1).id(), "22");
        for row in [first, second] {
            let (mut direct, mut made) = (Vec::new(), Vec::new());
            row.write_json(&mut direct);
            row.to_document().write_json(&mut made);
            assert_eq!(direct, made);
        }
    }
}
