//! Records of other producers, without any run; and failed documents that are brought in again.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    over_kafka::{Site, books, header},
    penstock::Running,
    recorder::Recorder,
    services::{
        kafka::{Kafka, Record},
        poll_until,
    },
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 2;
/// Counts how often a document has passed.
const COUNTING: &str = "  partitions: 2
  workers: {threads: 2}
  stages:
    - remap: {source: '.passes = (int(.passes) ?? 0) + 1'}";

/// A pipeline that waits for records.
struct Stream<'k> {
    site: Site<'k>,
    roles: Vec<Running>,
    recorder: Recorder,
}

impl<'k> Stream<'k> {
    fn start(kafka: &'k Kafka, prefix: &str, mode: &str) -> Result<Self> {
        let recorder = Recorder::start()?;
        let site = Site::with_manifests(kafka, prefix, "", &books(mode, recorder.url(), COUNTING, ""))?;
        site.create_topics("books", PARTITIONS)?;
        let roles = if mode == "Distributed" { &["worker", "indexer"][..] } else { &["worker-indexer"] };
        let roles = roles.iter().map(|role| site.role(role)).collect::<Result<_>>()?;
        Ok(Self { site, roles, recorder })
    }

    fn produce(&self, records: &[Record]) -> Result<()> {
        self.site.kafka.produce(&self.site.name("books_source"), records)
    }

    /// Waits until everything in the source topic, and what it led to, is done.
    fn wait_until_done(&self) -> Result<()> {
        let groups: &[_] = match self.roles.len() {
            1 => &[("books-workers", "books_source")],
            _ => &[("books-workers", "books_source"), ("books-indexers", "books_dest")],
        };
        for (group, topic) in groups {
            let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
            for record in self.site.kafka.read(&self.site.name(topic))? {
                let end = ends.entry(record.partition).or_default();
                *end = (*end).max(record.offset + 1);
            }
            let committed = |partition| self.site.kafka.committed(&self.site.name(group), &self.site.name(topic), partition);
            let is_done = || ends.iter().all(|(partition, end)| committed(*partition).is_ok_and(|at| at.is_some_and(|(at, _)| at == *end)));
            poll_until("all offsets are passed", LIMIT, is_done).with_context(|| self.said())?;
        }
        Ok(())
    }

    fn said(&self) -> String {
        self.roles.iter().filter_map(|role| role.err().ok()).collect()
    }

    fn end(self) -> Result<()> {
        for role in self.roles {
            role.signal(Signal::SIGTERM)?;
            let answer = role.wait()?;
            assert_eq!(answer.code, Some(0), "{answer:?}");
        }
        Ok(())
    }
}

fn record(key: Option<&[u8]>, value: Option<&[u8]>) -> Record {
    Record { partition: -1, key: key.map(<[u8]>::to_vec), value: value.map(<[u8]>::to_vec), ..Record::default() }
}

