//! The publisher of the connector at work: its event topic, manifests, orders and Job, in this order; then the way to talk to it.

use super::{
    advance::Next,
    observed::{self, event_topic_name, observer},
    poller::Target,
};
use crate::{
    context::{self, Context},
    error::Error,
    kafka::{Action, Interest, Owner, OwnerKind, Topic, Wanting},
    names::{self, FIELD_MANAGER},
    resources::{self, RevisionContent, control_secret},
};
use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::reflector::ObjectRef,
};
use penstock::secrets::SecretText;
use penstock_crds::{IngestRun, Pipeline, conditions::ConnectorState, ingest_run::IngestRunStatus, report::Wanted};
use serde_json::json;
use std::{collections::BTreeMap, io::Read};

/// Who a run is to an observer of Kafka.
pub fn owner(run: &IngestRun) -> Owner {
    Owner { kind: OwnerKind::Run, namespace: run.namespace().unwrap_or_default(), name: run.name_any() }
}

/// Has the publisher of a connector at work, and tells it what is wanted.
pub async fn keep_publishing(run: &IngestRun, context: &Context, next: &Next, index: usize) -> Result<(), Error> {
    let namespace = run.namespace().unwrap_or_default();
    let Some(connector) = run.spec.connectors.get(index) else { return Ok(()) };
    let (Some(status), Some(image)) = (next.status.connectors.get(index), &next.status.image) else { return Ok(()) };
    let Some(job_name) = &status.job_name else { return Ok(()) };
    if context.stores.jobs.get(&ObjectRef::new(job_name).within(&namespace)).is_none() {
        let Some(pipeline) = context::get(&context.stores.pipelines, &namespace, &connector.pipeline) else { return Ok(()) };
        let is_first = status.attempt == Some(1) && status.state == ConnectorState::Starting;
        if !event_topic_is_there(run, &pipeline, context, is_first && is_first_of_pipeline(run, &next.status, index)) {
            return Ok(());
        }
        start(run, context, index, status.attempt.unwrap_or(1), image, next.wanted).await?;
        return Ok(());
    }
    let Some(address) = observed::address(run, context) else { return Ok(()) };
    let token = orders(context, &namespace, job_name, next.wanted).await?;
    let Some(token) = token else { return Ok(()) };
    context.pollers.ask(
        &namespace,
        &run.name_any(),
        Target { job: job_name.clone(), address, port: names::PORT, token, wanted: next.wanted },
    );
    Ok(())
}

/// Whether no connector of the run has published to that pipeline: then there can be no events that a missing topic would have lost.
fn is_first_of_pipeline(run: &IngestRun, status: &IngestRunStatus, index: usize) -> bool {
    let pipeline = &run.spec.connectors[index].pipeline;
    let before = run.spec.connectors.iter().zip(&status.connectors).take(index);
    !before.into_iter().any(|(connector, status)| connector.pipeline == *pipeline && status.job_name.is_some())
}

