//! What of a document goes to a backend, and as which operation: id, index, routing, version, deletion and the choice of
//! fields. Prepared once for a step; backends call it from `encode`.

use super::Rejected;
use crate::document::{Document, Key, Path, PathError, Value};
use penstock_crds::indexers::{Indexer, Versioning};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::{borrow::Cow, io::Write};

/// The settings that all backends share, ready for use.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    id: Option<Path>,
    index: Option<Path>,
    routing: Option<Path>,
    version: Version,
    deletion: Option<(Path, String)>,
    selection: Selection,
    run_id: Option<(Key, String)>,
}

/// Where the external version of a document comes from.
#[derive(Clone, Debug, Default)]
enum Version {
    #[default]
    None,
    Field(Path),
    /// Its place in the topic, behind the generation of the topic.
    Place(u64),
}

/// Bits of a version that hold an offset.
const OFFSET_BITS: u32 = 36;

#[derive(Clone, Debug, Default)]
enum Selection {
    #[default]
    All,
    Only(Vec<Key>),
    Without(Vec<Key>),
}

impl Projection {
    /// Prepares the settings of an indexer.
    ///
    /// # Errors
    /// A field is not a path; [`super::check`] finds that before.
    pub fn new(spec: &Indexer, run_id: &str) -> Result<Self, PathError> {
        let path = |field: &Option<String>| field.as_deref().map(str::parse).transpose();
        let keys = |names: &[String]| names.iter().map(Key::from).collect::<Vec<_>>();
        let external = spec.versioning == Some(Versioning::External);
        Ok(Self {
            id: path(&spec.id_field)?,
            index: path(&spec.index_field)?,
            routing: path(&spec.routing_field)?,
            version: match (external, path(&spec.version_field)?, spec.version_generation) {
                (true, Some(field), _) => Version::Field(field),
                (true, None, Some(generation)) => Version::Place(u64::from(generation)),
                _ => Version::None,
            },
            deletion: spec.deletion.as_ref().map(|deletion| Ok((deletion.field.parse()?, deletion.value.clone()))).transpose()?,
            selection: match (spec.include_fields.as_slice(), spec.exclude_fields.as_slice()) {
                ([], []) => Selection::All,
                ([], without) => Selection::Without(keys(without)),
                (only, _) => Selection::Only(keys(only)),
            },
            run_id: spec.run_id_field.as_deref().map(|field| (field.into(), run_id.to_owned())),
        })
    }

    /// The id in the index: the value of `idField` if there is one, else the document's id.
    ///
    /// # Errors
    /// The document does not have the field, or it is empty, a list or an object.
    pub fn id<'a>(&self, document: &'a Document) -> Result<Cow<'a, str>, Rejected> {
        let Some(path) = &self.id else { return Ok(Cow::Borrowed(document.id())) };
        match scalar_at(document, path, "idField")? {
            Some(id) if !id.is_empty() => Ok(id),
            Some(_) => Err(Rejected(format!("`{path}` (idField) is empty"))),
            None => Err(Rejected(format!("the document has no `{path}` (idField)"))),
        }
    }

    /// The index that the document itself names (`indexField`).
    ///
    /// # Errors
    /// The field is a list or an object.
    pub fn index<'a>(&self, document: &'a Document) -> Result<Option<Cow<'a, str>>, Rejected> {
        self.optional(document, self.index.as_ref(), "indexField")
    }

    /// The routing of the document (`routingField`).
    ///
    /// # Errors
    /// The field is a list or an object.
    pub fn routing<'a>(&self, document: &'a Document) -> Result<Option<Cow<'a, str>>, Rejected> {
        self.optional(document, self.routing.as_ref(), "routingField")
    }

    /// The external version of the document under `versioning: External`: the value of `versionField`, else its place in the topic.
    ///
    /// # Errors
    /// The document does not have the field, or it is not a whole number from 0.
    pub fn version(&self, document: &Document) -> Result<Option<u64>, Rejected> {
        let path = match &self.version {
            Version::None => return Ok(None),
            Version::Field(path) => path,
            Version::Place(generation) => {
                return Ok(document.origin().offset.map(|offset| generation << OFFSET_BITS | offset));
            }
        };
        let version = match document.get(path) {
            Some(Value::Int(version)) => u64::try_from(*version).ok(),
            Some(Value::Text(text)) => text.parse().ok(),
            _ => None,
        };
        match version.filter(|version| i64::try_from(*version).is_ok()) {
            Some(version) => Ok(Some(version)),
            None => Err(Rejected(format!("`{path}` (versionField) is not a whole number from 0 to 9223372036854775807"))),
        }
    }

    /// Whether the document deletes instead of being written.
    pub fn deletes(&self, document: &Document) -> bool {
        let Some((path, value)) = &self.deletion else { return false };
        document.get(path).and_then(scalar).is_some_and(|found| found == *value)
    }

    /// The fields that are written, in their order; the one that receives the id of the run is not among them.
    pub fn fields<'a>(&'a self, document: &'a Document) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        document.fields().iter().filter(|(key, _)| self.takes(key))
    }

    /// The field that receives the id of the run.
    pub fn run_id_field(&self) -> Option<&str> {
        self.run_id.as_ref().map(|(field, _)| field.as_str())
    }

    /// The field that receives the id of the run, and the id of the document's run.
    pub fn run_id<'a>(&'a self, document: &'a Document) -> Option<(&'a str, &'a str)> {
        let (field, id) = self.run_id.as_ref()?;
        let id = document.origin().run_id.as_deref().unwrap_or(id);
        // a document from outside belongs to no run
        (!id.is_empty()).then_some((field.as_str(), id))
    }

    /// Appends the fields that are written as one JSON object. `first` is a field that the backend adds in front (its name
    /// for the id, for example); it takes the place of a field of that name.
    pub fn write_json(&self, document: &Document, first: Option<(&str, &str)>, out: &mut Vec<u8>) {
        if first.is_none() && self.run_id.is_none() && matches!(self.selection, Selection::All) {
            document.write_json(out);
            return;
        }
        // writing into memory cannot fail, and no value of a document is without a JSON form
        let written = sonic_rs::to_writer(&mut *out, &Projected { projection: self, document, first });
        debug_assert!(written.is_ok());
    }

    fn takes(&self, key: &Key) -> bool {
        let selected = match &self.selection {
            Selection::All => true,
            Selection::Only(only) => only.contains(key),
            Selection::Without(without) => !without.contains(key),
        };
        selected && self.run_id.as_ref().is_none_or(|(field, _)| field != key)
    }

    fn optional<'a>(&self, document: &'a Document, path: Option<&Path>, option: &str) -> Result<Option<Cow<'a, str>>, Rejected> {
        let Some(path) = path else { return Ok(None) };
        Ok(scalar_at(document, path, option)?.filter(|text| !text.is_empty()))
    }
}

