//! `copy`: fields to other fields.

use super::{Next, Stage, StageError, setting};
use crate::{
    document::{Document, Path},
    problem::Problems,
};
use penstock_crds::{stages as spec, values::UpdateMode};

/// Copies fields to one or more other fields.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    fields: Vec<(Path, Vec<Path>)>,
    update_mode: UpdateMode,
}

impl Copy {
    pub(super) fn compile(spec: &spec::Copy, problems: &mut Problems<'_>) -> Option<Self> {
        if spec.fields.is_empty() {
            problems.add("fields", "copies nothing; write at least one pair, for example {title: [title_exact]}");
            return None;
        }
        let fields: Vec<_> = spec
            .fields
            .iter()
            .map(|(source, targets)| {
                let field = setting::entry("fields", source);
                if targets.is_empty() {
                    problems.add(&field, "names no target");
                }
                setting::path(source, &field, problems).zip(setting::paths(targets, &field, problems))
            })
            .collect();
        Some(Self { fields: fields.into_iter().collect::<Option<_>>()?, update_mode: spec.update_mode })
    }
}

impl Stage for Copy {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        for (source, targets) in &self.fields {
            let Some(value) = document.get(source).cloned() else { continue };
            let Some((last, others)) = targets.split_last() else { continue };
            for target in others {
                setting::write(document, target, value.clone(), self.update_mode)?;
            }
            setting::write(document, last, value, self.update_mode)?;
        }
        Ok(Next::Continue)
    }

    fn may_leave_half_changed(&self) -> bool {
        self.fields.iter().any(|(_, targets)| targets.iter().any(setting::is_nested))
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{problems, transform};

    #[test]
    fn copies_keep_their_type_x20() {
        let stage = r#"{"copy": {"fields": {"a": ["b", "c.d"], "n": ["m"], "gone": ["x"]}}}"#;
        assert_eq!(
            transform(stage, r#"{"a":[1,"2",{"x":null}],"n":9007199254740993}"#),
            r#"{"a":[1,"2",{"x":null}],"n":9007199254740993,"b":[1,"2",{"x":null}],"c":{"d":[1,"2",{"x":null}]},"m":9007199254740993}"#
        );
    }

    #[test]
    fn update_modes_replace_add_or_leave() {
        let stage = |mode: &str| format!(r#"{{"copy": {{"fields": {{"a": ["b"]}}, "updateMode": "{mode}"}}}}"#);
        for (mode, after) in
            [("Overwrite", r#"{"a":[1,2],"b":[1,2]}"#), ("Append", r#"{"a":[1,2],"b":["x",1,2]}"#), ("Skip", r#"{"a":[1,2],"b":"x"}"#)]
        {
            assert_eq!(transform(&stage(mode), r#"{"a":[1,2],"b":"x"}"#), after, "{mode}");
        }
    }

    #[test]
    fn sources_are_taken_in_the_order_of_their_names() {
        assert_eq!(transform(r#"{"copy": {"fields": {"b": ["c"], "a": ["b"]}}}"#, r#"{"a":1}"#), r#"{"a":1,"b":1,"c":1}"#);
    }

    #[test]
    fn all_bad_paths_are_reported() {
        assert_eq!(
            problems(r#"{"copy": {"fields": {"a": ["b.", "c"], "d": []}}}"#).into_iter().map(|p| p.path).collect::<Vec<_>>(),
            ["[0].copy.fields.a[0]", "[0].copy.fields.d"]
        );
    }
}
