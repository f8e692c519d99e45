//! Objects for tests, through the same validation that objects of a cluster pass.

use super::{RevisionContent, Settings, pipeline_revision};
use kube::Resource;
use penstock::manifest;
use penstock_crds::{IngestRun, KafkaConnection, Pipeline};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::sync::LazyLock;

/// The objects that goldens are made of: everything set, and next to nothing.
const MANIFESTS: &str = include_str!("golden/manifests.yaml");

pub const IMAGE: &str = "registry.example/penstock:1.2.3";

/// All objects, as a cluster would hold them.
static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(objects);

fn objects() -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(MANIFESTS);
    let mut objects: Vec<Value> = documents.map(|document| Value::deserialize(document).expect("YAML")).collect();
    for (index, object) in objects.iter_mut().enumerate() {
        object["metadata"]["uid"] = format!("00000000-0000-4000-8000-{index:012}").into();
        object["metadata"]["labels"] = serde_json::json!({"of": "others"});
        object["metadata"]["managedFields"] = serde_json::json!([{"manager": "kubectl"}]);
    }
    if let Err(problems) = manifest::check_objects(&objects) {
        panic!("{problems:#?}");
    }
    objects
}

fn object<K: DeserializeOwned + Resource<DynamicType = ()>>(name: &str) -> K {
    let is_it = |object: &&Value| object["kind"] == K::kind(&()).as_ref() && object["metadata"]["name"] == name;
    let found = OBJECTS.iter().find(is_it).unwrap_or_else(|| panic!("no {} {name}", K::kind(&())));
    serde_json::from_value(found.clone()).expect("typed")
}

pub fn pipeline(name: &str) -> Pipeline {
    object(name)
}

pub fn connection() -> KafkaConnection {
    object("kafka")
}

pub fn run(name: &str) -> IngestRun {
    object(name)
}

/// What the revision of a pipeline is made of.
pub fn content(name: &str) -> RevisionContent {
    let pipeline = pipeline(name);
    let connection = pipeline.spec.kafka_ref.as_ref().map(|_| connection());
    pipeline_revision(&pipeline, connection.as_ref(), Some(3_456_789), IMAGE).expect("a revision").content
}

/// What the pipelines of a run are made of.
pub fn contents(run: &IngestRun) -> Vec<RevisionContent> {
    run.spec.connectors.iter().map(|connector| content(&connector.pipeline)).collect()
}

pub fn settings() -> Settings {
    Settings {
        image: IMAGE.into(),
        image_pull_policy: Some("IfNotPresent".into()),
        image_pull_secrets: vec!["registry-login".into()],
        network_policies: true,
    }
}
