//! A proxy before the API server of a cluster that keeps a list of all writes, and makes trouble where a test wants it.
//!
//! An operator gets its kubeconfig ([`ApiProxy::kubeconfig`]), and talks through it with the rights of the administrator. Requests
//! that change the protocol (`exec`, `port-forward`) do not pass.

use crate::cluster::{Cluster, runtime};
use anyhow::{Context, Result};
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{StreamExt, TryStreamExt, future, stream};
use kube::config::Kubeconfig;
use reqwest::{Certificate, Client, Identity};
use serde_json::json;
use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

const LARGEST_REQUEST: usize = 16 << 20;
/// What is no work of an operator, and happens at times of its own: leases, events, questions about rights.
const NOT_COUNTED: [&str; 4] = ["/leases", "/events", "/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"];
/// What belongs to one connection, and is made anew for the other.
const OF_A_CONNECTION: [header::HeaderName; 4] = [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// A write that reached the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// POST, PUT, PATCH or DELETE.
    pub method: String,
    /// The path, without the question mark and what follows.
    pub path: String,
    /// The status that the API server answered.
    pub status: u16,
}

/// Trouble for a request.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It does not reach the API server, and is answered with this status: 409, 429, 500.
    Answer(u16),
    /// It reaches the API server later.
    Delay(Duration),
    /// It is carried out, and the connection breaks before the answer.
    LoseAnswer,
}

struct Rule {
    method: Method,
    path: String,
    times: usize,
    fault: Fault,
}

/// What happens at a write: which one, and what.
type AfterWrite = (usize, Box<dyn FnOnce() + Send>);

/// A running proxy. It ends when this is dropped.
pub struct ApiProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: JoinHandle<()>,
    folder: TempDir,
}

struct Shared {
    upstream: String,
    client: Client,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    writes: Vec<Write>,
    rules: Vec<Rule>,
    after_write: Option<AfterWrite>,
    watches: CancellationToken,
}

impl ApiProxy {
    /// Starts one before this cluster.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).context("failed to read the kubeconfig of the cluster")?;
        let (upstream, client) = administrator(&kubeconfig)?;
        let shared = Arc::new(Shared { upstream, client, books: Mutex::default() });
        let listener = runtime().block_on(TcpListener::bind(("127.0.0.1", 0))).context("the proxy gets no port")?;
        let address = listener.local_addr().context("the proxy has no address")?;
        let app = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let server = runtime().spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                eprintln!("the proxy of the API server ended: {error}");
            }
        });
        let folder = tempfile::tempdir().context("failed to make a folder for the proxy")?;
        lead_to(&mut kubeconfig, address);
        let text = serde_yaml_ng::to_string(&kubeconfig).context("failed to write a kubeconfig")?;
        fs::write(folder.path().join("kubeconfig"), text).context("failed to write the kubeconfig of the proxy")?;
        Ok(Self { shared, address, server, folder })
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Its address, for requests by hand.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All writes up to now but those of leases and events, in the order of their answers. Also those that were refused.
    pub fn writes(&self) -> Vec<Write> {
        self.shared.books().writes.clone()
    }

    /// How many writes with this method to a path that contains this were carried out.
    pub fn count(&self, method: &str, path: &str) -> usize {
        let matches = |write: &&Write| write.is_carried_out() && write.method == method && write.path.contains(path);
        self.shared.books().writes.iter().filter(matches).count()
    }

    /// Makes trouble for the next so many requests with this method to a path that contains this.
    pub fn fault(&self, method: Method, path: &str, times: usize, fault: Fault) {
        self.shared.books().rules.push(Rule { method, path: path.to_owned(), times, fault });
    }

    /// Makes no trouble anymore.
    pub fn heal(&self) {
        self.shared.books().rules.clear();
    }

    /// Breaks all watches that are open.
    pub fn cut_watches(&self) {
        std::mem::take(&mut self.shared.books().watches).cancel();
    }

    /// Calls `act` once the write with this number, counted from 1 and from now, was carried out, and before its answer is passed on.
    pub fn after_write(&self, number: usize, act: impl FnOnce() + Send + 'static) {
        let mut books = self.shared.books();
        let already = books.carried_out();
        books.after_write = Some((already + number, Box::new(act)));
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.server.abort();
        self.cut_watches();
    }
}

impl Write {
    /// Whether it changed something.
    pub fn is_carried_out(&self) -> bool {
        self.status < 300
    }
}

impl Books {
    fn carried_out(&self) -> usize {
        self.writes.iter().filter(|write| write.is_carried_out()).count()
    }

    /// The trouble that a request gets.
    fn take_fault(&mut self, method: &Method, path: &str) -> Option<Fault> {
        let rule = self.rules.iter_mut().find(|rule| rule.times > 0 && rule.method == *method && path.contains(&rule.path))?;
        rule.times -= 1;
        Some(rule.fault)
    }

