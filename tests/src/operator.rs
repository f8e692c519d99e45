//! The program `penstock-operator` of this build, as a process of this machine that looks after a cluster of tests.

use crate::{
    cluster::{Cluster, block_on, free_ports},
    penstock,
    services::{Service, poll_until, tail},
};
use anyhow::{Context, Result, ensure};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
const METRICS_LIMIT: Duration = Duration::from_secs(20);

/// How an operator is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The namespaces that it looks after. None: all.
    pub namespaces: Vec<String>,
    /// The image of the pods that it makes.
    pub worker_image: Option<String>,
    /// The way to the API server; the cluster's own kubeconfig if not said.
    pub kubeconfig: Option<PathBuf>,
    /// Further arguments.
    pub arguments: Vec<String>,
}

/// A running operator. It is killed when this is dropped, and when the tests end. What it logged is printed then: `cargo test`
/// shows it where a test fails.
pub struct Operator {
    service: Option<Service>,
    port: u16,
    folder: TempDir,
}

impl Operator {
    /// Starts one, and waits until it is healthy.
    pub fn start(cluster: &Cluster, options: &Options) -> Result<Self> {
        let folder = tempfile::tempdir().context("failed to make a folder for the operator")?;
        let [port] = free_ports()?;
        let kubeconfig = options.kubeconfig.clone().unwrap_or_else(|| cluster.kubeconfig());
        let mut arguments = vec![format!("KUBECONFIG={}", kubeconfig.display()), penstock::operator()?.display().to_string()];
        arguments.extend(["--metrics-addr".into(), format!("127.0.0.1:{port}"), "--log-format".into(), "text".into()]);
        if !options.namespaces.is_empty() {
            arguments.extend(["--namespaces".into(), options.namespaces.join(",")]);
        }
        if let Some(image) = &options.worker_image {
            arguments.extend(["--worker-image".into(), image.clone()]);
        }
        arguments.extend(options.arguments.iter().cloned());
        let service = Service::start(Path::new("/usr/bin/env"), &arguments, &folder.path().join("log"))?;
        let operator = Self { service: Some(service), port, folder };
        let answered = poll_until("the operator is healthy", START_LIMIT, || !operator.runs() || operator.fetch("healthz").is_ok());
        ensure!(answered.is_ok() && operator.runs(), "the operator did not start:\n{}", tail(&operator.log_file()));
        Ok(operator)
    }

    /// Whether it runs still.
    pub fn runs(&self) -> bool {
        self.service.as_ref().is_some_and(Service::runs)
    }

    /// Asks it to end, waits for that, and gives its exit code.
    pub fn stop(&mut self) -> Result<i32> {
        self.service.take().context("the operator has been stopped")?.stop(STOP_LIMIT)
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.service = None;
    }

    /// Freezes it: it holds its connections and does nothing.
    pub fn pause(&self) -> Result<()> {
        self.service.as_ref().context("the operator has been stopped")?.pause()
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<()> {
        self.service.as_ref().context("the operator has been stopped")?.resume()
    }

    /// What it has logged.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.log_file()).context("failed to read the log of the operator")
    }

    /// Its figures, in the text form of Prometheus.
    pub fn metrics(&self) -> Result<String> {
        self.fetch("metrics")
    }

    /// Whether it says that it works.
    pub fn is_ready(&self) -> bool {
        self.fetch("readyz").is_ok()
    }

    fn fetch(&self, path: &str) -> Result<String> {
        let url = format!("http://127.0.0.1:{}/{path}", self.port);
        let fetched = block_on(async {
            let request = reqwest::Client::new().get(&url).timeout(METRICS_LIMIT);
            request.send().await?.error_for_status()?.text().await
        });
        fetched.with_context(|| format!("failed to fetch {url}"))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
        eprintln!("the operator logged at last:\n{}", tail(&self.log_file()));
    }
}
