//! `explode`: a document of each element of a list.

use super::{Next, Stage, StageError, children::Family, setting};
use crate::{
    document::{Document, Path, Value},
    problem::Problems,
};
use penstock_crds::stages as spec;

/// Makes a document of each element of a list field.
#[derive(Clone, Debug)]
pub(super) struct Explode {
    source: Path,
    target: Option<Path>,
    family: Family,
    drop_parent: bool,
}

impl Explode {
    pub(super) fn compile(spec: &spec::Explode, problems: &mut Problems<'_>) -> Option<Self> {
        let source = setting::path(&spec.source, "source", problems);
        let target = setting::optional_path(spec.target.as_ref(), "target", problems);
        let family = Family::compile(&spec.id_template, &spec.copy_fields, spec.parent_id_field.as_ref(), problems);
        Some(Self { source: source?, target: target?, family: family?, drop_parent: spec.drop_parent })
    }

    fn elements(&self, document: &Document) -> Result<Vec<Value>, StageError> {
        let values = match document.get(&self.source) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::List(values)) => values,
            Some(other) => return Err(StageError(format!("`{}` is {}, not a list", self.source, other.kind()))),
        };
        // before the first child is made, so that no family stays without its parent
        let misfit = values.iter().position(|value| self.target.is_none() && !matches!(value, Value::Object(_)));
        match misfit {
            Some(i) => {
                Err(StageError(format!("`{}[{i}]` is {}, not an object; `target` would give it a field", self.source, values[i].kind())))
            }
            None => Ok(values.to_vec()),
        }
    }
}

impl Stage for Explode {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        let elements = self.elements(document)?;
        let heritage = self.family.of(document);
        let target = self.target.clone();
        let children = elements.into_iter().enumerate().map(move |(index, element)| {
            heritage.child(index, |child| match (&target, element) {
                (Some(target), element) => Ok(child.set(target, element)?),
                (None, Value::Object(fields)) => {
                    *child.fields_mut() = *fields;
                    Ok(())
                }
                (None, other) => Err(StageError(format!("is {}, not an object", other.kind()))),
            })
        });
        Ok(Next::Children { children: Box::new(children), drop_parent: self.drop_parent })
    }
}

#[cfg(test)]
mod tests {
    use crate::stages::testing::{failure, family, problems};

    #[test]
    fn each_element_becomes_a_child_with_the_target_field_only() {
        let stage = r#"{"explode": {"source": "tags", "target": "tag", "idTemplate": "{id}#{tag}"}}"#;
        assert_eq!(
            family(stage, "p-2", r#"{"name":"x","tags":["sharp",{"a":1},7]}"#),
            [
                (r#"p-2#sharp"#.into(), r#"{"tag":"sharp"}"#.into()),
                (r#"p-2#{"a":1}"#.into(), r#"{"tag":{"a":1}}"#.into()),
                ("p-2#7".into(), r#"{"tag":7}"#.into()),
            ] as [(String, String); 3]
        );
    }

    #[test]
    fn objects_become_children_and_inherit_what_is_named() {
        let stage = r#"{"explode": {"source": "v", "copyFields": ["lang", "a", "gone"], "parentIdField": "parent.id"}}"#;
        assert_eq!(
            family(stage, "d", r#"{"lang":"en","a":1,"v":[{"a":2},{}]}"#),
            [
                ("d#0".into(), r#"{"a":2,"lang":"en","parent":{"id":"d"}}"#.into()),
                ("d#1".into(), r#"{"lang":"en","a":1,"parent":{"id":"d"}}"#.into()),
            ] as [(String, String); 2]
        );
    }

    #[test]
    fn nothing_to_explode_means_no_children() {
        let stage = r#"{"explode": {"source": "v"}}"#;
        for document in ["{}", r#"{"v":null}"#, r#"{"v":[]}"#] {
            assert!(family(stage, "d", document).is_empty(), "{document}");
        }
    }

    #[test]
    fn what_cannot_be_exploded_fails_before_the_first_child() {
        let stage = r#"{"explode": {"source": "v"}}"#;
        assert_eq!(failure(stage, r#"{"v":"text"}"#), "`v` is text, not a list");
        assert_eq!(failure(stage, r#"{"v":[{},"text"]}"#), "`v[1]` is text, not an object; `target` would give it a field");
    }

    #[test]
    fn children_without_an_id_fail_their_parent() {
        let stage = r#"{"explode": {"source": "v", "target": "t", "idTemplate": "{t}"}}"#;
        assert_eq!(failure(stage, r#"{"v":[""]}"#), "child 0: its id is empty; see `idTemplate`");
        assert_eq!(failure(stage, r#"{"v":["a",null]}"#), "child 1: has no field `t`, which `idTemplate` names");
    }

    #[test]
    fn every_bad_setting_is_a_problem() {
        let found =
            problems(r#"{"explode": {"source": "a.", "target": "", "idTemplate": "{", "copyFields": ["x", "y["], "parentIdField": ".p"}}"#);
        let paths: Vec<_> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "[0].explode.source",
                "[0].explode.target",
                "[0].explode.idTemplate",
                "[0].explode.copyFields[1]",
                "[0].explode.parentIdField"
            ]
        );
    }
}
