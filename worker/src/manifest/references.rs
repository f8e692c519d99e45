//! What objects say about each other: names that are taken twice, names of objects that are not there.

use super::{
    Checked,
    kind::Kind,
    locate::locate,
    problem::Problem,
    yaml::{Content, Finding, Node},
};
use crate::{kafka::PipelineNames, suggest::nearest};
use penstock_crds::topics::Topics;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::HashMap;

/// More names than these are not listed.
const MAX_LISTED: usize = 8;

/// Reports objects that are defined twice, and references that lead nowhere. With `incomplete`, parts of the manifests
/// could not be read, and what is not there may be in them.
pub fn check(objects: &mut [Checked<'_>], incomplete: bool) {
    let duplicates = duplicates(objects);
    let dangling = if incomplete { Vec::new() } else { dangling(objects) };
    let names = illegal_names(objects);
    let partitions = too_many_partitions(objects);
    for (index, finding) in duplicates.into_iter().chain(dangling).chain(names).chain(partitions) {
        objects[index].findings.push(finding);
    }
}

fn duplicates(objects: &[Checked<'_>]) -> Vec<(usize, Finding)> {
    let mut first = HashMap::new();
    let mut found = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let Some(name) = &object.name else { continue };
        let Some(other) = first.insert((object.kind, &object.namespace, name), index) else { continue };
        first.insert((object.kind, &object.namespace, name), other);
        let there = Problem { place: Some(objects[other].root.place), ..Problem::of_file(&objects[other].source.name, "") };
        let message = format!("{} `{name}` is defined already at {}; remove one of them", object.kind.name(), there.location());
        let path = "metadata.name";
        found.push((index, Finding { place: locate(&object.root, path).place, path: path.into(), message }));
    }
    found
}

/// A name in one object that must be that of another.
struct Reference<'a> {
    wanted: Kind,
    path: String,
    node: &'a Node,
}

fn dangling(objects: &[Checked<'_>]) -> Vec<(usize, Finding)> {
    let mut found = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        for reference in references(object) {
            let Content::Scalar(scalar) = &reference.node.content else { continue };
            // Nothing can be said about a name that is not known; a wrong type is reported by the schema.
            let name = scalar.text.as_str();
            if scalar.unknown || name.is_empty() || !scalar.value().is_string() || has_unnamed(objects, reference.wanted) {
                continue;
            }
            if let Some(message) = missing(objects, reference.wanted, &object.namespace, name) {
                found.push((index, Finding { place: reference.node.place, path: reference.path, message }));
            }
        }
    }
    found
}

fn has_unnamed(objects: &[Checked<'_>], kind: Kind) -> bool {
    objects.iter().any(|object| object.kind == kind && object.name.is_none())
}

fn references<'a>(object: &'a Checked<'_>) -> Vec<Reference<'a>> {
    let connectors = match object.kind {
        Kind::Pipeline => {
            let path = "spec.kafkaRef.name".to_owned();
            let node = descend(&object.root, &["spec", "kafkaRef", "name"]);
            return node.map(|node| Reference { wanted: Kind::KafkaConnection, path, node }).into_iter().collect();
        }
        Kind::IngestRun => (descend(&object.root, &["spec", "connectors"]), "spec.connectors"),
        Kind::IngestSchedule => (descend(&object.root, &["spec", "runTemplate", "spec", "connectors"]), "spec.runTemplate.spec.connectors"),
        Kind::KafkaConnection => return Vec::new(),
    };
    let (Some(Node { content: Content::List(items), .. }), path) = connectors else { return Vec::new() };
    let pipeline = |(index, item): (usize, &'a Node)| {
        let node = item.get("pipeline")?;
        Some(Reference { wanted: Kind::Pipeline, path: format!("{path}[{index}].pipeline"), node })
    };
    items.iter().enumerate().filter_map(pipeline).collect()
}

fn descend<'a>(node: &'a Node, keys: &[&str]) -> Option<&'a Node> {
    keys.iter().try_fold(node, |node, key| node.get(key))
}

