//! `extract`: parts of a text into fields by the named groups of a regular expression.

use super::{Next, Stage, StageError, setting};
use crate::{
    document::{Document, Path, Value},
    problem::Problems,
};
use penstock_crds::{stages as spec, values::UpdateMode};
use regex::{CaptureLocations, Regex};

/// Takes parts of a text into fields.
#[derive(Clone, Debug)]
pub(super) struct Extract {
    source: Path,
    pattern: Regex,
    groups: Vec<Group>,
    all: bool,
    update_mode: UpdateMode,
    locations: CaptureLocations,
}

#[derive(Clone, Debug)]
struct Group {
    number: usize,
    target: Path,
    /// What was found in the document at hand.
    found: Vec<Value>,
}

impl Extract {
    pub(super) fn compile(spec: &spec::Extract, problems: &mut Problems<'_>) -> Option<Self> {
        let source = setting::path(&spec.source, "source", problems);
        let pattern = setting::regex(&spec.pattern, "pattern", problems)?;
        let groups: Vec<_> = pattern
            .capture_names()
            .enumerate()
            .filter_map(|(number, name)| Some((number, name?)))
            .map(|(number, name)| setting::path(name, "pattern", problems).map(|target| Group { number, target, found: Vec::new() }))
            .collect();
        if groups.is_empty() {
            problems.add("pattern", "has no named group, so nothing is taken; name the target field, for example (?P<number>\\d+)");
            return None;
        }
        let locations = pattern.capture_locations();
        let groups = groups.into_iter().collect::<Option<_>>()?;
        Some(Self { source: source?, pattern, groups, all: spec.all, update_mode: spec.update_mode, locations })
    }

    /// Finds the groups in a text; says whether there was a match.
    fn find(&mut self, text: &str) -> bool {
        let mut at = 0;
        let mut any = false;
        while at <= text.len() {
            let Some(whole) = self.pattern.captures_read_at(&mut self.locations, text, at) else { break };
            any = true;
            for group in &mut self.groups {
                if let Some((start, end)) = self.locations.get(group.number) {
                    group.found.push(text[start..end].into());
                }
            }
            if !self.all {
                break;
            }
            at = if whole.is_empty() { next_char(text, whole.end()) } else { whole.end() };
        }
        any
    }
}

/// Where the character after the one at this place begins.
fn next_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

impl Stage for Extract {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        let source = match document.get(&self.source) {
            None | Some(Value::Null) => return Ok(Next::Continue),
            Some(value) => value.as_slice(),
        };
        for group in &mut self.groups {
            group.found.clear();
        }
        for value in source {
            match value {
                Value::Text(text) => {
                    if self.find(text) && !self.all {
                        break;
                    }
                }
                Value::Null => {}
                other => return Err(StageError(format!("`{}` is or holds {}, not text", self.source, other.kind()))),
            }
        }
        let (all, mode) = (self.all, self.update_mode);
        for group in &mut self.groups {
            let value = match (all, group.found.pop()) {
                (_, None) => continue,
                (false, Some(single)) => single,
                (true, Some(last)) => {
                    let mut values = std::mem::take(&mut group.found);
                    values.push(last);
                    Value::list(values)
                }
            };
            setting::write(document, &group.target, value, mode)?;
        }
        Ok(Next::Continue)
    }

    fn may_leave_half_changed(&self) -> bool {
        self.groups.iter().any(|group| setting::is_nested(&group.target))
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{failure, problems, transform};

    #[test]
    fn named_groups_become_fields() {
        let stage = r#"{"extract": {"source": "sku", "pattern": "SKU-(?P<num>\\d+)(-(?<land>[A-Z]+))?"}}"#;
        assert_eq!(transform(stage, r#"{"sku":"x SKU-12-GO"}"#), r#"{"sku":"x SKU-12-GO","num":"12","land":"GO"}"#);
        // a group that took no part leaves its field alone
        assert_eq!(transform(stage, r#"{"sku":"SKU-12","land":"old"}"#), r#"{"sku":"SKU-12","land":"old","num":"12"}"#);
    }

    #[test]
    fn no_match_and_no_source_change_nothing() {
        let stage = r#"{"extract": {"source": "a", "pattern": "(?<x>\\d)"}}"#;
        for same in [r#"{"a":"none"}"#, r#"{"b":"1"}"#, r#"{"a":null}"#, r#"{"a":[]}"#] {
            assert_eq!(transform(stage, same), same);
        }
        assert_eq!(failure(stage, r#"{"a":5}"#), "`a` is or holds a whole number, not text");
        assert_eq!(failure(stage, r#"{"a":["x",{}]}"#), "`a` is or holds an object, not text");
    }

    #[test]
    fn with_all_every_match_of_every_text_is_taken() {
        let stage = r#"{"extract": {"source": "a", "pattern": "(?<x>[a-z]*)(?<d>\\d)?", "all": true}}"#;
        assert_eq!(transform(stage, r#"{"a":["ab1ü","c"]}"#), r#"{"a":["ab1ü","c"],"x":["ab","","","c",""],"d":["1"]}"#);
        let once = r#"{"extract": {"source": "a", "pattern": "(?<x>\\d)", "all": true}}"#;
        assert_eq!(transform(once, r#"{"a":"1"}"#), r#"{"a":"1","x":["1"]}"#);
    }

    #[test]
    fn without_all_the_first_text_of_a_list_that_matches_counts() {
        let stage = r#"{"extract": {"source": "a", "pattern": "(?<x>\\d)"}}"#;
        assert_eq!(transform(stage, r#"{"a":["x",null,"2 3","4"]}"#), r#"{"a":["x",null,"2 3","4"],"x":"2"}"#);
    }

    #[test]
    fn update_modes_replace_add_or_leave() {
        let stage = |mode: &str| format!(r#"{{"extract": {{"source": "a", "pattern": "(?<x>\\d)", "updateMode": "{mode}"}}}}"#);
        for (mode, after) in [("Overwrite", r#"{"a":"1","x":"1"}"#), ("Append", r#"{"a":"1","x":[0,"1"]}"#), ("Skip", r#"{"a":"1","x":0}"#)]
        {
            assert_eq!(transform(&stage(mode), r#"{"a":"1","x":0}"#), after, "{mode}");
        }
    }

    #[test]
    fn bad_groups_and_patterns_are_problems() {
        for pattern in ["(?P<x>[)", "no group", r"(a)(b)", r"(?<x>\\w{1000}){1000}", r"(?<a.>x)"] {
            let found = problems(&format!(r#"{{"extract": {{"source": "a", "pattern": "{pattern}"}}}}"#));
            assert_eq!(found.len(), 1, "{pattern}");
            assert_eq!(found[0].path, "[0].extract.pattern", "{pattern}");
        }
    }
}
