//! A search engine that keeps what was done to each document, in order, and misbehaves on demand. It speaks as much of the bulk
//! API of OpenSearch as the indexer uses. Documents with a field `refuse` are refused.

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// A running recorder, with as many indexes as are written to.
pub struct Recorder {
    url: String,
    indexes: Indexes,
    /// Ends the server when it is dropped.
    _runtime: Runtime,
}

/// What is done with a bulk request instead of carrying it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused as a whole.
    Refuse(u16),
    /// Each of its operations is refused with 429.
    Busy,
    /// It is carried out after so long, and then answered.
    Slow(Duration),
    /// It is answered with 504 at once, and carried out after so long.
    Late(Duration),
    /// It is never answered.
    Hang,
}

/// An operation that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The id.
    pub id: String,
    /// What was written; nothing for a deletion.
    pub source: Option<Value>,
}

/// A document, or what is left of a deleted one: its version.
#[derive(Debug, Default)]
struct Entry {
    source: Option<Value>,
    version: Option<u64>,
}

/// Looks at each id of a request before it is carried out.
type Guard = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Default)]
struct Index {
    entries: BTreeMap<String, Entry>,
    history: Vec<Operation>,
    faults: VecDeque<Fault>,
    guard: Option<Guard>,
    held: BTreeSet<String>,
    waiting: usize,
    rejected: BTreeSet<String>,
    requests: u64,
    stale: u64,
}

type Indexes = Arc<Mutex<BTreeMap<String, Index>>>;

impl Recorder {
    /// Starts one.
    ///
    /// # Errors
    /// The system gives no port.
    pub fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().context("failed to start a runtime")?;
        let indexes = Indexes::default();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).context("no port is free")?;
        let url = format!("http://{}", listener.local_addr().context("the port is not known")?);
        let routes = Router::new()
            .route("/", get(about))
            .route("/{index}", get(exists))
            .route("/{index}/_bulk", post(bulk))
            .route("/_alias/{index}", get(nothing))
            .route("/_hook/{name}", post(hook))
            .route("/{index}/_settings", get(nothing))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Arc::clone(&indexes));
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, indexes, _runtime: runtime })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is done with the next bulk requests of an index, one after the other.
    pub fn misbehave(&self, index: &str, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.indexes).entry(index.into()).or_default().faults.extend(faults);
    }

    /// From now on all bulk requests are carried out.
    pub fn behave(&self, index: &str) {
        lock(&self.indexes).entry(index.into()).or_default().faults.clear();
    }

    /// Asks for each id of a request, before anything is done; where the answer is true, the request is never answered.
    pub fn guard(&self, index: &str, is_deadly: impl Fn(&str) -> bool + Send + Sync + 'static) {
        lock(&self.indexes).entry(index.into()).or_default().guard = Some(Arc::new(is_deadly));
    }

    /// Requests that name this id wait until it is let go.
    pub fn hold(&self, index: &str, id: &str) {
        lock(&self.indexes).entry(index.into()).or_default().held.insert(id.into());
    }

    /// Operations on this id are refused, by themselves.
    pub fn reject(&self, index: &str, id: &str) {
        lock(&self.indexes).entry(index.into()).or_default().rejected.insert(id.into());
    }

    /// Requests that wait for this id go on.
    pub fn release(&self, index: &str, id: &str) {
        lock(&self.indexes).entry(index.into()).or_default().held.remove(id);
    }

    /// How many requests wait because of an id that is held back.
    pub fn waiting(&self, index: &str) -> usize {
        lock(&self.indexes).get(index).map_or(0, |index| index.waiting)
    }

    /// The external version of a document.
    pub fn version(&self, index: &str, id: &str) -> Option<u64> {
        lock(&self.indexes).get(index)?.entries.get(id)?.version
    }

    /// Nothing is held back or refused any more.
    pub fn let_go(&self, index: &str) {
        let mut indexes = lock(&self.indexes);
        let index = indexes.entry(index.into()).or_default();
        index.held.clear();
        index.rejected.clear();
    }

    /// The documents of an index.
    pub fn documents(&self, index: &str) -> BTreeMap<String, Value> {
        let indexes = lock(&self.indexes);
        let entries = indexes.get(index).into_iter().flat_map(|index| &index.entries);
        entries.filter_map(|(id, entry)| Some((id.clone(), entry.source.clone()?))).collect()
    }

    /// What was done to each id of an index, in order.
    pub fn history(&self, index: &str) -> BTreeMap<String, Vec<Option<Value>>> {
        let mut by_id: BTreeMap<String, Vec<Option<Value>>> = BTreeMap::new();
        for operation in lock(&self.indexes).get(index).into_iter().flat_map(|index| &index.history) {
            by_id.entry(operation.id.clone()).or_default().push(operation.source.clone());
        }
        by_id
    }

    /// How many operations were carried out in an index.
    pub fn operations(&self, index: &str) -> usize {
        lock(&self.indexes).get(index).map_or(0, |index| index.history.len())
    }

    /// How many bulk requests have come for an index.
    pub fn requests(&self, index: &str) -> u64 {
        lock(&self.indexes).get(index).map_or(0, |index| index.requests)
    }

    /// How often `POST /_hook/NAME` has come: a request of a `pre` or `post` action.
    pub fn hooks(&self, name: &str) -> u64 {
        self.requests(&format!("_hook/{name}"))
    }

    /// How many operations were refused because a newer version is there.
    pub fn stale(&self, index: &str) -> u64 {
        lock(&self.indexes).get(index).map_or(0, |index| index.stale)
    }
}

