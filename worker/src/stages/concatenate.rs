//! `concatenate`: one field out of several by a template.

use super::{Next, Stage, StageError, setting, template::Template};
use crate::{
    document::{Document, Path},
    problem::Problems,
};
use penstock_crds::{stages as spec, values::UpdateMode};

/// Joins fields and fixed text to one field.
#[derive(Clone, Debug)]
pub(super) struct Concatenate {
    target: Path,
    template: Template,
    update_mode: UpdateMode,
    text: String,
}

impl Concatenate {
    pub(super) fn compile(spec: &spec::Concatenate, problems: &mut Problems<'_>) -> Option<Self> {
        let target = setting::path(&spec.target, "target", problems);
        let template = Template::for_field(&spec.template, &spec.defaults, "template", problems);
        Some(Self { target: target?, template: template?, update_mode: spec.update_mode, text: String::new() })
    }
}

impl Stage for Concatenate {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        self.text.clear();
        self.template.render(document, &mut self.text)?;
        setting::write(document, &self.target, self.text.as_str().into(), self.update_mode)?;
        Ok(Next::Continue)
    }

    fn may_leave_half_changed(&self) -> bool {
        setting::is_nested(&self.target)
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{problems, transform, transform_id};

    #[test]
    fn values_of_all_types_become_text() {
        let stage = r#"{"concatenate": {"target": "t", "template": "{s}|{i}|{u}|{f}|{b}|{n}|{gone}|{l}|{o}|{deep.x[1]}|\\{\\}"}}"#;
        let before =
            r#"{"s":"ü","i":-3,"u":18446744073709551615,"f":1.0,"b":false,"n":null,"l":["a",2,["b"]],"o":{"k":1},"deep":{"x":[0,7]}}"#;
        let after = transform(stage, before);
        assert!(after.ends_with(r#""t":"ü|-3|18446744073709551615|1.0|false|||a, 2, b|{\"k\":1}|7|{}"}"#), "{after}");
    }

    #[test]
    fn defaults_stand_for_what_is_absent_or_null() {
        let stage = r#"{"concatenate": {"target": "t", "template": "{a}-{b}-{c}", "defaults": {"a": "x", "b": "y"}}}"#;
        assert_eq!(transform(stage, r#"{"a":null,"c":""}"#), r#"{"a":null,"c":"","t":"x-y-"}"#);
    }

    #[test]
    fn id_is_the_documents_id_whatever_its_fields() {
        assert_eq!(
            transform_id(r#"{"concatenate": {"target": "t", "template": "{id}!"}}"#, "d-1", r#"{"id":"field"}"#),
            r#"{"id":"field","t":"d-1!"}"#
        );
    }

    #[test]
    fn update_modes_replace_add_or_leave() {
        let stage = |mode: &str| format!(r#"{{"concatenate": {{"target": "t", "template": "{{a}}", "updateMode": "{mode}"}}}}"#);
        for (mode, after) in [("Overwrite", r#"{"a":1,"t":"1"}"#), ("Append", r#"{"a":1,"t":[2,"1"]}"#), ("Skip", r#"{"a":1,"t":2}"#)] {
            assert_eq!(transform(&stage(mode), r#"{"a":1,"t":2}"#), after, "{mode}");
        }
    }

    #[test]
    fn braces_paths_and_useless_defaults_are_problems() {
        for (template, defaults) in [("{a", "{}"), ("a}", "{}"), ("{}", "{}"), ("{a.}", "{}"), ("{a}", r#"{"b": "x"}"#)] {
            let stage = format!(r#"{{"concatenate": {{"target": "t", "template": "{template}", "defaults": {defaults}}}}}"#);
            assert_eq!(problems(&stage).len(), 1, "{template} {defaults}");
        }
    }
}
