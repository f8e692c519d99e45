//! Partial pod templates of the user, merged over the generated one in order, as Kubernetes merges strategically: maps field by field,
//! containers by name, volumes, variables, mounts and the like by their key with the whole entry replaced, tolerations added, other
//! lists and values replaced; `null` removes.
//!
//! A patch is compared with the type of a pod template before it is merged, so a field that Kubernetes would pass over is reported.

use super::BuildError;
use crate::names;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use penstock_crds::values::FreeObject;
use serde_json::{Map, Value, json};

/// How the entries of a list come together.
enum Merge {
    /// Entries with the same value of this field are merged.
    Entries(&'static str),
    /// An entry takes the place of the one with the same value of this field.
    Whole(&'static str),
    /// All are added.
    Append,
    /// The list takes the place of the other.
    Replace,
}

impl Merge {
    fn of(list: &str) -> Self {
        match list {
            "containers" | "initContainers" => Self::Entries("name"),
            // a volume or a variable has one source: two merged ones would have two
            "env" | "imagePullSecrets" | "resourceClaims" | "volumes" => Self::Whole("name"),
            "volumeMounts" => Self::Whole("mountPath"),
            "volumeDevices" => Self::Whole("devicePath"),
            "ports" => Self::Whole("containerPort"),
            "hostAliases" => Self::Whole("ip"),
            "topologySpreadConstraints" => Self::Whole("topologyKey"),
            "tolerations" => Self::Append,
            _ => Self::Replace,
        }
    }
}

/// Merges patches over a template. `path` says where they stand, for example `spec.workers.podPatches`.
///
/// # Errors
/// A patch is no part of a pod template, or takes away what the operator relies on.
pub fn apply(template: PodTemplateSpec, patches: &[FreeObject], path: &str) -> Result<PodTemplateSpec, BuildError> {
    if patches.is_empty() {
        return Ok(template);
    }
    let render = |source| BuildError::Render { name: path.to_owned(), source };
    let generated = serde_json::to_value(template).map_err(render)?;
    let mut merged = generated.clone();
    for (index, patch) in patches.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut patch = Value::Object(patch.0.clone());
        quantities_to_text(&mut patch);
        check_type(&without_nulls(&patch), &path)?;
        merge_field(&mut merged, &patch, &path)?;
        check_kept(&generated, &merged, &path)?;
    }
    serde_json::from_value(merged).map_err(render)
}

fn fault(path: &str, reason: impl Into<String>) -> BuildError {
    BuildError::Patch { path: path.to_owned(), reason: reason.into() }
}

fn merge_field(target: &mut Value, patch: &Value, path: &str) -> Result<(), BuildError> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(target) = target else { return Ok(()) };
    for (field, patch) in patch {
        let path = format!("{path}.{field}");
        match patch {
            Value::Null => drop(target.remove(field)),
            Value::Array(patch) => merge_list(target, field, patch, &path)?,
            _ => merge_field(target.entry(field).or_insert(Value::Null), patch, &path)?,
        }
    }
    Ok(())
}

fn merge_list(target: &mut Map<String, Value>, field: &str, patch: &[Value], path: &str) -> Result<(), BuildError> {
    let target = target.entry(field).or_insert_with(|| json!([]));
    let bare = || patch.iter().map(without_nulls);
    let Value::Array(entries) = target else {
        *target = bare().collect();
        return Ok(());
    };
    let (key, whole) = match Merge::of(field) {
        Merge::Entries(key) => (key, false),
        Merge::Whole(key) => (key, true),
        Merge::Append => {
            entries.extend(bare());
            return Ok(());
        }
        Merge::Replace => {
            *entries = bare().collect();
            return Ok(());
        }
    };
    for (index, patch) in patch.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let id = patch.get(key).ok_or_else(|| fault(&path, format!("has no `{key}`, by which it is merged: add it")))?;
        match entries.iter_mut().find(|entry| entry.get(key) == Some(id)) {
            Some(entry) if whole => *entry = without_nulls(patch),
            Some(entry) => merge_field(entry, patch, &path)?,
            None => entries.push(without_nulls(patch)),
        }
    }
    Ok(())
}

/// A value as it is where there is nothing that its nulls could remove.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().filter(|(_, value)| !value.is_null()).map(|(field, value)| (field.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        value => value.clone(),
    }
}

