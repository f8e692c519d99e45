//! Publishers that are interrupted, killed, superseded, or that find topics which do not fit.

use anyhow::Result;
use nix::sys::signal::Signal;
use penstock_tests::{
    contract::counts,
    over_kafka::{Site, Versions},
    penstock::Answer,
    recorder::Recorder,
    services::{kafka::Kafka, poll_until},
};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const ALL: u64 = 1_500;

fn message(answer: &Answer) -> Result<String> {
    let summary = answer.summary()?;
    let step = summary["connectors"].get(0).unwrap_or(&summary);
    Ok(step["message"].as_str().unwrap_or_default().to_owned())
}

/// Waits until the index has got something, but not all.
fn under_way(recorder: &Recorder, index: &str) -> Result<()> {
    poll_until("documents arrive", LIMIT, || recorder.operations(index) > 150)?;
    assert!(recorder.operations(index) < ALL as usize, "too late: all is done");
    Ok(())
}

fn assert_complete(result: &serde_json::Value, recorder: &Recorder, index: &str, versions: &Versions) -> Result<()> {
    let found = if result["totals"].is_object() { &result["totals"] } else { &result["counts"] };
    assert_eq!(*found, counts(ALL, 0, ALL, 0, 0), "{result}");
    versions.check(recorder, index)
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_does() -> Result<()> {
    let (recorder, versions) = (Recorder::start()?, Versions::default());
    let site = Site::versions(Kafka::shared()?, &recorder, "resumed.", &versions)?;
    let run = site.run(&["--run-id", "resumed-1"])?;
    under_way(&recorder, "resumed")?;
    run.signal(Signal::SIGTERM)?;
    let answer = run.wait()?;
    assert_eq!(answer.code, Some(75), "{answer:?}");
    assert!(message(&answer)?.contains("--run-id resumed-1"), "{answer:?}");
    assert!(answer.summary()?["totals"]["published"].as_u64().is_some_and(|published| (1..ALL).contains(&published)), "{answer:?}");

    let answer = site.run(&["--run-id", "resumed-1"])?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_complete(&answer.summary()?, &recorder, "resumed", &versions)?;
    assert_eq!(site.records("p_source")?, ALL as usize, "what was acknowledged is not sent again");
    assert!(!site.has_topic("p_event_resumed-1")?);
    Ok(())
}

#[test]
fn a_publisher_that_was_killed_goes_on_under_its_run_id() -> Result<()> {
    let (recorder, versions) = (Recorder::start()?, Versions::default());
    let site = Site::versions(Kafka::shared()?, &recorder, "killed.", &versions)?;
    let (worker, indexer) = (site.role("worker")?, site.role("indexer")?);
    let publisher = site.publish("c", "killed-1")?;
    under_way(&recorder, "killed")?;
    drop(publisher);
    let answer = site.publish("c", "killed-1")?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_complete(&answer.summary()?, &recorder, "killed", &versions)?;

    // once more: all is done, nothing is read
    let before = site.records("p_source")?;
    let answer = site.publish("c", "killed-1")?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_complete(&answer.summary()?, &recorder, "killed", &versions)?;
    assert_eq!(site.records("p_source")?, before);
    for role in [worker, indexer] {
        role.signal(Signal::SIGTERM)?;
        assert_eq!(role.wait()?.code, Some(0));
    }
    Ok(())
}

#[test]
fn a_second_publisher_of_a_step_takes_over_and_the_first_ends_with_76() -> Result<()> {
    let (recorder, versions) = (Recorder::start()?, Versions { mode: "WorkerIndexer", ..Versions::default() });
    let site = Site::versions(Kafka::shared()?, &recorder, "superseded.", &versions)?;
    let _role = site.role("worker-indexer")?;
    let first = site.publish("c", "superseded-1")?;
    under_way(&recorder, "superseded")?;
    let second = site.publish("c", "superseded-1")?;
    let answer = first.wait()?;
    assert_eq!(answer.code, Some(76), "{answer:?}");
    assert!(message(&answer)?.contains("newer publisher"), "{answer:?}");
    let answer = second.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_complete(&answer.summary()?, &recorder, "superseded", &versions)
}

#[test]
fn topics_that_do_not_fit_are_named_before_anything_is_read() -> Result<()> {
    let (recorder, kafka) = (Recorder::start()?, Kafka::shared()?);
    let site = Site::versions(kafka, &recorder, "unfit.", &Versions { rate: 100_000, ..Versions::default() })?;
    let publish = |run_id: &str| site.start("publish", &["--connector", "c", "--run-id", run_id])?.wait();

    let missing = publish("no-log")?;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(message(&missing)?.contains("topic `unfit.p_event_no-log` does not exist: create it with 1 partition"), "{missing:?}");

    kafka.create_topic_with("unfit.p_event_small", 1, &[("max.message.bytes", "150000")])?;
    let small = publish("small")?;
    assert_eq!(small.code, Some(1), "{small:?}");
    assert!(message(&small)?.contains("topic `unfit.p_event_small` takes no more than 150000 bytes at once"), "{small:?}");

    kafka.create_topic("unfit.p_event_two", 2)?;
    let two = publish("two")?;
    assert_eq!(two.code, Some(1), "{two:?}");
    assert!(message(&two)?.contains("has 2 partitions, but a run's event topic has exactly one"), "{two:?}");

    site.change("partitions: 4", "partitions: 6")?;
    kafka.create_topic("unfit.p_event_six", 1)?;
    let few = publish("six")?;
    assert_eq!(few.code, Some(1), "{few:?}");
    for topic in ["unfit.p_source", "unfit.p_dest"] {
        assert!(message(&few)?.contains(&format!("topic `{topic}` has 4 partitions, but the Pipeline asks for 6")), "{few:?}");
    }
    let worker = site.start("worker", &[])?.wait()?;
    assert_eq!(worker.code, Some(1), "{worker:?}");
    assert!(worker.err.contains("asks for 6"), "{worker:?}");

    assert_eq!((site.records("p_source")?, recorder.operations("unfit")), (0, 0));
    Ok(())
}

#[test]
fn brokers_that_do_not_answer_are_said_with_69() -> Result<()> {
    let (recorder, kafka) = (Recorder::start()?, Kafka::shared()?);
    let site = Site::versions(kafka, &recorder, "nobody.", &Versions::default())?;
    site.change("bootstrapServers: \"${KAFKA}\"", "bootstrapServers: \"127.0.0.1:1\"")?;
    let answers = [site.publish("c", "nobody-1")?, site.start("worker", &[])?].map(|running| running.wait());
    for answer in answers {
        let answer = answer?;
        assert_eq!(answer.code, Some(69), "{answer:?}");
        assert!((answer.out + &answer.err).contains("nothing answers there"));
    }
    Ok(())
}
