//! What pods read: the manifests of a pipeline's revision, and of a run. A ConfigMap holds one file with one JSON text an object, which
//! is YAML as well. It is never changed.
//!
//! Only what a pod acts on is in it. So a change of anything else, the number of pods for example, is no new revision, and nothing that
//! is for the operator alone reaches a pod.

use super::{BuildError, metadata, owner_reference, stamped};
use crate::names;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, ResourceExt};
use penstock_crds::{
    GROUP, IngestRun, KafkaConnection, Pipeline, PipelineSpec, VERSION,
    indexers::Versioning,
    kafka_connection::TopicPolicy,
    pool::{Pool, Scaling},
    topics::{Topic, Topics},
    values::FreeObject,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write};

/// Bytes that a ConfigMap takes.
pub const LARGEST: usize = 1 << 20;
/// The file of a revision.
const PIPELINE_FILE: &str = "pipeline.yaml";
/// The file of a run.
const RUN_FILE: &str = "run.yaml";
/// Between two objects of a file. In JSON no line of a text begins with it.
const SEPARATOR: &str = "\n---\n";
/// The largest `versionGeneration` that the schema takes.
const LARGEST_GENERATION: u32 = (1 << 27) - 1;

/// A revision of a pipeline: what its pods read, and their image.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Its name. It follows from what it is made of.
    pub name: String,
    /// Where it is written down.
    pub config_map: ConfigMap,
    /// What it is made of, as read back from there.
    pub content: RevisionContent,
}

/// What a revision is made of.
#[derive(Clone, Debug)]
pub struct RevisionContent {
    /// The pipeline, as far as its pods need it.
    pub pipeline: Pipeline,
    /// Its Kafka, if it has one.
    pub connection: Option<KafkaConnection>,
    /// The image.
    pub image: String,
}

/// The revision of a pipeline as it is now. `version_generation` is for indexers that take document versions from places in a topic,
/// unless the Pipeline says one itself.
///
/// # Errors
/// It does not fit into a ConfigMap.
pub fn pipeline_revision(
    pipeline: &Pipeline,
    connection: Option<&KafkaConnection>,
    version_generation: Option<i64>,
    image: &str,
) -> Result<Revision, BuildError> {
    let name = pipeline.name_any();
    let mut spec = for_pods(&pipeline.spec);
    if spec.indexer.version_generation.is_none() && connection.is_some() && takes_versions_from_places(&spec) {
        spec.indexer.version_generation = version_generation.and_then(to_generation);
    }
    let mut texts = vec![pipeline_text(pipeline, spec)?];
    texts.extend(connection.map(connection_text).transpose()?);
    let text = file(texts);
    let revision = names::hash(format!("{text}\n{image}").as_bytes());
    let labels = names::pipeline_labels(&name, "manifests");
    let mut config_map = config_map(pipeline, names::revision_config_map(&name, &revision), labels, (PIPELINE_FILE, text))?;
    config_map.annotations_mut().insert(names::IMAGE.to_owned(), image.to_owned());
    config_map.annotations_mut().insert(names::REVISION.to_owned(), revision.clone());
    let config_map = stamped(config_map)?;
    let content = RevisionContent::parse(&config_map)?;
    Ok(Revision { name: revision, config_map, content })
}

impl RevisionContent {
    /// Reads back what a revision is made of.
    ///
    /// # Errors
    /// Somebody else wrote it, or a version of the operator that this one does not understand.
    pub fn parse(config_map: &ConfigMap) -> Result<Self, BuildError> {
        let image = config_map.annotations().get(names::IMAGE).ok_or_else(|| unreadable(config_map, "it names no image"))?;
        let mut contents = contents(config_map, PIPELINE_FILE, image)?;
        match (contents.pop(), contents.is_empty()) {
            (Some(content), true) => Ok(content),
            _ => Err(unreadable(config_map, "it does not hold exactly one Pipeline")),
        }
    }
}

