//! One document of a manifest → which object it is.

use super::{
    kind::Kind,
    path::push_field,
    yaml::{Content, Finding, Node, Place},
};
use crate::suggest::{did_you_mean, nearest};
use penstock_crds::{GROUP, VERSION};
use std::path::PathBuf;

/// The namespace of objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Longest name: it also becomes the value of a label.
const MAX_NAME: usize = 63;

/// An object of a manifest that has been checked.
#[derive(Clone, Debug)]
pub struct Object<T> {
    /// The file, as it was given.
    pub file: String,
    /// Where the object begins in the file.
    pub place: Place,
    /// Where relative paths of the object start. Absolute.
    pub base_dir: PathBuf,
    /// The name.
    pub name: String,
    /// The namespace; `default` if the object names none.
    pub namespace: String,
    /// What is wanted.
    pub spec: T,
}

/// What a document is.
#[derive(Debug, PartialEq, Eq)]
pub enum Identity {
    /// One of our objects.
    Ours(Kind),
    /// An object of somebody else, such as a Secret beside our objects.
    Foreign,
    /// Something that was meant to be one of ours, or no object at all. It has been reported.
    Unknown,
}

/// Finds out what a document is.
pub fn identify(document: &Node, findings: &mut Vec<Finding>) -> Identity {
    if !matches!(document.content, Content::Map(_)) {
        report(document, findings, "", "is no object; an object is a map with apiVersion, kind, metadata and spec");
        return Identity::Unknown;
    }
    let kinds = Kind::ALL.map(Kind::name);
    let ours = format!("{GROUP}/{VERSION}");
    let (kind, version) = match (document.text("kind"), document.text("apiVersion")) {
        (Some(kind), Some(version)) => (kind, version),
        (kind, version) => {
            if version.is_none() {
                report(document, findings, "apiVersion", &format!("is missing; write `apiVersion: {ours}`"));
            }
            if kind.is_none() {
                report(document, findings, "kind", &format!("is missing; write one of {}", kinds.join(", ")));
            }
            return Identity::Unknown;
        }
    };
    let known_kind = Kind::by_name(kind);
    match (version == ours, known_kind) {
        (true, Some(kind)) => Identity::Ours(kind),
        (true, None) => {
            let hint = did_you_mean(kind, kinds);
            report(document, findings, "kind", &format!("`{kind}` is not one of {}{hint}", kinds.join(", ")));
            Identity::Unknown
        }
        (false, _) if is_meant_to_be_ours(version) => {
            report(document, findings, "apiVersion", &format!("`{version}` is not known; write {ours}"));
            Identity::Unknown
        }
        // A kind of ours in a group of nobody: the group was forgotten.
        (false, Some(_)) if !version.contains('.') && version.contains('/') => {
            report(document, findings, "apiVersion", &format!("`{version}` is not known; write {ours}"));
            Identity::Unknown
        }
        (false, Some(_)) if !version.contains('/') => {
            report(document, findings, "apiVersion", &format!("`{version}` has no group; write {ours}"));
            Identity::Unknown
        }
        (false, _) => Identity::Foreign,
    }
}

fn is_meant_to_be_ours(version: &str) -> bool {
    let group = version.split_once('/').map_or(version, |(group, _)| group);
    group == GROUP || group.contains("penstock") || nearest(group, [GROUP]).is_some()
}

/// The name of an object, or what it has of one. Reports what is wrong with it.
pub fn name_of(document: &Node, findings: &mut Vec<Finding>) -> Option<String> {
    let metadata = document.get("metadata")?;
    if ["name", "generateName"].iter().any(|key| metadata.get(key).is_some_and(Node::is_unknown)) {
        return None;
    }
    if !matches!(metadata.content, Content::Map(_)) || is_no_text(metadata, "name") || is_no_text(metadata, "generateName") {
        // The wrong type is reported by the schema.
        return None;
    }
    let (field, name) = match (metadata.text("name"), metadata.text("generateName")) {
        (Some(name), _) => ("name", name.to_owned()),
        (None, Some(prefix)) => ("generateName", prefix.trim_end_matches('-').to_owned()),
        (None, None) => {
            report(document, findings, "metadata.name", "is missing");
            return None;
        }
    };
    if let Some(message) = name_problem(&name) {
        let mut path = "metadata".to_owned();
        push_field(&mut path, field);
        report(document, findings, &path, &message);
    }
    Some(name)
}

