//! The checks that belong to stages, connectors and indexers themselves: programs, expressions, URLs, paths, ids.
//!
//! Components are looked at one by one, so a fault in one does not hide what is wrong in another.

use super::{
    kind::Kind,
    path::is_within,
    yaml::{Finding, Node},
};
use crate::{
    manifest::locate::{locate, place_inside},
    problem::{FieldProblem, Problems},
};
use penstock_crds::{
    KafkaConnectionSpec,
    connectors::Connector,
    indexers::Indexer,
    stages::{OnError, Skip, Stage, StageKind},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;

/// Reports what is wrong inside the components of an object. `findings` holds what its schema and rules have found.
pub fn check(kind: Kind, root: &Node, source: &str, object: &Value, findings: &mut Vec<Finding>) {
    let mut components = Components { object, known: findings, unreadable: Vec::new(), problems: Vec::new() };
    match kind {
        Kind::Pipeline => {
            components.stages("/spec/stages", "spec.stages");
            components.indexer("/spec/indexer", "spec.indexer");
        }
        Kind::IngestRun => components.connectors("/spec/connectors", "spec.connectors"),
        Kind::IngestSchedule => components.connectors("/spec/runTemplate/spec/connectors", "spec.runTemplate.spec.connectors"),
        Kind::KafkaConnection => components.kafka_connection("/spec", "spec"),
    }
    let Components { unreadable, problems, .. } = components;
    let new: Vec<Finding> = unreadable
        .into_iter()
        .chain(problems)
        .filter(|problem| is_new(&problem.path, root, findings))
        .map(|problem| to_finding(problem, root, source))
        .collect();
    hide_rules_about_names(&new, findings);
    findings.extend(new);
}

struct Components<'a> {
    object: &'a Value,
    known: &'a [Finding],
    unreadable: Vec<FieldProblem>,
    problems: Vec<FieldProblem>,
}

impl Components<'_> {
    fn stages(&mut self, pointer: &str, path: &str) {
        let Some(items) = self.object.pointer(pointer).and_then(Value::as_array) else { return };
        let stages: Vec<Stage> = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.read(item, &format!("{path}[{index}]")).unwrap_or_else(|| common_part(item)))
            .collect();
        crate::stages::check(&stages, &mut Problems::new(path, &mut self.problems));
    }

    fn connectors(&mut self, pointer: &str, path: &str) {
        let Some(items) = self.object.pointer(pointer).and_then(Value::as_array) else { return };
        check_connector_names(items, &mut Problems::new(path, &mut self.problems));
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(connector) = self.read::<Connector>(item, &path) {
                crate::connectors::check(&connector, &mut Problems::new(path, &mut self.problems));
            }
        }
    }

    fn indexer(&mut self, pointer: &str, path: &str) {
        let Some(item) = self.object.pointer(pointer) else { return };
        if let Some(indexer) = self.read::<Indexer>(item, path) {
            crate::indexers::check(&indexer, &mut Problems::new(path, &mut self.problems));
        }
    }

    fn kafka_connection(&mut self, pointer: &str, path: &str) {
        let Some(item) = self.object.pointer(pointer) else { return };
        if let Some(spec) = self.read::<KafkaConnectionSpec>(item, path) {
            crate::kafka::check(&spec, &mut Problems::new(path, &mut self.problems));
        }
    }

    /// The typed component, if it can be read. If not, that is a problem of its own unless the reason is known.
    fn read<T: DeserializeOwned>(&mut self, item: &Value, path: &str) -> Option<T> {
        let error = match T::deserialize(item) {
            Ok(component) => return Some(component),
            Err(error) => error,
        };
        if !self.known.iter().any(|finding| is_within(&finding.path, path)) {
            self.unreadable.push(FieldProblem { path: path.to_owned(), inside: None, message: error.to_string() });
        }
        None
    }
}

/// What every stage has, of a stage whose own part cannot be read: its name and predicate can still be wrong.
fn common_part(item: &Value) -> Stage {
    let text = |key: &str| item[key].as_str().map(str::to_owned);
    Stage { name: text("name"), when: text("when"), on_error: OnError::Fail, kind: StageKind::Skip(Skip {}) }
}

fn check_connector_names(items: &[Value], problems: &mut Problems<'_>) {
    let mut taken = HashMap::new();
    for (index, name) in items.iter().enumerate().filter_map(|(index, item)| Some((index, item["name"].as_str()?))) {
        if let Some(first) = taken.insert(name, index) {
            let message = format!("the name `{name}` is taken by connector {}; give each connector a name of its own", first + 1);
            problems.below(&format!("[{index}]")).add("name", message);
        }
    }
}

/// Whether nothing is known of that field yet. What depends on a variable without value cannot be judged.
fn is_new(path: &str, root: &Node, known: &[Finding]) -> bool {
    let depends_on_unset = |finding: &Finding| is_within(&finding.path, path) && locate(root, &finding.path).node.is_unknown();
    !known.iter().any(|finding| finding.path == path || depends_on_unset(finding))
}

/// The rule of the schema can only name the list; the checks name the item.
fn hide_rules_about_names(new: &[Finding], findings: &mut Vec<Finding>) {
    let list_of = |path: &str| path.strip_suffix("].name").and_then(|path| path.rfind('[').map(|end| path[..end].to_owned()));
    let lists: Vec<String> = new.iter().filter_map(|finding| list_of(&finding.path)).collect();
    findings.retain(|finding| !(lists.contains(&finding.path) && finding.message.contains("unique")));
}

fn to_finding(problem: FieldProblem, root: &Node, source: &str) -> Finding {
    let located = locate(root, &problem.path);
    let inside = match (&located.node.content, problem.inside) {
        (super::yaml::Content::Scalar(scalar), Some(inside)) => place_inside(source, scalar, inside),
        _ => None,
    };
    let message = match problem.inside {
        // the text is not as it stands in a file; a message of several lines shows where
        Some((line, column)) if inside.is_none() && !problem.message.contains('\n') => {
            format!("{} (line {line}, column {column} of the text)", problem.message)
        }
        _ => problem.message,
    };
    Finding { place: inside.unwrap_or(located.place), path: problem.path, message }
}