/// What the publishers of a run read: the run, and its pipelines as they are when it begins. Whether it is suspended or cancelled is
/// not in it: that changes, and publishers are told by their control folder.
///
/// # Errors
/// It does not fit into a ConfigMap.
pub fn run_manifests(run: &IngestRun, pipelines: &[RevisionContent]) -> Result<ConfigMap, BuildError> {
    let mut spec = run.spec.clone();
    (spec.suspend, spec.cancel) = (false, false);
    let name = run.name_any();
    // several connectors may use one pipeline, and several pipelines one connection
    let mut texts = BTreeMap::new();
    for content in pipelines {
        texts.insert((0, content.pipeline.name_any()), pipeline_text(&content.pipeline, content.pipeline.spec.clone())?);
        if let Some(connection) = &content.connection {
            texts.insert((1, connection.name_any()), connection_text(connection)?);
        }
    }
    let text = file([text(run, &spec)?].into_iter().chain(texts.into_values()));
    stamped(config_map(run, names::run_config_map(&name), names::run_labels(&name, "manifests"), (RUN_FILE, text))?)
}

/// Reads back the pipelines of a run, as they were when it began. `image` is that of the run.
///
/// # Errors
/// Somebody else wrote it, or a version of the operator that this one does not understand.
pub fn parse_run_manifests(config_map: &ConfigMap, image: &str) -> Result<Vec<RevisionContent>, BuildError> {
    contents(config_map, RUN_FILE, image)
}

/// The pipelines of a file, each with its connection.
fn contents(config_map: &ConfigMap, file: &str, image: &str) -> Result<Vec<RevisionContent>, BuildError> {
    let text =
        config_map.data.as_ref().and_then(|data| data.get(file)).ok_or_else(|| unreadable(config_map, &format!("it has no {file}")))?;
    let (mut pipelines, mut connections): (Vec<Pipeline>, Vec<KafkaConnection>) = Default::default();
    let not_understood = |error: serde_json::Error| unreadable(config_map, &format!("{file}: {error}"));
    for text in text.split(SEPARATOR) {
        let object: Value = serde_json::from_str(text).map_err(not_understood)?;
        if object["kind"] == Pipeline::kind(&()).as_ref() {
            pipelines.push(serde_json::from_value(object).map_err(not_understood)?);
        } else if object["kind"] == KafkaConnection::kind(&()).as_ref() {
            connections.push(serde_json::from_value(object).map_err(not_understood)?);
        }
    }
    let content = |mut pipeline: Pipeline| {
        pools(&mut pipeline.spec).for_each(|pool| texts_of_patches(pool, &unescape));
        let reference = pipeline.spec.kafka_ref.as_ref();
        let connection =
            reference.and_then(|reference| connections.iter().find(|connection| connection.name_any() == reference.name)).cloned();
        match (reference, &connection) {
            (Some(reference), None) => Err(unreadable(config_map, &format!("it does not hold KafkaConnection {}", reference.name))),
            _ => Ok(RevisionContent { pipeline, connection, image: image.to_owned() }),
        }
    };
    pipelines.into_iter().map(content).collect()
}

fn unreadable(config_map: &ConfigMap, reason: &str) -> BuildError {
    BuildError::Unreadable { name: config_map.name_any(), reason: reason.to_owned() }
}

fn config_map<K: Resource<DynamicType = ()>>(
    owner: &K,
    name: String,
    labels: BTreeMap<String, String>,
    (file, text): (&str, String),
) -> Result<ConfigMap, BuildError> {
    if text.len() > LARGEST {
        return Err(BuildError::TooLarge { name: format!("{} {}", K::kind(&()), owner.name_any()), bytes: text.len() });
    }
    Ok(ConfigMap {
        metadata: metadata(name, owner.namespace(), labels, &owner_reference(owner)),
        data: Some([(file.to_owned(), text)].into()),
        immutable: Some(true),
        ..ConfigMap::default()
    })
}

