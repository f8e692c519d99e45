//! What pods read: the manifests of a pipeline's revision, and of a run.

use super::{BuildError, metadata, owner_reference};
use crate::names;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use penstock_crds::{GROUP, IngestRun, KafkaConnection, Pipeline, PipelineSpec, VERSION, indexers::Versioning};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The largest text: etcd takes little more in one object.
const LARGEST: usize = 1_000_000;
/// The file of a pipeline and its connection.
const PIPELINE: &str = "pipeline.yaml";
const CONNECTION: &str = "kafka-connection.yaml";
const RUN: &str = "run.yaml";

/// A revision of a pipeline: what its pods read, and the image.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Its name: it follows from what it is made of.
    pub name: String,
    /// Where it is written down.
    pub config_map: ConfigMap,
    /// What it is made of.
    pub content: RevisionContent,
}

/// What a revision is made of.
#[derive(Clone, Debug)]
pub struct RevisionContent {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// Its Kafka, if it has one.
    pub connection: Option<KafkaConnection>,
    /// The image.
    pub image: String,
}

/// The revision of a pipeline as it is now.
///
/// # Errors
/// It does not fit into a ConfigMap.
pub fn pipeline_revision(
    pipeline: &Pipeline,
    connection: Option<&KafkaConnection>,
    version_generation: Option<i64>,
    image: &str,
) -> Result<Revision, BuildError> {
    let mut files = BTreeMap::from([(PIPELINE.to_owned(), pipeline_text(pipeline, version_generation)?)]);
    if let Some(connection) = connection {
        files.insert(CONNECTION.to_owned(), connection_text(connection)?);
    }
    let made_of: String = files.values().map(String::as_str).chain([image]).collect::<Vec<_>>().join("\n");
    let revision = names::hash(made_of.as_bytes());
    let name = pipeline.name_any();
    let mut config_map = config_map(&name, names::revision_config_map(&name, &revision), pipeline, files)?;
    config_map.metadata.labels = Some(names::pipeline_labels(&name, "manifests"));
    config_map.annotations_mut().insert(names::IMAGE.to_owned(), image.to_owned());
    let content = RevisionContent::parse(&config_map)?;
    Ok(Revision { name: revision, config_map, content })
}

impl RevisionContent {
    /// Reads a revision back.
    ///
    /// # Errors
    /// Somebody else wrote it, or another version of the operator that knew more.
    pub fn parse(config_map: &ConfigMap) -> Result<Self, BuildError> {
        let unreadable = |reason: &str| BuildError::Unreadable { name: config_map.name_any(), reason: reason.to_owned() };
        let image = config_map.annotations().get(names::IMAGE).ok_or_else(|| unreadable("it names no image"))?.clone();
        let pipeline = file(config_map, PIPELINE)?.ok_or_else(|| unreadable("it holds no pipeline"))?;
        Ok(Self { pipeline, connection: file(config_map, CONNECTION)?, image })
    }
}

/// What the publishers of a run read: the run, and its pipelines as they were when it began.
///
/// # Errors
/// It does not fit into a ConfigMap.
pub fn run_manifests(run: &IngestRun, pipelines: &[RevisionContent]) -> Result<ConfigMap, BuildError> {
    let mut spec = run.spec.clone();
    // these change while it runs: the publisher is told by its control folder
    (spec.suspend, spec.cancel) = (false, false);
    let mut files = BTreeMap::from([(RUN.to_owned(), text("IngestRun", run, &spec)?)]);
    for content in pipelines {
        files
            .insert(format!("pipeline-{}.yaml", content.pipeline.name_any()), text("Pipeline", &content.pipeline, &content.pipeline.spec)?);
        if let Some(connection) = &content.connection {
            files.insert(format!("kafka-connection-{}.yaml", connection.name_any()), connection_text(connection)?);
        }
    }
    let name = run.name_any();
    let mut config_map = config_map(&name, names::run_config_map(&name), run, files)?;
    config_map.metadata.labels = Some(names::run_labels(&name));
    Ok(config_map)
}

fn config_map<K: kube::Resource<DynamicType = ()>>(
    of: &str,
    name: String,
    owner: &K,
    data: BTreeMap<String, String>,
) -> Result<ConfigMap, BuildError> {
    let bytes = data.values().map(String::len).sum();
    if bytes > LARGEST {
        return Err(BuildError::TooLarge { name: of.to_owned(), bytes });
    }
    let metadata = metadata(name, owner.meta().namespace.clone(), BTreeMap::new(), &owner_reference(owner));
    Ok(ConfigMap { metadata, data: Some(data), immutable: Some(true), ..ConfigMap::default() })
}

fn file<T: DeserializeOwned>(config_map: &ConfigMap, name: &str) -> Result<Option<T>, BuildError> {
    let Some(text) = config_map.data.as_ref().and_then(|data| data.get(name)) else { return Ok(None) };
    let read = serde_json::from_str(text);
    read.map(Some).map_err(|error| BuildError::Unreadable { name: config_map.name_any(), reason: format!("{name}: {error}") })
}

fn pipeline_text(pipeline: &Pipeline, version_generation: Option<i64>) -> Result<String, BuildError> {
    let mut spec = pipeline.spec.clone();
    // these change without a new revision
    spec.suspend = false;
    spec.workers.replicas = None;
    if let Some(indexers) = &mut spec.indexers {
        indexers.replicas = None;
    }
    if spec.indexer.version_generation.is_none() && uses_places(&spec) {
        spec.indexer.version_generation = version_generation.and_then(|generation| u32::try_from(generation).ok());
    }
    text("Pipeline", pipeline, &spec)
}

/// Whether document versions are taken from places in a topic.
fn uses_places(spec: &PipelineSpec) -> bool {
    spec.indexer.versioning == Some(Versioning::External) && spec.indexer.version_field.is_none()
}

fn connection_text(connection: &KafkaConnection) -> Result<String, BuildError> {
    let mut spec = connection.spec.clone();
    // pods need no right to make or delete topics
    spec.admin_sasl = None;
    text("KafkaConnection", connection, &spec)
}

/// An object as a manifest.
fn text<K: ResourceExt, S: Serialize>(kind: &str, object: &K, spec: &S) -> Result<String, BuildError> {
    let render = |source| BuildError::Render { name: format!("{kind} {}", object.name_any()), source };
    let spec: Value = serde_json::to_value(spec).map_err(render)?;
    let manifest = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "metadata": {"name": object.name_any(), "namespace": object.namespace()},
        "spec": spec,
    });
    serde_json::to_string_pretty(&manifest).map_err(render)
}
