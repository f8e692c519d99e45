//! The JSON form of fields. One serde implementation for both directions, so that parsers and writers can be exchanged.

use super::{Document, Fields, Key, Value};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};
use std::{collections::HashSet, fmt};

/// A text that is not the JSON form of a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentJsonError {
    /// The text is not valid UTF-8.
    #[error("not valid UTF-8 at byte {0}")]
    Utf8(usize),
    /// The text is not a JSON object, or one that cannot be kept exactly.
    #[error("not a JSON object: {0}")]
    Json(#[from] serde_json::Error),
}

impl Document {
    /// Appends the fields as a JSON object.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.fields().write_json(out);
    }
}

impl Fields {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// Not UTF-8, not one JSON object, a name twice, nesting deeper than 128, a number outside the range of `f64`.
    pub fn from_json(bytes: &[u8]) -> Result<Self, DocumentJsonError> {
        // one check of the whole text is much cheaper than one for each string in it
        let text = std::str::from_utf8(bytes).map_err(|error| DocumentJsonError::Utf8(error.valid_up_to()))?;
        Ok(serde_json::from_str(text)?)
    }

    /// Appends the JSON object.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        // writing into memory cannot fail, and no value here is without a JSON form
        let written = sonic_rs::to_writer(&mut *out, self);
        debug_assert!(written.is_ok());
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key.as_str(), value)?;
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Uint(value) => serializer.serialize_u64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values.iter() {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Self::Object(fields) => fields.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fields, A::Error> {
                read_fields(map)
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Up to so many fields a scan finds a repeated name faster than a set.
const SCAN_LIMIT: usize = 32;

fn read_fields<'de, A: MapAccess<'de>>(mut map: A) -> Result<Fields, A::Error> {
    let mut fields = Fields::with_capacity(8);
    let mut seen: HashSet<Key> = HashSet::new();
    while let Some(key) = map.next_key::<Key>()? {
        if fields.len() == SCAN_LIMIT {
            seen = fields.iter().map(|(key, _)| key.clone()).collect();
        }
        let known = if fields.len() < SCAN_LIMIT { fields.contains(&key) } else { !seen.insert(key.clone()) };
        if known {
            return Err(de::Error::custom(format_args!("the name `{key}` stands twice in one object")));
        }
        let value = map.next_value()?;
        fields.push_unchecked(key, value);
    }
    Ok(fields)
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Int(value))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Float(value))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
                Ok(text.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Value::list(values))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
                read_fields(map).map(Value::object)
            }
        }
        deserializer.deserialize_any(ValueVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        let mut out = Vec::new();
        Fields::from_json(text.as_bytes()).expect(text).write_json(&mut out);
        String::from_utf8(out).expect("utf-8")
    }

    #[test]
    fn json_survives_a_round_trip_with_types_and_order() {
        for text in [
            r#"{"z":1,"a":[1,-2,18446744073709551615,1.5,true,null,"x"],"o":{"b":{},"a":[]}}"#,
            r#"{"text":"a \"quoted\" line\nbreak ü 😀","empty":""}"#,
            r#"{"max":9223372036854775807,"min":-9223372036854775808}"#,
        ] {
            assert_eq!(round_trip(text), text);
        }
    }

    #[test]
    fn names_may_not_repeat_in_small_and_large_objects() {
        assert!(Fields::from_json(br#"{"a":1,"a":2}"#).is_err());
        let many: Vec<String> = (0..100).map(|i| format!("\"k{i}\":{i}")).collect();
        assert_eq!(Fields::from_json(format!("{{{}}}", many.join(",")).as_bytes()).expect("100 fields").len(), 100);
        for again in ["k0", "k31", "k32", "k99"] {
            let text = format!("{{{},\"{again}\":0}}", many.join(","));
            assert!(Fields::from_json(text.as_bytes()).is_err(), "{again}");
        }
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        for text in ["", "[]", "1", "{} {}", r#"{"a":1e999}"#, r#"{"a":NaN}"#] {
            assert!(Fields::from_json(text.as_bytes()).is_err(), "{text}");
        }
        let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
        assert!(Fields::from_json(deep.as_bytes()).is_err());
        assert!(matches!(Fields::from_json(b"{\"a\":\"\xff\"}"), Err(DocumentJsonError::Utf8(6))));
    }
}
