//! Names that more than one place must agree on: labels, annotations, children, and where things are in pods. They follow from what
//! they name, so a second reconcile, or another process, comes to the same ones.

use kube::ResourceExt;
use penstock_crds::IngestRun;
use sha2::{Digest, Sha256};
use std::{borrow::Cow, collections::BTreeMap};

/// Under which children and everything else are written.
pub const FIELD_MANAGER: &str = "penstock-operator";
/// Under which statuses are written.
pub const STATUS_MANAGER: &str = "penstock-operator-status";

/// Which program an object belongs to.
pub const LABEL_NAME: &str = "app.kubernetes.io/name";
/// Which pipeline or run it is a part of.
pub const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
/// Its part.
pub const LABEL_COMPONENT: &str = "app.kubernetes.io/component";
/// Who made it.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The pipeline it works for.
pub const LABEL_PIPELINE: &str = "penstock.io/pipeline";
/// The run it works for.
pub const LABEL_RUN: &str = "penstock.io/run";
/// The connector it executes.
pub const LABEL_CONNECTOR: &str = "penstock.io/connector";
/// The schedule that made it.
pub const LABEL_SCHEDULE: &str = "penstock.io/schedule";

/// Annotation: the time that a run of a schedule was due.
pub const SCHEDULED_FOR: &str = "penstock.io/scheduled-for";
/// Annotation: what an object was rendered to. Equal ones need not be written.
pub const HASH: &str = "penstock.io/hash";
/// Annotation: the revision that pods have.
pub const REVISION: &str = "penstock.io/revision";
/// Annotation: the image of a revision.
pub const IMAGE: &str = "penstock.io/image";

/// The container in all of our pods. Patches know it by this name.
pub const CONTAINER: &str = "penstock";
/// The one port of our pods: metrics, health, progress, control.
pub const PORT: u16 = 9090;
/// Its name.
pub const PORT_NAME: &str = "metrics";
/// The folder with the manifests.
pub const MANIFESTS_DIR: &str = "/etc/penstock/manifests";
/// The folder with Secrets, as `NAME/KEY`.
pub const SECRETS_DIR: &str = "/etc/penstock/secrets";
/// The folder with what a publisher is wanted to do.
pub const CONTROL_DIR: &str = "/etc/penstock/control";
/// The folder that relative paths of manifests start at.
pub const WORK_DIR: &str = "/work";
/// The folder of the heartbeat.
pub const RUN_DIR: &str = "/run/penstock";
/// The file that is written while a process is healthy.
pub const HEARTBEAT_FILE: &str = "/run/penstock/heartbeat";
/// The file for the result of a publisher. Kubernetes keeps what is in it beyond the pod's end.
pub const RESULT_FILE: &str = "/dev/termination-log";

/// The longest name of an object that also becomes a label or a host name, and the longest value of a label.
const LONGEST: usize = 63;
/// The digits of a hash in a name.
const HASH_DIGITS: usize = 10;
/// Stands between what is left of a long name and its hash.
const CUT: &str = "--";

/// What the pods of a Deployment do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Stages.
    Worker,
    /// The backend.
    Indexer,
    /// Both.
    WorkerIndexer,
}

impl Role {
    /// The command of `penstock`, and the component in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Indexer => "indexer",
            Self::WorkerIndexer => "worker-indexer",
        }
    }

    /// The field of the Pipeline's spec that says how many pods of what size.
    pub fn pool(self) -> &'static str {
        match self {
            Self::Worker | Self::WorkerIndexer => "workers",
            Self::Indexer => "indexers",
        }
    }
}

/// The component of publishers.
pub const PUBLISHER: &str = "publisher";

/// The label selector of all that is ours.
pub fn ours() -> String {
    format!("{LABEL_MANAGED_BY}={FIELD_MANAGER}")
}

/// The labels of a part of a pipeline.
pub fn pipeline_labels(pipeline: &str, component: &str) -> BTreeMap<String, String> {
    labels(pipeline, component, &[(LABEL_PIPELINE, pipeline)])
}

/// The labels of a part of a run.
pub fn run_labels(run: &str, component: &str) -> BTreeMap<String, String> {
    labels(run, component, &[(LABEL_RUN, run)])
}

/// The labels of the publisher of a connector: Job, Secret and pod.
pub fn publisher_labels(run: &str, connector: &str, pipeline: &str) -> BTreeMap<String, String> {
    labels(run, PUBLISHER, &[(LABEL_RUN, run), (LABEL_CONNECTOR, connector), (LABEL_PIPELINE, pipeline)])
}

fn labels(instance: &str, component: &str, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let common = [(LABEL_NAME, "penstock"), (LABEL_MANAGED_BY, FIELD_MANAGER), (LABEL_INSTANCE, instance), (LABEL_COMPONENT, component)];
    common.iter().chain(more).map(|(key, value)| ((*key).to_owned(), label_value(value).into_owned())).collect()
}