    /// Notes a write, and gives what is to happen now.
    fn note(&mut self, write: Write) -> Option<Box<dyn FnOnce() + Send>> {
        self.writes.push(write);
        let due = self.after_write.as_ref().is_some_and(|(number, _)| *number <= self.carried_out());
        let (_, act) = self.after_write.take_if(|_| due)?;
        Some(act)
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, method: Method, target: &str, mut headers: HeaderMap, body: Bytes) -> reqwest::Result<reqwest::Response> {
        OF_A_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
        self.client.request(method, format!("{}{target}", self.upstream)).headers(headers).body(body).send().await
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method, parts.uri.path().to_owned());
    let query = parts.uri.query().unwrap_or_default();
    let fault = shared.books().take_fault(&method, &path);
    match fault {
        Some(Fault::Answer(status)) => return refusal(status, &method),
        Some(Fault::Delay(duration)) => tokio::time::sleep(duration).await,
        Some(Fault::LoseAnswer) | None => {}
    }
    let Ok(body) = to_bytes(body, LARGEST_REQUEST).await else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    let target = parts.uri.path_and_query().map_or(path.as_str(), |target| target.as_str());
    let answer = match shared.send(method.clone(), target, parts.headers, body).await {
        Ok(answer) => answer,
        Err(error) => return (StatusCode::BAD_GATEWAY, format!("the API server does not answer: {error}")).into_response(),
    };
    let is_counted = !method.is_safe() && !query.contains("dryRun") && !NOT_COUNTED.iter().any(|part| path.contains(part));
    if is_counted {
        let write = Write { method: method.to_string(), path, status: answer.status().as_u16() };
        let due = shared.books().note(write);
        if let Some(act) = due
            && let Err(error) = tokio::task::spawn_blocking(act).await
        {
            eprintln!("what should happen after a write failed: {error}");
        }
    }
    let watches = query.contains("watch=").then(|| shared.books().watches.clone());
    hand_over(answer, watches, matches!(fault, Some(Fault::LoseAnswer)))
}

/// The answer of the API server, as it comes. It breaks off with its watch, or at once if it shall be lost.
fn hand_over(answer: reqwest::Response, watches: Option<CancellationToken>, is_lost: bool) -> Response {
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    OF_A_CONNECTION.iter().for_each(|name| drop(headers.remove(name)));
    let reset = || Err(io::Error::from(io::ErrorKind::ConnectionReset));
    let content = answer.bytes_stream().map_err(io::Error::other);
    let body = match watches {
        _ if is_lost => Body::from_stream(stream::once(async move { reset() })),
        Some(cut) => {
            let until_cut = content.take_until(cut.clone().cancelled_owned());
            let end = stream::once(async move { cut.is_cancelled().then(reset) }).filter_map(future::ready);
            Body::from_stream(until_cut.chain(end))
        }
        None => Body::from_stream(content),
    };
    (status, headers, body).into_response()
}

/// What the API server says when it refuses with this status.
fn refusal(status: u16, method: &Method) -> Response {
    let reason = match status {
        403 => "Forbidden",
        404 => "NotFound",
        409 if method == Method::POST => "AlreadyExists",
        409 => "Conflict",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        _ => "Unknown",
    };
    let message = "the tests want it so";
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": status});
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = (status, axum::Json(body)).into_response();
    if status == StatusCode::TOO_MANY_REQUESTS {
        answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    answer
}

/// The address of the API server, and a client with the certificate of the administrator.
fn administrator(kubeconfig: &Kubeconfig) -> Result<(String, Client)> {
    let cluster = kubeconfig.clusters.first().and_then(|named| named.cluster.as_ref()).context("the kubeconfig has no cluster")?;
    let user = kubeconfig.auth_infos.first().and_then(|named| named.auth_info.as_ref()).context("the kubeconfig has no user")?;
    let read = |file: &Option<String>| -> Result<Vec<u8>> {
        let file = Path::new(file.as_deref().context("the kubeconfig names no such file")?);
        fs::read(file).with_context(|| format!("failed to read {}", file.display()))
    };
    let authority =
        Certificate::from_pem(&read(&cluster.certificate_authority)?).context("the authority of the cluster is no certificate")?;
    let pem = [read(&user.client_certificate)?, read(&user.client_key)?].concat();
    let identity = Identity::from_pem(&pem).context("the administrator has no usable certificate")?;
    // one connection a watch, and nothing unpacked on the way
    let client = Client::builder().tls_certs_only([authority]).identity(identity).http1_only().no_gzip();
    let client = client.build().context("no client for the API server")?;
    let upstream = cluster.server.clone().context("the kubeconfig has no address")?;
    Ok((upstream.trim_end_matches('/').to_owned(), client))
}

/// Makes a kubeconfig lead to the proxy, which asks for nothing.
fn lead_to(kubeconfig: &mut Kubeconfig, address: SocketAddr) {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.server = Some(format!("http://{address}"));
        cluster.certificate_authority = None;
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        (user.client_certificate, user.client_key) = (None, None);
    }
}
