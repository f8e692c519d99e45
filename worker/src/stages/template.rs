//! Templates: fixed text with field names in braces, read once and resolved to paths.

use super::StageError;
use crate::{
    document::{Document, LARGEST_DOCUMENT, Path, Value},
    problem::Problems,
    wording::Bytes,
};
use std::{collections::BTreeMap, fmt::Write};

/// A template for the text of a field or the id of a child.
#[derive(Clone, Debug)]
pub(super) struct Template {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub(super) enum Item {
    /// Fixed text.
    Text(Box<str>),
    /// The id of the document; for a child, of its parent.
    Id,
    /// The position of a child.
    Index,
    /// A field, and the text in its place if the document does not have it.
    Field(Path, Option<Box<str>>),
}

impl Template {
    /// A template for a field of a document.
    pub(super) fn for_field(text: &str, defaults: &BTreeMap<String, String>, field: &str, problems: &mut Problems<'_>) -> Option<Self> {
        let mut unused: Vec<&String> = defaults.keys().collect();
        let template = Self::read(text, field, problems, |key, path| {
            unused.retain(|name| *name != key);
            match key {
                "id" => Item::Id,
                key => Item::Field(path, defaults.get(key).map(|text| text.as_str().into())),
            }
        })?;
        for name in &unused {
            problems.add("defaults", format!("the template does not use `{name}`"));
        }
        unused.is_empty().then_some(template)
    }

    /// A template for the id of a child.
    pub(super) fn for_child_id(text: &str, field: &str, problems: &mut Problems<'_>) -> Option<Self> {
        Self::read(text, field, problems, |key, path| match key {
            "id" => Item::Id,
            "index" => Item::Index,
            _ => Item::Field(path, None),
        })
    }

    fn read(text: &str, field: &str, problems: &mut Problems<'_>, mut item: impl FnMut(&str, Path) -> Item) -> Option<Self> {
        let parsed = match leon::Template::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => {
                problems.add(field, format!("not a template: {error}; a literal brace is written \\{{ or \\}}"));
                return None;
            }
        };
        let read: Vec<_> = parsed
            .items
            .iter()
            .map(|part| match part {
                leon::Item::Text(text) => Some(Item::Text((*text).into())),
                leon::Item::Key(key) => match key.parse::<Path>() {
                    Ok(path) => Some(item(key, path)),
                    Err(error) => {
                        problems.add(field, error.to_string());
                        None
                    }
                },
            })
            .collect();
        Some(Self { items: read.into_iter().collect::<Option<_>>()? })
    }

    /// The parts in order.
    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Appends the text for a document: lists are joined by a comma and a space, objects are JSON, a field that is
    /// absent or null is its default or nothing.
    ///
    /// # Errors
    /// The text would be longer than any document may be.
    pub(super) fn render(&self, document: &Document, out: &mut String) -> Result<(), StageError> {
        for item in &self.items {
            if out.len() > LARGEST_DOCUMENT {
                return Err(StageError(format!("the text of the template is longer than {}", Bytes(LARGEST_DOCUMENT))));
            }
            match item {
                Item::Text(text) => out.push_str(text),
                Item::Id => out.push_str(document.id()),
                Item::Index => {}
                Item::Field(path, default) => match document.get(path) {
                    None | Some(Value::Null) => out.push_str(default.as_deref().unwrap_or_default()),
                    Some(value) => push_text(value, out),
                },
            }
        }
        Ok(())
    }
}

/// Appends a value as text.
pub(super) fn push_text(value: &Value, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Text(text) => out.push_str(text),
        Value::Int(number) => write_to(out, number),
        Value::Uint(number) => write_to(out, number),
        Value::Bool(yes) => out.push_str(if *yes { "true" } else { "false" }),
        Value::List(values) => {
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                push_text(value, out);
            }
        }
        // no number here is NaN or infinite, and no key other than text
        Value::Float(_) | Value::Object(_) => out.push_str(&sonic_rs::to_string(value).unwrap_or_default()),
    }
}

fn write_to(out: &mut String, number: impl std::fmt::Display) {
    // writing to a String cannot fail
    let _ = write!(out, "{number}");
}
