//! What `explode` and `chunk` share: the ids of children and what they inherit.

use super::{
    StageError, setting,
    template::{Item, Template, push_text},
};
use crate::{
    document::{Document, Path, Value},
    problem::Problems,
};
use penstock_crds::values::UpdateMode;

/// How children come to their ids and to fields of their parent.
#[derive(Clone, Debug)]
pub(super) struct Family {
    id_template: Template,
    copy_fields: Vec<Path>,
    parent_id_field: Option<Path>,
}

impl Family {
    pub(super) fn compile(
        id_template: &str,
        copy_fields: &[String],
        parent_id_field: Option<&String>,
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let id_template = Template::for_child_id(id_template, "idTemplate", problems);
        let copy_fields = setting::paths(copy_fields, "copyFields", problems);
        let parent_id_field = setting::optional_path(parent_id_field, "parentIdField", problems);
        Some(Self { id_template: id_template?, copy_fields: copy_fields?, parent_id_field: parent_id_field? })
    }

    /// What all children of this document inherit: for the iterator, which outlives the stage's look at the parent.
    pub(super) fn of(&self, parent: &Document) -> Heritage {
        let copied = self.copy_fields.iter().filter_map(|path| Some((path.clone(), parent.get(path)?.clone()))).collect();
        Heritage { family: self.clone(), parent: Document::new(parent.id()).from_origin(parent.origin().clone()), copied }
    }
}

/// What the children of one document inherit.
pub(super) struct Heritage {
    family: Family,
    /// The parent's id, without its fields.
    parent: Document,
    copied: Vec<(Path, Value)>,
}

impl Heritage {
    /// The child at this position, out of a document that holds its own fields. Its own fields win over inherited ones.
    pub(super) fn child(&self, index: usize, fill: impl FnOnce(&mut Document) -> Result<(), StageError>) -> Result<Document, StageError> {
        let at = |error: StageError| StageError(format!("child {index}: {error}"));
        let mut child = Document::child_of(&self.parent, "");
        fill(&mut child).map_err(at)?;
        for (path, value) in &self.copied {
            setting::write(&mut child, path, value.clone(), UpdateMode::Skip).map_err(at)?;
        }
        if let Some(path) = &self.family.parent_id_field {
            setting::write(&mut child, path, self.parent.id().into(), UpdateMode::Overwrite).map_err(at)?;
        }
        let id = self.id(index, &child).map_err(at)?;
        let mut named = Document::child_of(&self.parent, id);
        *named.fields_mut() = std::mem::take(child.fields_mut());
        Ok(named)
    }

    fn id(&self, index: usize, child: &Document) -> Result<String, StageError> {
        let mut id = String::new();
        for item in self.family.id_template.items() {
            match item {
                Item::Text(text) => id.push_str(text),
                Item::Id => id.push_str(self.parent.id()),
                Item::Index => push_text(&(index as u64).into(), &mut id),
                Item::Field(path, _) => match child.get(path) {
                    None | Some(Value::Null) => {
                        return Err(StageError(format!("has no field `{path}`, which `idTemplate` names")));
                    }
                    Some(value) => push_text(value, &mut id),
                },
            }
        }
        if id.is_empty() { Err(StageError("its id is empty; see `idTemplate`".into())) } else { Ok(id) }
    }
}