/// Whether the run's event topic can be used; has it made if it may be.
fn event_topic_is_there(run: &IngestRun, pipeline: &Pipeline, context: &Context, may_create: bool) -> bool {
    if pipeline.spec.kafka_ref.is_none() {
        return true;
    }
    let (Some(topic), Some(observer)) = (event_topic_name(run, pipeline, context), observer(pipeline, context)) else { return false };
    let snapshot = observer.snapshot();
    let seen = snapshot.topics.get(&topic);
    if matches!(seen, Some(Topic::There(_))) {
        return true;
    }
    let mut wanting = Wanting { interest: Interest { topics: [topic.clone()].into(), ..Interest::default() }, actions: Vec::new() };
    if may_create && snapshot.is_fresh() && matches!(seen, Some(Topic::Missing)) {
        let config = [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1"), ("max.message.bytes", "1048588")];
        let config: BTreeMap<String, String> = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        wanting.actions.push(Action::Create { topic, partitions: 1, config });
    }
    observer.want(owner(run), wanting);
    false
}

async fn start(run: &IngestRun, context: &Context, index: usize, attempt: i32, image: &str, wanted: Wanted) -> Result<(), Error> {
    let (applier, namespace) = (&context.shared.applier, run.namespace().unwrap_or_default());
    let manifests = match context::read::<ConfigMap>(context, &namespace, &names::run_config_map(&run.name_any())).await? {
        Some(there) => there,
        None => {
            let manifests = resources::run_manifests(run, &contents(run, context, image)?)?;
            applier.create_once(&manifests).await?;
            manifests
        }
    };
    // later connectors find their pipelines as they were when the first one began
    let contents = resources::parse_run_manifests(&manifests, image)?;
    let pipeline = &run.spec.connectors[index].pipeline;
    let Some(content) = contents.iter().find(|content| content.pipeline.name_any() == *pipeline) else { return Ok(()) };
    // orders first: the Job's pod cannot start without them
    applier.create_once(&control_secret::build(run, index, attempt, &token()?, wanted)?).await?;
    let job: Job = resources::job::build(run, index, attempt, content, image, &context.shared.settings)?;
    applier.create_once(&job).await
}

/// What the pipelines of a run are made of now.
fn contents(run: &IngestRun, context: &Context, image: &str) -> Result<Vec<RevisionContent>, Error> {
    let namespace = run.namespace().unwrap_or_default();
    let mut contents: Vec<RevisionContent> = Vec::new();
    for connector in &run.spec.connectors {
        if contents.iter().any(|content| content.pipeline.name_any() == connector.pipeline) {
            continue;
        }
        let Some(pipeline) = context::get(&context.stores.pipelines, &namespace, &connector.pipeline) else { continue };
        let reference = pipeline.spec.kafka_ref.as_ref();
        let connection = reference.and_then(|reference| context::get(&context.stores.connections, &namespace, &reference.name));
        let generation = pipeline.status.as_ref().and_then(|status| status.version_generation);
        contents.push(resources::pipeline_revision(&pipeline, connection.as_ref(), generation, image)?.content);
    }
    Ok(contents)
}

/// The token of a Job's publisher; sees to it that the next pod finds the state that is wanted.
async fn orders(context: &Context, namespace: &str, job: &str, wanted: Wanted) -> Result<Option<SecretText>, Error> {
    let key = format!("{namespace}/{job}");
    if let Some((token, told)) = context.orders.lock().get(&key)
        && *told == wanted
    {
        return Ok(Some(token.clone()));
    }
    let Some(secret) = context::read::<Secret>(context, namespace, job).await? else { return Ok(None) };
    let text = |name: &str| secret.data.as_ref().and_then(|data| data.get(name)).and_then(|value| String::from_utf8(value.0.clone()).ok());
    let Some(token) = text(control_secret::TOKEN).map(SecretText::from) else { return Ok(None) };
    if text(control_secret::STATE).as_deref() != Some(wanted.as_str()) {
        let api: Api<Secret> = Api::namespaced(context.shared.client.clone(), namespace);
        let patch = json!({"data": {control_secret::STATE: ByteString(wanted.as_str().as_bytes().to_vec())}});
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let written = api.patch(job, &parameters, &Patch::Merge(&patch)).await;
        written.map_err(|error| Error::api("write the orders in", format!("Secret {namespace}/{job}"), error))?;
    }
    context.orders.lock().insert(key, (token.clone(), wanted));
    Ok(Some(token))
}

/// Ends the publisher of a connector for good.
pub async fn stop(run: &IngestRun, context: &Context, status: &IngestRunStatus, index: usize) -> Result<(), Error> {
    let namespace = run.namespace().unwrap_or_default();
    let Some(job) = status.connectors.get(index).and_then(|connector| connector.job_name.as_ref()) else { return Ok(()) };
    match context.stores.jobs.get(&ObjectRef::new(job).within(&namespace)) {
        Some(job) => context.shared.applier.delete::<Job>(&job).await,
        None => Ok(()),
    }
}

/// 256 random bits, as text.
fn token() -> Result<String, Error> {
    let mut bytes = [0; 32];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|error| Error::Token(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
