//! The document as a program sees it: the fields that the program touches, converted, and which of them it changed.

use super::{
    VrlValue,
    compile::{Fields, Scope},
    convert::{describe, to_document, to_fields, to_vrl},
};
use crate::{
    document::{Document, Value},
    stages::StageError,
};
use vrl::{
    compiler::{SecretTarget, Target},
    path::{OwnedSegment, OwnedTargetPath, PathPrefix},
    value::{KeyString, ObjectMap},
};

/// The touched part of one document after the other.
#[derive(Debug)]
pub(super) struct Touched {
    slots: Vec<Slot>,
    /// All fields, where the program touches the document as a whole; else an empty object that stands for it.
    root: VrlValue,
    is_whole: bool,
    has_changed: bool,
    asks_for_ids: bool,
    ids: VrlValue,
}

/// One top level field.
#[derive(Debug)]
struct Slot {
    name: KeyString,
    value: Option<VrlValue>,
    has_changed: bool,
    /// The value on its way back into the document.
    result: Option<Value>,
}

impl Touched {
    pub(super) fn new(scope: &Scope) -> Self {
        let names: &[KeyString] = match &scope.fields {
            Fields::Named(names) => names,
            Fields::All => &[],
        };
        Self {
            slots: names.iter().map(|name| Slot { name: name.clone(), value: None, has_changed: false, result: None }).collect(),
            root: VrlValue::Object(ObjectMap::new()),
            is_whole: scope.fields == Fields::All,
            has_changed: false,
            asks_for_ids: scope.asks_for_ids,
            ids: VrlValue::Object(ObjectMap::new()),
        }
    }

    /// Converts what the program touches.
    pub(super) fn take_from(&mut self, document: &Document) {
        self.has_changed = false;
        if self.is_whole {
            let fields = document.fields().iter().map(|(name, value)| (name.as_str().into(), to_vrl(value)));
            self.root = VrlValue::Object(fields.collect());
        }
        for slot in &mut self.slots {
            slot.has_changed = false;
            slot.value = document.fields().get(slot.name.as_str()).map(to_vrl);
        }
        if self.asks_for_ids {
            let parent = document.parent_id().map_or(VrlValue::Null, VrlValue::from);
            self.ids = VrlValue::Object(ObjectMap::from([("id".into(), document.id().into()), ("parent_id".into(), parent)]));
        }
    }

    /// Writes what the program changed back into the document; if that is not possible, nothing of it.
    pub(super) fn put_back(&mut self, document: &mut Document) -> Result<(), StageError> {
        if !self.has_changed {
            return Ok(());
        }
        if self.is_whole { self.put_back_all(document) } else { self.put_back_slots(document) }
    }

    fn put_back_slots(&mut self, document: &mut Document) -> Result<(), StageError> {
        // all are converted before the first is written
        for slot in self.slots.iter_mut().filter(|slot| slot.has_changed) {
            let before = document.fields().get(slot.name.as_str());
            slot.result = match slot.value.take() {
                Some(value) => Some(to_document(before, value).map_err(|misfit| StageError(misfit.in_field(&slot.name)))?),
                None => None,
            };
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.has_changed) {
            match slot.result.take() {
                Some(value) => document.fields_mut().insert(slot.name.as_str(), value),
                None => drop(document.fields_mut().remove(slot.name.as_str())),
            }
        }
        Ok(())
    }

    fn put_back_all(&mut self, document: &mut Document) -> Result<(), StageError> {
        match std::mem::replace(&mut self.root, VrlValue::Null) {
            VrlValue::Object(map) => {
                *document.fields_mut() = to_fields(Some(document.fields()), map).map_err(|misfit| StageError(misfit.to_string()))?;
                Ok(())
            }
            other => Err(StageError(format!("the program made the document {}; it must stay an object", describe(&other)))),
        }
    }

    fn slot(&mut self, name: &str) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.name.as_str() == name)
    }
}

/// Where a path leads.
enum Place<'a> {
    Ids,
    /// The document as a whole, or any path in it if that is converted as a whole.
    Root,
    Field(&'a str, &'a [OwnedSegment]),
    Nowhere,
}