/// Why a reference leads nowhere; nothing if it is good.
fn missing(objects: &[Checked<'_>], wanted: Kind, namespace: &str, name: &str) -> Option<String> {
    let of_kind = || objects.iter().filter(|object| object.kind == wanted);
    let named = |object: &&Checked<'_>| object.name.as_deref() == Some(name);
    if of_kind().any(|object| named(&object) && object.namespace == namespace) {
        return None;
    }
    let kind = wanted.name();
    if let Some(elsewhere) = of_kind().find(named) {
        let other = &elsewhere.namespace;
        return Some(format!("the {kind} `{name}` is in the namespace `{other}`, this object in `{namespace}`; they must be in the same"));
    }
    let names: Vec<&str> = of_kind().filter(|object| object.namespace == namespace).filter_map(|object| object.name.as_deref()).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!(", did you mean `{near}`?"),
        None if names.is_empty() => format!("; these files hold no {kind}: name the file that does as well"),
        None if names.len() > MAX_LISTED => String::new(),
        None => format!("; there is {}", names.join(", ")),
    };
    Some(format!("there is no {kind} `{name}`{hint}"))
}

/// Topics and groups that Kafka would not take. Their names come from the pipeline and its connection together.
fn illegal_names(objects: &[Checked<'_>]) -> Vec<(usize, Finding)> {
    let mut found = Vec::new();
    for (index, object) in objects.iter().enumerate().filter(|(_, object)| object.kind == Kind::Pipeline) {
        let (Some(name), Some(connection)) = (&object.name, connection_of(object, objects)) else { continue };
        let prefix = connection.json.pointer("/spec/topics/namePrefix").and_then(Value::as_str).unwrap_or_default();
        let topics = object.json.pointer("/spec/topics").and_then(|topics| Topics::deserialize(topics).ok()).unwrap_or_default();
        let names = PipelineNames::new(name, &topics, &prefix.replace("{namespace}", &object.namespace));
        // what is wrong with a prefix or a given name is known already
        if !object.findings.is_empty() || !connection.findings.is_empty() {
            continue;
        }
        if let Err(error) = names.check() {
            let path = "metadata.name";
            found.push((index, Finding { place: locate(&object.root, path).place, path: path.into(), message: error.to_string() }));
        }
    }
    found
}

/// Pipelines that ask for more partitions than their connection allows.
fn too_many_partitions(objects: &[Checked<'_>]) -> Vec<(usize, Finding)> {
    let mut found = Vec::new();
    for (index, object) in objects.iter().enumerate().filter(|(_, object)| object.kind == Kind::Pipeline) {
        let Some(connection) = connection_of(object, objects) else { continue };
        let number = |object: &Checked<'_>, path: &str| object.json.pointer(path).and_then(Value::as_u64);
        let asked = number(object, "/spec/partitions");
        let (Some(asked), Some(most)) = (asked, number(connection, "/spec/topics/maxPartitions")) else { continue };
        if asked > most {
            let (path, name) = ("spec.partitions", connection.name.as_deref().unwrap_or_default());
            let message = format!(
                "asks for {asked} partitions, but the KafkaConnection `{name}` allows {most} (topics.maxPartitions): lower it, or raise that"
            );
            found.push((index, Finding { place: locate(&object.root, path).place, path: path.into(), message }));
        }
    }
    found
}

/// The KafkaConnection of a pipeline.
fn connection_of<'a, 'b>(pipeline: &Checked<'_>, objects: &'a [Checked<'b>]) -> Option<&'a Checked<'b>> {
    let name = pipeline.json.pointer("/spec/kafkaRef/name")?.as_str()?;
    let is_it = |object: &&Checked<'_>| {
        object.kind == Kind::KafkaConnection && object.namespace == pipeline.namespace && object.name.as_deref() == Some(name)
    };
    objects.iter().find(is_it)
}
