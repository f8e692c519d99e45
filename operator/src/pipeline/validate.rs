//! Whether a pipeline can work: the very same checks as `penstock validate`, all problems at once.

use kube::ResourceExt;
use penstock::manifest;
use penstock_crds::{KafkaConnection, Pipeline};
use serde_json::{Value, json};

/// What is wrong with the spec, a line each; empty if nothing is.
pub fn problems(pipeline: &Pipeline, connection: Option<&KafkaConnection>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut objects = vec![object("Pipeline", pipeline, &pipeline.spec)];
    if let Some(connection) = connection {
        objects.push(object("KafkaConnection", connection, &connection.spec));
        let (wanted, most) = (pipeline.spec.partitions, connection.spec.topics.max_partitions);
        if let (Some(wanted), Some(most)) = (wanted, most)
            && wanted > most
        {
            problems
                .push(format!("spec.partitions: {wanted} is more than the {most} that KafkaConnection `{}` allows", connection.name_any()));
        }
        if let Err(error) = super::observed::topic_names(pipeline, connection).check() {
            problems.push(format!("metadata.name: {error}"));
        }
    }
    problems.extend(check(&objects));
    problems
}

/// Checks objects together.
pub fn check(objects: &[Value]) -> Vec<String> {
    match manifest::check_objects(objects) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// An object as a manifest: what a user would have written.
pub fn object<K: ResourceExt, S: serde::Serialize>(kind: &str, object: &K, spec: &S) -> Value {
    json!({
        "apiVersion": format!("{}/{}", penstock_crds::GROUP, penstock_crds::VERSION),
        "kind": kind,
        "metadata": {"name": object.name_any(), "namespace": object.namespace()},
        "spec": spec,
    })
}
