//! Partial pod templates of the user, merged over the generated one as Kubernetes merges strategically: maps are merged, lists of
//! things with a key by that key, other lists and scalars replaced; `null` removes.

use super::BuildError;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use penstock_crds::values::FreeObject;
use serde_json::{Map, Value};

/// By which field the elements of a list are told apart.
fn key_of(list: &str) -> Option<&'static str> {
    match list {
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "ports" => Some("containerPort"),
        "hostAliases" => Some("ip"),
        "topologySpreadConstraints" => Some("topologyKey"),
        _ => None,
    }
}

/// Merges patches in order. `path` says where they stand.
///
/// # Errors
/// What comes out is no pod template.
pub fn apply(template: PodTemplateSpec, patches: &[FreeObject], path: &str) -> Result<PodTemplateSpec, BuildError> {
    if patches.is_empty() {
        return Ok(template);
    }
    let render = |source| BuildError::Render { name: path.to_owned(), source };
    let mut merged = serde_json::to_value(template).map_err(render)?;
    for (index, patch) in patches.iter().enumerate() {
        let at = format!("{path}.podPatches[{index}]");
        merge_map(&mut merged, &patch.0, &at)?;
        // each alone, so that the one at fault is named
        if let Err(error) = serde_json::from_value::<PodTemplateSpec>(merged.clone()) {
            return Err(BuildError::Patch { path: at, reason: format!("is no part of a pod template: {error}") });
        }
    }
    serde_json::from_value(merged).map_err(render)
}

fn merge_map(target: &mut Value, patch: &Map<String, Value>, path: &str) -> Result<(), BuildError> {
    let Value::Object(target) = target else {
        *target = Value::Object(Map::new());
        return merge_map(target, patch, path);
    };
    for (name, patch) in patch {
        let at = format!("{path}.{name}");
        match (patch, key_of(name)) {
            (Value::Null, _) => drop(target.remove(name)),
            (Value::Object(patch), _) => merge_map(target.entry(name.clone()).or_insert(Value::Null), patch, &at)?,
            (Value::Array(patch), Some(key)) => merge_list(target.entry(name.clone()).or_insert(Value::Null), patch, key, &at)?,
            // the user's come on top of ours
            (Value::Array(patch), None) if name == "tolerations" => match target.entry(name.clone()).or_insert(Value::Null) {
                Value::Array(target) => target.extend(patch.iter().cloned()),
                target => *target = Value::Array(patch.clone()),
            },
            (patch, _) => drop(target.insert(name.clone(), patch.clone())),
        }
    }
    Ok(())
}

fn merge_list(target: &mut Value, patch: &[Value], key: &str, path: &str) -> Result<(), BuildError> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(target) = target else { return Ok(()) };
    for (index, element) in patch.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let (Value::Object(element), Some(id)) = (element, element.get(key)) else {
            return Err(BuildError::Patch { path: at, reason: format!("has no `{key}`, by which it is merged") });
        };
        match target.iter_mut().find(|present| present.get(key) == Some(id)) {
            Some(present) => merge_map(present, element, &at)?,
            None => target.push(Value::Object(element.clone())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(patches: Value) -> Result<Value, String> {
        let template = json!({"metadata": {"labels": {"a": "1"}}, "spec": {
            "containers": [{"name": "penstock", "image": "i", "args": ["worker"], "env": [{"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "work", "mountPath": "/work"}]}],
            "volumes": [{"name": "work", "emptyDir": {}}],
            "tolerations": [{"key": "a", "operator": "Exists"}]}});
        let template = serde_json::from_value(template).expect("a template");
        let patches: Vec<FreeObject> = serde_json::from_value(patches).expect("patches");
        apply(template, &patches, "spec.workers")
            .map(|merged| serde_json::to_value(merged).expect("JSON"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn things_with_a_key_are_merged_and_others_replaced() {
        let merged = merged(json!([
            {"metadata": {"labels": {"team": "shop"}}, "spec": {"nodeSelector": {"pool": "ingest"}, "priorityClassName": "low"}},
            {"spec": {"containers": [{"name": "penstock", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]},
                    {"name": "proxy", "image": "p"}],
                "volumes": [{"name": "work", "emptyDir": null, "persistentVolumeClaim": {"claimName": "data"}}],
                "tolerations": [{"key": "b", "operator": "Exists"}], "priorityClassName": "high"}}
        ]))
        .expect("they fit");
        let spec = &merged["spec"];
        assert_eq!(merged["metadata"]["labels"], json!({"a": "1", "team": "shop"}));
        assert_eq!(spec["containers"][0]["env"], json!([{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]));
        assert_eq!((&spec["containers"][0]["image"], &spec["containers"][1]["name"]), (&json!("i"), &json!("proxy")));
        assert_eq!(spec["volumes"], json!([{"name": "work", "persistentVolumeClaim": {"claimName": "data"}}]));
        assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(2));
        assert_eq!((&spec["nodeSelector"]["pool"], &spec["priorityClassName"]), (&json!("ingest"), &json!("high")));
    }

    #[test]
    fn a_patch_that_does_not_fit_is_named() {
        for (patches, says) in [
            (json!([{}, {"spec": {"containers": [{"image": "x"}]}}]), "spec.workers.podPatches[1].spec.containers[0]: has no `name`"),
            (json!([{"spec": {"nodeSelector": "x"}}]), "spec.workers.podPatches[0]: is no part of a pod template"),
        ] {
            let error = merged(patches).expect_err(says);
            assert!(error.starts_with(says), "{error}");
        }
    }
}
