//! The controllers of one scope: one namespace, or all. Every kind is watched once, whoever wants to know of it.

use crate::{
    context::{Context, Objects, Shared, Stores},
    ingest_run::Pollers,
    kafka::{Listeners, Observers, Owner, OwnerKind},
    names,
    reconciler::{self, Reconciler},
    wake::Wake,
};
use futures::{Stream, StreamExt, future, stream::BoxStream};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Pod, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Resource, ResourceExt,
    api::PartialObjectMeta,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        controller::{Config, Controller},
        reflector,
        reflector::{ObjectRef, ReflectHandle, Store},
        watcher,
    },
};
use parking_lot::Mutex;
use penstock_crds::{IngestRun, IngestSchedule, KafkaConnection, Pipeline};
use serde::de::DeserializeOwned;
use std::{
    collections::HashMap,
    fmt::Debug,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Objects that wait for each listener of a watch.
const BUFFER: usize = 1_024;
/// How long changes of one object are collected.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often it is seen whether everything is known.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often what is kept for objects that are gone is forgotten.
const SWEEP: Duration = Duration::from_secs(15);

/// One scope at work.
pub struct Scope {
    /// What its reconcilers are given.
    pub context: Arc<Context>,
    tasks: JoinSet<()>,
}

struct Watched<K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static> {
    store: Store<K>,
    handle: ReflectHandle<K>,
}

impl Scope {
    /// Starts watches and controllers.
    pub fn start(
        shared: Arc<Shared>,
        namespace: Option<&str>,
        kafka_interval: Duration,
        concurrency: u16,
        end: &CancellationToken,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let client = shared.client.clone();
        let pipelines = watch_ours::<Pipeline>(&mut tasks, api(&client, namespace), end);
        let runs = watch_ours::<IngestRun>(&mut tasks, api(&client, namespace), end);
        let schedules = watch_ours::<IngestSchedule>(&mut tasks, api(&client, namespace), end);
        let connections = watch_ours::<KafkaConnection>(&mut tasks, api(&client, namespace), end);
        let deployments = watch_children::<Deployment>(&mut tasks, api(&client, namespace), end);
        let jobs = watch_children::<Job>(&mut tasks, api(&client, namespace), end);
        let pods = watch_children::<Pod>(&mut tasks, api(&client, namespace), end);
        let (wake_pipelines, pipeline_wishes) = Wake::new();
        let (wake_runs, run_wishes) = Wake::new();
        let (wake_connections, connection_wishes) = Wake::new();
        let observers = Observers::new(kafka_interval, listeners(&shared, &wake_pipelines, &wake_runs, &wake_connections));
        let wake = wake_runs.clone();
        let stores = Stores {
            pipelines: pipelines.store.clone(),
            runs: runs.store.clone(),
            schedules: schedules.store.clone(),
            connections: connections.store.clone(),
            deployments: deployments.store.clone(),
            jobs: jobs.store.clone(),
            pods: pods.store.clone(),
            services: watch_metadata::<Service>(&mut tasks, api(&client, namespace), end),
            budgets: watch_metadata::<PodDisruptionBudget>(&mut tasks, api(&client, namespace), end),
            policies: watch_metadata::<NetworkPolicy>(&mut tasks, api(&client, namespace), end),
        };
        let context = Arc::new(Context {
            shared,
            stores,
            observers,
            pollers: Pollers::new(move |namespace, run| wake.wake(namespace, run)),
            revisions: Mutex::default(),
            orders: Mutex::default(),
        });
        let settings = Config::default().concurrency(concurrency).debounce(DEBOUNCE);

        let controller = Controller::for_shared_stream(changes(&connections.handle, spec_key), connections.store.clone());
        let controller = controller.with_config(settings.clone()).reconcile_on(connection_wishes.into_stream());
        let users = relate(&pipelines.handle, spec_key, |pipeline: &Pipeline| {
            let reference = pipeline.spec.kafka_ref.as_ref()?;
            Some(vec![(pipeline.namespace()?, reference.name.clone())])
        });
        spawn(&mut tasks, controller.reconcile_on(users), &context, end);

        let controller = Controller::for_shared_stream(changes(&pipelines.handle, spec_key), pipelines.store.clone());
        let controller = controller.with_config(settings.clone()).reconcile_on(pipeline_wishes.into_stream());
        let of_runs = relate(&runs.handle, run_key, |run: &IngestRun| {
            let namespace = run.namespace()?;
            Some(run.spec.connectors.iter().map(|connector| (namespace.clone(), connector.pipeline.clone())).collect())
        });
        let all = pipelines.store.clone();
        let of_connections = changes(&connections.handle, whole_key).flat_map(move |connection| {
            let name = connection.name_any();
            let uses = |pipeline: &Arc<DeserializeGuard<Pipeline>>| {
                let reference = pipeline.0.as_ref().ok().and_then(|pipeline| pipeline.spec.kafka_ref.as_ref());
                pipeline.namespace() == connection.namespace() && reference.is_some_and(|reference| reference.name == name)
            };
            let users: Vec<_> =
                all.state().iter().filter(|pipeline| uses(pipeline)).map(|pipeline| ObjectRef::from_obj(&**pipeline)).collect();
            futures::stream::iter(users)
        });
        let of_children = labelled(&deployments.handle, names::LABEL_PIPELINE);
        let of_pods = labelled(&pods.handle, names::LABEL_PIPELINE);
        let controller = controller.reconcile_on(of_runs).reconcile_on(of_connections).reconcile_on(of_children).reconcile_on(of_pods);
        spawn(&mut tasks, controller, &context, end);

        let controller = Controller::for_shared_stream(changes(&runs.handle, spec_key), runs.store.clone());
        let controller = controller.with_config(settings.clone()).reconcile_on(run_wishes.into_stream());
        let all = runs.store.clone();
        let of_pipelines = changes(&pipelines.handle, whole_key).flat_map(move |pipeline| {
            let name = pipeline.name_any();
            let waits = |run: &Arc<DeserializeGuard<IngestRun>>| {
                let Ok(readable) = &run.0 else { return false };
                let is_over = readable.status.as_ref().and_then(|status| status.phase).is_some_and(|phase| phase.is_final());
                !is_over
                    && run.namespace() == pipeline.namespace()
                    && readable.spec.connectors.iter().any(|connector| connector.pipeline == name)
            };
            let waiting: Vec<_> = all.state().iter().filter(|run| waits(run)).map(|run| ObjectRef::from_obj(&**run)).collect();
            futures::stream::iter(waiting)
        });
        let of_jobs = labelled(&jobs.handle, names::LABEL_RUN);
        let of_pods = labelled(&pods.handle, names::LABEL_RUN);
        // a run that has ended lets the next one begin
        let all = runs.store.clone();
        let of_ended = changes(&runs.handle, run_key).flat_map(move |ended| {
            let others: Vec<_> =
                all.state().iter().filter(|run| run.namespace() == ended.namespace()).map(|run| ObjectRef::from_obj(&**run)).collect();
            let is_over = ended.0.as_ref().ok().and_then(|run| run.status.as_ref()?.phase).is_some_and(|phase| phase.is_final());
            futures::stream::iter(if is_over { others } else { Vec::new() })
        });
        let controller = controller.reconcile_on(of_pipelines).reconcile_on(of_jobs).reconcile_on(of_pods).reconcile_on(of_ended);
        spawn(&mut tasks, controller, &context, end);

        let controller = Controller::for_shared_stream(changes(&schedules.handle, spec_key), schedules.store.clone());
        let of_runs = relate(&runs.handle, run_key, |run: &IngestRun| {
            Some(vec![(run.namespace()?, run.labels().get(names::LABEL_SCHEDULE)?.clone())])
        });
        spawn(&mut tasks, controller.with_config(settings).reconcile_on(of_runs), &context, end);
        sweep(&mut tasks, &context, end);
        Self { context, tasks }
    }

    /// Waits until everything that exists is known.
    pub async fn synced(&self) {
        // a store wakes only the last of those who wait for it, and controllers do so too: it is looked at again and again
        while tokio::time::timeout(LOOK_AGAIN, self.known()).await.is_err() {}
    }

    async fn known(&self) {
        let stores = &self.context.stores;
        // a watch that ends does so with the process
        let _ = stores.pipelines.wait_until_ready().await;
        let _ = stores.runs.wait_until_ready().await;
        let _ = stores.schedules.wait_until_ready().await;
        let _ = stores.connections.wait_until_ready().await;
        let _ = stores.deployments.wait_until_ready().await;
        let _ = stores.jobs.wait_until_ready().await;
        let _ = stores.pods.wait_until_ready().await;
    }

    /// Waits until everything has ended.
    pub async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

fn api<K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>(
    client: &kube::Client,
    namespace: Option<&str>,
) -> Api<K> {
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// A kind of ours: an object that cannot be read stops nobody else.
fn watch_ours<K>(tasks: &mut JoinSet<()>, api: Api<K>, end: &CancellationToken) -> Watched<DeserializeGuard<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<DeserializeGuard<K>> = match api.namespace() {
        Some(namespace) => Api::namespaced(api.clone().into_client(), namespace),
        None => Api::all(api.into_client()),
    };
    watch(tasks, watcher(api, watcher::Config::default()), end)
}

fn watch_children<K>(tasks: &mut JoinSet<()>, api: Api<K>, end: &CancellationToken) -> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    watch(tasks, watcher(api, watcher::Config::default().labels(&names::ours())), end)
}

fn watch_metadata<K>(tasks: &mut JoinSet<()>, api: Api<K>, end: &CancellationToken) -> Store<PartialObjectMeta<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let api: Api<PartialObjectMeta<K>> = match api.namespace() {
        Some(namespace) => Api::namespaced(api.clone().into_client(), namespace),
        None => Api::all(api.into_client()),
    };
    let stream = watcher(api, watcher::Config::default().labels(&names::ours())).default_backoff().reflect(writer).applied_objects();
    let end = end.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = stream.for_each(|_| future::ready(())) => {}
            () = end.cancelled() => {}
        }
    });
    store
}

