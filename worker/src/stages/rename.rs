//! `rename`: other names for fields.

use super::{Next, Stage, StageError, setting};
use crate::{
    document::{Document, Path},
    problem::Problems,
};
use penstock_crds::{stages as spec, values::UpdateMode};

/// Gives fields another name.
#[derive(Clone, Debug)]
pub(super) struct Rename {
    fields: Vec<(Path, Path)>,
    update_mode: UpdateMode,
}

impl Rename {
    pub(super) fn compile(spec: &spec::Rename, problems: &mut Problems<'_>) -> Option<Self> {
        Some(Self { fields: setting::path_pairs(&spec.fields, problems)?, update_mode: spec.update_mode })
    }
}

impl Stage for Rename {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        for (from, to) in &self.fields {
            rename(document, from, to, self.update_mode)?;
        }
        Ok(Next::Continue)
    }

    fn may_leave_half_changed(&self) -> bool {
        self.fields.iter().any(|(_, to)| setting::is_nested(to))
    }
}

fn rename(document: &mut Document, from: &Path, to: &Path, mode: UpdateMode) -> Result<(), StageError> {
    if from == to {
        return Ok(());
    }
    if let (Some(from), Some(to)) = (from.as_key(), to.as_key()) {
        let is_free = mode == UpdateMode::Overwrite || !document.fields().contains(to);
        if is_free {
            document.fields_mut().rename(from, to);
            return Ok(());
        }
    }
    if mode == UpdateMode::Skip && document.get(to).is_some() {
        return Ok(());
    }
    match document.remove(from) {
        Some(value) => setting::write(document, to, value, mode),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{failure, problems, transform};

    #[test]
    fn a_renamed_field_keeps_its_place_and_type_x20() {
        let stage = r#"{"rename": {"fields": {"b": "c", "gone": "d", "a": "a"}}}"#;
        assert_eq!(transform(stage, r#"{"a":1,"b":{"x":[2]},"z":3}"#), r#"{"a":1,"c":{"x":[2]},"z":3}"#);
    }

    #[test]
    fn update_modes_replace_add_or_leave() {
        let stage = |mode: &str| format!(r#"{{"rename": {{"fields": {{"a": "b"}}, "updateMode": "{mode}"}}}}"#);
        for (mode, taken, free) in [
            ("Overwrite", r#"{"b":1}"#, r#"{"b":1,"c":3}"#),
            ("Append", r#"{"b":[2,1]}"#, r#"{"b":1,"c":3}"#),
            ("Skip", r#"{"a":1,"b":2}"#, r#"{"b":1,"c":3}"#),
        ] {
            assert_eq!(transform(&stage(mode), r#"{"a":1,"b":2}"#), taken, "{mode}");
            assert_eq!(transform(&stage(mode), r#"{"a":1,"c":3}"#), free, "{mode}");
        }
    }

    #[test]
    fn nested_fields_move_between_objects() {
        assert_eq!(
            transform(r#"{"rename": {"fields": {"a.b": "c.d", "l[0]": "first"}}}"#, r#"{"a":{"b":1,"x":2},"l":[7,8]}"#),
            r#"{"a":{"x":2},"l":[8],"c":{"d":1},"first":7}"#
        );
        assert_eq!(
            failure(r#"{"rename": {"fields": {"a": "c.d"}}}"#, r#"{"a":1,"c":2}"#),
            "cannot write `c.d`: `c` is a whole number, not an object"
        );
    }

    #[test]
    fn an_empty_map_or_name_is_a_problem() {
        assert_eq!(problems(r#"{"rename": {"fields": {}}}"#).len(), 1);
        assert_eq!(problems(r#"{"rename": {"fields": {"a": ""}}}"#)[0].path, "[0].rename.fields.a");
    }
}