fn lock(indexes: &Indexes) -> MutexGuard<'_, BTreeMap<String, Index>> {
    indexes.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn about() -> Json<Value> {
    Json(json!({"name": "recorder", "version": {"distribution": "opensearch", "number": "2.19.3"}}))
}

/// Every index is there.
async fn exists() -> StatusCode {
    StatusCode::OK
}

async fn nothing() -> Json<Value> {
    Json(json!({}))
}

/// Counts a request.
async fn hook(State(indexes): State<Indexes>, Path(name): Path<String>) -> Json<Value> {
    lock(&indexes).entry(format!("_hook/{name}")).or_default().requests += 1;
    Json(json!({}))
}

async fn bulk(State(indexes): State<Indexes>, Path(index): Path<String>, body: Bytes) -> Response {
    let operations = match operations(&body) {
        Ok(operations) => operations,
        Err(error) => return (StatusCode::BAD_REQUEST, Json(json!({"error": format!("{error:#}")}))).into_response(),
    };
    if !waited_for(&indexes, &index, &operations).await {
        std::future::pending::<()>().await;
    }
    let fault = {
        let mut indexes = lock(&indexes);
        let found = indexes.entry(index.clone()).or_default();
        found.requests += 1;
        found.faults.pop_front()
    };
    match fault {
        None => {}
        Some(Fault::Refuse(code)) => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            return (status, Json(json!({"error": "as the test wants it"}))).into_response();
        }
        Some(Fault::Busy) => {
            let busy = json!({"status": 429, "error": {"type": "rejected_execution_exception", "reason": "as the test wants it"}});
            let items: Vec<Value> = operations.iter().map(|operation| json!({operation.action.name(): busy})).collect();
            return Json(json!({"errors": true, "items": items})).into_response();
        }
        Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
        Some(Fault::Late(time)) => {
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                lock(&indexes).entry(index).or_default().apply(operations);
            });
            return (StatusCode::GATEWAY_TIMEOUT, Json(json!({"error": "as the test wants it"}))).into_response();
        }
        Some(Fault::Hang) => std::future::pending().await,
    }
    let items = lock(&indexes).entry(index).or_default().apply(operations);
    let errors = items.iter().any(|(_, status)| *status >= 300);
    let items: Vec<Value> = items.into_iter().map(|(name, status)| json!({name: {"status": status}})).collect();
    Json(json!({"errors": errors, "items": items})).into_response()
}

/// Waits until none of the ids of a request is held back; whether it is to be carried out.
async fn waited_for(indexes: &Indexes, index: &str, operations: &[Bulk]) -> bool {
    let ids = || operations.iter().map(|operation| operation.target.id.as_str());
    let guard = lock(indexes).get(index).and_then(|index| index.guard.clone());
    if guard.is_some_and(|is_deadly| ids().any(|id| is_deadly(id))) {
        return false;
    }
    let is_held = || lock(indexes).get(index).is_some_and(|index| ids().any(|id| index.held.contains(id)));
    if is_held() {
        lock(indexes).entry(index.into()).or_default().waiting += 1;
        while is_held() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        lock(indexes).entry(index.into()).or_default().waiting -= 1;
    }
    true
}

impl Index {
    /// Carries operations out: their names and status codes.
    fn apply(&mut self, operations: Vec<Bulk>) -> Vec<(&'static str, u16)> {
        operations.into_iter().map(|operation| (operation.action.name(), self.apply_one(operation))).collect()
    }

    fn apply_one(&mut self, Bulk { action, target, source }: Bulk) -> u16 {
        if self.rejected.contains(&target.id) || source.as_ref().is_some_and(|source| source.get("refuse").is_some()) {
            return 400;
        }
        let entry = self.entries.entry(target.id.clone()).or_default();
        if target.version.is_some() && entry.version >= target.version {
            self.stale += 1;
            return 409;
        }
        let existed = entry.source.is_some();
        let status = match (action, existed) {
            (Action::Create, true) => return 409,
            (Action::Delete, false) => 404,
            (Action::Delete | Action::Index, true) => 200,
            (Action::Create | Action::Index, false) => 201,
        };
        *entry = Entry { source: source.clone(), version: target.version };
        self.history.push(Operation { id: target.id, source });
        status
    }
}

/// One operation of a bulk request.
#[derive(Debug)]
struct Bulk {
    action: Action,
    target: Target,
    source: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Index,
    Create,
    Delete,
}

#[derive(Debug, Deserialize)]
struct Target {
    #[serde(rename = "_id")]
    id: String,
    version: Option<u64>,
}

/// The first line of an operation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Index(Target),
    Create(Target),
    Delete(Target),
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }
}

fn operations(body: &[u8]) -> Result<Vec<Bulk>> {
    let text = std::str::from_utf8(body).context("the body is no text")?;
    let mut lines = text.lines();
    let mut operations = Vec::new();
    while let Some(line) = lines.next() {
        let line = serde_json::from_str(line).with_context(|| format!("not an operation: {line}"))?;
        let (action, target) = match line {
            Line::Index(target) => (Action::Index, target),
            Line::Create(target) => (Action::Create, target),
            Line::Delete(target) => (Action::Delete, target),
        };
        let source = match action {
            Action::Delete => None,
            Action::Index | Action::Create => Some(serde_json::from_str(lines.next().context("the document is missing")?)?),
        };
        operations.push(Bulk { action, target, source });
    }
    Ok(operations)
}
