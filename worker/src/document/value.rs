//! JSON values in an ordered representation of 24 bytes a value: short texts need no allocation, fields keep their order.

use compact_str::CompactString;

/// The name of a field. Up to 24 bytes are stored inline.
pub type Key = CompactString;

/// A JSON value. Whole numbers stay whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond `i64::MAX`.
    Uint(u64),
    /// Any other number; never NaN or infinite.
    Float(f64),
    /// Text.
    Text(CompactString),
    /// A list.
    List(Box<Vec<Value>>),
    /// An object.
    Object(Box<Fields>),
}

impl Value {
    /// A list of these values.
    pub fn list(values: Vec<Value>) -> Self {
        Self::List(Box::new(values))
    }

    /// An object of these fields.
    pub fn object(fields: Fields) -> Self {
        Self::Object(Box::new(fields))
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The values of a list, or the value itself as the only one.
    pub fn as_slice(&self) -> &[Value] {
        match self {
            Self::List(values) => values,
            single => std::slice::from_ref(single),
        }
    }

    /// What kind of value it is, in the words of error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Uint(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Adds a value: a single value becomes a list, the elements of a list are added one by one.
    pub fn append(&mut self, value: Value) {
        if !matches!(self, Self::List(_)) {
            let single = std::mem::replace(self, Self::Null);
            *self = Self::list(vec![single]);
        }
        if let Self::List(values) = self {
            match value {
                Self::List(more) => values.extend(*more),
                single => values.push(single),
            }
        }
    }

    pub(super) fn estimated_size(&self) -> usize {
        match self {
            Self::Text(text) if text.is_heap_allocated() => text.len(),
            Self::List(values) => values.iter().map(|value| size_of::<Self>() + value.estimated_size()).sum(),
            Self::Object(fields) => fields.estimated_size(),
            _ => 0,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<CompactString> for Value {
    fn from(text: CompactString) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Uint(value), Self::Int)
    }
}

/// An ordered JSON object. Look-ups scan: documents have few fields, and a scan over inline keys beats hashing there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<(Key, Value)>);

impl Fields {
    /// No fields.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// No fields, with room for some.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a field.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|at| &self.0[at].1)
    }

    /// The value of a field, to change.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.position(key).map(|at| &mut self.0[at].1)
    }

    /// Whether there is such a field.
    pub fn contains(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Writes a field: in its place if it is there, else at the end.
    pub fn insert(&mut self, key: impl Into<Key> + AsRef<str>, value: Value) {
        match self.position(key.as_ref()) {
            Some(at) => self.0[at].1 = value,
            None => self.0.push((key.into(), value)),
        }
    }

    /// Adds a field that is known not to be there yet.
    pub fn push_new(&mut self, key: Key, value: Value) {
        debug_assert!(!self.contains(&key), "field {key} is there already");
        self.push_unchecked(key, value);
    }

    /// As [`Fields::push_new`], where the caller has looked already.
    pub(super) fn push_unchecked(&mut self, key: Key, value: Value) {
        self.0.push((key, value));
    }

    /// Takes a field out; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.position(key).map(|at| self.0.remove(at).1)
    }

    /// Gives a field another name in its place. A field that has the new name already is removed.
    pub fn rename(&mut self, from: &str, to: &Key) -> bool {
        let Some(at) = self.position(from) else { return false };
        if from != to {
            self.0[at].0 = to.clone();
            if let Some(other) = self.0.iter().enumerate().position(|(i, (key, _))| i != at && key == to) {
                self.0.remove(other);
            }
        }
        true
    }

    /// Keeps the fields for which the test says yes.
    pub fn retain(&mut self, mut keep: impl FnMut(&Key) -> bool) {
        self.0.retain(|(key, _)| keep(key));
    }

    /// All fields, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Key, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// All fields, in order, their values to change.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&Key, &mut Value)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    fn position(&self, key: &str) -> Option<usize> {
        self.0.iter().position(|(present, _)| present == key)
    }

    pub(super) fn estimated_size(&self) -> usize {
        self.0.capacity() * size_of::<(Key, Value)>() + self.0.iter().map(|(_, value)| value.estimated_size()).sum::<usize>()
    }
}

impl FromIterator<(Key, Value)> for Fields {
    fn from_iter<I: IntoIterator<Item = (Key, Value)>>(fields: I) -> Self {
        let mut out = Self::new();
        for (key, value) in fields {
            out.insert(key, value);
        }
        out
    }
}

impl IntoIterator for Fields {
    type Item = (Key, Value);
    type IntoIter = std::vec::IntoIter<(Key, Value)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_24_bytes() {
        assert_eq!(size_of::<Value>(), 24);
        assert_eq!(size_of::<Option<Value>>(), 24);
    }

    #[test]
    fn a_renamed_field_keeps_its_place_and_replaces_its_namesake() {
        let mut fields: Fields =
            [("a", 1), ("b", 2), ("c", 3)].into_iter().map(|(key, value)| (Key::from(key), Value::Int(value))).collect();
        assert!(fields.rename("b", &"c".into()));
        let left: Vec<_> = fields.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        assert_eq!(left, [("a", Value::Int(1)), ("c", Value::Int(2))]);
        assert!(!fields.rename("x", &"y".into()));
    }

    #[test]
    fn appending_makes_lists_and_adds_the_elements_of_lists() {
        let mut value = Value::from("a");
        value.append("b".into());
        value.append(Value::list(vec!["c".into(), 4_i64.into()]));
        assert_eq!(value, Value::list(vec!["a".into(), "b".into(), "c".into(), Value::Int(4)]));
    }
}