fn is_no_text(metadata: &Node, key: &str) -> bool {
    metadata.get(key).is_some() && metadata.text(key).is_none()
}

fn name_problem(name: &str) -> Option<String> {
    if name.len() > MAX_NAME {
        return Some(format!("has {} characters, at most {MAX_NAME} are allowed: the name also becomes the value of a label", name.len()));
    }
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let well_formed = !name.is_empty() && name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-');
    (!well_formed).then(|| format!("`{name}` is not a name; use lower-case letters, digits and `-`, with a letter or digit at both ends"))
}

/// The namespace of an object.
pub fn namespace_of(document: &Node) -> String {
    document.get("metadata").and_then(|metadata| metadata.text("namespace")).unwrap_or(DEFAULT_NAMESPACE).to_owned()
}

fn report(document: &Node, findings: &mut Vec<Finding>, path: &str, message: &str) {
    let place = super::locate::locate(document, path).place;
    findings.push(Finding { place, path: path.to_owned(), message: message.to_owned() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::yaml::read_one;

    fn read(text: &str) -> Node {
        read_one(text).root
    }

    #[test]
    fn documents_are_ours_foreign_or_reported() {
        for (text, want, problem) in [
            ("{apiVersion: penstock.io/v1alpha1, kind: Pipeline}", Identity::Ours(Kind::Pipeline), None),
            ("{apiVersion: v1, kind: Secret}", Identity::Foreign, None),
            ("{apiVersion: tekton.dev/v1, kind: Pipeline}", Identity::Foreign, None),
            (
                "{apiVersion: penstock.io/v1alpha1, kind: Pipelin}",
                Identity::Unknown,
                Some("1:42: kind: `Pipelin` is not one of IngestRun, IngestSchedule, KafkaConnection, Pipeline, did you mean `Pipeline`?"),
            ),
            (
                "{apiVersion: penstock.io/v1, kind: Pipeline}",
                Identity::Unknown,
                Some("1:14: apiVersion: `penstock.io/v1` is not known; write penstock.io/v1alpha1"),
            ),
            (
                "{apiVersion: penstok.io/v1alpha1, kind: Pipeline}",
                Identity::Unknown,
                Some("1:14: apiVersion: `penstok.io/v1alpha1` is not known; write penstock.io/v1alpha1"),
            ),
            (
                "{apiVersion: v1alpha1, kind: Pipeline}",
                Identity::Unknown,
                Some("1:14: apiVersion: `v1alpha1` has no group; write penstock.io/v1alpha1"),
            ),
            ("{kind: Pipeline}", Identity::Unknown, Some("1:1: apiVersion: is missing; write `apiVersion: penstock.io/v1alpha1`")),
            (
                "{apiVersion: penstock.io/v1alpha1, kind: 3}",
                Identity::Unknown,
                Some("1:42: kind: is missing; write one of IngestRun, IngestSchedule, KafkaConnection, Pipeline"),
            ),
            ("[a]", Identity::Unknown, Some("1:1: : is no object; an object is a map with apiVersion, kind, metadata and spec")),
        ] {
            let mut findings = Vec::new();
            assert_eq!(identify(&read(text), &mut findings), want, "{text}");
            let found = findings.first().map(|f| format!("{}:{}: {}: {}", f.place.line, f.place.column, f.path, f.message));
            assert_eq!(found.as_deref(), problem, "{text}");
        }
    }

    #[test]
    fn names_are_labels_of_at_most_63_characters() {
        let long = "a".repeat(64);
        for (metadata, name, problem) in [
            ("{name: products-2}".to_owned(), Some("products-2"), None),
            ("{generateName: nightly-}".to_owned(), Some("nightly"), None),
            (
                "{name: a.b}".to_owned(),
                Some("a.b"),
                Some("`a.b` is not a name; use lower-case letters, digits and `-`, with a letter or digit at both ends"),
            ),
            (
                format!("{{name: {long}}}"),
                Some(long.as_str()),
                Some("has 64 characters, at most 63 are allowed: the name also becomes the value of a label"),
            ),
            ("{labels: {}}".to_owned(), None, Some("is missing")),
            ("{name: n}".to_owned(), None, None),
        ] {
            let mut findings = Vec::new();
            assert_eq!(name_of(&read(&format!("metadata: {metadata}")), &mut findings).as_deref(), name, "{metadata}");
            assert_eq!(findings.first().map(|finding| finding.message.as_str()), problem, "{metadata}");
        }
    }
}
