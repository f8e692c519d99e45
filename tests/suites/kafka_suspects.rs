//! Documents that a dead process may have been at: they are tried one by one, and none of them waits for others to go with.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    over_kafka::{Site, Versions},
    recorder::Recorder,
    services::{kafka::Kafka, poll_until},
};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(100);
const SUSPECTS: u64 = 300;
/// For each of them one commit, the stages or the backend, and one record: on a machine that does much else beside.
const EACH: Duration = Duration::from_millis(25);

/// How long the successor of a dead process takes for what was in front of it, all in one partition.
fn time_of_suspects(prefix: &str, role: &str) -> Result<Duration> {
    let recorder = Recorder::start()?;
    let versions = Versions { partitions: 1, count: SUSPECTS, ids: SUSPECTS, rate: 100_000, ..Versions::default() };
    let site = Site::versions(Kafka::shared()?, &recorder, prefix, &versions)?;
    let (topic, group, other) = match role {
        "worker" => ("p_source", "p-workers", "indexer"),
        _ => ("p_dest", "p-indexers", "worker"),
    };
    let other = site.role(other)?;
    let dead = site.role(role)?;
    // its takeover is committed: so many documents may be at work from now on
    poll_until("it may begin", LIMIT, || site.kafka.committed(&site.name(group), &site.name(topic), 0).is_ok_and(|at| at.is_some()))?;
    dead.signal(Signal::SIGKILL)?;
    dead.wait()?;
    let publisher = site.publish("c", "suspects-1")?;
    poll_until("all wait", LIMIT, || site.records(topic).is_ok_and(|records| records as u64 == SUSPECTS))
        .with_context(|| other.err().unwrap_or_default())?;
    let next = site.role(role)?;
    let begun = Instant::now();
    poll_until("all are done", LIMIT, || {
        let committed = site.kafka.committed(&site.name(group), &site.name(topic), 0);
        committed.is_ok_and(|at| at.is_some_and(|(offset, _)| offset as u64 == SUSPECTS))
    })
    .with_context(|| next.err().unwrap_or_default())?;
    let took = begun.elapsed();
    let said = next.err()?;
    assert!(said.contains(&format!("suspects={SUSPECTS}")), "{said}");
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    versions.check(&recorder, prefix.trim_end_matches('.'))?;
    eprintln!("{role}: {SUSPECTS} suspects in {took:.2?}, {:.1?} each", took / SUSPECTS as u32);
    Ok(took)
}

#[test]
fn suspects_of_a_worker_do_not_wait_for_others_to_go_with() -> Result<()> {
    let took = time_of_suspects("suspects-w.", "worker")?;
    assert!(took < EACH * SUSPECTS as u32, "{took:?}");
    Ok(())
}

#[test]
fn suspects_of_an_indexer_do_not_wait_for_others_to_go_with() -> Result<()> {
    let took = time_of_suspects("suspects-i.", "indexer")?;
    assert!(took < EACH * SUSPECTS as u32, "{took:?}");
    Ok(())
}
