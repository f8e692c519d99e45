//! Document ids out of the columns or fields of a record.

use leon::{Item, ParseError, Template};

/// Longer ids are refused: no backend takes them, and they would be held in memory everywhere.
pub(super) const MAX_ID: usize = 32 * 1024;

/// One part of an id. `K` says where the value of a key is: its name, a column, a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part<K> {
    /// A text that is the same in every id.
    Text(String),
    /// The value of a column or field.
    Key(K),
    /// The name of the file, without its folder.
    File,
    /// The line on which the record begins.
    Line,
}

/// The parts of an id: the template, else the columns joined by `_`, else the one called `id`.
pub(super) fn parts(columns: &[String], template: Option<&str>) -> Result<Vec<Part<String>>, ParseError> {
    if let Some(template) = template {
        let part = |item: &Item<'_>| match *item {
            Item::Text(text) => Part::Text(text.to_owned()),
            Item::Key("file") => Part::File,
            Item::Key("line") => Part::Line,
            Item::Key(key) => Part::Key(key.to_owned()),
        };
        return Ok(Template::parse(template)?.items.iter().map(part).collect());
    }
    let mut parts = Vec::new();
    for column in columns {
        if !parts.is_empty() {
            parts.push(Part::Text("_".to_owned()));
        }
        parts.push(Part::Key(column.clone()));
    }
    if parts.is_empty() {
        parts.push(Part::Key("id".to_owned()));
    }
    Ok(parts)
}

/// The ids of one file's records.
#[derive(Debug)]
pub(super) struct Ids<K> {
    prefix: String,
    parts: Vec<Part<K>>,
    file_name: String,
    buffer: String,
}

impl<K> Ids<K> {
    /// Finds the place of each key; `file` is the path of the file.
    pub(super) fn new<E>(prefix: &str, parts: &[Part<String>], file: &str, mut place: impl FnMut(&str) -> Result<K, E>) -> Result<Self, E> {
        let parts = parts.iter().map(|part| {
            Ok(match part {
                Part::Text(text) => Part::Text(text.clone()),
                Part::Key(name) => Part::Key(place(name)?),
                Part::File => Part::File,
                Part::Line => Part::Line,
            })
        });
        Ok(Self {
            prefix: prefix.to_owned(),
            parts: parts.collect::<Result<_, E>>()?,
            file_name: file.rsplit('/').next().unwrap_or(file).to_owned(),
            buffer: String::new(),
        })
    }

    /// The key, if the id is nothing but its value.
    pub(super) fn single(&self) -> Option<&K> {
        match &self.parts[..] {
            [Part::Key(key)] if self.prefix.is_empty() => Some(key),
            _ => None,
        }
    }

    /// Builds an id; `append` adds the value of a key.
    ///
    /// # Errors
    /// What `append` says: a value is missing.
    pub(super) fn build(&mut self, line: u64, mut append: impl FnMut(&K, &mut String) -> Result<(), String>) -> Result<&str, String> {
        self.buffer.clear();
        self.buffer.push_str(&self.prefix);
        for part in &self.parts {
            match part {
                Part::Text(text) => self.buffer.push_str(text),
                Part::Key(key) => append(key, &mut self.buffer)?,
                Part::File => self.buffer.push_str(&self.file_name),
                Part::Line => self.buffer.push_str(&line.to_string()),
            }
        }
        Ok(&self.buffer)
    }
}

/// Whether an id can be one.
///
/// # Errors
/// It is empty or too long.
pub(super) fn accept(id: &str) -> Result<&str, String> {
    match id.len() {
        0 => Err("the id is empty".to_owned()),
        length if length > MAX_ID => Err(format!("the id has {length} bytes; at most {MAX_ID} are taken")),
        _ => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(columns: &[&str], template: Option<&str>, prefix: &str) -> String {
        let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        let parts = parts(&columns, template).expect("template");
        let mut ids = Ids::new(prefix, &parts, "data/2026/x.csv", |key| Ok::<_, ()>(key.to_owned())).expect("keys");
        ids.build(7, |key, out| {
            out.push_str(&key.to_uppercase());
            Ok(())
        })
        .expect("id")
        .to_owned()
    }

    #[test]
    fn ids_are_columns_joined_or_a_template() {
        assert_eq!(id(&[], None, ""), "ID");
        assert_eq!(id(&["a", "b"], None, "p-"), "p-A_B");
        assert_eq!(id(&["a"], Some("{b}/{ c d }@{file}:{line}"), ""), "B/C D@x.csv:7");
        assert_eq!(id(&[], Some(r"\{{a}\}"), ""), "{A}");
        assert!(parts(&[], Some("{a")).is_err());
    }

    #[test]
    fn empty_and_endless_ids_are_refused() {
        assert!(accept("").is_err());
        assert!(accept(&"x".repeat(3 * 1024)).is_ok());
        assert!(accept(&"x".repeat(MAX_ID + 1)).expect_err("long").contains("32769 bytes"));
    }
}
