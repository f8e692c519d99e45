//! Names that more than one place must agree on: labels, annotations, children, and where things are in pods.

use crate::resources::Role;
use kube::ResourceExt;
use penstock_crds::IngestRun;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Under which we write children and everything else.
pub const FIELD_MANAGER: &str = "penstock-operator";
/// Under which we write statuses.
pub const STATUS_MANAGER: &str = "penstock-operator-status";

/// Which program an object belongs to.
pub const LABEL_NAME: &str = "app.kubernetes.io/name";
/// Who made it.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its part.
pub const LABEL_COMPONENT: &str = "app.kubernetes.io/component";
/// The pipeline it works for.
pub const LABEL_PIPELINE: &str = "penstock.io/pipeline";
/// The run it works for.
pub const LABEL_RUN: &str = "penstock.io/run";
/// The schedule that made it.
pub const LABEL_SCHEDULE: &str = "penstock.io/schedule";

/// What an object was rendered to: equal ones need not be written.
pub const HASH: &str = "penstock.io/hash";
/// The image of a revision.
pub const IMAGE: &str = "penstock.io/image";
/// The revision that pods have.
pub const REVISION: &str = "penstock.io/revision";
/// The full name of the connector, where a label has no room for it.
pub const CONNECTOR: &str = "penstock.io/connector";

/// The container in all of our pods.
pub const CONTAINER: &str = "penstock";
/// The port of all of our pods.
pub const PORT: u16 = 9090;
/// Its name.
pub const PORT_NAME: &str = "metrics";
/// The component of publishers.
pub const PUBLISHER: &str = "publisher";

/// The longest name of an object that becomes a label.
const LONGEST: usize = 63;

/// The selector of everything that we made.
pub fn ours() -> String {
    format!("{LABEL_MANAGED_BY}={FIELD_MANAGER}")
}

/// The labels that all children have.
fn labels(component: &str, more: [(&str, &str); 1]) -> BTreeMap<String, String> {
    let [(key, value)] = more;
    [(LABEL_NAME, "penstock"), (LABEL_MANAGED_BY, FIELD_MANAGER), (LABEL_COMPONENT, component), (key, value)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The labels of a pipeline's part.
pub fn pipeline_labels(pipeline: &str, component: &str) -> BTreeMap<String, String> {
    labels(component, [(LABEL_PIPELINE, pipeline)])
}

/// The labels of a run's publisher.
pub fn run_labels(run: &str) -> BTreeMap<String, String> {
    labels(PUBLISHER, [(LABEL_RUN, run)])
}

/// What a Deployment knows its pods by.
pub fn selector_labels(pipeline: &str, role: Role) -> BTreeMap<String, String> {
    [(LABEL_PIPELINE, pipeline), (LABEL_COMPONENT, role.as_str())].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The same as text, for autoscalers.
pub fn selector(pipeline: &str, role: Role) -> String {
    format!("{LABEL_PIPELINE}={pipeline},{LABEL_COMPONENT}={}", role.as_str())
}

/// The Deployment of a role.
pub fn deployment(pipeline: &str, role: Role) -> String {
    child(pipeline, role.as_str())
}

/// The ConfigMap of a revision.
pub fn revision_config_map(pipeline: &str, revision: &str) -> String {
    child(pipeline, revision)
}

/// The ConfigMap of a run.
pub fn run_config_map(run: &str) -> String {
    child(run, "manifests")
}

/// The Job of a connector's attempt, and the Secret that goes with it.
pub fn job(run: &str, index: usize, attempt: i32) -> String {
    child(run, &format!("{index}-{attempt}"))
}

/// The id of a run: its documents and events carry it.
pub fn run_id(run: &IngestRun) -> String {
    format!("{}-{}", run.name_any(), run.uid().unwrap_or_default())
}

/// `{owner}-{suffix}`; an owner that is too long for it is cut, and told from others by a hash.
pub fn child(owner: &str, suffix: &str) -> String {
    let whole = format!("{owner}-{suffix}");
    if whole.len() <= LONGEST {
        return whole;
    }
    let hash = hash(owner.as_bytes());
    let room = LONGEST.saturating_sub(suffix.len() + hash.len() + 2);
    let cut: String = owner.chars().take(room).collect();
    format!("{}-{hash}-{suffix}", cut.trim_end_matches(['-', '.']))
}

/// The first ten digits of a SHA-256.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_follow_from_the_owner() {
        assert_eq!(deployment("books", Role::WorkerIndexer), "books-worker-indexer");
        assert_eq!(job("nightly", 0, 2), "nightly-0-2");
        assert_eq!(selector("books", Role::Worker), "penstock.io/pipeline=books,app.kubernetes.io/component=worker");
    }

    proptest! {
        #[test]
        fn names_of_children_are_short_legal_and_those_of_one_owner(a in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", b in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?") {
            let names = [&a, &b].map(|owner| job(owner, 63, 5));
            for name in &names {
                prop_assert!(name.len() <= LONGEST && !name.starts_with('-') && name.ends_with("-63-5"), "{name}");
            }
            prop_assert_eq!(a == b, names[0] == names[1]);
        }
    }
}
