//! Processes that leave while there is work: what they had is done, committed, and not done again; or it is, by the next one.

use anyhow::{Context, Result, ensure};
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
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// More than one process takes at once.
const DOCUMENTS: usize = 20_000;
/// Every request takes its time, so that there is always work on its way.
const SLOW: Duration = Duration::from_millis(100);

fn site<'k>(kafka: &'k Kafka, prefix: &str, partitions: i32, recorder: &Recorder) -> Result<Site<'k>> {
    let pipeline = format!("  partitions: {partitions}\n  workers: {{threads: 2}}");
    let properties = "session.timeout.ms: '3000', heartbeat.interval.ms: '500'";
    let site = Site::with_manifests(kafka, prefix, properties, &books("WorkerIndexer", recorder.url(), &pipeline, ""))?;
    site.change("{maxAge: 50ms}", "{maxAge: 50ms, maxDocuments: 100}")?;
    site.create_topics("books", partitions)?;
    Ok(site)
}

fn wait_for_operations(recorder: &Recorder, count: usize, role: &Running) -> Result<()> {
    poll_until("documents are indexed", LIMIT, || recorder.operations("books") >= count).with_context(|| role.err().unwrap_or_default())
}

fn assert_all_once(recorder: &Recorder, count: usize) {
    let history = recorder.history("books");
    let repeated: Vec<_> = history.iter().filter(|(_, operations)| operations.len() != 1).map(|(id, _)| id).collect();
    assert!(repeated.is_empty(), "{} of {} were done again: {repeated:?}", repeated.len(), history.len());
    assert_eq!(history.len(), count);
}

#[test]
fn a_worker_that_is_told_to_end_finishes_what_it_has_and_nothing_is_done_twice_s33() -> Result<()> {
    let recorder = Recorder::start()?;
    recorder.misbehave("books", vec![Fault::Slow(SLOW); 10_000]);
    let site = site(Kafka::shared()?, "drained.", 4, &recorder)?;
    site.workdir.write("books.jsonl", lines(DOCUMENTS))?;
    let first = site.role("worker-indexer")?;
    let publisher = site.publish("books", "drained-1")?;
    wait_for_operations(&recorder, 1_000, &first)?;
    first.signal(Signal::SIGTERM)?;
    let answer = first.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let done = recorder.operations("books");
    assert!(done < DOCUMENTS, "it has left while there was work");
    recorder.behave("books");
    let second = site.role("worker-indexer")?;
    let answer = publisher.wait()?;
    assert_eq!((answer.code, &result(&answer)?["counts"]["finished"]), (Some(0), &json!(DOCUMENTS)), "{answer:?}");
    assert_all_once(&recorder, DOCUMENTS);
    second.signal(Signal::SIGTERM)?;
    assert_eq!(second.wait()?.code, Some(0));
    Ok(())
}

#[test]
fn one_of_two_workers_leaves_and_nothing_is_done_twice() -> Result<()> {
    let recorder = Recorder::start()?;
    recorder.misbehave("books", vec![Fault::Slow(SLOW); 10_000]);
    let site = site(Kafka::shared()?, "one-of-two.", 4, &recorder)?;
    site.workdir.write("books.jsonl", lines(DOCUMENTS))?;
    let (stays, leaves) = (site.role("worker-indexer")?, site.role("worker-indexer")?);
    let publisher = site.publish("books", "one-of-two-1")?;
    wait_for_operations(&recorder, 1_000, &stays)?;
    leaves.signal(Signal::SIGTERM)?;
    let answer = leaves.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(recorder.operations("books") < DOCUMENTS, "it has left while there was work");
    // and one comes in between
    let comes = site.role("worker-indexer")?;
    recorder.behave("books");
    let answer = publisher.wait()?;
    assert_eq!((answer.code, &result(&answer)?["counts"]["finished"]), (Some(0), &json!(DOCUMENTS)), "{answer:?}");
    assert_all_once(&recorder, DOCUMENTS);
    for role in [stays, comes] {
        role.signal(Signal::SIGTERM)?;
        assert_eq!(role.wait()?.code, Some(0));
    }
    Ok(())
}

