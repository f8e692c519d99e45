//! Documents that end the process that works on them, and processes that end at every document.

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_tests::{
    over_kafka::{Site, books, header, lines, result},
    penstock::{Answer, Running},
    recorder::Recorder,
    services::kafka::Kafka,
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// A process that was killed is missed by its group soon.
const SOON: &str = "session.timeout.ms: '2000', heartbeat.interval.ms: '300'";
const LIMIT: Duration = Duration::from_secs(100);
const DOCUMENTS: usize = 60;

/// The process that works now, for whoever kills it.
#[derive(Clone, Default)]
struct Victim(Arc<AtomicI32>);

impl Victim {
    fn kill(&self) {
        let pid = self.0.load(SeqCst);
        if pid > 0 {
            // it may be gone already
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Starts a role again and again until the publisher has ended; the answers of the processes that ended by themselves.
fn supervise(site: &Site<'_>, role: &str, arguments: &[&str], victim: &Victim, publisher: &mut Running) -> Result<Vec<Answer>> {
    let end = Instant::now() + LIMIT;
    let mut ended = Vec::new();
    while publisher.runs()? {
        let mut running = site.start(role, arguments)?;
        victim.0.store(running.pid().as_raw(), SeqCst);
        while publisher.runs()? && running.runs()? {
            ensure!(Instant::now() < end, "the run does not end: {} {}", publisher.err()?, running.err()?);
            std::thread::sleep(Duration::from_millis(20));
        }
        if running.runs()? {
            running.signal(Signal::SIGTERM)?;
        }
        ended.push(running.wait()?);
    }
    Ok(ended)
}

#[test]
fn a_document_that_kills_its_process_fails_after_its_attempts_and_no_other_s11_s12() -> Result<()> {
    let recorder = Recorder::start()?;
    let victim = Victim::default();
    let killer = victim.clone();
    recorder.guard("books", move |id| {
        let is_deadly = id == "b-7";
        if is_deadly {
            killer.kill();
        }
        is_deadly
    });
    let pipeline = "  partitions: 2\n  workers: {threads: 2}\n  deadLetter: {maxAttempts: 2}";
    let site = Site::with_manifests(Kafka::shared()?, "poison.", SOON, &books("WorkerIndexer", recorder.url(), pipeline, ""))?;
    // suspects, one by one, do not wait for others
    site.change("maxAge: 50ms", "maxAge: 3s")?;
    site.workdir.write("books.jsonl", lines(DOCUMENTS))?;
    site.create_topics("books", 2)?;
    let mut publisher = site.publish("books", "poison-1")?;
    let ended = supervise(&site, "worker-indexer", &[], &victim, &mut publisher)?;
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let counts = result(&answer)?["counts"].clone();
    assert_eq!((&counts["finished"], &counts["failed"]), (&json!(DOCUMENTS - 1), &json!(1)), "{counts}");
    let codes: Vec<_> = ended.iter().map(|answer| answer.code).collect();
    assert_eq!(codes, [None, None, None, Some(0)], "once among others, twice alone: {ended:?}");
    let letters = site.letters("books")?;
    let failed: Vec<_> = letters.iter().map(|letter| (letter.key_text(), header(letter, "penstock-reason"))).collect();
    assert_eq!(failed, [("b-7".to_owned(), "the process ended 2 times while it worked on this document".to_owned())]);
    assert_eq!(letters[0].value_text(), r#"{"id":"b-7","n":7}"#);
    assert_eq!(header(&letters[0], "penstock-attempts"), "2");
    assert_eq!(recorder.documents("books").len(), DOCUMENTS - 1);
    Ok(())
}

#[test]
fn a_document_at_which_a_stage_hangs_ends_the_process_by_name_and_fails_after_its_attempts_s11_s29() -> Result<()> {
    let recorder = Recorder::start()?;
    // some seconds of work for one document
    let pipeline = r#"  partitions: 1
  workers: {threads: 2, maxProcessing: 1s}
  deadLetter: {maxAttempts: 2}
  stages:
    - name: endless
      when: .id == "b-7"
      remap:
        source: |
          text = ""
          for_each(split("0123456789012345678901234567890123456789", "")) -> |_a, _x| {
            for_each(split("0123456789012345678901234567890123456789", "")) -> |_b, _y| {
              for_each(split("0123456789012345678901234567890123456789", "")) -> |_c, _z| {
                text = sha3(uuid_v4() + text)
                text = sha3(uuid_v4() + text)
              }
            }
          }
          .text = text"#;
    let site = Site::with_manifests(Kafka::shared()?, "hangs.", SOON, &books("WorkerIndexer", recorder.url(), pipeline, ""))?;
    site.workdir.write("books.jsonl", lines(DOCUMENTS))?;
    site.create_topics("books", 1)?;
    let mut publisher = site.publish("books", "hangs-1")?;
    let ended = supervise(&site, "worker-indexer", &["--exit-on-stuck"], &Victim::default(), &mut publisher)?;
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?} {ended:?}");
    let codes: Vec<_> = ended.iter().map(|answer| answer.code).collect();
    assert_eq!(codes, [Some(70), Some(70), Some(0)], "{ended:?}");
    assert!(ended[0].err.contains("stage endless does not return for document `b-7` since "), "{ended:?}");
    let counts = result(&answer)?["counts"].clone();
    assert_eq!((&counts["finished"], &counts["failed"]), (&json!(DOCUMENTS - 1), &json!(1)), "{counts}");
    let failed: Vec<_> = site.letters("books")?.iter().map(|letter| letter.key_text()).collect();
    assert_eq!(failed, ["b-7"]);
    Ok(())
}

#[test]
fn a_process_that_dies_at_every_document_says_so_and_fails_none() -> Result<()> {
    let recorder = Recorder::start()?;
    let victim = Victim::default();
    let killer = victim.clone();
    recorder.guard("books", move |_| {
        killer.kill();
        true
    });
    let pipeline = "  partitions: 2\n  workers: {threads: 1}\n  deadLetter: {maxAttempts: 2}";
    let site = Site::with_manifests(Kafka::shared()?, "ill.", SOON, &books("WorkerIndexer", recorder.url(), pipeline, ""))?;
    site.workdir.write("books.jsonl", lines(DOCUMENTS))?;
    site.create_topics("books", 2)?;
    let publisher = site.publish("books", "ill-1")?;
    let end = Instant::now() + LIMIT;
    let mut deaths = 0;
    let ill = loop {
        let mut running = site.start("worker-indexer", &[])?;
        victim.0.store(running.pid().as_raw(), SeqCst);
        while running.runs()? {
            ensure!(Instant::now() < end, "nobody says it: {}", running.err()?);
            std::thread::sleep(Duration::from_millis(20));
        }
        let answer = running.wait()?;
        match answer.code {
            None => deaths += 1,
            Some(_) => break answer,
        }
    };
    assert_eq!(ill.code, Some(70), "{ill:?}");
    assert!(ill.err.contains("the process died at several documents in a row and none has passed: it is not the documents"), "{ill:?}");
    assert_eq!(deaths, 7, "once at all of them, twice at each of three");
    assert_eq!(site.letters("books")?.len(), 0);
    recorder.guard("books", |_| false);
    let role = site.start("worker-indexer", &[])?;
    let answer = publisher.wait().context("a healthy process goes on")?;
    assert_eq!((answer.code, result(&answer)?["counts"]["finished"].clone()), (Some(0), json!(DOCUMENTS)), "{answer:?}");
    role.signal(Signal::SIGTERM)?;
    assert_eq!(role.wait()?.code, Some(0));
    assert_eq!(site.letters("books")?.len(), 0, "no innocent is blamed");
    Ok(())
}
