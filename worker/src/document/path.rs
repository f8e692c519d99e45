//! Paths to fields: `title`, `author.name`, `prices[2].value`, `"a.dotted.name"`.

use super::{Fields, Key, Value};
use std::{fmt, str::FromStr};

/// Where a value is in a document. Parsed once, when a component is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    first: Key,
    rest: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(Key),
    Index(usize),
}

/// A text that is no path, or a path that a document cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text is not a path.
    #[error("`{text}` is not a field path: {fault}; write for example title, author.name or prices[0].value")]
    Syntax {
        /// The text.
        text: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The document has something else on the way.
    #[error("cannot write `{path}`: `{at}` is {found}, not {wanted}")]
    Shape {
        /// The path to write.
        path: String,
        /// The part of it that does not fit.
        at: String,
        /// What is there.
        found: &'static str,
        /// What should be there.
        wanted: &'static str,
    },
    /// A list is too short.
    #[error("cannot write `{path}`: the list has {len} elements, and a list grows by one at a time")]
    Index {
        /// The path to write.
        path: String,
        /// How long the list is.
        len: usize,
    },
}

impl Path {
    /// The field, if the path is nothing but the name of one.
    pub fn as_key(&self) -> Option<&Key> {
        self.rest.is_empty().then_some(&self.first)
    }

    /// The top level field on which the path begins.
    pub fn first(&self) -> &Key {
        &self.first
    }

    pub(super) fn get<'a>(&self, fields: &'a Fields) -> Option<&'a Value> {
        let mut value = fields.get(&self.first)?;
        for step in &self.rest {
            value = match (step, value) {
                (Step::Field(key), Value::Object(fields)) => fields.get(key)?,
                (Step::Index(index), Value::List(values)) => values.get(*index)?,
                _ => return None,
            };
        }
        Some(value)
    }

    pub(super) fn get_mut<'a>(&self, fields: &'a mut Fields) -> Option<&'a mut Value> {
        let mut value = fields.get_mut(&self.first)?;
        for step in &self.rest {
            value = match (step, value) {
                (Step::Field(key), Value::Object(fields)) => fields.get_mut(key)?,
                (Step::Index(index), Value::List(values)) => values.get_mut(*index)?,
                _ => return None,
            };
        }
        Some(value)
    }

    pub(super) fn remove(&self, fields: &mut Fields) -> Option<Value> {
        let Some((last, before)) = self.rest.split_last() else { return fields.remove(&self.first) };
        let parent = Self { first: self.first.clone(), rest: before.to_vec() };
        match (last, parent.get_mut(fields)?) {
            (Step::Field(key), Value::Object(fields)) => fields.remove(key),
            (Step::Index(index), Value::List(values)) => (*index < values.len()).then(|| values.remove(*index)),
            _ => None,
        }
    }

    pub(super) fn set(&self, fields: &mut Fields, value: Value) -> Result<(), PathError> {
        if self.rest.is_empty() {
            fields.insert(self.first.clone(), value);
            return Ok(());
        }
        if !fields.contains(&self.first) {
            fields.insert(self.first.clone(), Value::Null);
        }
        let Some(mut target) = fields.get_mut(&self.first) else { return Ok(()) };
        for (depth, step) in self.rest.iter().enumerate() {
            target = match step {
                Step::Field(key) => {
                    if matches!(target, Value::Null) {
                        *target = Value::object(Fields::new());
                    }
                    let found = target.kind();
                    let Value::Object(fields) = target else { return Err(self.shape(depth, found, "an object")) };
                    if !fields.contains(key) {
                        fields.insert(key.clone(), Value::Null);
                    }
                    let Some(next) = fields.get_mut(key) else { return Ok(()) };
                    next
                }
                Step::Index(index) => {
                    if matches!(target, Value::Null) {
                        *target = Value::list(Vec::new());
                    }
                    let found = target.kind();
                    let Value::List(values) = target else { return Err(self.shape(depth, found, "a list")) };
                    if *index > values.len() {
                        return Err(PathError::Index { path: self.to_string(), len: values.len() });
                    }
                    if *index == values.len() {
                        values.push(Value::Null);
                    }
                    &mut values[*index]
                }
            };
        }
        *target = value;
        Ok(())
    }

    fn shape(&self, depth: usize, found: &'static str, wanted: &'static str) -> PathError {
        let at = Self { first: self.first.clone(), rest: self.rest[..depth].to_vec() };
        PathError::Shape { path: self.to_string(), at: at.to_string(), found, wanted }
    }
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let fault = |fault| PathError::Syntax { text: text.to_owned(), fault };
        let (first, mut rest) = field(text).map_err(fault)?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let (key, after) = field(after).map_err(fault)?;
                steps.push(Step::Field(key));
                rest = after;
            } else if let Some(after) = rest.strip_prefix('[') {
                let (index, after) = after.split_once(']').ok_or_else(|| fault("`[` is not closed"))?;
                steps.push(Step::Index(index.parse().map_err(|_| fault("what stands in brackets must be a position from 0"))?));
                rest = after;
            } else {
                return Err(fault("after `]` or a quote only `.` or `[` may follow"));
            }
        }
        Ok(Self { first, rest: steps })
    }
}

/// The name at the beginning of the text, and what follows it.
fn field(text: &str) -> Result<(Key, &str), &'static str> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"').ok_or("the quote is not closed")?;
        return if name.is_empty() { Err("a name is empty") } else { Ok((name.into(), rest)) };
    }
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match name {
        "" => Err("a name is empty"),
        name if name.trim() != name => Err("white space around a name; put it in double quotes if it is meant"),
        name => Ok((name.into(), rest)),
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |f: &mut fmt::Formatter<'_>, key: &str| match key.contains(['.', '[', '"']) || key.trim() != key {
            true => write!(f, "\"{key}\""),
            false => f.write_str(key),
        };
        name(f, &self.first)?;
        for step in &self.rest {
            match step {
                Step::Field(key) => {
                    f.write_str(".")?;
                    name(f, key)?;
                }
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.parse().expect(text)
    }

    #[test]
    fn paths_are_printed_as_they_were_read() {
        for text in ["title", "a.b", "a.b[2].c", "a[0][1]", "\"a.b\".c"] {
            assert_eq!(path(text).to_string(), text);
        }
        for text in ["", ".a", "a.", "a[", "a[x]", "a[1]b", " a", "\"a", "a..b"] {
            assert!(text.parse::<Path>().is_err(), "{text}");
        }
    }

    #[test]
    fn missing_objects_and_lists_are_made_on_the_way() {
        let mut fields = Fields::new();
        path("a.b[0].c").set(&mut fields, Value::Int(1)).expect("set");
        path("a.b[1]").set(&mut fields, Value::Int(2)).expect("set");
        assert_eq!(serde_json::to_string(&fields).expect("json"), r#"{"a":{"b":[{"c":1},2]}}"#);
        assert_eq!(path("a.b[0].c").get(&fields), Some(&Value::Int(1)));
        assert_eq!(path("a.b[0]").remove(&mut fields), Some(Value::object([("c".into(), Value::Int(1))].into_iter().collect())));
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let mut fields: Fields = [("a".into(), Value::from("text"))].into_iter().collect();
        assert_eq!(
            path("a.b").set(&mut fields, Value::Null).expect_err("shape").to_string(),
            "cannot write `a.b`: `a` is text, not an object"
        );
        assert!(matches!(path("l[2]").set(&mut fields, Value::Null), Err(PathError::Index { len: 0, .. })));
    }
}