#[test]
fn a_second_signal_ends_a_worker_at_once_s33() -> Result<()> {
    let recorder = Recorder::start()?;
    let site = site(Kafka::shared()?, "twice.", 1, &recorder)?;
    recorder.hold("books", "b-1");
    let mut role = site.role("worker-indexer")?;
    site.kafka.produce(&site.name("books_source"), &[Record::new("b-1", "{}")])?;
    poll_until("it is on its way", LIMIT, || recorder.waiting("books") == 1)?;
    role.signal(Signal::SIGTERM)?;
    poll_until("it drains", LIMIT, || role.err().is_ok_and(|said| said.contains("finishing what is in work")))?;
    ensure!(role.runs()?, "it waits for its document: {}", role.err()?);
    let began = Instant::now();
    role.signal(Signal::SIGTERM)?;
    let answer = role.wait()?;
    assert_eq!(answer.code, Some(143), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn what_is_not_done_within_the_grace_period_is_done_by_the_next_one_s10() -> Result<()> {
    let recorder = Recorder::start()?;
    let site = site(Kafka::shared()?, "grace.", 2, &recorder)?;
    site.workdir.write("books.jsonl", lines(100))?;
    recorder.hold("books", "b-4");
    let first = site.start("worker-indexer", &["--grace-period", "1s"])?;
    let publisher = site.publish("books", "grace-1")?;
    poll_until("it is on its way", LIMIT, || recorder.waiting("books") == 1).with_context(|| first.err().unwrap_or_default())?;
    let began = Instant::now();
    first.signal(Signal::SIGTERM)?;
    let answer = first.wait()?;
    assert_eq!(answer.code, Some(75), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    recorder.let_go("books");
    let second = site.role("worker-indexer")?;
    let answer = publisher.wait()?;
    assert_eq!((answer.code, &result(&answer)?["counts"]["finished"]), (Some(0), &json!(100)), "{answer:?}");
    assert_eq!(recorder.documents("books").len(), 100);
    second.signal(Signal::SIGTERM)?;
    assert_eq!(second.wait()?.code, Some(0));
    Ok(())
}

#[test]
fn an_offset_is_not_committed_before_all_in_front_of_it_are_done_x1_x3() -> Result<()> {
    let recorder = Recorder::start()?;
    let site = site(Kafka::shared()?, "gap.", 1, &recorder)?;
    site.change("maxDocuments: 100", "maxDocuments: 1")?;
    let (group, topic) = (site.name("books-workers"), site.name("books_source"));
    let committed = || site.kafka.committed(&group, &topic, 0).ok().flatten().map(|(offset, _)| offset);
    recorder.hold("books", "b-3");
    let role = site.role("worker-indexer")?;
    let records: Vec<_> = (0..7).map(|number| Record::new(&format!("b-{number}"), "{}")).collect();
    site.kafka.produce(&topic, &records)?;
    wait_for_operations(&recorder, 6, &role)?;
    poll_until("what is in front of it is committed", LIMIT, || committed() == Some(3))?;
    // commits come five times a second: more of them would have gone on
    let later = Instant::now() + Duration::from_secs(1);
    while Instant::now() < later {
        assert_eq!(committed(), Some(3));
    }
    // it dies: the next one does again what is not committed, and loses nothing
    role.signal(Signal::SIGKILL)?;
    role.wait()?;
    recorder.let_go("books");
    let next = site.role("worker-indexer")?;
    poll_until("all is committed", LIMIT, || committed() == Some(7)).with_context(|| next.err().unwrap_or_default())?;
    assert_eq!(recorder.documents("books").len(), 7);
    next.signal(Signal::SIGTERM)?;
    assert_eq!(next.wait()?.code, Some(0));
    Ok(())
}