/// The text of a single value; `None` for null, lists and objects.
fn scalar(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Text(text) => Some(Cow::Borrowed(text)),
        Value::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        Value::Int(value) => Some(Cow::Owned(value.to_string())),
        Value::Uint(value) => Some(Cow::Owned(value.to_string())),
        Value::Float(value) => Some(Cow::Owned(value.to_string())),
        Value::Null | Value::List(_) | Value::Object(_) => None,
    }
}

fn scalar_at<'a>(document: &'a Document, path: &Path, option: &str) -> Result<Option<Cow<'a, str>>, Rejected> {
    match document.get(path) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match scalar(value) {
            Some(text) => Ok(Some(text)),
            None => Err(Rejected(format!("`{path}` ({option}) is {}, not a single value", value.kind()))),
        },
    }
}

/// A document as it is written.
struct Projected<'a> {
    projection: &'a Projection,
    document: &'a Document,
    first: Option<(&'a str, &'a str)>,
}

impl Serialize for Projected<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some((name, value)) = self.first {
            map.serialize_entry(name, value)?;
        }
        for (key, value) in self.projection.fields(self.document) {
            if self.first.is_none_or(|(name, _)| name != key) {
                map.serialize_entry(key.as_str(), value)?;
            }
        }
        if let Some((field, id)) = self.projection.run_id(self.document) {
            map.serialize_entry(field, id)?;
        }
        map.end()
    }
}

/// Appends a text as a JSON string.
pub fn write_json_text(text: &str, out: &mut Vec<u8>) {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    // writing into memory cannot fail
    let written = serde_json::to_writer(&mut *out, text);
    debug_assert!(written.is_ok());
}

