//! A real Kubernetes API server for tests: etcd and kube-apiserver on ports of their own, started by `tests/cluster/up.sh`.
//!
//! The programs are built once, from Go modules, into `${PENSTOCK_CACHE:-$HOME/.cache/penstock}/cluster`: 7 to 12 minutes
//! of CPU the first time, nothing after it.

use anyhow::{Context, Result, bail, ensure};
use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// A running API server. It goes down, with all it holds, when the last handle is dropped.
pub struct ApiServer {
    programs: PathBuf,
    state: PathBuf,
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

impl ApiServer {
    /// The server that all tests at work share; the first one starts it with our CRDs.
    pub fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<ApiServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    fn start() -> Result<Self> {
        let programs = programs()?;
        let state = cache()?.join("state").join(process::id().to_string());
        fs::create_dir_all(&state).with_context(|| format!("failed to create {}", state.display()))?;
        let server = Self { programs, state }; // from here on its drop takes down what was started
        let [api, etcd, etcd_peer] = free_ports()?;
        let mut up = server.script("up.sh");
        up.arg("api")
            .env("API_PORT", api.to_string())
            .env("ETCD_PORT", etcd.to_string())
            .env("ETCD_PEER_PORT", etcd_peer.to_string())
            .env("CRDS", repository().join("crds/generated"));
        let answer = run(&mut up)?;
        ensure!(answer.success, "the API server did not start:\n{}{}\n{}", answer.stdout, answer.stderr, server.last_logs());
        Ok(server)
    }

    /// Runs kubectl as administrator.
    pub fn kubectl<const N: usize>(&self, arguments: [&str; N]) -> Result<Answer> {
        let mut kubectl = Command::new(self.programs.join("kubectl"));
        run(kubectl.args(arguments).env("KUBECONFIG", self.state.join("kubeconfig/admin")).env("HOME", &self.state))
    }

    fn script(&self, name: &str) -> Command {
        let mut script = Command::new(scripts().join(name));
        script.env("CLUSTER_BIN", &self.programs).env("CLUSTER_STATE", &self.state);
        script
    }

    fn last_logs(&self) -> String {
        let tail = |part: &str| {
            let log = fs::read_to_string(self.state.join(format!("logs/{part}.log"))).unwrap_or_default();
            let lines: Vec<&str> = log.lines().rev().take(10).collect();
            format!("{part}:\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        tail("etcd") + &tail("kube-apiserver")
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Err(error) = take_down(&self.programs, &self.state) {
            eprintln!("{error:#}");
        }
    }
}

fn take_down(programs: &Path, state: &Path) -> Result<()> {
    let down = Command::new(scripts().join("down.sh"))
        .arg("--purge")
        .env("CLUSTER_BIN", programs)
        .env("CLUSTER_STATE", state)
        .status()
        .context("failed to run tests/cluster/down.sh")?;
    ensure!(down.success(), "the API server in {} was not taken down", state.display());
    Ok(())
}

/// The folder of the multi-call binary, built if it is not there for these sources.
fn programs() -> Result<PathBuf> {
    let cache = cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("failed to create {}", cache.display()))?;
    let lock = fs::File::create(cache.join("lock")).context("failed to create the lock of the cluster's programs")?;
    lock.lock().context("failed to lock the cluster's programs")?;
    for tool in ["openssl", "curl"] {
        require(tool)?;
    }
    let programs = cache.join(source_key()?);
    if !programs.join("kubectl").exists() {
        build(&programs)?;
    }
    take_down_forgotten(&programs, &cache.join("state"))?;
    Ok(programs)
}

fn build(programs: &Path) -> Result<()> {
    require("go")?;
    eprintln!("building the test cluster's programs into {}: 7 to 12 minutes, once", programs.display());
    let unfinished = programs.with_extension("unfinished");
    let mut build = Command::new("nice");
    let answer = run(build.arg(scripts().join("build.sh")).arg("clusterbin").env("CLUSTER_BIN", &unfinished))?;
    ensure!(answer.success, "the test cluster's programs cannot be built:\n{}{}", answer.stdout, answer.stderr);
    fs::rename(&unfinished, programs).with_context(|| format!("failed to create {}", programs.display()))
}

/// Ends what test runs left behind that were killed themselves. A state folder is called after the process that made it.
fn take_down_forgotten(programs: &Path, states: &Path) -> Result<()> {
    for state in fs::read_dir(states).into_iter().flatten() {
        let state = state.context("failed to list forgotten clusters")?;
        let owner = state.file_name();
        if owner != *process::id().to_string() && !Path::new("/proc").join(&owner).exists() {
            take_down(programs, &state.path())?;
        }
    }
    Ok(())
}

/// Names what the programs are built from: FNV-1a over names and contents.
fn source_key() -> Result<String> {
    let sources = scripts().join("src/clusterbin");
    let mut key = 0xcbf2_9ce4_8422_2325_u64;
    for name in ["go.mod", "go.sum", "main.go"] {
        let content = fs::read(sources.join(name)).with_context(|| format!("failed to read {name} of the test cluster"))?;
        for byte in name.bytes().chain(content) {
            key = (key ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(format!("{key:016x}"))
}

fn require(tool: &str) -> Result<()> {
    let found = env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(tool).is_file());
    ensure!(found, "`{tool}` is not installed, and the API server tests need it: run .ci/setup");
    Ok(())
}

fn run(command: &mut Command) -> Result<Answer> {
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
    let Ok(ports) = ports.try_into() else { bail!("no port is free") };
    Ok(ports)
}

fn cache() -> Result<PathBuf> {
    let root = match (env::var_os("PENSTOCK_CACHE"), env::var_os("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache/penstock"),
        (None, None) => bail!("set PENSTOCK_CACHE or HOME: the test cluster's programs are kept there"),
    };
    Ok(root.join("cluster"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster")
}