fn good_ones_are_indexed_and_bad_ones_kept(prefix: &str, mode: &str) -> Result<()> {
    let stream = Stream::start(Kafka::shared()?, prefix, mode)?;
    let good: [(Option<&[u8]>, &str, &str, Value); 4] = [
        (Some(b"k-1"), r#"{"title":"by its key"}"#, "k-1", json!({"title": "by its key", "passes": 1})),
        (Some(b"k-2"), r#"{"id":"k-2","title":"both"}"#, "k-2", json!({"id": "k-2", "title": "both", "passes": 1})),
        (None, r#"{"id":"f-1","title":"by its field"}"#, "f-1", json!({"id": "f-1", "title": "by its field", "passes": 1})),
        (None, r#"{"id":17}"#, "17", json!({"id": 17, "passes": 1})),
    ];
    let damaged = ("penstock".to_owned(), vec![250, 1, 2, 3]);
    let bad = [
        (record(Some(b"k-3"), Some(br#"{"id":"other"}"#)), "the key is `k-3`, but the field `id` is `other`"),
        (record(None, Some(br#"{"title":"nobody"}"#)), "neither a key nor a field `id`"),
        (record(Some(b"k-4"), None), "no value"),
        (record(Some(b"k-5"), Some(br#"{"title":"#)), "EOF"),
        (record(Some(b"k-6"), Some(b"{\"title\":\"\xff\xfe\"}")), ""),
        (record(Some(b"\xff-7"), Some(br#"{"title":"key"}"#)), "the id (the key of the record) is not valid UTF-8"),
        (Record { headers: vec![damaged], ..record(Some(b"k-8"), Some(br#"{"title":"header"}"#)) }, "header"),
        (record(Some(b"k-9"), Some(b"[1,2]")), ""),
    ];
    // each bad one has good ones behind it
    let mut records = Vec::new();
    for (number, (record_of_bad, _)) in bad.iter().enumerate() {
        records.push(record_of_bad.clone());
        records.push(Record::new(&format!("between-{number}"), "{}"));
    }
    records.extend(good.iter().map(|(key, value, ..)| record(*key, Some(value.as_bytes()))));
    stream.produce(&records)?;
    stream.wait_until_done()?;

    let documents = stream.recorder.documents("books");
    assert_eq!(documents.len(), bad.len() + good.len(), "{documents:?}");
    for (_, _, id, expected) in &good {
        assert_eq!(documents.get(*id), Some(expected), "{id}");
    }
    let letters = stream.site.kafka.read(&stream.site.name("books_fail"))?;
    assert_eq!(letters.len(), bad.len(), "{letters:#?}");
    let source = stream.site.kafka.read(&stream.site.name("books_source"))?;
    for (sent, reason) in &bad {
        let place = source.iter().find(|record| (&record.key, &record.value) == (&sent.key, &sent.value)).context("it is in the source")?;
        let place = format!("{}/{}/{}", stream.site.name("books_source"), place.partition, place.offset);
        let letter =
            letters.iter().find(|letter| header(letter, "penstock-source") == place).with_context(|| format!("{sent:?} is kept"))?;
        assert_eq!(letter.value.clone().unwrap_or_default(), sent.value.clone().unwrap_or_default(), "its bytes");
        let said = header(letter, "penstock-reason");
        assert!(!said.is_empty() && said.contains(reason), "{sent:?}: {said}");
        assert_eq!(header(letter, "penstock-content"), "raw");
        let missing: BTreeSet<_> =
            ["run", "step", "seq", "epoch"].into_iter().filter(|name| header(letter, &format!("penstock-{name}")).is_empty()).collect();
        assert_eq!(missing.len(), 4, "it belongs to no run: {letter:?}");
    }
    stream.end()
}

#[test]
fn outside_records_are_indexed_or_kept_and_stop_nothing_s13_x2() -> Result<()> {
    good_ones_are_indexed_and_bad_ones_kept("outside.", "WorkerIndexer")
}

#[test]
fn outside_records_are_indexed_or_kept_also_with_a_topic_between_worker_and_indexer_x2() -> Result<()> {
    good_ones_are_indexed_and_bad_ones_kept("outside-apart.", "Distributed")
}

#[test]
fn a_record_that_nobody_handed_on_is_found_where_it_stands() -> Result<()> {
    let stream = Stream::start(Kafka::shared()?, "astray.", "Distributed")?;
    let dest = stream.site.name("books_dest");
    let bad = Record { partition: 1, ..record(Some(b"k-1"), Some(b"{")) };
    stream.site.kafka.produce(&dest, &[record(Some(b"k-0"), Some(b"{}")), bad])?;
    stream.produce(&[record(Some(b"k-2"), Some(b"{"))])?;
    stream.wait_until_done()?;
    let letters = stream.site.kafka.read(&stream.site.name("books_fail"))?;
    let place = |id: &str| letters.iter().find(|letter| letter.key_text() == id).map(|letter| header(letter, "penstock-source"));
    let offset = stream.site.kafka.read(&dest)?.iter().find(|record| record.key_text() == "k-1").map(|record| record.offset);
    assert_eq!(place("k-1"), Some(format!("{dest}/1/{}", offset.context("it is there")?)), "{letters:?}");
    assert!(place("k-2").is_some_and(|place| place.starts_with(&stream.site.name("books_source/"))), "{letters:?}");
    stream.end()
}

fn what_failed_at_the_indexer_goes_on_there(prefix: &str, mode: &str) -> Result<()> {
    let stream = Stream::start(Kafka::shared()?, prefix, mode)?;
    stream.recorder.reject("books", "b-1");
    stream.produce(&[Record::new("b-1", r#"{"n":1}"#), Record::new("b-2", r#"{"n":2}"#)])?;
    stream.wait_until_done()?;
    assert_eq!(stream.recorder.documents("books").into_keys().collect::<Vec<_>>(), ["b-2"]);
    let letters = stream.site.letters("books")?;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!((header(&letters[0], "penstock-stage").as_str(), letters[0].value_text().as_str()), ("indexer", r#"{"n":1,"passes":1}"#));
    stream.recorder.let_go("books");
    let servers = stream.site.kafka.bootstrap();
    let answer = stream.site.workdir.start(["dlq", "replay", "kafka.yaml", "--all"], &[("KAFKA", &servers)])?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    poll_until("it is indexed", LIMIT, || stream.recorder.documents("books").len() == 2).with_context(|| stream.said())?;
    stream.wait_until_done()?;
    assert_eq!(stream.recorder.documents("books")["b-1"], json!({"n": 1, "passes": 1}), "it has passed the stages once");
    assert_eq!(stream.site.letters("books")?.len(), 1);
    stream.end()
}

#[test]
fn row_20_a_replayed_failure_of_a_paired_indexer_passes_no_stage_again() -> Result<()> {
    what_failed_at_the_indexer_goes_on_there("replay.", "WorkerIndexer")
}

#[test]
fn row_20_a_replayed_failure_of_an_indexer_passes_the_worker_but_no_stage_again() -> Result<()> {
    what_failed_at_the_indexer_goes_on_there("replay-apart.", "Distributed")
}
