//! A real Kubernetes for tests, started by `tests/cluster/up.sh`, in one of three sizes:
//!
//! * [`Cluster::api`]: etcd and kube-apiserver: CRDs, validation, watches;
//! * [`Cluster::control`]: and kube-controller-manager and kube-scheduler: Jobs, Deployments, garbage collection, but no pod runs;
//! * [`Cluster::node`]: and containerd, kubelet, kube-proxy and CoreDNS: a real node, where pods run. It needs root.
//!
//! Tests share a cluster, each with a [`Namespace`] of its own. It goes down, with all it holds, when the last handle is dropped,
//! and also when the tests are killed: a process beside them (`keep.sh`) waits for their end.

mod images;
mod keeper;
mod namespace;
mod programs;

pub use namespace::Namespace;

use crate::services::kafka::Kafka;
use anyhow::{Context, Result};
use keeper::Keeper;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{
    collections::BTreeSet,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// The address of the node, on which pods and this machine reach each other.
pub const NODE_ADDRESS: &str = "10.243.0.1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Api,
    Control,
    Node,
}

/// A running cluster.
pub struct Cluster {
    mode: Mode,
    kubectl: PathBuf,
    client: Client,
    kafka: Mutex<Option<Arc<Kafka>>>,
    imported: Mutex<BTreeSet<&'static str>>,
    keeper: Keeper, // the last to go: the others live in what it takes down
}

/// What a program answered.
#[derive(Debug)]
pub struct Answer {
    /// Whether it ended with 0.
    pub success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Cluster {
    /// The API server that all tests at work share; the first one starts it with our CRDs.
    pub fn api() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, Mode::Api)
    }

    /// The control plane that all tests at work share.
    pub fn control() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, Mode::Control)
    }

    /// The cluster with a node that all tests at work share. There is one on a machine: other processes wait.
    pub fn node() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        Self::shared(&SHARED, Mode::Node)
    }

    fn shared(shared: &Mutex<Weak<Self>>, mode: Mode) -> Result<Arc<Self>> {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Ok(cluster);
        }
        let cluster = Arc::new(Self::start(mode)?);
        *shared = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    fn start(mode: Mode) -> Result<Self> {
        let keeper = Keeper::start(mode)?;
        let client = client(&keeper.kubeconfig())?;
        let (kubectl, kafka, imported) = (programs::kubernetes()?.join("kubectl"), Mutex::default(), Mutex::default());
        Ok(Self { mode, kubectl, client, kafka, imported, keeper })
    }

    /// A client with all rights. Its futures are for [`block_on`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.keeper.kubeconfig()
    }

    /// Runs kubectl as administrator.
    pub fn kubectl<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Answer> {
        let mut kubectl = Command::new(&self.kubectl);
        run(kubectl.args(arguments).env("KUBECONFIG", self.kubeconfig()).env("HOME", self.keeper.state()))
    }

    /// A namespace of its own for a test, called after `prefix`.
    pub fn namespace(self: &Arc<Self>, prefix: &str) -> Result<Namespace> {
        Namespace::create(self, prefix)
    }

    /// The Kafka broker of this cluster, at an address that both this machine and pods reach.
    pub fn kafka(&self) -> Result<Arc<Kafka>> {
        let mut kafka = self.kafka.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kafka) = &*kafka {
            return Ok(Arc::clone(kafka));
        }
        let host = if self.mode == Mode::Node { NODE_ADDRESS } else { "127.0.0.1" };
        let started = Arc::new(Kafka::start_at(&self.keeper.state().join("kafka"), host)?);
        Ok(Arc::clone(kafka.insert(started)))
    }
}

/// Runs a future to its end, on the runtime that all tests share.
pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// The runtime that all tests share.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("the system has threads for a runtime"));
    &RUNTIME
}

/// Waits until an attempt gives something. An attempt that fails is repeated too; its error is told when time is up.
pub fn wait_for<T>(what: &str, limit: Duration, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let last = match attempt() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if Instant::now() > end {
            let message = format!("{what}: not within {limit:?}");
            return Err(last.map_or_else(|| anyhow::anyhow!("{message}"), |error| error.context(message.clone())));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A client as a kubeconfig describes it.
fn client(kubeconfig: &Path) -> Result<Client> {
    block_on(async {
        let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("failed to read {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.context("no usable kubeconfig")?;
        Client::try_from(config).context("no client for the cluster")
    })
}

pub(crate) fn run(command: &mut Command) -> Result<Answer> {
    let output = command.output().with_context(|| format!("failed to run {}", command.get_program().to_string_lossy()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { success: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) })
}

/// Ports that nobody uses, all different: they are held until all are known.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    for _ in 0..N {
        held.push(TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?);
    }
    let ports: Vec<u16> = held.iter().filter_map(|port| Some(port.local_addr().ok()?.port())).collect();
    ports.try_into().ok().context("no port is free")
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster")
}
