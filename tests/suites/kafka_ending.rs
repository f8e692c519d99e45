//! Processes that are told to end while no broker is there: whatever they wait for, they end within the grace period and a few seconds.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    over_kafka::{Site, Versions},
    penstock::{Answer, Running},
    recorder::Recorder,
    services::{kafka::Kafka, poll_until},
};
use std::{
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(2);
const SHORT_GRACE: [&str; 2] = ["--grace-period", "2s"];
/// The grace period and what leaving may take.
const END: Duration = Duration::from_secs(12);
/// Long before the grace period of 30 s is over.
const SOON: Duration = Duration::from_secs(10);

/// A broker of its own, which goes away.
struct Stage {
    kafka: Kafka,
    recorder: Recorder,
    _folder: TempDir,
}

impl Stage {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("failed to create a folder for Kafka")?;
        Ok(Self { kafka: Kafka::start(folder.path())?, recorder: Recorder::start()?, _folder: folder })
    }

    fn site(&self, prefix: &str, versions: &Versions) -> Result<Site<'_>> {
        Site::versions(&self.kafka, &self.recorder, prefix, versions)
    }
}

/// Tells a process to end: its answer, and how long it took.
fn end(process: Running) -> Result<(Answer, Duration)> {
    let asked = Instant::now();
    process.signal(Signal::SIGTERM)?;
    let answer = process.wait()?;
    Ok((answer, asked.elapsed()))
}

fn assert_ended(role: &str, (answer, took): &(Answer, Duration), within: Duration) {
    assert!(matches!(answer.code, Some(0 | 75)), "{role}: {answer:?}");
    assert!(took < &within, "{role} took {took:?}: {answer:?}");
}

#[test]
fn roles_that_cannot_begin_end_at_once() -> Result<()> {
    let stage = Stage::new()?;
    let site = stage.site("begin.", &Versions::default())?;
    site.change("mode: Distributed", "mode: WorkerIndexer")?;
    stage.kafka.kill();
    let role = site.start("worker-indexer", &[])?;
    poll_until("it tries", LIMIT, || role.err().is_ok_and(|said| said.contains("nothing answers there")))?;
    let (answer, took) = end(role)?;
    assert_eq!(answer.code, Some(75), "{answer:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(answer.err.contains("ended before it had begun") && !answer.err.contains("expect TLS"), "{answer:?}");
    Ok(())
}

#[test]
fn all_of_them_end_in_time_with_work_in_hand_also_when_the_broker_comes_back() -> Result<()> {
    let stage = Stage::new()?;
    let versions = Versions { rate: 500, count: 20_000, ids: 20_000, ..Versions::default() };
    let apart = stage.site("apart.", &versions)?;
    let paired = stage.site("paired.", &Versions { mode: "WorkerIndexer", ..versions })?;
    let start = |site: &Site<'_>, command: &str, more: &[&str]| site.start(command, &[more, &SHORT_GRACE].concat());
    let publish = ["--connector", "c", "--run-id", "e-1", "--create-topics"];
    let processes = [
        ("worker", start(&apart, "worker", &[])?),
        ("indexer", start(&apart, "indexer", &[])?),
        ("worker-indexer", start(&paired, "worker-indexer", &[])?),
        ("publish", start(&apart, "publish", &publish)?),
        ("publish", start(&paired, "publish", &publish)?),
    ];
    for index in ["apart", "paired"] {
        poll_until("documents arrive", LIMIT, || stage.recorder.operations(index) > 100)?;
    }
    stage.kafka.kill();
    thread::scope(|scope| {
        let ends: Vec<_> = processes.into_iter().map(|(role, process)| (role, scope.spawn(|| end(process)))).collect();
        // in the midst of it
        thread::sleep(GRACE);
        stage.kafka.start_again()?;
        for (role, ended) in ends {
            assert_ended(role, &ended.join().map_err(|_| anyhow::anyhow!("it panicked"))??, END);
        }
        anyhow::Ok(())
    })
}

#[test]
fn a_publisher_whose_client_is_full_ends_in_time() -> Result<()> {
    let stage = Stage::new()?;
    let site = stage.site("full.", &Versions { rate: 1_000_000, count: 200_000, ids: 200_000, ..Versions::default() })?;
    // few records fit: the connector stands still as soon as the broker is gone
    site.change("properties: {", "properties: {queue.buffering.max.messages: '100', ")?;
    let publisher = site.start("publish", &[&["--connector", "c", "--run-id", "full-1", "--create-topics"][..], &SHORT_GRACE].concat())?;
    poll_until("it publishes", LIMIT, || site.records("p_source").is_ok_and(|records| records > 100))?;
    stage.kafka.kill();
    poll_until("it stands still", LIMIT, || publisher.err().is_ok_and(|said| said.contains("nothing answers there")))?;
    let ended = end(publisher)?;
    assert_ended("publish", &ended, END);
    assert_eq!(ended.0.code, Some(75), "{:?}", ended.0);
    Ok(())
}

#[test]
fn a_role_with_nothing_in_work_does_not_wait_for_a_broker_and_takes_nothing_over_any_more() -> Result<()> {
    let stage = Stage::new()?;
    let site = stage.site("idle.", &Versions::default())?;
    let role = site.role("worker")?;
    stage.kafka.kill();
    poll_until("it notices", LIMIT, || role.err().is_ok_and(|said| said.contains("nothing answers there")))?;
    // its session is over when the broker is back, so its group begins anew
    thread::sleep(Duration::from_secs(2));
    let (kafka, restarted) = (&stage.kafka, Instant::now());
    thread::scope(|scope| {
        let again = scope.spawn(|| kafka.start_again());
        let ended = end(role)?;
        assert_ended("worker", &ended, SOON);
        again.join().map_err(|_| anyhow::anyhow!("it panicked"))?.with_context(|| format!("after {:?}", restarted.elapsed()))?;
        let said = &ended.0.err;
        assert!(!said.contains("expect TLS") && !said.contains("another process goes on"), "{said}");
        Ok(())
    })
}
