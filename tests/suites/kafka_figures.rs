//! What processes over Kafka show of themselves: figures for scrapers, lines for people.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    cluster::free_ports,
    over_kafka::{Site, Versions},
    recorder::{Fault, Recorder},
    services::{kafka::Kafka, poll_until},
};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Reads the figures of a process.
struct Scraper {
    runtime: tokio::runtime::Runtime,
    address: String,
}

impl Scraper {
    fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("failed to start a runtime")?;
        let [port] = free_ports()?;
        Ok(Self { runtime, address: format!("127.0.0.1:{port}") })
    }

    fn get(&self) -> Result<String> {
        let url = format!("http://{}/metrics", self.address);
        self.runtime.block_on(async { Ok(reqwest::get(url).await?.text().await?) })
    }

    /// The value of a figure; nothing as long as it is not shown.
    fn figure(&self, name: &str) -> Option<f64> {
        self.get().ok()?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }
}

#[test]
fn a_run_shows_the_figures_of_its_workers_and_indexers() -> Result<()> {
    let (recorder, versions, scraper) = (Recorder::start()?, Versions::default(), Scraper::new()?);
    let site = Site::versions(Kafka::shared()?, &recorder, "figures-run.", &versions)?;
    let run = site.run(&["--run-id", "figures-1", "--metrics-addr", &scraper.address])?;
    for role in ["worker", "indexer"] {
        let labels = format!("{{pipeline=\"p\",role=\"{role}\"}}");
        let has = |name: &str| scraper.figure(&format!("{name}{labels}")).is_some_and(|value| value > 0.0);
        poll_until("it works", LIMIT, || has("penstock_assigned_partitions") && has("penstock_read_records_total"))
            .with_context(|| scraper.get().unwrap_or_default())?;
    }
    let answer = run.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    versions.check(&recorder, "figures-run")
}

#[test]
fn the_lag_of_each_partition_is_shown_also_while_the_backend_takes_nothing() -> Result<()> {
    let (recorder, scraper) = (Recorder::start()?, Scraper::new()?);
    let versions = Versions { mode: "WorkerIndexer", partitions: 2, count: 20_000, ids: 20_000, rate: 1_000_000, ..Versions::default() };
    let site = Site::versions(Kafka::shared()?, &recorder, "figures-lag.", &versions)?;
    recorder.misbehave("figures-lag", vec![Fault::Refuse(503); 100_000]);
    let role = site.start("worker-indexer", &["--metrics-addr", &scraper.address, "--log-interval", "1s"])?;
    let publisher = site.publish("c", "figures-1")?;
    let lag = || {
        let of = |partition: u32| {
            scraper.figure(&format!("penstock_partition_lag_records{{pipeline=\"p\",role=\"worker-indexer\",partition=\"{partition}\"}}"))
        };
        Some(of(0)? + of(1)?)
    };
    poll_until("all wait", LIMIT, || lag() == Some(f64::from(20_000)))
        .with_context(|| format!("{}{}", scraper.get().unwrap_or_default(), role.err().unwrap_or_default()))?;
    poll_until("it is said", LIMIT, || role.err().is_ok_and(|said| said.contains("lag=20000")))?;
    recorder.behave("figures-lag");
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    poll_until("nothing waits", LIMIT, || lag() == Some(0.0))?;
    let said = role.err()?;
    let line = said.lines().rfind(|line| line.contains("worker-indexer pipeline=\"p\"")).context("a line of the role")?;
    for part in ["partitions=2", "done=", "in_work=", "rate=", "mean_latency_us=", "batches=", "mean_batch_us="] {
        assert!(line.contains(part), "{part} is missing: {line}");
    }
    role.signal(Signal::SIGTERM)?;
    assert_eq!(role.wait()?.code, Some(0));
    versions.check(&recorder, "figures-lag")
}
