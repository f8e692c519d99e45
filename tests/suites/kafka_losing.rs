//! What is lost while there is work: processes, topics. No document is.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    over_kafka::{Site, books, lines, result},
    penstock::Running,
    recorder::{Fault, Recorder},
    services::{
        kafka::{Kafka, Record},
        poll_until,
    },
};
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SOON: &str = "session.timeout.ms: '2000', heartbeat.interval.ms: '300'";
const PIPELINE: &str = "  partitions: 2\n  workers: {threads: 2}";

fn kill(role: Running) -> Result<()> {
    role.signal(Signal::SIGKILL)?;
    role.wait().map(drop)
}

#[test]
fn a_worker_and_an_indexer_that_are_killed_cost_no_document_and_no_count_s10_s21_x1() -> Result<()> {
    const DOCUMENTS: usize = 400;
    let recorder = Recorder::start()?;
    let site = Site::with_manifests(Kafka::shared()?, "killed.", SOON, &books("Distributed", recorder.url(), PIPELINE, ""))?;
    site.change("{maxAge: 50ms}", "{maxAge: 50ms, maxDocuments: 20}")?;
    site.workdir.write("books.jsonl", lines(DOCUMENTS))?;
    site.create_topics("books", 2)?;
    recorder.misbehave("books", vec![Fault::Slow(Duration::from_millis(50)); 1_000]);
    let (worker, indexer) = (site.role("worker")?, site.role("indexer")?);
    let publisher = site.publish("books", "killed-1")?;
    poll_until("documents are indexed", LIMIT, || recorder.operations("books") >= 100)
        .with_context(|| indexer.err().unwrap_or_default())?;
    kill(indexer)?;
    kill(worker)?;
    assert!(recorder.operations("books") < DOCUMENTS, "they were killed while there was work");
    recorder.behave("books");
    let roles = [site.role("worker")?, site.role("indexer")?];
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let counts = result(&answer)?["counts"].clone();
    assert_eq!([&counts["published"], &counts["finished"], &counts["failed"]], [&json!(DOCUMENTS), &json!(DOCUMENTS), &json!(0)]);
    assert_eq!(recorder.documents("books").len(), DOCUMENTS);
    assert_eq!(site.letters("books")?.len(), 0);
    for role in roles {
        role.signal(Signal::SIGTERM)?;
        assert_eq!(role.wait()?.code, Some(0));
    }
    Ok(())
}

#[test]
fn an_indexer_whose_topic_is_deleted_ends_and_says_so_s20() -> Result<()> {
    let recorder = Recorder::start()?;
    let site = Site::with_manifests(Kafka::shared()?, "dest-gone.", SOON, &books("Distributed", recorder.url(), PIPELINE, ""))?;
    site.create_topics("books", 2)?;
    let indexer = site.role("indexer")?;
    site.kafka.delete_topic(&site.name("books_dest"))?;
    let answer = indexer.wait()?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.err.contains("topic `dest-gone.books_dest` is gone (TopicLost)"), "{answer:?}");
    Ok(())
}

#[test]
fn a_worker_whose_dest_topic_is_deleted_ends_and_says_so() -> Result<()> {
    let recorder = Recorder::start()?;
    let site = Site::with_manifests(Kafka::shared()?, "dest-lost.", SOON, &books("Distributed", recorder.url(), PIPELINE, ""))?;
    site.create_topics("books", 2)?;
    let worker = site.role("worker")?;
    let produce = |id: &str| site.kafka.produce(&site.name("books_source"), &[Record::new(id, "{}")]);
    produce("b-1")?;
    poll_until("it is handed on", LIMIT, || site.records("books_dest").is_ok_and(|records| records == 1))?;
    site.kafka.delete_topic(&site.name("books_dest"))?;
    produce("b-2")?;
    let answer = worker.wait()?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.err.contains("topic `dest-lost.books_dest` is gone (TopicLost)"), "{answer:?}");
    Ok(())
}

#[test]
fn row_21_events_for_a_log_that_is_gone_hold_up_no_document_and_no_other_run_s23() -> Result<()> {
    const DOCUMENTS: usize = 50;
    let recorder = Recorder::start()?;
    let site = Site::with_manifests(Kafka::shared()?, "log-gone.", SOON, &books("WorkerIndexer", recorder.url(), PIPELINE, ""))?;
    site.workdir.write("books.jsonl", lines(DOCUMENTS))?;
    site.create_topics("books", 2)?;
    let publisher = site.publish("books", "cancelled-1")?;
    poll_until("all is in the source", LIMIT, || site.records("books_source").is_ok_and(|records| records == DOCUMENTS))?;
    kill(publisher)?;
    site.kafka.delete_topic(&site.name("books_event_cancelled-1"))?;
    let mut role = site.role("worker-indexer")?;
    poll_until("all is indexed", LIMIT, || recorder.documents("books").len() == DOCUMENTS)
        .with_context(|| role.err().unwrap_or_default())?;
    let answer = site.publish("books", "next-1")?.wait()?;
    assert_eq!((answer.code, &result(&answer)?["counts"]["finished"]), (Some(0), &json!(DOCUMENTS)), "{answer:?}");
    assert!(role.runs()?, "{}", role.err()?);
    role.signal(Signal::SIGTERM)?;
    assert_eq!(role.wait()?.code, Some(0));
    Ok(())
}