impl Touched {
    fn place<'a>(&self, path: &'a OwnedTargetPath) -> Place<'a> {
        match (path.prefix, path.path.segments.split_first()) {
            (PathPrefix::Metadata, _) => Place::Ids,
            (PathPrefix::Event, _) if self.is_whole => Place::Root,
            (PathPrefix::Event, None) => Place::Root,
            (PathPrefix::Event, Some((OwnedSegment::Field(name), rest))) => Place::Field(name.as_str(), rest),
            (PathPrefix::Event, Some((OwnedSegment::Index(_), _))) => Place::Nowhere,
        }
    }
}

impl Target for Touched {
    fn target_insert(&mut self, path: &OwnedTargetPath, value: VrlValue) -> Result<(), String> {
        match self.place(path) {
            Place::Ids => return Err("the ids of a document cannot be changed".into()),
            Place::Root if self.is_whole => drop(self.root.insert(&path.path, value)),
            Place::Field(name, rest) => {
                let Some(slot) = self.slot(name) else { return Err(unforeseen(path)) };
                slot.has_changed = true;
                match &mut slot.value {
                    _ if rest.is_empty() => slot.value = Some(value),
                    Some(present) => drop(present.insert(rest, value)),
                    None => drop(slot.value.insert(VrlValue::Null).insert(rest, value)),
                }
            }
            Place::Root | Place::Nowhere => return Err(unforeseen(path)),
        }
        self.has_changed = true;
        Ok(())
    }

    fn target_get(&self, path: &OwnedTargetPath) -> Result<Option<&VrlValue>, String> {
        Ok(match self.place(path) {
            Place::Ids => self.ids.get(&path.path),
            Place::Root => self.root.get(&path.path),
            Place::Field(name, rest) => {
                let Some(slot) = self.slots.iter().find(|slot| slot.name.as_str() == name) else { return Err(unforeseen(path)) };
                slot.value.as_ref().and_then(|value| value.get(rest))
            }
            Place::Nowhere => None,
        })
    }

    fn target_get_mut(&mut self, path: &OwnedTargetPath) -> Result<Option<&mut VrlValue>, String> {
        match self.place(path) {
            Place::Ids => Err("the ids of a document cannot be changed".into()),
            Place::Root if self.is_whole => {
                self.has_changed = true;
                Ok(self.root.get_mut(&path.path))
            }
            Place::Field(name, rest) => {
                self.has_changed = true;
                let Some(slot) = self.slot(name) else { return Err(unforeseen(path)) };
                slot.has_changed = true;
                Ok(slot.value.as_mut().and_then(|value| value.get_mut(rest)))
            }
            Place::Root | Place::Nowhere => Err(unforeseen(path)),
        }
    }

    fn target_remove(&mut self, path: &OwnedTargetPath, compact: bool) -> Result<Option<VrlValue>, String> {
        let removed = match self.place(path) {
            Place::Ids => return Err("the ids of a document cannot be changed".into()),
            Place::Root if self.is_whole => self.root.remove(&path.path, compact),
            Place::Field(name, rest) => {
                let Some(slot) = self.slot(name) else { return Err(unforeseen(path)) };
                slot.has_changed = true;
                slot.remove(rest, compact)
            }
            Place::Root | Place::Nowhere => return Err(unforeseen(path)),
        };
        self.has_changed = true;
        Ok(removed)
    }
}

impl Slot {
    fn remove(&mut self, rest: &[OwnedSegment], compact: bool) -> Option<VrlValue> {
        if rest.is_empty() {
            return self.value.take();
        }
        let value = self.value.as_mut()?;
        let removed = value.remove(rest, compact);
        let is_empty = match value {
            VrlValue::Object(map) => map.is_empty(),
            VrlValue::Array(values) => values.is_empty(),
            _ => false,
        };
        if compact && is_empty && removed.is_some() {
            self.value = None;
        }
        removed
    }
}

/// The compiler has listed all paths, so this shows a gap in that list.
fn unforeseen(path: &OwnedTargetPath) -> String {
    format!("`{path}` was not foreseen when the program was compiled")
}

/// Programs have no access to secrets.
impl SecretTarget for Touched {
    fn get_secret(&self, _: &str) -> Option<&str> {
        None
    }

    fn insert_secret(&mut self, _: &str, _: &str) {}

    fn remove_secret(&mut self, _: &str) {}
}
