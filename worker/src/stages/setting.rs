//! Reading the settings of stages: each function gives the value or reports why there is none.

use crate::{
    document::{Path, Value},
    problem::Problems,
};
use penstock_crds::values::UpdateMode;
use regex::{Regex, RegexBuilder};
use std::collections::BTreeMap;

use super::StageError;
use crate::document::Document;

/// A compiled regular expression may take so much memory.
const REGEX_SIZE_LIMIT: usize = 10 << 20;

/// The path of a field.
pub(super) fn path(text: &str, field: &str, problems: &mut Problems<'_>) -> Option<Path> {
    text.parse().map_err(|error: crate::document::PathError| problems.add(field, error.to_string())).ok()
}

/// A path that may be left out: the outer `None` is a problem.
pub(super) fn optional_path(text: Option<&String>, field: &str, problems: &mut Problems<'_>) -> Option<Option<Path>> {
    text.map_or(Some(None), |text| path(text, field, problems).map(Some))
}

/// A list of paths.
pub(super) fn paths(texts: &[String], field: &str, problems: &mut Problems<'_>) -> Option<Vec<Path>> {
    let read: Vec<_> = texts.iter().enumerate().map(|(i, text)| path(text, &format!("{field}[{i}]"), problems)).collect();
    read.into_iter().collect()
}

/// Pairs of source and target.
pub(super) fn path_pairs(map: &BTreeMap<String, String>, problems: &mut Problems<'_>) -> Option<Vec<(Path, Path)>> {
    if map.is_empty() {
        problems.add("fields", "names no field; write at least one pair, for example {title: name}");
        return None;
    }
    let read: Vec<_> = map
        .iter()
        .map(|(source, target)| {
            let field = entry("fields", source);
            path(source, &field, problems).zip(path(target, &field, problems))
        })
        .collect();
    read.into_iter().collect()
}

/// The path of a map's entry for a report; a key that would not read as one name is left out.
pub(super) fn entry(field: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_plain { format!("{field}.{key}") } else { field.to_owned() }
}

/// A regular expression.
pub(super) fn regex(pattern: &str, field: &str, problems: &mut Problems<'_>) -> Option<Regex> {
    RegexBuilder::new(pattern)
        .size_limit(REGEX_SIZE_LIMIT)
        .build()
        .map_err(|error| problems.add(field, format!("not a regular expression: {}", error.to_string().trim())))
        .ok()
}

/// Which top level fields: by name, or by how they begin.
#[derive(Clone, Debug)]
pub(super) enum Selector {
    Path(Path),
    Prefix(String),
}

/// Reads `a.b` as a path and `meta_*` as everything that begins with `meta_`.
pub(super) fn selectors(texts: &[String], problems: &mut Problems<'_>) -> Option<Vec<Selector>> {
    if texts.is_empty() {
        problems.add("fields", "names no field");
        return None;
    }
    let read: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(i, text)| match text.strip_suffix('*') {
            Some(prefix) => Some(Selector::Prefix(prefix.to_owned())),
            None => path(text, &format!("fields[{i}]"), problems).map(Selector::Path),
        })
        .collect();
    read.into_iter().collect()
}

/// Writes a value to a field in the given mode.
pub(super) fn write(document: &mut Document, path: &Path, value: Value, mode: UpdateMode) -> Result<(), StageError> {
    Ok(document.update(path, value, mode)?)
}

/// Whether writing to the path can stop half-way: nested paths may meet something that is no object.
pub(super) fn is_nested(path: &Path) -> bool {
    path.as_key().is_none()
}
