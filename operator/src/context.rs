//! What reconcilers are given: clients, what is known of the cluster and of Kafka, and how to tell people.

use crate::{
    apply::{self, Applier},
    error::Error,
    ingest_run::Pollers,
    kafka::Observers,
    leadership::Leadership,
    metrics::{Metrics, ObjectCounts},
    names::STATUS_MANAGER,
    reconciler::History,
    resources::{RevisionContent, Settings},
    status,
    vitals::Vitals,
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        batch::v1::Job,
        core::v1::{Pod, Service},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{PartialObjectMeta, Patch, PatchParams},
    core::{DeserializeGuard, object::HasStatus},
    runtime::{
        events::{Event, EventType, Recorder},
        reflector::{ObjectRef, Store},
    },
};
use parking_lot::Mutex;
use penstock::secrets::SecretText;
use penstock_crds::{
    IngestRun, IngestSchedule, KafkaConnection, Pipeline, conditions::ConditionType, ingest_run::IngestRunStatus,
    ingest_schedule::IngestScheduleStatus, kafka_connection::KafkaConnectionStatus, pipeline::PipelineStatus, report::Wanted,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use std::{collections::HashMap, fmt::Debug, sync::Arc};

/// What all scopes share.
pub struct Shared {
    /// The way to the API server.
    pub client: Client,
    /// What the operator was told at its start.
    pub settings: Settings,
    /// Writes children.
    pub applier: Applier,
    /// Writes events.
    pub recorder: Recorder,
    /// Whether this process may write.
    pub leadership: Leadership,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Signs of life.
    pub vitals: Vitals,
    /// Failures and hurry of objects.
    pub history: History,
}

/// What the reconcilers of one scope (one namespace, or all) are given.
pub struct Context {
    /// What all scopes share.
    pub shared: Arc<Shared>,
    /// What is known of the cluster.
    pub stores: Stores,
    /// What is known of Kafka.
    pub observers: Observers,
    /// What is known of publishers at work.
    pub pollers: Pollers,
    /// What revisions are made of, by uid of the pipeline and name.
    pub revisions: Mutex<HashMap<String, RevisionContent>>,
    /// The tokens of publishers and what they were told last, by namespace and Job.
    pub orders: Mutex<HashMap<String, (SecretText, Wanted)>>,
}

/// A store of objects, some of which may be unreadable.
pub type Objects<K> = Store<DeserializeGuard<K>>;

/// What is known of the cluster.
#[derive(Clone)]
pub struct Stores {
    /// Pipelines.
    pub pipelines: Objects<Pipeline>,
    /// Runs.
    pub runs: Objects<IngestRun>,
    /// Schedules.
    pub schedules: Objects<IngestSchedule>,
    /// Connections.
    pub connections: Objects<KafkaConnection>,
    /// Deployments of ours.
    pub deployments: Store<Deployment>,
    /// Jobs of ours.
    pub jobs: Store<Job>,
    /// Pods of ours, without their specs.
    pub pods: Store<Pod>,
    /// Services of ours, their metadata only.
    pub services: Store<PartialObjectMeta<Service>>,
    /// Budgets of ours, their metadata only.
    pub budgets: Store<PartialObjectMeta<PodDisruptionBudget>>,
    /// Network policies of ours, their metadata only.
    pub policies: Store<PartialObjectMeta<NetworkPolicy>>,
}

impl Stores {
    /// Adds how many objects of our kinds there are, by state.
    pub fn count(&self, counts: &mut ObjectCounts) {
        for run in self.runs.state() {
            let phase = run.0.as_ref().ok().and_then(|run| run.status.as_ref()?.phase);
            let phase = phase.map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"));
            *counts.entry(("IngestRun", phase)).or_default() += 1;
        }
        count(&self.pipelines, "Pipeline", counts);
        count(&self.schedules, "IngestSchedule", counts);
        count(&self.connections, "KafkaConnection", counts);
    }
}

fn count<K, S>(store: &Objects<K>, kind: &'static str, counts: &mut ObjectCounts)
where
    K: Resource<DynamicType = ()> + Clone + HasConditions<S> + HasStatus<Status = S>,
{
    for object in store.state() {
        let conditions = object.0.as_ref().ok().and_then(|object| object.status()).map(K::conditions).unwrap_or_default();
        let state = if status::holds(conditions, ConditionType::Ready) { "Ready" } else { "NotReady" };
        *counts.entry((kind, state.to_owned())).or_default() += 1;
    }
}

/// The object of that name, if it is there and can be read.
pub fn get<K: Resource<DynamicType = ()> + Clone>(store: &Objects<K>, namespace: &str, name: &str) -> Option<K> {
    store.get(&ObjectRef::new(name).within(namespace)).and_then(|object| object.0.clone().ok())
}

impl Context {
    /// The time.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

impl Shared {
    /// Writes an event. That it cannot be written is logged and nothing else.
    pub fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, kind: EventType, reason: &str, note: String) {
        let note = Some(status::cut(note, status::LONGEST_NOTE));
        self.publish(object, Event { type_: kind, reason: reason.to_owned(), note, action: "Reconcile".into(), secondary: None });
    }

    /// Writes an event, without waiting for it.
    pub fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, event: Event) {
        let (recorder, reference) = (self.recorder.clone(), object.object_ref(&()));
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &reference).await {
                tracing::debug!(%error, reason = event.reason, "an event could not be written");
            }
        });
    }
}

/// Writes a status, if it is another one.
///
/// # Errors
/// The API server refuses it, or does not answer.
pub async fn write_status<K, S>(context: &Context, object: &K, old: Option<&S>, new: &S) -> Result<bool, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + HasConditions<S>,
    S: Serialize + PartialEq + Sync,
{
    if old == Some(new) {
        return Ok(false);
    }
    let patch = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": object.meta().name}, "status": new});
    let api: Api<K> = Api::namespaced(context.shared.client.clone(), object.meta().namespace.as_deref().unwrap_or_default());
    let name = object.meta().name.clone().unwrap_or_default();
    let parameters = PatchParams::apply(STATUS_MANAGER).force();
    let written = api.patch_status(&name, &parameters, &Patch::Apply(&patch)).await;
    written.map_err(|error| Error::api("write the status of", apply::describe(object), error))?;
    context.shared.metrics.applied(&format!("{}/status", K::kind(&())));
    let before = old.map(K::conditions).unwrap_or_default();
    for event in status::transitions(before, K::conditions(new)) {
        context.shared.publish(object, event);
    }
    Ok(true)
}

/// A kind whose status has conditions.
pub trait HasConditions<S> {
    /// They.
    fn conditions(status: &S) -> &[Condition];
}

macro_rules! has_conditions {
    ($($kind:ty: $status:ty),*) => {$(
        impl HasConditions<$status> for $kind {
            fn conditions(status: &$status) -> &[Condition] {
                &status.conditions
            }
        }
    )*};
}

has_conditions!(Pipeline: PipelineStatus, IngestRun: IngestRunStatus, KafkaConnection: KafkaConnectionStatus, IngestSchedule: IngestScheduleStatus);

/// One object by name; nothing if there is none.
///
/// # Errors
/// The API server refuses it, or does not answer.
pub async fn read<K: apply::Child>(context: &Context, namespace: &str, name: &str) -> Result<Option<K>, Error> {
    let api: Api<K> = Api::namespaced(context.shared.client.clone(), namespace);
    api.get_opt(name).await.map_err(|error| Error::api("read", format!("{} {namespace}/{name}", K::kind(&())), error))
}
