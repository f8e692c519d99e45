//! The order of operations on an id, while the processes that carry them come and go.

use anyhow::Result;
use nix::sys::signal::Signal;
use penstock_tests::{
    chaos::order,
    over_kafka::{Site, Versions},
    penstock::Running,
    recorder::{Fault, Recorder},
    services::{kafka::Kafka, poll_until},
};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// Asks a role to end, and waits for it.
fn leave(role: Running) -> Result<()> {
    role.signal(Signal::SIGTERM)?;
    let answer = role.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    Ok(())
}

#[test]
fn operations_keep_their_order_while_workers_and_indexers_come_and_go() -> Result<()> {
    let versions = Versions { partitions: 8, count: 12_000, ids: 2_500, rate: 2_000, ..Versions::default() };
    let recorder = Recorder::start()?;
    let site = Site::versions(Kafka::shared()?, &recorder, "order.", &versions)?;
    // nobody is to be taken for dead on a busy machine
    site.change("session.timeout.ms: \"1500\"", "session.timeout.ms: \"30000\"")?;
    let done = |count: usize| poll_until("documents arrive", LIMIT, || recorder.operations("order") >= count);
    let (worker, indexer) = (site.role("worker")?, site.role("indexer")?);
    let publisher = site.publish("c", "order-1")?;
    done(500)?;
    let second_worker = site.start("worker", &[])?;
    recorder.misbehave("order", [Fault::Busy, Fault::Refuse(503), Fault::Slow(Duration::from_millis(200)), Fault::Busy]);
    done(2_000)?;
    let second_indexer = site.start("indexer", &[])?;
    done(4_000)?;
    leave(worker)?;
    done(6_000)?;
    leave(indexer)?;
    recorder.misbehave("order", [Fault::Busy, Fault::Busy, Fault::Refuse(429)]);
    let third_worker = site.start("worker", &[])?;
    done(8_000)?;
    let third_indexer = site.start("indexer", &[])?;
    leave(second_worker)?;

    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    versions.check(&recorder, "order")?;
    for role in [second_indexer, third_worker, third_indexer] {
        leave(role)?;
    }
    let history = recorder.history("order");
    for (id, accepted) in versions.history() {
        let done = history.get(&id).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(order::check(&accepted, done), Ok(()), "{id}: {done:?}");
        assert_eq!(done, accepted, "{id}: who leaves in order leaves nothing to be done again");
    }
    Ok(())
}
