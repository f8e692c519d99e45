//! What the operator writes, as its golden objects show it, on a real API server: each object is accepted, and its pods pass the
//! strictest pod security.

use anyhow::{Context, Result, ensure};
use penstock_tests::cluster::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{fs, path::Path};

/// The namespace of the golden objects.
const NAMESPACE: &str = "shop";

/// The objects of one golden file.
fn golden(name: &str) -> Result<Vec<Value>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../operator/src/resources/golden/{name}.yaml"));
    let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
    serde_yaml_ng::Deserializer::from_str(&text).map(|document| Ok(Value::deserialize(document)?)).collect()
}

/// The pod of a template, as a controller would make it.
fn pod(owner: &Value) -> Value {
    let template = &owner["spec"]["template"];
    let mut metadata = template["metadata"].clone();
    metadata["name"] = owner["metadata"]["name"].clone();
    metadata["namespace"] = NAMESPACE.into();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

#[test]
fn the_api_server_accepts_all_objects_and_restricted_pods() -> Result<()> {
    let server = Cluster::api()?;
    let folder = tempfile::tempdir()?;
    let apply = |objects: &[Value], dry_run: &str| -> Result<String> {
        let file = folder.path().join("objects.json");
        fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
        let file = file.to_str().context("a path is UTF-8")?;
        let answer = server.kubectl(["apply", "--server-side", "--field-manager=penstock-operator", dry_run, "-f", file])?;
        ensure!(answer.success && !answer.stderr.contains("Warning"), "{answer:#?}");
        Ok(answer.stdout)
    };
    let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"});
    let around = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}),
    ];
    apply(&around, "--dry-run=none")?;

    let mut kinds = Vec::new();
    for name in ["full", "paired", "nightly"] {
        let objects = golden(name)?;
        let pods: Vec<Value> = objects.iter().filter(|object| object["spec"]["template"].is_object()).map(pod).collect();
        ensure!(!pods.is_empty(), "{name} has no pods");
        for object in objects.iter().chain(&pods) {
            let said = apply(std::slice::from_ref(object), "--dry-run=server")
                .with_context(|| format!("{name}: {} {}", object["kind"], object["metadata"]["name"]))?;
            ensure!(said.contains("serverside-applied (server dry run)"), "{said}");
            kinds.extend(object["kind"].as_str().map(str::to_owned));
        }
    }
    kinds.sort();
    kinds.dedup();
    let all = ["ConfigMap", "Deployment", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Secret", "Service"];
    ensure!(kinds == all, "{kinds:?}");
    Ok(())
}