/// What a Deployment knows its pods by. It can never change, so it is no more than it must be.
pub fn selector_labels(pipeline: &str, role: Role) -> BTreeMap<String, String> {
    [(LABEL_PIPELINE, pipeline), (LABEL_COMPONENT, role.as_str())]
        .map(|(key, value)| (key.to_owned(), label_value(value).into_owned()))
        .into()
}

/// The same as text, for autoscalers.
pub fn selector(pipeline: &str, role: Role) -> String {
    format!("{LABEL_PIPELINE}={},{LABEL_COMPONENT}={}", label_value(pipeline), role.as_str())
}

/// The Deployment of a role, and its PodDisruptionBudget: `{pipeline}-workers` or `{pipeline}-indexers`, as the fields of the spec are
/// called. By the names of roles `a-worker-indexer` could be of two pipelines.
pub fn deployment(pipeline: &str, role: Role) -> String {
    child(pipeline, role.pool())
}

/// The ConfigMap of a revision.
pub fn revision_config_map(pipeline: &str, revision: &str) -> String {
    child(pipeline, revision)
}

/// The Service of a pipeline's pods. The name of a Service has to begin with a letter, that of a pipeline has not.
pub fn service(pipeline: &str) -> String {
    child(&format!("penstock-{pipeline}"), PORT_NAME)
}

/// The NetworkPolicy of a pipeline's pods.
pub fn network_policy(pipeline: &str) -> String {
    child(pipeline, "pods")
}

/// The ConfigMap of a run.
pub fn run_config_map(run: &str) -> String {
    child(run, "manifests")
}

/// The Job of a connector's attempt, and the Secret that goes with it. `index` is the place of the connector in the run.
pub fn job(run: &str, index: usize, attempt: i32) -> String {
    child(run, &format!("{index}-{attempt}"))
}

/// The id of a run: its documents and events carry it.
pub fn run_id(run: &IngestRun) -> String {
    format!("{}-{}", run.name_any(), run.uid().unwrap_or_default())
}

/// `{owner}-{suffix}`, or `{beginning of the owner}--{hash of the owner}-{suffix}` where that is too long. An owner that is called
/// like a shortened one gets the longer form as well: so names of different owners are different.
pub fn child(owner: &str, suffix: &str) -> String {
    let whole = format!("{owner}-{suffix}");
    if whole.len() <= LONGEST && !looks_cut(owner) {
        return whole;
    }
    let room = LONGEST.saturating_sub(CUT.len() + HASH_DIGITS + 1 + suffix.len());
    format!("{}{CUT}{}-{suffix}", beginning(owner, room), hash(owner.as_bytes()))
}

fn looks_cut(name: &str) -> bool {
    let is_hash = |text: &str| text.len() == HASH_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    name.rsplit_once(CUT).is_some_and(|(_, end)| is_hash(end))
}

/// As much of a text as there is room for, without a sign at its end.
fn beginning(text: &str, room: usize) -> &str {
    let end = text.char_indices().map(|(at, char)| at + char.len_utf8()).take_while(|end| *end <= room).last().unwrap_or_default();
    text[..end].trim_end_matches(['-', '.', '_'])
}

/// The text as value of a label: itself where that is allowed, else what is allowed of it and a hash.
pub fn label_value(text: &str) -> Cow<'_, str> {
    let is_end = |char: char| char.is_ascii_alphanumeric();
    let is_inner = |char: char| is_end(char) || "-_.".contains(char);
    let is_allowed = text.len() <= LONGEST && text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(is_inner);
    if (text.is_empty() || is_allowed) && !looks_cut(text) {
        return Cow::Borrowed(text);
    }
    let allowed: String = text.chars().map(|char| if is_inner(char) { char } else { '_' }).collect();
    let allowed = allowed.trim_start_matches(['-', '.', '_']);
    let beginning = beginning(allowed, LONGEST - CUT.len() - HASH_DIGITS);
    let hash = hash(text.as_bytes());
    Cow::Owned(if beginning.is_empty() { format!("x{CUT}{hash}") } else { format!("{beginning}{CUT}{hash}") })
}

/// The first ten digits of a SHA-256.
pub fn hash(bytes: &[u8]) -> String {
    let mut digits = digest(bytes);
    digits.truncate(HASH_DIGITS);
    digits
}

