//! Patches: what merges how, and what is refused where.

use super::*;
use proptest::prelude::*;

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "penstock"}},
        "spec": {
            "restartPolicy": "Always",
            "containers": [{
                "name": "penstock", "image": "i", "args": ["worker", "x"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "tmp", "mountPath": "/tmp"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                "livenessProbe": {"exec": {"command": ["penstock"]}, "timeoutSeconds": 5},
            }],
            "volumes": [{"name": "work", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "nodeSelector": {"disk": "fast"},
        },
    })
}

fn merged(patches: Value) -> Result<Value, String> {
    let template = serde_json::from_value(template()).unwrap();
    let patches: Vec<FreeObject> = serde_json::from_value(patches).unwrap();
    let applied = apply(template, &patches, "spec.workers.podPatches");
    applied.map(|merged| serde_json::to_value(merged).unwrap()).map_err(|error| error.to_string())
}

/// A patch of our container.
fn of_container(fields: Value) -> Value {
    let mut container = json!({"name": "penstock"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"spec": {"containers": [container]}})
}

#[test]
fn each_list_merges_by_its_rule() {
    for (patch, pointer, want) in [
        (json!({"spec": {"priorityClassName": "low"}}), "/spec/priorityClassName", json!("low")),
        (json!({"spec": {"nodeSelector": {"pool": "x"}}}), "/spec/nodeSelector", json!({"disk": "fast", "pool": "x"})),
        (json!({"spec": {"nodeSelector": {"disk": null}}}), "/spec/nodeSelector", json!({})),
        (json!({"spec": {"nodeSelector": null}}), "/spec/nodeSelector", Value::Null),
        (json!({"metadata": {"labels": {"team": "shop"}}}), "/metadata/labels", json!({"app": "penstock", "team": "shop"})),
        (json!({"metadata": {"annotations": {"a": "b"}}}), "/metadata/annotations", json!({"a": "b"})),
        (
            json!({"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}}),
            "/spec/tolerations",
            json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]),
        ),
        (of_container(json!({"args": ["indexer"]})), "/spec/containers/0/args", json!(["indexer"])),
        (of_container(json!({"image": "other"})), "/spec/containers/0/args", json!(["worker", "x"])),
        (
            of_container(
                json!({"env": [{"name": "C", "value": "3"}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}),
            ),
            "/spec/containers/0/env",
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]),
        ),
        (
            of_container(json!({"volumeMounts": [{"name": "data", "mountPath": "/work", "subPath": "in"}]})),
            "/spec/containers/0/volumeMounts",
            json!([{"name": "data", "mountPath": "/work", "subPath": "in"}, {"name": "tmp", "mountPath": "/tmp"}]),
        ),
        (
            of_container(json!({"resources": {"requests": {"cpu": 2}, "limits": {"memory": "2Gi"}}})),
            "/spec/containers/0/resources",
            json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}),
        ),
        (
            of_container(json!({"livenessProbe": {"exec": null, "httpGet": {"path": "/healthz", "port": 9090}}})),
            "/spec/containers/0/livenessProbe",
            json!({"httpGet": {"path": "/healthz", "port": 9090}, "timeoutSeconds": 5}),
        ),
        (
            json!({"spec": {"volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "x", "emptyDir": {"sizeLimit": 5}}]}}),
            "/spec/volumes",
            json!([{"name": "work", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp", "emptyDir": {}}, {"name": "x", "emptyDir": {"sizeLimit": "5"}}]),
        ),
        (json!({"spec": {"containers": [{"name": "proxy", "image": "p"}]}}), "/spec/containers/1", json!({"name": "proxy", "image": "p"})),
        (
            json!({"spec": {"initContainers": [{"name": "first", "image": "p"}]}}),
            "/spec/initContainers",
            json!([{"name": "first", "image": "p"}]),
        ),
    ] {
        let merged = merged(json!([patch])).unwrap_or_else(|error| panic!("{patch}: {error}"));
        assert_eq!(merged.pointer(pointer).unwrap_or(&Value::Null), &want, "{patch}");
    }
}

#[test]
fn later_patches_see_what_earlier_ones_did() {
    let patches = json!([
        {"spec": {"containers": [{"name": "proxy", "image": "p"}], "priorityClassName": "low"}},
        {"spec": {"containers": [{"name": "proxy", "args": ["a"]}], "priorityClassName": "high"}},
    ]);
    let merged = merged(patches).unwrap();
    assert_eq!(merged["spec"]["containers"][1], json!({"name": "proxy", "image": "p", "args": ["a"]}));
    assert_eq!(merged["spec"]["priorityClassName"], "high");
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    for (patch, says) in [
        (json!({"spec": {"containers": [{"image": "x"}]}}), "spec.containers[0]: has no `name`, by which it is merged"),
        (json!({"spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"emptyDir": {}}]}}), "spec.volumes[1]: has no `name`"),
        (json!({"spec": {"nodeSelector": "x"}}), "spec.nodeSelector: does not fit into a pod template: invalid type: string \"x\""),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "penstock", "ports": [{"containerPort": 1}, {"containerPort": "http"}]}]}}),
            "spec.containers[1].ports[1].containerPort: does not fit into a pod template: invalid type: string \"http\", expected i32",
        ),
        (json!({"spec": {"hostNetwork": "yes"}}), "spec.hostNetwork: does not fit"),
        (json!({"spec": []}), "spec: does not fit"),
        (json!({"spec": {"nodeSelctor": {"a": "b"}}}), "spec.nodeSelctor: is no field of a pod template; correct or remove it"),
        (json!({"nodeSelector": {"a": "b"}}), "nodeSelector: is no field of a pod template"),
        (of_container(json!({"env": [{"name": "A", "valeu": "x"}]})), "spec.containers[0].env[0].valeu: is no field of a pod template"),
        (json!({"spec": {"containers": [{"name": "penstock", "$patch": "delete"}]}}), "spec.containers[0].$patch: is no field"),
        (json!({"metadata": {"labels": {"app": "mine"}}}), "metadata.labels: `app` belongs to the operator: use a label of your own"),
        (json!({"metadata": {"labels": null}}), "metadata.labels: `app` belongs to the operator"),
        (json!({"spec": {"restartPolicy": "OnFailure"}}), "spec.restartPolicy: is decided by the operator: remove it"),
        (json!({"spec": {"containers": null}}), "spec.containers: the container `penstock` must stay"),
        (json!({"spec": null}), "spec.restartPolicy: is decided by the operator"),
    ] {
        let error = merged(json!([{}, patch])).expect_err(says);
        assert!(error.starts_with(&format!("spec.workers.podPatches[1].{says}")), "{error}\nis not {says}");
    }
}

/// Any piece of JSON, with fields that templates have.
fn any_json() -> impl Strategy<Value = Value> {
    let field =
        prop::sample::select(vec!["spec", "metadata", "labels", "containers", "volumes", "name", "env", "value", "tolerations", "x"]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field.clone().prop_map(str::to_owned), inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// A patch that fits.
fn any_patch() -> impl Strategy<Value = Value> {
    let map = || prop::collection::btree_map("[a-z]{1,2}", "[a-z]{0,3}", 0..4);
    let names = || prop::collection::btree_set("[a-d]", 0..4);
    (map(), map(), names(), names(), prop::option::of("[a-z]{1,4}")).prop_map(|(labels, selector, variables, volumes, class)| {
        let env: Vec<Value> = variables.iter().map(|name| json!({"name": name, "value": "x"})).collect();
        let volumes: Vec<Value> = volumes.iter().map(|name| json!({"name": name, "emptyDir": {}})).collect();
        let container = json!({"name": "penstock", "env": env});
        let mut spec = json!({"nodeSelector": selector, "containers": [container], "volumes": volumes});
        if let Some(class) = class {
            spec["priorityClassName"] = class.into();
        }
        json!({"metadata": {"labels": labels}, "spec": spec})
    })
}

proptest! {
    #[test]
    fn whatever_the_patch_there_is_a_template_or_a_place(patch in any_json()) {
        let Value::Object(patch) = patch else { return Ok(()) };
        match merged(json!([patch])) {
            Ok(merged) => prop_assert_eq!(&merged["spec"]["containers"][0]["name"], "penstock"),
            Err(error) => prop_assert!(error.starts_with("spec.workers.podPatches[0]"), "{}", error),
        }
    }

    #[test]
    fn a_patch_twice_is_a_patch_once(patch in any_patch(), before in any_patch()) {
        prop_assert_eq!(merged(json!([before, patch])), merged(json!([before, patch, patch])));
    }

    #[test]
    fn no_name_is_there_twice(a in any_patch(), b in any_patch()) {
        let merged = merged(json!([a, b])).unwrap();
        for list in ["/spec/volumes", "/spec/containers", "/spec/containers/0/env"] {
            let mut names: Vec<&str> = merged.pointer(list).unwrap().as_array().unwrap().iter().filter_map(|entry| entry["name"].as_str()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), count);
        }
    }
}