fn watch<K>(
    tasks: &mut JoinSet<()>,
    stream: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    end: &CancellationToken,
) -> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store_shared(BUFFER);
    #[expect(clippy::expect_used, reason = "a shared writer has subscribers")]
    let handle = writer.subscribe().expect("the writer is shared");
    let strip = |object: &mut K| {
        object.managed_fields_mut().clear();
        object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    };
    let stream = stream.default_backoff().modify(strip).reflect_shared(writer);
    let end = end.clone();
    tasks.spawn(async move {
        let all = stream.for_each(|event| {
            if let Err(error) = event {
                tracing::warn!(kind = %K::kind(&()), %error, "a watch failed; it is tried again");
            }
            future::ready(())
        });
        tokio::select! {
            () = all => {}
            () = end.cancelled() => {}
        }
    });
    Watched { store, handle }
}

/// What of an object makes a difference to its own reconcile: not its status, which we write ourselves.
fn spec_key<K: Resource>(object: &DeserializeGuard<K>) -> u64
where
    DeserializeGuard<K>: Resource,
{
    let meta = object.meta();
    hash(&(
        &meta.uid,
        meta.generation,
        &meta.finalizers,
        meta.deletion_timestamp.is_some(),
        meta.annotations.as_ref().and_then(|all| all.get("penstock.io/reconcile-at")),
    ))
}

