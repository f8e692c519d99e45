//! `replace`: what a regular expression finds in a text.

use super::{Next, Stage, StageError, setting};
use crate::{
    document::{Document, LARGEST_DOCUMENT, Path, Value},
    problem::Problems,
    wording::Bytes,
};
use penstock_crds::{stages as spec, values::UpdateMode};
use regex::{Captures, Regex, Replacer};
use std::borrow::Cow;

/// Replaces what a regular expression finds.
#[derive(Clone, Debug)]
pub(super) struct Replace {
    source: Path,
    target: Option<Path>,
    pattern: Regex,
    with: String,
    update_mode: UpdateMode,
}

impl Replace {
    pub(super) fn compile(spec: &spec::Replace, problems: &mut Problems<'_>) -> Option<Self> {
        let source = setting::path(&spec.source, "source", problems);
        let target = setting::optional_path(spec.target.as_ref(), "target", problems);
        let pattern = setting::regex(&spec.pattern, "pattern", problems)?;
        let unknown: Vec<_> = references(&spec.with).into_iter().filter(|name| !has_group(&pattern, name)).collect();
        for name in &unknown {
            problems.add(
                "with",
                format!("`${name}` is no group of the pattern; write ${{1}} where a letter or digit follows, and $$ for a dollar sign"),
            );
        }
        let is_fine = unknown.is_empty();
        is_fine.then_some(Self { source: source?, target: target?, pattern, with: spec.with.clone(), update_mode: spec.update_mode })
    }

    fn replace_in<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, StageError> {
        replace_up_to(LARGEST_DOCUMENT, &self.pattern, text, &self.with, 0)
            .ok_or_else(|| StageError(format!("`{}` would become longer than {}", self.source, Bytes(LARGEST_DOCUMENT))))
    }

    /// The new value, or nothing if it is the old one.
    fn replaced(&self, value: &Value) -> Result<Option<Value>, StageError> {
        let text = |value: &Value| match value {
            Value::Text(text) => Ok(match self.replace_in(text)? {
                Cow::Borrowed(_) => None,
                Cow::Owned(new) => Some(Value::from(new)),
            }),
            Value::Null => Ok(None),
            other => Err(StageError(format!("`{}` is or holds {}, not text", self.source, other.kind()))),
        };
        let Value::List(values) = value else { return text(value) };
        let new: Vec<Option<Value>> = values.iter().map(text).collect::<Result<_, _>>()?;
        if new.iter().all(Option::is_none) {
            return Ok(None);
        }
        Ok(Some(Value::list(new.into_iter().zip(values.iter()).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect())))
    }
}

impl Stage for Replace {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        let Some(value) = document.get(&self.source) else { return Ok(Next::Continue) };
        let new = self.replaced(value)?;
        match (&self.target, new) {
            (None, None) => {}
            (None, Some(new)) => document.set(&self.source, new)?,
            (Some(target), new) => {
                let new = new.unwrap_or_else(|| value.clone());
                setting::write(document, target, new, self.update_mode)?;
            }
        }
        Ok(Next::Continue)
    }

    fn may_leave_half_changed(&self) -> bool {
        self.target.as_ref().is_some_and(setting::is_nested)
    }
}

/// Replaces up to `limit` matches, all if it is 0. Nothing if the text became longer than `most`: each match can be replaced
/// by something as long as the text.
pub(super) fn replace_up_to<'a>(most: usize, pattern: &Regex, text: &'a str, with: &str, limit: usize) -> Option<Cow<'a, str>> {
    if text.len() < most / 2 && with.len().saturating_mul(text.len() + 1) <= most / 2 && !with.contains('$') {
        return Some(pattern.replacen(text, limit, with));
    }
    let mut replacement = Replacement { with, groups: with.matches('$').count(), most, is_too_long: false };
    let replaced = pattern.replacen(text, limit, replacement.by_ref());
    (!replacement.is_too_long && replaced.len() <= most).then_some(replaced)
}

/// Replaces until the text is too long.
struct Replacement<'a> {
    with: &'a str,
    groups: usize,
    most: usize,
    is_too_long: bool,
}

impl Replacer for Replacement<'_> {
    fn replace_append(&mut self, captures: &Captures<'_>, text: &mut String) {
        let longest = self.with.len() + self.groups * captures[0].len();
        self.is_too_long |= text.len().saturating_add(longest) > self.most;
        if !self.is_too_long {
            captures.expand(self.with, text);
        }
    }
}

fn has_group(pattern: &Regex, name: &str) -> bool {
    match name.parse::<usize>() {
        Ok(number) => number < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|group| group == name),
    }
}

/// The groups that a replacement names, read as the `regex` crate reads them: `$name` as long as it gets, or `${name}`.
fn references(with: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = with;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            names.push(name);
            rest = after;
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            names.extend((end > 0).then(|| &rest[..end]));
            rest = &rest[end..];
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{failure, problems, transform};

    #[test]
    fn matches_are_replaced_in_place_and_in_lists() {
        let stage = r#"{"replace": {"source": "a", "pattern": "(\\d+)-(?<x>\\d+)", "with": "${x}:$1"}}"#;
        assert_eq!(transform(stage, r#"{"a":"1-2 3-4"}"#), r#"{"a":"2:1 4:3"}"#);
        assert_eq!(transform(stage, r#"{"a":["1-2",null,"no"]}"#), r#"{"a":["2:1",null,"no"]}"#);
        for same in [r#"{"a":"none"}"#, r#"{"b":"1-2"}"#, r#"{"a":null}"#, r#"{"a":[]}"#] {
            assert_eq!(transform(stage, same), same);
        }
    }

    #[test]
    fn what_is_found_can_simply_go() {
        assert_eq!(transform(r#"{"replace": {"source": "a", "pattern": "<[^>]*>"}}"#, r#"{"a":"<b>x</b>"}"#), r#"{"a":"x"}"#);
    }

    #[test]
    fn update_modes_apply_to_the_target() {
        let stage =
            |mode: &str| format!(r#"{{"replace": {{"source": "a", "target": "t", "pattern": "x", "with": "y", "updateMode": "{mode}"}}}}"#);
        for (mode, after, unmatched) in [
            ("Overwrite", r#"{"a":"x","t":"y"}"#, r#"{"a":"q","t":"q"}"#),
            ("Append", r#"{"a":"x","t":[1,"y"]}"#, r#"{"a":"q","t":[1,"q"]}"#),
            ("Skip", r#"{"a":"x","t":1}"#, r#"{"a":"q","t":1}"#),
        ] {
            assert_eq!(transform(&stage(mode), r#"{"a":"x","t":1}"#), after, "{mode}");
            assert_eq!(transform(&stage(mode), r#"{"a":"q","t":1}"#), unmatched, "{mode}");
        }
    }

    #[test]
    fn what_is_not_text_fails() {
        let stage = r#"{"replace": {"source": "a", "pattern": "x"}}"#;
        assert_eq!(failure(stage, r#"{"a":true}"#), "`a` is or holds a boolean, not text");
    }

    #[test]
    fn a_group_that_is_not_there_is_a_problem() {
        for (with, count) in [("$1", 0), ("$1a", 1), ("${1}a", 0), ("$name", 0), ("$nam $2", 2), ("$$5 $", 0), ("${", 0)] {
            let stage = format!(r#"{{"replace": {{"source": "a", "pattern": "(?<name>x)", "with": "{with}"}}}}"#);
            assert_eq!(problems(&stage).len(), count, "{with}");
        }
    }
}
