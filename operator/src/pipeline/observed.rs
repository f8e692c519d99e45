//! All that a decision about a pipeline depends on, read from stores and snapshots. Reads only, no checks.

use crate::{
    apply,
    context::{self, Context},
    error::Error,
    kafka::{Observer, Snapshot},
    names,
    resources::{RevisionContent, Role},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, core::v1::Pod};
use kube::{Api, ResourceExt, runtime::reflector::ObjectRef};
use penstock::kafka::PipelineNames;
use penstock_crds::{
    KafkaConnection, Pipeline, conditions::ConditionType, conditions::RunPhase, pipeline::ActiveRuns, pipeline::PipelineStatus,
};
use std::sync::Arc;

/// So many runs are named in a status.
const NAMED_RUNS: usize = 16;

/// What is there.
pub struct Observed {
    /// The connection that the pipeline names, if it is there.
    pub connection: Option<KafkaConnection>,
    /// Who watches it.
    pub observer: Option<Arc<Observer>>,
    /// What was seen of Kafka.
    pub snapshot: Arc<Snapshot>,
    /// The names of its topics and groups; nothing without a connection.
    pub names: Option<PipelineNames>,
    /// Runs that are not over.
    pub runs: ActiveRuns,
    /// Another pipeline has one of its topics.
    pub conflict: Option<Conflict>,
    /// What the pods were last made of.
    pub in_use: Option<RevisionContent>,
    /// The pods of workers, or of workers paired with indexers.
    pub workers: Pods,
    /// The pods of indexers.
    pub indexers: Pods,
}

/// Somebody else has a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The topic.
    pub topic: String,
    /// Namespace and name of the pipeline that has it.
    pub owner: String,
}

/// The pods of one role.
#[derive(Default)]
pub struct Pods {
    /// Their Deployment.
    pub deployment: Option<Arc<Deployment>>,
    /// They themselves.
    pub pods: Vec<Arc<Pod>>,
}

/// Reads it all.
///
/// # Errors
/// The ConfigMap of the revision in use cannot be read.
pub async fn read(pipeline: &Pipeline, context: &Context) -> Result<Observed, Error> {
    let namespace = pipeline.namespace().unwrap_or_default();
    let name = pipeline.name_any();
    let reference = pipeline.spec.kafka_ref.as_ref().map(|reference| reference.name.clone());
    let connection = reference.as_ref().and_then(|reference| context::get(&context.stores.connections, &namespace, reference));
    let observer = reference.as_ref().and_then(|reference| context.observers.get(&namespace, reference));
    let snapshot = observer.as_ref().map(|observer| observer.snapshot()).unwrap_or_default();
    let topic_names = connection.as_ref().map(|connection| topic_names(pipeline, connection));
    let conflict = connection.as_ref().and_then(|connection| conflict(pipeline, connection, context));
    Ok(Observed {
        runs: active_runs(context, &namespace, &name),
        in_use: in_use(pipeline, context).await?,
        workers: pods(context, &namespace, &name, worker_role(pipeline)),
        indexers: pods(context, &namespace, &name, Role::Indexer),
        connection,
        observer,
        snapshot,
        names: topic_names,
        conflict,
    })
}

/// Who runs the stages of a pipeline.
pub fn worker_role(pipeline: &Pipeline) -> Role {
    match pipeline.spec.effective_mode() {
        penstock_crds::pipeline::Mode::WorkerIndexer => Role::WorkerIndexer,
        _ => Role::Worker,
    }
}

/// The names of a pipeline's topics and groups.
pub fn topic_names(pipeline: &Pipeline, connection: &KafkaConnection) -> PipelineNames {
    let namespace = pipeline.namespace().unwrap_or_default();
    let prefix = connection.spec.topics.name_prefix.replace("{namespace}", &namespace);
    PipelineNames::new(&pipeline.name_any(), &pipeline.spec.topics, &prefix)
}

