//! A real OpenSearch node. Its jars come from Maven Central, once; Java 17 or newer and Maven must be installed.

use super::{LOGGING, Restartable, cache, program, run, sources};
use crate::cluster::free_ports;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tempfile::TempDir;

const START_LIMIT: Duration = Duration::from_secs(180);

/// A node with its data, which outlives a stop.
pub struct OpenSearch {
    service: Restartable,
    /// Goes with the node.
    _folder: TempDir,
    port: u16,
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
}

impl OpenSearch {
    /// The node that all tests at work share, each with indexes of its own.
    pub fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<OpenSearch>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = shared.upgrade() {
            return Ok(node);
        }
        let node = Arc::new(Self::start(&[])?);
        *shared = Arc::downgrade(&node);
        Ok(node)
    }

    /// Starts a node with these settings (`key=value`) and waits until it answers.
    pub fn start(settings: &[&str]) -> Result<Self> {
        let library = library()?;
        let folder = tempfile::tempdir().context("failed to create a folder for OpenSearch")?;
        let logging = folder.path().join("log4j2.properties");
        fs::write(&logging, LOGGING).context("failed to write the log settings of OpenSearch")?;
        let [port, transport] = free_ports()?;
        let class_path = format!("{}:{}/*", library.join("classes").display(), library.join("lib").display());
        let mut arguments: Vec<String> = ["-Xms384m", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"].map(String::from).into();
        arguments.extend([format!("-Dlog4j2.configurationFile={}", logging.display()), "-cp".into(), class_path]);
        arguments.extend(["OpenSearchNode".into(), folder.path().join("home").display().to_string(), "127.0.0.1".into()]);
        arguments.extend([port.to_string(), transport.to_string()]);
        arguments.extend(settings.iter().map(|setting| (*setting).to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("failed to start a runtime")?;
        let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().context("failed to build a client")?;
        let service = Restartable::new("OpenSearch", arguments, folder.path().join("log"), START_LIMIT);
        let node = Self { service, _folder: folder, port, runtime, client };
        node.start_again()?;
        Ok(node)
    }

    /// Starts it after [`OpenSearch::stop`], with its data, at the same place.
    pub fn start_again(&self) -> Result<()> {
        let is_healthy = |(status, _): (u16, Value)| status == 200;
        self.service.start(|| self.get("/_cluster/health?wait_for_status=yellow&timeout=1s").is_ok_and(is_healthy))
    }

    /// Kills it. Its data stays.
    pub fn stop(&self) {
        self.service.kill();
    }

    /// Freezes it: connections stay open and nothing is answered.
    pub fn pause(&self) -> Result<()> {
        self.service.pause()
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<()> {
        self.service.resume()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Asks it something: status and body.
    pub fn get(&self, path: &str) -> Result<(u16, Value)> {
        self.request(reqwest::Method::GET, path, None)
    }

    /// Asks or tells it something: status and body.
    pub fn request(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Result<(u16, Value)> {
        self.runtime.block_on(async {
            let mut request = self.client.request(method, format!("{}{path}", self.url()));
            if let Some(body) = body {
                request = request.json(&body);
            }
            let response = request.send().await?;
            let status = response.status().as_u16();
            Ok((status, response.json().await.unwrap_or_default()))
        })
    }

    /// Makes an index with these settings and mappings.
    pub fn create(&self, index: &str, body: Value) -> Result<()> {
        let (status, answer) = self.request(reqwest::Method::PUT, &format!("/{index}"), Some(body))?;
        ensure!(status == 200, "index {index} was not made: {answer}");
        Ok(())
    }

    /// The fields of a document, or null.
    pub fn document(&self, index: &str, id: &str) -> Result<Value> {
        Ok(self.get(&format!("/{index}/_doc/{id}"))?.1["_source"].take())
    }

    /// How many documents an index has.
    pub fn count(&self, index: &str) -> Result<u64> {
        self.request(reqwest::Method::POST, &format!("/{index}/_refresh"), None)?;
        self.get(&format!("/{index}/_count"))?.1["count"].as_u64().context("no count")
    }
}

/// The folder with the jars and the launcher, made once.
fn library() -> Result<PathBuf> {
    let home = cache("opensearch-2.19.3")?;
    let lock = fs::File::create(home.join("lock")).context("failed to create the lock of the OpenSearch jars")?;
    lock.lock().context("failed to lock the OpenSearch jars")?;
    let library = home.join("library");
    if !library.is_dir() {
        let unfinished = home.join("unfinished");
        fetch(&unfinished)?;
        fs::rename(&unfinished, &library).with_context(|| format!("failed to create {}", library.display()))?;
    }
    Ok(library)
}

fn fetch(folder: &Path) -> Result<()> {
    eprintln!("fetching the jars of OpenSearch into {}: 47 MB, once", folder.display());
    let jars = format!("-DoutputDirectory={}", folder.join("lib").display());
    let mut fetch = Command::new(program("mvn")?);
    fetch.args(["-q", "-B", "-f"]).arg(sources().join("opensearch.pom.xml"));
    run(fetch.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]).arg(jars))?;
    let mut compile = Command::new(program("javac")?);
    compile.args(["-cp", &format!("{}/*", folder.join("lib").display()), "-d"]).arg(folder.join("classes"));
    run(compile.arg(sources().join("OpenSearchNode.java")))
}