/// Kubernetes takes a number where a quantity is meant (`cpu: 2`), the type of it does not.
fn quantities_to_text(value: &mut Value) {
    let to_text = |value: &mut Value| {
        if value.is_number() {
            *value = value.to_string().into();
        }
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(quantities_to_text),
        Value::Object(fields) => {
            for (field, value) in fields {
                match (field.as_str(), value) {
                    ("limits" | "requests", Value::Object(amounts)) => amounts.values_mut().for_each(to_text),
                    ("sizeLimit" | "divisor", value) => to_text(value),
                    (_, value) => quantities_to_text(value),
                }
            }
        }
        _ => {}
    }
}

/// Whether a patch is part of a pod template: every value has the right type, every field exists.
fn check_type(patch: &Value, path: &str) -> Result<(), BuildError> {
    match serde_json::from_value::<PodTemplateSpec>(patch.clone()).and_then(serde_json::to_value) {
        Ok(known) => check_known(patch, &known, path),
        Err(error) => Err(wrong_type(patch, path).unwrap_or_else(|| fault(path, format!("is no part of a pod template: {error}")))),
    }
}

/// What the type does not know is not there any more after it was read.
fn check_known(patch: &Value, known: &Value, path: &str) -> Result<(), BuildError> {
    match (patch, known) {
        (Value::Object(patch), Value::Object(known)) => patch.iter().try_for_each(|(field, value)| {
            let path = format!("{path}.{field}");
            match known.get(field) {
                Some(known) => check_known(value, known, &path),
                None => Err(fault(&path, "is no field of a pod template; correct or remove it")),
            }
        }),
        (Value::Array(patch), Value::Array(known)) => patch
            .iter()
            .zip(known)
            .enumerate()
            .try_for_each(|(index, (patch, known))| check_known(patch, known, &format!("{path}[{index}]"))),
        _ => Ok(()),
    }
}

/// A step on the way to a value.
#[derive(Clone, Debug)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

/// The first value of the wrong type. The type does not say where that is, so the values are tried one by one, each alone in the
/// place where it stands.
fn wrong_type(patch: &Value, path: &str) -> Option<BuildError> {
    let mut leaves = Vec::new();
    find_leaves(patch, &mut Vec::new(), &mut leaves);
    leaves.into_iter().find_map(|(steps, value)| {
        let alone = steps.iter().rev().fold(value.clone(), |inner, step| match step {
            Step::Field(field) => json!({ *field: inner }),
            Step::Item(_) => json!([inner]),
        });
        let error = serde_json::from_value::<PodTemplateSpec>(alone).err()?;
        let place = steps.iter().fold(path.to_owned(), |path, step| match step {
            Step::Field(field) => format!("{path}.{field}"),
            Step::Item(index) => format!("{path}[{index}]"),
        });
        Some(fault(&place, format!("does not fit into a pod template: {error}")))
    })
}

/// All values that hold no others.
fn find_leaves<'a>(value: &'a Value, steps: &mut Vec<Step<'a>>, leaves: &mut Vec<(Vec<Step<'a>>, &'a Value)>) {
    let mut deeper = |step, value| {
        steps.push(step);
        find_leaves(value, steps, leaves);
        steps.pop();
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => fields.iter().for_each(|(field, value)| deeper(Step::Field(field), value)),
        Value::Array(items) if !items.is_empty() => items.iter().enumerate().for_each(|(index, item)| deeper(Step::Item(index), item)),
        _ => leaves.push((steps.clone(), value)),
    }
}

/// What the operator relies on is still there: the labels that pods are found by, the restart policy, the container.
fn check_kept(generated: &Value, merged: &Value, path: &str) -> Result<(), BuildError> {
    let labels = generated["metadata"]["labels"].as_object().into_iter().flatten();
    for (label, value) in labels {
        if merged["metadata"]["labels"].get(label) != Some(value) {
            return Err(fault(&format!("{path}.metadata.labels"), format!("`{label}` belongs to the operator: use a label of your own")));
        }
    }
    if merged["spec"]["restartPolicy"] != generated["spec"]["restartPolicy"] {
        return Err(fault(&format!("{path}.spec.restartPolicy"), "is decided by the operator: remove it"));
    }
    let mut containers = merged["spec"]["containers"].as_array().into_iter().flatten();
    if !containers.any(|container| container["name"] == names::CONTAINER) {
        return Err(fault(
            &format!("{path}.spec.containers"),
            format!("the container `{}` must stay: patch it by its name", names::CONTAINER),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
