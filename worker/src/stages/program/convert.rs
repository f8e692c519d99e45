//! Between the values of documents and those of VRL.

use super::VrlValue;
use crate::document::{Fields, Key, LARGEST_DOCUMENT, Value};
use base64::{Engine, prelude::BASE64_STANDARD};
use std::fmt;
use vrl::value::{KeyString, ObjectMap, value::timestamp_to_string};

/// Deeper values could not be read back by a JSON parser that guards its stack.
const DEEPEST: usize = 127;

/// A value of VRL that no document can have.
#[derive(Debug, PartialEq)]
pub(super) struct Misfit {
    /// The way to the value, innermost first.
    path: Vec<String>,
    what: &'static str,
}

impl Misfit {
    fn new(what: &'static str) -> Self {
        Self { path: Vec::new(), what }
    }

    fn inside(mut self, step: String) -> Self {
        // the outermost steps are enough to find it
        if self.path.len() == 8 {
            self.path.remove(0);
        }
        self.path.push(step);
        self
    }

    /// The message for a misfit in that field.
    pub(super) fn in_field(self, name: &str) -> String {
        self.inside(format!(".{name}")).to_string()
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        write!(f, "`{}` is {}", path.trim_start_matches('.'), self.what)
    }
}

/// What kind of value it is, in the words of error messages.
pub(super) fn describe(value: &VrlValue) -> &'static str {
    match value {
        VrlValue::Bytes(_) | VrlValue::String(_) => "text",
        VrlValue::Regex(_) => "a regular expression",
        VrlValue::Integer(_) => "a whole number",
        VrlValue::Float(_) => "a number",
        VrlValue::Boolean(_) => "a boolean",
        VrlValue::Timestamp(_) => "a time",
        VrlValue::Object(_) => "an object",
        VrlValue::Array(_) => "a list",
        VrlValue::Null => "null",
    }
}

/// A value for a program. Whole numbers beyond `i64` are seen as floating point numbers.
pub(super) fn to_vrl(value: &Value) -> VrlValue {
    match value {
        Value::Null => VrlValue::Null,
        Value::Bool(yes) => VrlValue::Boolean(*yes),
        Value::Int(number) => VrlValue::Integer(*number),
        Value::Uint(number) => VrlValue::from_f64_or_zero(*number as f64),
        Value::Float(number) => VrlValue::from_f64_or_zero(*number),
        Value::Text(text) => VrlValue::from(text.as_str()),
        Value::List(values) => VrlValue::Array(values.iter().map(to_vrl).collect()),
        Value::Object(fields) => {
            VrlValue::Object(fields.iter().map(|(key, value)| (KeyString::from(key.as_str()), to_vrl(value))).collect())
        }
    }
}

/// A value for a document. `before` is what stood in its place: fields that are still there keep their order, and whole
/// numbers beyond `i64` that the program passed on stay exact.
pub(super) fn to_document(before: Option<&Value>, value: VrlValue) -> Result<Value, Misfit> {
    convert(before, value, 1, &mut Room(LARGEST_DOCUMENT))
}

/// The fields of a document as a whole.
pub(super) fn to_fields(before: Option<&Fields>, map: ObjectMap) -> Result<Fields, Misfit> {
    convert_fields(before, map, 0, &mut Room(LARGEST_DOCUMENT))
}

/// Bytes left. A program can hold one long text many times at no cost; in a document each takes its place.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), Misfit> {
        self.0 = self.0.checked_sub(bytes).ok_or(Misfit::new("more than the 64 MiB that a document may have"))?;
        Ok(())
    }
}

fn convert(before: Option<&Value>, value: VrlValue, depth: usize, room: &mut Room) -> Result<Value, Misfit> {
    room.take(size_of::<Value>() + value.as_bytes().map_or(0, |bytes| bytes.len()))?;
    Ok(match value {
        VrlValue::Null => Value::Null,
        VrlValue::Boolean(yes) => Value::Bool(yes),
        VrlValue::Integer(number) => Value::Int(number),
        VrlValue::Float(number) => float(before, number.into_inner())?,
        VrlValue::Bytes(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => text.into(),
            Err(_) => BASE64_STANDARD.encode(&bytes).into(),
        },
        VrlValue::String(text) => (&*text).into(),
        VrlValue::Timestamp(time) => timestamp_to_string(&time).into(),
        VrlValue::Regex(_) => return Err(Misfit::new("a regular expression, which a document cannot hold")),
        VrlValue::Array(_) | VrlValue::Object(_) if depth > DEEPEST => {
            discard(value);
            return Err(Misfit::new("nested too deeply, more than 128 levels"));
        }
        VrlValue::Array(values) => Value::list(convert_list(before, values, depth, room)?),
        VrlValue::Object(map) => {
            let before = match before {
                Some(Value::Object(fields)) => Some(&**fields),
                _ => None,
            };
            Value::object(convert_fields(before, map, depth, room)?)
        }
    })
}

fn float(before: Option<&Value>, number: f64) -> Result<Value, Misfit> {
    match before {
        Some(Value::Uint(exact)) if *exact as f64 == number => Ok(Value::Uint(*exact)),
        _ if number.is_finite() => Ok(Value::Float(number)),
        _ => Err(Misfit::new("infinite, which JSON cannot express")),
    }
}

fn convert_list(before: Option<&Value>, values: Vec<VrlValue>, depth: usize, room: &mut Room) -> Result<Vec<Value>, Misfit> {
    let before = match before {
        Some(Value::List(values)) => values.as_slice(),
        _ => &[],
    };
    let convert_one = |(i, value)| convert(before.get(i), value, depth + 1, room).map_err(|misfit| misfit.inside(format!("[{i}]")));
    values.into_iter().enumerate().map(convert_one).collect()
}

fn convert_fields(before: Option<&Fields>, mut map: ObjectMap, depth: usize, room: &mut Room) -> Result<Fields, Misfit> {
    let mut fields = Fields::with_capacity(map.len());
    for (key, old) in before.into_iter().flat_map(Fields::iter) {
        if let Some(value) = map.remove(key.as_str()) {
            let value = convert(Some(old), value, depth + 1, room).map_err(|misfit| misfit.inside(format!(".{key}")))?;
            fields.push_new(key.clone(), value);
        }
    }
    for (key, value) in map {
        let value = convert(None, value, depth + 1, room).map_err(|misfit| misfit.inside(format!(".{key}")))?;
        fields.push_new(Key::from(key.as_str()), value);
    }
    Ok(fields)
}

/// Lets go of a value of any depth without a call for each level.
fn discard(value: VrlValue) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            VrlValue::Array(values) => pending.extend(values),
            VrlValue::Object(map) => pending.extend(map.into_values()),
            _ => {}
        }
    }
}