/// What a pod acts on. How many pods there are, when they change and what becomes of topics is the operator's.
fn for_pods(spec: &PipelineSpec) -> PipelineSpec {
    let mut spec = spec.clone();
    spec.suspend = false;
    spec.partition_increase = Default::default();
    spec.rollout = Default::default();
    // pods take the partitions that they find: the operator sees to it that there are enough
    spec.partitions = spec.partitions.map(|_| 1);
    let name_only =
        |topic: Option<Topic>| topic.filter(|topic| topic.name.is_some()).map(|topic| Topic { config: BTreeMap::new(), ..topic });
    let Topics { source, dest, fail, .. } = spec.topics;
    spec.topics = Topics { source: name_only(source), dest: name_only(dest), fail: name_only(fail), ..Topics::default() };
    for pool in pools(&mut spec) {
        pool.replicas = None;
        pool.scaling = Scaling::default();
    }
    spec
}

fn pools(spec: &mut PipelineSpec) -> impl Iterator<Item = &mut Pool> {
    [&mut spec.workers].into_iter().chain(&mut spec.indexers)
}

fn takes_versions_from_places(spec: &PipelineSpec) -> bool {
    spec.indexer.versioning == Some(Versioning::External) && spec.indexer.version_field.is_none()
}

fn to_generation(generation: i64) -> Option<u32> {
    u32::try_from(generation).ok().filter(|generation| (1..=LARGEST_GENERATION).contains(generation))
}

/// A `${NAME}` of a patch belongs to the program that the patch adds. Escaped, it is not looked for in the environment of `penstock`,
/// which has no use for patches.
fn pipeline_text(pipeline: &Pipeline, mut spec: PipelineSpec) -> Result<String, BuildError> {
    pools(&mut spec).for_each(|pool| texts_of_patches(pool, &|text| unescape(text).replace("${", "$${")));
    text(pipeline, &spec)
}

fn unescape(text: &str) -> String {
    text.replace("$${", "${")
}

fn texts_of_patches(pool: &mut Pool, change: &dyn Fn(&str) -> String) {
    fn walk(value: &mut Value, change: &dyn Fn(&str) -> String) {
        match value {
            Value::String(text) => *text = change(text),
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, change)),
            Value::Object(fields) => fields.values_mut().for_each(|field| walk(field, change)),
            _ => {}
        }
    }
    for FreeObject(patch) in &mut pool.pod_patches {
        patch.values_mut().for_each(|value| walk(value, change));
    }
}

/// What pods need to reach Kafka; they make no topics, and have no right to.
fn connection_text(connection: &KafkaConnection) -> Result<String, BuildError> {
    let mut spec = connection.spec.clone();
    spec.admin_sasl = None;
    let name_prefix = std::mem::take(&mut spec.topics.name_prefix);
    spec.topics = TopicPolicy { name_prefix, ..TopicPolicy::default() };
    text(connection, &spec)
}

/// An object as a manifest: nothing of its metadata but name and namespace.
fn text<K: Resource<DynamicType = ()>, S: Serialize>(object: &K, spec: &S) -> Result<String, BuildError> {
    let kind = K::kind(&());
    let manifest = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "metadata": {"name": object.name_any(), "namespace": object.namespace()},
        "spec": serde_json::to_value(spec).map_err(|source| BuildError::Render { name: format!("{kind} {}", object.name_any()), source })?,
    });
    Ok(printable(&format!("{manifest:#}")))
}

fn file(texts: impl IntoIterator<Item = String>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(SEPARATOR) + "\n"
}

/// Escapes what JSON allows in a text and YAML does not, or takes for the end of a line.
fn printable(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        match char {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                write!(text, "\\u{:04x}", u32::from(char)).expect("a String takes everything");
            }
            _ => text.push(char),
        }
    }
    text
}