/// Appends a number.
pub fn write_number(number: u64, out: &mut Vec<u8>) {
    // writing into memory cannot fail
    let written = write!(out, "{number}");
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Fields, Origin};

    fn projection(settings: &str) -> Projection {
        let spec: Indexer = serde_json::from_str(&format!(r#"{{"nop":{{}}{settings}}}"#)).expect(settings);
        Projection::new(&spec, "run-1").expect(settings)
    }

    fn document(json: &str) -> Document {
        Document::with_fields("doc-1", Fields::from_json(json.as_bytes()).expect(json))
    }

    fn written(projection: &Projection, json: &str, first: Option<(&str, &str)>) -> String {
        let mut out = Vec::new();
        projection.write_json(&document(json), first, &mut out);
        String::from_utf8(out).expect("utf-8")
    }

    #[test]
    fn without_settings_the_document_is_written_as_it_is() {
        assert_eq!(written(&projection(""), r#"{"b":1,"a":{"c":[]}}"#, None), r#"{"b":1,"a":{"c":[]}}"#);
    }

    #[test]
    fn fields_are_chosen_and_nothing_internal_is_written_unless_asked_for() {
        let json = r#"{"a":1,"b":2,"run":"own","id":"x"}"#;
        for (settings, first, expected) in [
            (r#","includeFields":["b","zz"]"#, None, r#"{"b":2}"#),
            (r#","excludeFields":["b","run"]"#, None, r#"{"a":1,"id":"x"}"#),
            (r#","runIdField":"run""#, None, r#"{"a":1,"b":2,"id":"x","run":"run-1"}"#),
            (r#","includeFields":["a"],"runIdField":"run""#, None, r#"{"a":1,"run":"run-1"}"#),
            (r#","excludeFields":["a","run"]"#, Some(("id", "doc-1")), r#"{"id":"doc-1","b":2}"#),
        ] {
            assert_eq!(written(&projection(settings), json, first), expected, "{settings}");
        }
    }

    #[test]
    fn the_id_in_the_index_may_come_from_a_field() {
        let by_sku = projection(r#","idField":"product.sku""#);
        for (json, expected) in [
            (r#"{"product":{"sku":"s-1"}}"#, Ok("s-1")),
            (r#"{"product":{"sku":17}}"#, Ok("17")),
            (r#"{"product":{}}"#, Err("has no `product.sku`")),
            (r#"{"product":{"sku":""}}"#, Err("is empty")),
            (r#"{"product":{"sku":["a"]}}"#, Err("is a list")),
        ] {
            let document = document(json);
            match (by_sku.id(&document), expected) {
                (Ok(id), Ok(expected)) => assert_eq!(id, expected),
                (Err(rejected), Err(part)) => assert!(rejected.0.contains(part), "{rejected}"),
                (got, _) => panic!("{json}: {got:?}"),
            }
        }
        assert_eq!(projection("").id(&document("{}")).expect("own id"), "doc-1");
    }

    #[test]
    fn a_deletion_marker_is_compared_as_text() {
        let marked = projection(r#","deletion":{"field":"gone"}"#);
        for (json, deletes) in [
            (r#"{"gone":true}"#, true),
            (r#"{"gone":"true"}"#, true),
            (r#"{"gone":false}"#, false),
            (r#"{"gone":null}"#, false),
            (r#"{"gone":[true]}"#, false),
            ("{}", false),
        ] {
            assert_eq!(marked.deletes(&document(json)), deletes, "{json}");
        }
        assert!(projection(r#","deletion":{"field":"op","value":"3"}"#).deletes(&document(r#"{"op":3}"#)));
    }

    #[test]
    fn the_place_in_the_topic_is_a_version_that_grows_with_generation_and_offset() {
        let versioned = projection(r#","versioning":"External","versionGeneration":7"#);
        let at = |offset| {
            let origin = Origin { offset: Some(offset), run_id: Some("run-9".into()) };
            document("{}").from_origin(origin)
        };
        assert_eq!(versioned.version(&at(5)), Ok(Some(7 << 36 | 5)));
        assert_eq!(versioned.version(&document("{}")), Ok(None), "it has no place");
        let newer = projection(r#","versioning":"External","versionGeneration":8"#);
        assert!(newer.version(&at(0)).ok() > versioned.version(&at(u64::from(u32::MAX))).ok());
        let named = projection(r#","runIdField":"run""#);
        assert_eq!(named.run_id(&at(5)), Some(("run", "run-9")), "its own run, not that of the process");
        assert_eq!(named.run_id(&document("{}")), Some(("run", "run-1")));
    }

    #[test]
    fn a_version_is_a_whole_number() {
        let versioned = projection(r#","versioning":"External","versionField":"v""#);
        for (json, expected) in
            [(r#"{"v":7}"#, Some(7)), (r#"{"v":"7"}"#, Some(7)), (r#"{"v":-1}"#, None), (r#"{"v":1.5}"#, None), ("{}", None)]
        {
            assert_eq!(versioned.version(&document(json)).ok().flatten(), expected, "{json}");
        }
        assert_eq!(projection("").version(&document(r#"{"v":7}"#)), Ok(None));
    }

    #[test]
    fn texts_are_written_as_json() {
        for text in ["", "plain ü", "a \"b\" \\ c", "line\nbreak \u{1}"] {
            let mut out = Vec::new();
            write_json_text(text, &mut out);
            assert_eq!(serde_json::from_slice::<String>(&out).expect(text), text);
        }
    }
}
