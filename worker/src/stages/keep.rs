//! `keep`: nothing but some fields.

use super::{
    Next, Stage, StageError,
    setting::{self, Selector},
};
use crate::{document::Document, problem::Problems};
use penstock_crds::stages as spec;

/// Removes all fields but the given ones.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    fields: Vec<Selector>,
}

impl Keep {
    pub(super) fn compile(spec: &spec::Keep, problems: &mut Problems<'_>) -> Option<Self> {
        let fields = setting::selectors(&spec.fields, problems)?;
        let mut is_fine = true;
        for (i, selector) in fields.iter().enumerate() {
            if matches!(selector, Selector::Path(path) if setting::is_nested(path)) {
                problems.add(&format!("fields[{i}]"), "only top level fields can be kept; put a name with a dot in double quotes");
                is_fine = false;
            }
        }
        is_fine.then_some(Self { fields })
    }
}

impl Stage for Keep {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        let fields = &self.fields;
        document.fields_mut().retain(|key| {
            fields.iter().any(|selector| match selector {
                Selector::Path(path) => path.first() == key,
                Selector::Prefix(prefix) => key.starts_with(prefix.as_str()),
            })
        });
        Ok(Next::Continue)
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{problems, transform};

    #[test]
    fn only_named_fields_stay_in_their_order() {
        let stage = r#"{"keep": {"fields": ["b", "a", "x_*", "\"d.e\"", "gone"]}}"#;
        assert_eq!(transform(stage, r#"{"a":1,"c":2,"b":3,"x_1":4,"x":5,"d.e":6}"#), r#"{"a":1,"b":3,"x_1":4,"d.e":6}"#);
    }

    #[test]
    fn a_nested_path_is_a_problem() {
        let found = problems(r#"{"keep": {"fields": ["a", "b.c"]}}"#);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "[0].keep.fields[1]");
    }
}