/// All digits of a SHA-256.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the rule of the CRDs and of Kubernetes allows as name of an object.
    const NAME: &str = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";

    fn is_dns_label(name: &str) -> bool {
        let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = name.as_bytes();
        name.len() <= 63
            && bytes.first().is_some_and(is_end)
            && bytes.last().is_some_and(is_end)
            && bytes.iter().all(|b| is_end(b) || *b == b'-')
    }

    #[test]
    fn names_follow_from_the_owner() {
        let long = "n".repeat(60);
        for (name, want) in [
            (deployment("books", Role::Worker), "books-workers".to_owned()),
            (deployment("books", Role::WorkerIndexer), "books-workers".to_owned()),
            (deployment("books", Role::Indexer), "books-indexers".to_owned()),
            (revision_config_map("books", "0123456789"), "books-0123456789".to_owned()),
            (service("2-books"), "penstock-2-books-metrics".to_owned()),
            (network_policy("books"), "books-pods".to_owned()),
            (run_config_map("nightly"), "nightly-manifests".to_owned()),
            (job("nightly", 0, 2), "nightly-0-2".to_owned()),
            (job(&long, 12, 1), format!("{}--{}-12-1", "n".repeat(46), hash(long.as_bytes()))),
            (child(&format!("{}-x{}", "n".repeat(45), "y".repeat(20)), "12-1"), "n".repeat(45) + "--813b863f7c-12-1"),
        ] {
            assert_eq!(name, want);
        }
    }

    #[test]
    fn a_run_is_known_by_its_name_and_its_uid() {
        let mut run: IngestRun =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "nightly"}, "spec": {"connectors": []}})).unwrap();
        run.metadata.uid = Some("0d4c".into());
        assert_eq!(run_id(&run), "nightly-0d4c");
    }

    #[test]
    fn labels_say_whose_an_object_is() {
        let labels = publisher_labels("nightly", "products", "books");
        let text: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            text,
            [
                "app.kubernetes.io/component=publisher",
                "app.kubernetes.io/instance=nightly",
                "app.kubernetes.io/managed-by=penstock-operator",
                "app.kubernetes.io/name=penstock",
                "penstock.io/connector=products",
                "penstock.io/pipeline=books",
                "penstock.io/run=nightly",
            ]
        );
        assert_eq!(ours(), "app.kubernetes.io/managed-by=penstock-operator");
        assert_eq!(selector("books", Role::Worker), "penstock.io/pipeline=books,app.kubernetes.io/component=worker");
    }

    #[test]
    fn what_no_label_may_be_is_made_one() {
        for (text, want) in
            [("books.v2_x", "books.v2_x"), ("", ""), ("a/b", "a_b--c14cddc033"), ("-a-", "a--a75a468f2c"), ("é", "x--4a99557e40")]
        {
            assert_eq!(label_value(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn children_have_short_legal_names_that_no_other_owner_has(owner in NAME, other in NAME, index in 0..64_usize, attempt in 1..1000) {
            let names_of = |owner: &str| {
                let of_pipeline = [Role::Worker, Role::Indexer].map(|role| deployment(owner, role));
                let more = [service(owner), network_policy(owner), run_config_map(owner), job(owner, index, attempt), revision_config_map(owner, "0123abcdef")];
                of_pipeline.into_iter().chain(more).collect::<Vec<_>>()
            };
            let names = names_of(&owner);
            for name in &names {
                prop_assert!(is_dns_label(name), "{name}");
            }
            for (name, of_other) in names.iter().zip(names_of(&other)) {
                prop_assert_eq!(owner == other, *name == of_other);
            }
        }

        #[test]
        fn an_owner_called_like_a_shortened_one_has_other_children(owner in "[a-z]{55,63}", suffix in "[a-z]{8,14}") {
            let name = child(&owner, &suffix);
            let alike = name.strip_suffix(&format!("-{suffix}")).unwrap();
            prop_assert!(looks_cut(alike));
            prop_assert_ne!(child(alike, &suffix), name);
        }

        #[test]
        fn jobs_of_one_run_are_told_apart(run in NAME, a in (0..64_usize, 1..1000), b in (0..64_usize, 1..1000)) {
            prop_assert_eq!(a == b, job(&run, a.0, a.1) == job(&run, b.0, b.1));
        }

        #[test]
        fn jobs_of_runs_whose_names_end_in_numbers_are_told_apart(numbers in prop::collection::vec(0..9_usize, 4)) {
            let [a, b, c, d] = numbers[..] else { unreachable!() };
            let longer = job(&format!("r-{a}"), b, c as i32);
            prop_assert_ne!(longer, job("r", c, d as i32));
        }

        #[test]
        fn values_of_labels_are_legal_and_told_apart(text in "\\PC{0,80}", other in "\\PC{0,80}") {
            let value = label_value(&text);
            let ends = |char: char| char.is_ascii_alphanumeric();
            prop_assert!(value.len() <= 63 && value.chars().all(|char| ends(char) || "-_.".contains(char)), "{value}");
            prop_assert!(value.is_empty() || value.starts_with(ends) && value.ends_with(ends), "{value}");
            prop_assert_eq!(text == other, value == label_value(&other));
        }
    }
}
