//! Many documents as JSON text in one buffer: what a topic hands over, so that the lanes, not the one reader, parse them.

use super::{Document, Fields, Origin, Value};

/// A record that is no document: what is wrong with it, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// Records in one buffer.
#[derive(Debug, Default)]
pub struct JsonRecords {
    text: Vec<u8>,
    bounds: Vec<Bounds>,
}

#[derive(Clone, Debug)]
struct Bounds {
    begin: usize,
    id_end: usize,
    end: usize,
    traits: RecordTraits,
    origin: Origin,
}

/// What is special about a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordTraits {
    /// It was not written by Penstock: its field `id`, if it has one, must say the same as the id.
    pub is_outside: bool,
    /// It has passed the stages already, and goes on behind them.
    pub skips_stages: bool,
}

impl JsonRecords {
    /// No records yet, with room for so many of so many bytes in all.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self { text: Vec::with_capacity(bytes), bounds: Vec::with_capacity(records) }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Bytes of text held.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Adds a record.
    pub fn push(&mut self, id: &[u8], json: &[u8], traits: RecordTraits, origin: Origin) {
        let begin = self.text.len();
        self.text.extend_from_slice(id);
        let id_end = self.text.len();
        self.text.extend_from_slice(json);
        self.bounds.push(Bounds { begin, id_end, end: self.text.len(), traits, origin });
    }

    /// The text of a record, as it was received.
    pub fn text(&self, index: usize) -> &[u8] {
        let bounds = &self.bounds[index];
        &self.text[bounds.id_end..bounds.end]
    }

    /// The id of a record, as it was received.
    pub fn id(&self, index: usize) -> &[u8] {
        let bounds = &self.bounds[index];
        &self.text[bounds.begin..bounds.id_end]
    }

    /// Whether a record has passed the stages already.
    pub fn skips_stages(&self, index: usize) -> bool {
        self.bounds[index].traits.skips_stages
    }

    /// Makes the document of a record.
    ///
    /// # Errors
    /// It is not a JSON object, has no id, or two different ones.
    pub fn document(&self, index: usize) -> Result<Document, Unreadable> {
        let document = self.read(index)?;
        Ok(document.from_origin(self.bounds[index].origin.clone()))
    }

    fn read(&self, index: usize) -> Result<Document, Unreadable> {
        let id = std::str::from_utf8(self.id(index)).map_err(|_| Unreadable("the id (the key of the record) is not valid UTF-8".into()))?;
        let fields = Fields::from_json(self.text(index)).map_err(|error| Unreadable(error.to_string()))?;
        if !self.bounds[index].traits.is_outside {
            return Ok(Document::with_fields(id, fields));
        }
        let field = match fields.get("id") {
            None | Some(Value::Null) => None,
            Some(Value::Text(text)) => Some(text.to_string()),
            Some(number @ (Value::Int(_) | Value::Uint(_))) => Some(serde_json::to_string(number).unwrap_or_default()),
            Some(_) => return Err(Unreadable("the field `id` is neither text nor an integer".into())),
        };
        match (id, field) {
            ("", None) => Err(Unreadable("the record has no id: neither a key nor a field `id`".into())),
            ("", Some(field)) if field.is_empty() => Err(Unreadable("the field `id` is empty, and there is no key".into())),
            ("", Some(field)) => Ok(Document::with_fields(field, fields)),
            (key, Some(field)) if field != key => Err(Unreadable(format!("the key is `{key}`, but the field `id` is `{field}`"))),
            (key, _) => Ok(Document::with_fields(key, fields)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTSIDE: RecordTraits = RecordTraits { is_outside: true, skips_stages: false };

    #[test]
    fn own_records_keep_a_field_called_id_as_it_is() {
        let mut records = JsonRecords::default();
        records.push(b"a", br#"{"id":7,"x":1}"#, RecordTraits::default(), Origin::default());
        records.push(b"b", br#"{"x":2}"#, RecordTraits::default(), Origin::default());
        assert_eq!(records.len(), 2);
        assert_eq!(records.document(1), Ok(Document::with_fields("b", Fields::from_json(br#"{"x":2}"#).expect("json"))));
        assert_eq!(records.document(0).expect("document").id(), "a");
        assert_eq!(records.text(0), br#"{"id":7,"x":1}"#);
    }

    #[test]
    fn outside_records_have_the_id_in_the_key_or_in_the_field() {
        let cases: [(&[u8], &str, Result<&str, &str>); 10] = [
            (b"k", "{}", Ok("k")),
            (b"k", r#"{"id":"k"}"#, Ok("k")),
            (b"7", r#"{"id":7}"#, Ok("7")),
            (b"", r#"{"id":"f"}"#, Ok("f")),
            (b"", r#"{"id":7}"#, Ok("7")),
            (b"", r#"{"x":7}"#, Err("neither a key nor a field `id`")),
            (b"", r#"{"id":""}"#, Err("empty")),
            (b"k", r#"{"id":"f"}"#, Err("the key is `k`, but the field `id` is `f`")),
            (b"k", r#"{"id":[1]}"#, Err("neither text nor an integer")),
            (b"k\xff", "{}", Err("UTF-8")),
        ];
        for (key, json, expected) in cases {
            let mut records = JsonRecords::default();
            records.push(key, json.as_bytes(), OUTSIDE, Origin::default());
            match (records.document(0), expected) {
                (Ok(document), Ok(id)) => assert_eq!(document.id(), id, "{json}"),
                (Err(error), Err(part)) => assert!(error.0.contains(part), "{json}: {error}"),
                (found, _) => panic!("{json}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_is_not_a_json_object_is_unreadable() {
        for json in ["", "null", "[]", "{", r#"{"a":1,"a":2}"#] {
            let mut records = JsonRecords::default();
            records.push(b"k", json.as_bytes(), RecordTraits::default(), Origin::default());
            assert!(records.document(0).is_err(), "{json}");
        }
    }
}
