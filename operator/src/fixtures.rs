//! What tests of reconciles need: an API server that answers by rule and remembers every request, and a context that talks to it.

use crate::{
    apply::Applier,
    context::{Context, Objects, Shared, Stores},
    ingest_run::Pollers,
    kafka::{Listeners, Observers},
    leadership::Leadership,
    metrics::Metrics,
    reconciler::History,
    resources::Settings,
    vitals::Vitals,
};
use http::{Method, Request, Response, StatusCode};
use kube::{
    Client, Resource,
    client::Body,
    core::DeserializeGuard,
    runtime::{
        events::{Recorder, Reporter},
        reflector::{self, Lookup, Store},
        watcher,
    },
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

/// A request that the API server got.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method and path: `POST /apis/...`, without the query.
    pub line: String,
    /// Its body, if it is JSON.
    pub body: Value,
}

/// An API server that takes every write, has the objects that it was given, and remembers what it was asked.
pub struct FakeApi {
    /// How to talk to it.
    pub client: Client,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Objects by path. Writes are answered, not kept.
    objects: Arc<Mutex<HashMap<String, Value>>>,
}

impl FakeApi {
    /// One that answers what `rule` says to a method and a path, and else as described.
    pub fn new(rule: impl Fn(&str) -> Option<(StatusCode, Value)> + Send + 'static) -> Self {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let (asked, objects) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(HashMap::new())));
        let (remembered, kept) = (Arc::clone(&asked), Arc::clone(&objects));
        tokio::spawn(async move {
            while let Some((request, answer)) = handle.next_request().await {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.expect("a body");
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let line = format!("{} {}", parts.method, parts.uri.path());
                let (status, json) = rule(&line).unwrap_or_else(|| {
                    let path = parts.uri.path().trim_end_matches("/status");
                    answer_with(kept.lock().get(path), &parts.method, &body)
                });
                remembered.lock().push(Asked { line, body });
                let response = Response::builder().status(status).body(Body::from(serde_json::to_vec(&json).expect("JSON")));
                answer.send_response(response.expect("a response"));
            }
        });
        Self { client: Client::new(service, "default"), asked, objects }
    }

    /// From now on it has this object.
    pub fn keep<K: Resource<DynamicType = ()> + Serialize>(&self, object: &K) {
        let (namespace, name) = (object.meta().namespace.as_deref(), object.meta().name.as_deref().expect("a name"));
        let path = format!("{}/{name}", K::url_path(&(), namespace));
        self.objects.lock().insert(path, serde_json::to_value(object).expect("JSON"));
    }

    /// What it was asked, events apart: they are sent beside everything else.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().iter().filter(|asked| !asked.line.contains("/events")).cloned().collect()
    }

    /// The reasons of so many events, in any order.
    pub async fn events<const N: usize>(&self) -> [String; N] {
        let all = || -> Vec<String> {
            let asked = self.asked.lock();
            let events = asked.iter().filter(|asked| asked.line.contains("/events"));
            events.filter_map(|event| event.body["reason"].as_str().map(str::to_owned)).collect()
        };
        for _ in 0..500 {
            if let Ok(events) = all().try_into() {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{N} events were wanted, there are {:?}", all())
    }
}

/// The object as it would be after the request.
fn answer_with(there: Option<&Value>, method: &Method, body: &Value) -> (StatusCode, Value) {
    match (method, there) {
        (&Method::GET, None) => failure(StatusCode::NOT_FOUND, "NotFound"),
        (&Method::PATCH, Some(there)) => {
            let mut patched = there.clone();
            json_patch::merge(&mut patched, body);
            (StatusCode::OK, patched)
        }
        (_, Some(there)) => (StatusCode::OK, there.clone()),
        (_, None) => (StatusCode::OK, body.clone()),
    }
}

/// An answer of an API server that refuses.
pub fn failure(status: StatusCode, reason: &str) -> (StatusCode, Value) {
    let body =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": status.as_u16()});
    (status, body)
}

/// A store with these objects.
pub fn store<K>(objects: Vec<K>) -> Store<K>
where
    K: Lookup<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&watcher::Event::Init);
    objects.into_iter().for_each(|object| writer.apply_watcher_event(&watcher::Event::InitApply(object)));
    writer.apply_watcher_event(&watcher::Event::InitDone);
    store
}

/// A store of a kind of ours.
pub fn objects<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + 'static>(objects: Vec<K>) -> Objects<K> {
    store(objects.into_iter().map(|object| DeserializeGuard(Ok(object))).collect())
}

/// A context over an API server, with nothing in its stores but what `fill` puts there.
pub fn context(api: &FakeApi, fill: impl FnOnce(&mut Stores)) -> Context {
    let client = api.client.clone();
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    let mut stores = Stores {
        pipelines: objects(vec![]),
        runs: objects(vec![]),
        schedules: objects(vec![]),
        connections: objects(vec![]),
        deployments: store(vec![]),
        jobs: store(vec![]),
        pods: store(vec![]),
        services: store(vec![]),
        budgets: store(vec![]),
        policies: store(vec![]),
    };
    fill(&mut stores);
    let shared = Shared {
        applier: Applier::new(client.clone(), |_| ()),
        recorder: Recorder::new(client.clone(), Reporter { controller: "penstock-operator".into(), instance: None }),
        client,
        settings: Settings::default(),
        leadership: Leadership::alone(),
        metrics,
        vitals: Vitals::default(),
        history: History::default(),
    };
    Context {
        shared: Arc::new(shared),
        stores,
        observers: Observers::new(Duration::from_secs(10), Listeners { changed: Arc::new(|_| ()), called: Arc::new(|_, _| ()) }),
        pollers: Pollers::new(|_, _| ()),
        revisions: Mutex::default(),
        orders: Mutex::default(),
    }
}
