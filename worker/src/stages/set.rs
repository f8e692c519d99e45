//! `set`: fixed values.

use super::{Next, Stage, StageError, setting};
use crate::{
    document::{Document, Path, Value},
    problem::Problems,
};
use penstock_crds::{stages as spec, values::UpdateMode};
use serde::Deserialize;

/// Sets fields to fixed values.
#[derive(Clone, Debug)]
pub(super) struct Set {
    values: Vec<(Path, Value)>,
    update_mode: UpdateMode,
}

impl Set {
    pub(super) fn compile(spec: &spec::Set, problems: &mut Problems<'_>) -> Option<Self> {
        if spec.values.0.is_empty() {
            problems.add("values", "sets nothing; write at least one value, for example {lang: en}");
            return None;
        }
        let values: Vec<_> = spec
            .values
            .0
            .iter()
            .map(|(name, json)| {
                let field = setting::entry("values", name);
                let value = Value::deserialize(json).map_err(|error| problems.add(&field, format!("not a value: {error}"))).ok();
                setting::path(name, &field, problems).zip(value)
            })
            .collect();
        Some(Self { values: values.into_iter().collect::<Option<_>>()?, update_mode: spec.update_mode })
    }
}

impl Stage for Set {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        for (path, value) in &self.values {
            setting::write(document, path, value.clone(), self.update_mode)?;
        }
        Ok(Next::Continue)
    }

    fn may_leave_half_changed(&self) -> bool {
        self.values.iter().any(|(path, _)| setting::is_nested(path))
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{failure, transform};

    #[test]
    fn values_keep_their_json_type_x20() {
        let stage = r#"{"set": {"values": {"a": 1, "b": 1.5, "c": true, "d": null, "e": ["x", 2], "f": {"g": 18446744073709551615}}}}"#;
        assert_eq!(transform(stage, r#"{"z":0}"#), r#"{"z":0,"a":1,"b":1.5,"c":true,"d":null,"e":["x",2],"f":{"g":18446744073709551615}}"#);
    }

    #[test]
    fn nested_paths_make_what_is_missing() {
        assert_eq!(transform(r#"{"set": {"values": {"a.b[0].c": 1}}}"#, "{}"), r#"{"a":{"b":[{"c":1}]}}"#);
        assert_eq!(transform(r#"{"set": {"values": {"a.b": 1}}}"#, r#"{"a":{"c":2}}"#), r#"{"a":{"c":2,"b":1}}"#);
        assert_eq!(failure(r#"{"set": {"values": {"a.b": 1}}}"#, r#"{"a":"text"}"#), "cannot write `a.b`: `a` is text, not an object");
    }

    #[test]
    fn update_modes_replace_add_or_leave() {
        let stage = |mode: &str| format!(r#"{{"set": {{"values": {{"a": 1, "b": 2}}, "updateMode": "{mode}"}}}}"#);
        for (mode, after) in [("Overwrite", r#"{"a":1,"b":2}"#), ("Append", r#"{"a":["x",1],"b":2}"#), ("Skip", r#"{"a":"x","b":2}"#)] {
            assert_eq!(transform(&stage(mode), r#"{"a":"x"}"#), after, "{mode}");
        }
    }
}
