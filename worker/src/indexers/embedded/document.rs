//! A document in the terms of the index.

use super::layout::Layout;
use crate::document::{Key, Value};
use std::sync::Arc;
use tantivy::{
    DateTime, Document, TantivyDocument,
    schema::{
        Field,
        document::{CompactDocValue, ReferenceValue, ReferenceValueLeaf, Value as IndexValue},
    },
    time::{OffsetDateTime, format_description::well_known::Rfc3339},
};
use tokio::sync::OwnedSemaphorePermit;

/// A document on its way into the index. It holds its share of the room in the queue until an indexing thread takes it.
pub(super) struct Queued {
    document: TantivyDocument,
    _room: Arc<OwnedSemaphorePermit>,
}

impl Queued {
    pub fn new(document: TantivyDocument, room: Arc<OwnedSemaphorePermit>) -> Self {
        Self { document, _room: room }
    }
}

impl Document for Queued {
    type Value<'a> = CompactDocValue<'a>;
    type FieldsValuesIter<'a> = <TantivyDocument as Document>::FieldsValuesIter<'a>;

    fn iter_fields_and_values(&self) -> Self::FieldsValuesIter<'_> {
        self.document.iter_fields_and_values()
    }

    fn into_tantivy_document(self) -> TantivyDocument {
        self.document
    }
}

/// The document as the index takes it in.
pub(super) fn build(layout: &Layout, id: &str, source: &[u8], fields: &[(&Key, &Value)]) -> TantivyDocument {
    let mut document = TantivyDocument::new();
    document.add_text(layout.id, id);
    document.add_bytes(layout.source, source);
    for (_, value) in fields {
        add_texts(&mut document, layout.text, value);
    }
    for (field, view) in [(layout.fields, View::All), (layout.ranges, View::Ranges)] {
        document.add_field_value(field, Json::Fields(fields, view));
    }
    document
}

/// All texts and numbers within a value.
fn add_texts(document: &mut TantivyDocument, field: Field, value: &Value) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Text(text) => document.add_text(field, text),
        Value::Int(number) => document.add_text(field, number.to_string()),
        Value::Uint(number) => document.add_text(field, number.to_string()),
        Value::Float(number) => document.add_text(field, number.to_string()),
        Value::List(values) => values.iter().for_each(|value| add_texts(document, field, value)),
        Value::Object(fields) => fields.iter().for_each(|(_, value)| add_texts(document, field, value)),
    }
}

/// What of a document a field of the index takes.
#[derive(Clone, Copy, Debug)]
enum View {
    All,
    /// What has an order: numbers and points in time. Texts are left out: columns of them would hold every text once more.
    Ranges,
}

/// Fields or a value of a document, as the index reads it.
#[derive(Clone, Copy, Debug)]
enum Json<'a> {
    Fields(&'a [(&'a Key, &'a Value)], View),
    Value(&'a Value, View),
}

impl<'a> IndexValue<'a> for Json<'a> {
    type ArrayIter = Box<dyn Iterator<Item = Self> + 'a>;
    type ObjectIter = Box<dyn Iterator<Item = (&'a str, Self)> + 'a>;

    fn as_value(&self) -> ReferenceValue<'a, Self> {
        let (value, view) = match *self {
            Self::Fields(fields, view) => {
                let fields: Self::ObjectIter = Box::new(fields.iter().map(move |(key, value)| (key.as_str(), Self::Value(value, view))));
                return ReferenceValue::Object(fields);
            }
            Self::Value(value, view) => (value, view),
        };
        ReferenceValue::Leaf(match value {
            Value::Null => ReferenceValueLeaf::Null,
            Value::Bool(value) => match view {
                View::All => ReferenceValueLeaf::Bool(*value),
                View::Ranges => ReferenceValueLeaf::Null,
            },
            Value::Int(number) => ReferenceValueLeaf::I64(*number),
            Value::Uint(number) => ReferenceValueLeaf::U64(*number),
            Value::Float(number) => ReferenceValueLeaf::F64(*number),
            Value::Text(text) => match view {
                View::All => ReferenceValueLeaf::Str(text),
                View::Ranges => date(text).map_or(ReferenceValueLeaf::Null, ReferenceValueLeaf::Date),
            },
            Value::List(values) => {
                let values: Self::ArrayIter = Box::new(values.iter().map(move |value| Self::Value(value, view)));
                return ReferenceValue::Array(values);
            }
            Value::Object(fields) => {
                let fields: Self::ObjectIter = Box::new(fields.iter().map(move |(key, value)| (key.as_str(), Self::Value(value, view))));
                return ReferenceValue::Object(fields);
            }
        })
    }
}

/// A text that is a point in time, if the index can hold it (the years 1678 to 2262).
fn date(text: &str) -> Option<DateTime> {
    let bytes = text.as_bytes();
    let looks_like_one = (20..=35).contains(&bytes.len()) && bytes[4] == b'-' && bytes[10] == b'T';
    if !looks_like_one {
        return None;
    }
    DateTime::try_from_utc(OffsetDateTime::parse(text, &Rfc3339).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_told_from_other_texts() {
        for text in ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.5+01:00"] {
            assert!(date(text).is_some(), "{text}");
        }
        for text in ["", "2024-02-29", "2024-02-30T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "ääää-ääTäääääääää"]
        {
            assert!(date(text).is_none(), "{text}");
        }
    }
}