/// Everything makes a difference.
fn whole_key<K: Resource>(object: &DeserializeGuard<K>) -> u64
where
    DeserializeGuard<K>: Resource,
{
    hash(&object.meta().resource_version)
}

/// What of a run makes a difference to others.
fn run_key(run: &DeserializeGuard<IngestRun>) -> u64 {
    let phase = run.0.as_ref().ok().and_then(|run| run.status.as_ref()?.phase);
    hash(&(&run.meta().uid, phase, run.meta().deletion_timestamp.is_some()))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The objects of a watch whose key is another one than before.
fn changes<K>(handle: &ReflectHandle<K>, key: impl Fn(&K) -> u64 + Send + 'static) -> BoxStream<'static, Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let store = handle.reader();
    let mut seen: HashMap<ObjectRef<K>, u64> = HashMap::new();
    handle
        .clone()
        .filter(move |object| {
            let now = key(object);
            let differs = seen.insert(ObjectRef::from_obj(&**object), now) != Some(now);
            if seen.len() > 2 * store.len() + 64 {
                seen.retain(|reference, _| store.get(reference).is_some());
            }
            future::ready(differs)
        })
        .boxed()
}

/// References from objects of one kind to those of another.
fn relate<K, T>(
    handle: &ReflectHandle<DeserializeGuard<K>>,
    key: impl Fn(&DeserializeGuard<K>) -> u64 + Send + 'static,
    to: impl Fn(&K) -> Option<Vec<(String, String)>> + Send + 'static,
) -> impl Stream<Item = ObjectRef<DeserializeGuard<T>>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    T: Resource<DynamicType = ()> + 'static,
{
    changes(handle, key).flat_map(move |object| {
        let names = object.0.as_ref().ok().and_then(&to).unwrap_or_default();
        futures::stream::iter(names.into_iter().map(|(namespace, name)| ObjectRef::new(&name).within(&namespace)).collect::<Vec<_>>())
    })
}

/// References from children to the objects that a label names.
fn labelled<C, T>(handle: &ReflectHandle<C>, label: &'static str) -> impl Stream<Item = ObjectRef<DeserializeGuard<T>>> + Send + 'static
where
    C: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    T: Resource<DynamicType = ()> + 'static,
{
    handle.clone().filter_map(move |child| {
        let name = child.labels().get(label).cloned();
        future::ready(name.zip(child.namespace()).map(|(name, namespace)| ObjectRef::new(&name).within(&namespace)))
    })
}

fn spawn<K>(tasks: &mut JoinSet<()>, controller: Controller<DeserializeGuard<K>>, context: &Arc<Context>, end: &CancellationToken)
where
    K: Reconciler + DeserializeOwned,
    DeserializeGuard<K>: Resource<DynamicType = ()>,
{
    let (end, context) = (end.clone(), Arc::clone(context));
    let alive = context.shared.vitals.task(format!("controller of {}", K::kind(&())));
    tasks.spawn(async move {
        // who did not lead must not be behind when its time comes
        let leadership = context.shared.leadership.clone();
        let begins_to_lead = futures::stream::once(async move { leadership.changed().await }).chain(futures::stream::pending());
        let graceful = {
            let end = end.clone();
            async move { end.cancelled().await }
        };
        let controller = controller.reconcile_all_on(begins_to_lead).graceful_shutdown_on(graceful);
        controller.run(reconciler::reconcile::<K>, reconciler::error_policy::<K>, context).for_each(|_| future::ready(())).await;
        if end.is_cancelled() {
            alive.ends();
        } else {
            tracing::error!(kind = %K::kind(&()), "a controller ended by itself");
        }
    });
}

fn listeners(
    shared: &Arc<Shared>,
    pipelines: &Wake<DeserializeGuard<Pipeline>>,
    runs: &Wake<DeserializeGuard<IngestRun>>,
    connections: &Wake<DeserializeGuard<KafkaConnection>>,
) -> Listeners {
    let (pipelines, runs, connections) = (pipelines.clone(), runs.clone(), connections.clone());
    let metrics = Arc::clone(&shared.metrics);
    Listeners {
        changed: Arc::new(move |Owner { kind, namespace, name }| match kind {
            OwnerKind::Pipeline => pipelines.wake(namespace, name),
            OwnerKind::Run => runs.wake(namespace, name),
            OwnerKind::Connection => connections.wake(namespace, name),
        }),
        called: Arc::new(move |call, went_well| metrics.kafka_called(call, went_well)),
    }
}

/// Forgets what is kept for objects that are gone.
fn sweep(tasks: &mut JoinSet<()>, context: &Arc<Context>, end: &CancellationToken) {
    let (context, end) = (Arc::clone(context), end.clone());
    tasks.spawn(async move {
        while tokio::time::timeout(SWEEP, end.cancelled()).await.is_err() {
            let stores = &context.stores;
            context.observers.keep(|Owner { kind, namespace, name }| match kind {
                OwnerKind::Pipeline => is_there(&stores.pipelines, namespace, name),
                OwnerKind::Run => is_there(&stores.runs, namespace, name),
                OwnerKind::Connection => is_there(&stores.connections, namespace, name),
            });
            context.observers.keep_connections(|namespace, name| is_there(&stores.connections, namespace, name));
            context.pollers.keep(|namespace, run| is_there(&stores.runs, namespace, run));
            context.orders.lock().retain(|key, _| {
                key.split_once('/').is_some_and(|(namespace, job)| stores.jobs.get(&ObjectRef::new(job).within(namespace)).is_some())
            });
            let uids: Vec<Option<String>> = stores.pipelines.state().iter().map(|pipeline| pipeline.uid()).collect();
            context.revisions.lock().retain(|key, _| uids.iter().flatten().any(|uid| key.starts_with(uid.as_str())));
        }
    });
}

fn is_there<K: Resource<DynamicType = ()> + Clone>(store: &Objects<K>, namespace: &str, name: &str) -> bool {
    store.get(&ObjectRef::new(name).within(namespace)).is_some()
}
