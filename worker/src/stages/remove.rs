//! `remove`: fields out of the document.

use super::{
    Next, Stage, StageError,
    setting::{self, Selector},
};
use crate::{document::Document, problem::Problems};
use penstock_crds::stages as spec;

/// Removes fields.
#[derive(Clone, Debug)]
pub(super) struct Remove {
    fields: Vec<Selector>,
}

impl Remove {
    pub(super) fn compile(spec: &spec::Remove, problems: &mut Problems<'_>) -> Option<Self> {
        Some(Self { fields: setting::selectors(&spec.fields, problems)? })
    }
}

impl Stage for Remove {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        for selector in &self.fields {
            match selector {
                Selector::Path(path) => drop(document.remove(path)),
                Selector::Prefix(prefix) => document.fields_mut().retain(|key| !key.starts_with(prefix.as_str())),
            }
        }
        Ok(Next::Continue)
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{problems, transform};

    #[test]
    fn fields_go_by_path_or_by_how_they_begin() {
        let stage = r#"{"remove": {"fields": ["a", "b.c", "tmp_*", "gone"]}}"#;
        assert_eq!(transform(stage, r#"{"a":1,"b":{"c":1,"d":2},"tmp_x":1,"tmp":2,"tmp_":3}"#), r#"{"b":{"d":2},"tmp":2}"#);
        assert_eq!(transform(r#"{"remove": {"fields": ["*"]}}"#, r#"{"a":1,"b":2}"#), "{}");
        assert_eq!(transform(r#"{"remove": {"fields": ["\"a*\""]}}"#, r#"{"a*":1,"ab":2}"#), r#"{"ab":2}"#);
    }

    #[test]
    fn every_bad_path_is_a_problem() {
        let paths: Vec<_> = problems(r#"{"remove": {"fields": ["a.", "ok", "b["]}}"#).into_iter().map(|p| p.path).collect();
        assert_eq!(paths, ["[0].remove.fields[0]", "[0].remove.fields[2]"]);
        assert_eq!(problems(r#"{"remove": {"fields": []}}"#).len(), 1);
    }
}
