//! Trouble around a run: brokers that are gone for a while, topics that are gone for good, processes that die with work in hand.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    contract::counts,
    over_kafka::{Site, Versions},
    recorder::Recorder,
    services::{kafka::Kafka, poll_until},
};
use std::{
    thread,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_broker_that_is_gone_for_20_seconds_is_waited_for() -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a folder for Kafka")?;
    let (kafka, recorder, versions) = (Kafka::start(folder.path())?, Recorder::start()?, Versions::default());
    let site = Site::versions(&kafka, &recorder, "outage.", &versions)?;
    let (mut worker, mut indexer) = (site.role("worker")?, site.role("indexer")?);
    let publisher = site.publish("c", "outage-1")?;
    poll_until("documents arrive", LIMIT, || recorder.operations("outage") > 150)?;
    kafka.kill();
    thread::sleep(Duration::from_secs(20));
    kafka.start_again()?;
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(answer.summary()?["counts"], counts(versions.count, 0, versions.count, 0, 0));
    versions.check(&recorder, "outage")?;
    assert!(worker.runs()? && indexer.runs()?, "nobody had to be started again");
    Ok(())
}

#[test]
fn processes_that_have_nothing_in_work_end_soon_also_when_no_broker_is_there() -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a folder for Kafka")?;
    let (kafka, recorder) = (Kafka::start(folder.path())?, Recorder::start()?);
    let versions = Versions { rate: 100_000, ..Versions::default() };
    let site = Site::versions(&kafka, &recorder, "away.", &versions)?;
    let roles = [site.role("worker")?, site.role("indexer")?];
    assert_eq!(site.publish("c", "away-1")?.wait()?.code, Some(0));
    kafka.kill();
    let asked = Instant::now();
    for role in roles {
        role.signal(Signal::SIGTERM)?;
        let answer = role.wait()?;
        assert!(matches!(answer.code, Some(0 | 75)), "{answer:?}");
    }
    assert!(asked.elapsed() < Duration::from_secs(20), "the grace period of 30 s is for work: {:?}", asked.elapsed());
    versions.check(&recorder, "away")
}

#[test]
fn a_source_topic_that_is_deleted_under_a_run_ends_it() -> Result<()> {
    let (kafka, recorder, versions) = (Kafka::shared()?, Recorder::start()?, Versions { rate: 100, ..Versions::default() });
    let site = Site::versions(kafka, &recorder, "lost.", &versions)?;
    let run = site.run(&["--run-id", "lost-1"])?;
    poll_until("documents arrive", LIMIT, || recorder.operations("lost") > 50)?;
    kafka.delete_topic("lost.p_source")?;
    let answer = run.wait()?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let message = answer.summary()?["connectors"][0]["message"].to_string();
    assert!(message.contains("TopicLost") && message.contains("lost.p_source"), "{message}");
    Ok(())
}

#[test]
fn documents_that_a_dead_indexer_had_in_hand_are_tried_one_by_one_without_waiting_for_a_batch() -> Result<()> {
    let (recorder, versions) = (Recorder::start()?, Versions { count: 800, rate: 100_000, max_age: "20s", ..Versions::default() });
    let site = Site::versions(Kafka::shared()?, &recorder, "suspects.", &versions)?;
    let (worker, indexer) = (site.role("worker")?, site.role("indexer")?);
    let publisher = site.publish("c", "suspects-1")?;
    poll_until("documents arrive", LIMIT, || recorder.operations("suspects") > 0)?;
    drop(indexer);
    let begun = Instant::now();
    let indexer = site.role("indexer")?;
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(indexer.err()?.contains("what it was at is tried one by one"), "{}", indexer.err()?);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    versions.check(&recorder, "suspects")?;
    drop((worker, indexer));
    Ok(())
}