fn active_runs(context: &Context, namespace: &str, pipeline: &str) -> ActiveRuns {
    let runs = context.stores.runs.state();
    let mut active: Vec<_> = runs
        .iter()
        .filter_map(|run| run.0.as_ref().ok())
        .filter(|run| run.metadata.namespace.as_deref() == Some(namespace) && run.metadata.deletion_timestamp.is_none())
        .filter(|run| !run.status.as_ref().and_then(|status| status.phase).is_some_and(RunPhase::is_final))
        .filter(|run| run.spec.connectors.iter().any(|connector| connector.pipeline == pipeline))
        .map(|run| (run.metadata.creation_timestamp.clone(), run.name_any()))
        .collect();
    active.sort();
    let count = i32::try_from(active.len()).unwrap_or(i32::MAX);
    ActiveRuns { count, names: active.into_iter().map(|(_, name)| name).take(NAMED_RUNS).collect() }
}

/// The pipeline that has one of our topics and may keep it: the older one, then the one that is ready, then by uid.
fn conflict(pipeline: &Pipeline, connection: &KafkaConnection, context: &Context) -> Option<Conflict> {
    let claimed = claimed(pipeline, connection);
    let rank = |pipeline: &Pipeline| {
        let is_ready = pipeline.status.as_ref().is_some_and(|status| crate::status::holds(&status.conditions, ConditionType::TopicsReady));
        (pipeline.metadata.creation_timestamp.clone(), !is_ready, pipeline.uid())
    };
    let ours = rank(pipeline);
    for other in context.stores.pipelines.state() {
        let Ok(other) = &other.0 else { continue };
        let (Some(reference), Some(namespace)) = (&other.spec.kafka_ref, other.namespace()) else { continue };
        if other.uid() == pipeline.uid() || other.metadata.deletion_timestamp.is_some() || rank(other) > ours {
            continue;
        }
        let Some(theirs) = context::get(&context.stores.connections, &namespace, &reference.name) else { continue };
        if theirs.spec.bootstrap_servers != connection.spec.bootstrap_servers {
            continue;
        }
        if let Some(topic) = self::claimed(other, &theirs).into_iter().find(|topic| claimed.contains(topic)) {
            return Some(Conflict { topic, owner: format!("{namespace}/{}", other.name_any()) });
        }
    }
    None
}

fn claimed(pipeline: &Pipeline, connection: &KafkaConnection) -> Vec<String> {
    let names = topic_names(pipeline, connection);
    match pipeline.spec.effective_mode() {
        penstock_crds::pipeline::Mode::Distributed => vec![names.source, names.dest, names.fail],
        _ => vec![names.source, names.fail],
    }
}

/// What the revision in use was made of.
async fn in_use(pipeline: &Pipeline, context: &Context) -> Result<Option<RevisionContent>, Error> {
    let status: Option<&PipelineStatus> = pipeline.status.as_ref();
    let Some(revision) = status.and_then(|status| status.revision.as_ref()).and_then(|revision| revision.current.clone()) else {
        return Ok(None);
    };
    let namespace = pipeline.namespace().unwrap_or_default();
    let key = format!("{}/{revision}", pipeline.uid().unwrap_or_default());
    if let Some(content) = context.revisions.lock().get(&key) {
        return Ok(Some(content.clone()));
    }
    let name = names::revision_config_map(&pipeline.name_any(), &revision);
    let api: Api<ConfigMap> = Api::namespaced(context.shared.client.clone(), &namespace);
    let found = api.get_opt(&name).await.map_err(|error| Error::api("read", format!("ConfigMap {namespace}/{name}"), error))?;
    let Some(content) = found.and_then(|found| match RevisionContent::parse(&found) {
        Ok(content) => Some(content),
        Err(error) => {
            tracing::warn!(object = apply::describe(&found), %error, "a revision cannot be read; the present spec takes its place");
            None
        }
    }) else {
        return Ok(None);
    };
    context.revisions.lock().insert(key, content.clone());
    Ok(Some(content))
}

fn pods(context: &Context, namespace: &str, pipeline: &str, role: Role) -> Pods {
    let name = names::deployment(pipeline, role);
    let deployment = context.stores.deployments.get(&ObjectRef::new(&name).within(namespace));
    let is_ours = |pod: &Pod| {
        let labels = pod.labels();
        pod.metadata.namespace.as_deref() == Some(namespace)
            && labels.get(names::LABEL_PIPELINE).is_some_and(|value| *value == pipeline)
            && labels.get(names::LABEL_COMPONENT).is_some_and(|value| value == role.as_str())
    };
    Pods { pods: if deployment.is_some() { context.stores.pods.state_filter(is_ours) } else { Vec::new() }, deployment }
}
