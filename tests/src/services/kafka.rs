//! A real Kafka broker. Its jars come from Maven Central, once; Java 17 or newer and Maven must be installed.

pub mod records;
pub mod secured;

pub use records::Record;

use super::{LOGGING, Restartable, cache, program, run, sources, tail};
use crate::cluster::free_ports;
use anyhow::{Context, Result};
use secured::Security;
use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The address that only this machine reaches.
const LOOPBACK: &str = "127.0.0.1";
const START_LIMIT: Duration = Duration::from_secs(120);
/// The same for each; only the address tells them apart.
const CLUSTER_ID: &str = "cGVuc3RvY2stdGVzdHMtMQ";
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A broker with its data, which outlives a stop. One process is broker and controller.
pub struct Kafka {
    service: Restartable,
    folder: PathBuf,
    host: String,
    port: u16,
    security: Option<Security>,
}

impl Kafka {
    /// The broker that all tests share, each with topics and groups of its own names. It lives as long as they do: do not stop it.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: Mutex<Option<&'static Kafka>> = Mutex::new(None);
        shared(&SHARED, Self::start)
    }

    /// The secured broker that all tests share.
    pub fn shared_secured() -> Result<&'static Self> {
        static SHARED: Mutex<Option<&'static Kafka>> = Mutex::new(None);
        shared(&SHARED, Self::secured)
    }

    /// Starts a broker with its data below `folder`, and waits until it answers.
    pub fn start(folder: &Path) -> Result<Self> {
        Self::start_at(folder, LOOPBACK)
    }

    /// Starts a broker that listens at this address of the machine and says so to its clients.
    pub fn start_at(folder: &Path, host: &str) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        Self::launch(folder, host, None)
    }

    /// Starts a broker that asks for TLS and a user, and lets users do only what they may: see [`secured`].
    pub fn secured(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        let security = Security::prepare(folder)?;
        Self::launch(folder, LOOPBACK, Some(security))
    }

    fn launch(folder: &Path, host: &str, security: Option<Security>) -> Result<Self> {
        let library = library()?;
        let [port, controller] = free_ports()?;
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).with_context(|| format!("failed to write {name} of Kafka"));
        write("log4j2.properties", LOGGING)?;
        write("server.properties", &settings(folder, host, [port, controller], security.as_ref()))?;
        let java = |heap: &str, class: &str| {
            let mut arguments: Vec<String> = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"].map(String::from).into();
            arguments.extend([format!("-Xms{heap}"), format!("-Xmx{heap}")]);
            arguments.push(format!("-Dlog4j2.configurationFile={}", folder.join("log4j2.properties").display()));
            arguments.extend(["-cp".into(), format!("{}/*", library.display()), class.into()]);
            arguments
        };
        let properties = folder.join("server.properties").display().to_string();
        let mut format = Command::new(program("java")?);
        format.args(java("64m", "kafka.tools.StorageTool")).args(["format", "-t", CLUSTER_ID, "-c", &properties]);
        for user in security.iter().flat_map(Security::scram_users) {
            format.args(["--add-scram", &user]);
        }
        run(&mut format)?;
        let mut arguments = java("256m", "kafka.Kafka");
        arguments.push(properties);
        let service = Restartable::new("Kafka", arguments, folder.join("log"), START_LIMIT);
        let kafka = Self { service, folder: folder.to_owned(), host: host.to_owned(), port, security };
        kafka.start_again()?;
        Ok(kafka)
    }

    /// Starts it after [`Kafka::stop`] or [`Kafka::kill`], with its data, at the same place.
    pub fn start_again(&self) -> Result<()> {
        self.service.start(|| TcpStream::connect((self.host.as_str(), self.port)).is_ok())?;
        self.wait_until_ready(START_LIMIT).with_context(|| tail(&self.folder.join("log")))
    }

    /// Stops it as a machine that is shut down would.
    pub fn stop(&self) -> Result<()> {
        self.service.terminate(STOP_LIMIT)
    }

    /// Kills it. Its data stays.
    pub fn kill(&self) {
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

    /// Its address, as `bootstrapServers` wants it. Of a secured broker the one where nothing is asked and everything may be done.
    pub fn bootstrap(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What a client of a secured broker must know.
    pub fn security(&self) -> Result<&Security> {
        self.security.as_ref().context("this broker is not secured")
    }
}

/// A broker in a folder of its own, both of which go when the tests end.
fn shared(shared: &Mutex<Option<&'static Kafka>>, start: fn(&Path) -> Result<Kafka>) -> Result<&'static Kafka> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kafka) = *shared {
        return Ok(kafka);
    }
    let folder = tempfile::tempdir().context("failed to create a folder for Kafka")?.keep();
    remove_at_the_end(&folder)?;
    let kafka = Box::leak(Box::new(start(&folder)?));
    Ok(*shared.insert(kafka))
}

/// Removes a folder once this process has ended, however it ends: nothing is dropped of what tests share.
fn remove_at_the_end(folder: &Path) -> Result<()> {
    let mut remover = Command::new("sh");
    remover.args(["-c", r#"trap "" INT TERM HUP; cat > /dev/null; until rm -rf "$1" 2> /dev/null; do sleep 0.1; done"#, "remover"]);
    let remover = remover.arg(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    std::mem::forget(remover.spawn().context("failed to run sh")?);
    Ok(())
}

fn settings(folder: &Path, host: &str, [port, controller]: [u16; 2], security: Option<&Security>) -> String {
    let (more_listeners, more) = security.map(|security| (security.listeners(), security.settings())).unwrap_or_default();
    let listeners = format!("PLAINTEXT://{host}:{port}{more_listeners}");
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.network.threads=2
num.io.threads=4
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=4194304
{more}",
        data = folder.join("data").display(),
    )
}

/// The folder with the jars, made once.
fn library() -> Result<PathBuf> {
    let home = cache("kafka-4.2.0")?;
    let lock = fs::File::create(home.join("lock")).context("failed to create the lock of the Kafka jars")?;
    lock.lock().context("failed to lock the Kafka jars")?;
    let library = home.join("lib");
    if !library.is_dir() {
        eprintln!("fetching the jars of Kafka into {}: 55 MB, once", library.display());
        let unfinished = home.join("unfinished");
        let mut fetch = Command::new(program("mvn")?);
        fetch.args(["-q", "-B", "-f"]).arg(sources().join("kafka.pom.xml"));
        fetch.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
        run(fetch.arg(format!("-DoutputDirectory={}", unfinished.display())))?;
        fs::rename(&unfinished, &library).with_context(|| format!("failed to create {}", library.display()))?;
    }
    Ok(library)
}
