//! Documents know their own run, and their place in the topic is a version that late requests do not overcome.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    cluster::free_ports,
    over_kafka::{Site, books, result},
    recorder::{Fault, Recorder},
    services::{
        kafka::{Kafka, Record},
        opensearch::OpenSearch,
        poll_until,
    },
};
use reqwest::Method;
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const GENERATION: u64 = 3_000_000;
const EXTERNAL: &str = "    versioning: External\n    versionGeneration: 3000000";

#[test]
fn two_runs_at_once_are_counted_apart_and_each_document_says_whose_it_is() -> Result<()> {
    const COUNTS: [usize; 2] = [700, 300];
    let recorder = Recorder::start()?;
    let manifests = books("Distributed", recorder.url(), "  partitions: 2\n  workers: {threads: 2}", "    runIdField: run");
    let run = manifests.split_once("---\n").context("a run")?.1.to_owned();
    let other = run.replace("metadata: {name: books}", "metadata: {name: others}").replace("books.jsonl", "others.jsonl");
    let site = Site::with_manifests(Kafka::shared()?, "two-runs.", "", &format!("{manifests}---\n{other}"))?;
    for (name, count) in ["books", "others"].iter().zip(COUNTS) {
        let lines: String = (0..count).map(|number| format!("{{\"id\":\"{name}-{number}\"}}\n")).collect();
        site.workdir.write(&format!("{name}.jsonl"), lines)?;
    }
    site.create_topics("books", 2)?;
    let publish = |run: &str, id: &str| site.start("publish", &["--run", run, "--connector", "books", "--run-id", id, "--create-topics"]);
    let publishers = [publish("books", "first-1")?, publish("others", "second-1")?];
    let roles = [site.role("worker")?, site.role("indexer")?];
    for (publisher, count) in publishers.into_iter().zip(COUNTS) {
        let answer = publisher.wait()?;
        assert_eq!(answer.code, Some(0), "{answer:?}");
        let counts = result(&answer)?["counts"].clone();
        assert_eq!((&counts["published"], &counts["finished"]), (&json!(count), &json!(count)), "{counts}");
    }
    let documents = recorder.documents("books");
    assert_eq!(documents.len(), COUNTS.iter().sum::<usize>());
    for (id, document) in documents {
        let owner = if id.starts_with("books") { "first-1" } else { "second-1" };
        assert_eq!(document["run"], json!(owner), "{id}");
    }
    for role in roles {
        role.signal(Signal::SIGTERM)?;
        assert_eq!(role.wait()?.code, Some(0));
    }
    Ok(())
}

#[test]
fn row_10_a_request_that_is_carried_out_late_does_not_overwrite_a_newer_document() -> Result<()> {
    let recorder = Recorder::start()?;
    let manifests = books("Distributed", recorder.url(), "  partitions: 1\n  workers: {threads: 1}", EXTERNAL);
    let site = Site::with_manifests(Kafka::shared()?, "late.", "", &manifests)?;
    site.change("{maxAge: 50ms}", "{maxAge: 50ms}\n    retry: {initialBackoff: 50ms}")?;
    site.create_topics("books", 1)?;
    recorder.misbehave("books", [Fault::Late(Duration::from_secs(3))]);
    let roles = [site.role("worker")?, site.role("indexer")?];
    let write = |value: &str| site.kafka.produce(&site.name("books_source"), &[Record::new("b-1", value)]);
    write(r#"{"v":1}"#)?;
    poll_until("the first is there", LIMIT, || recorder.documents("books").len() == 1)?;
    write(r#"{"v":2}"#)?;
    poll_until("the second is there", LIMIT, || recorder.documents("books")["b-1"] == json!({"v": 2}))?;
    poll_until("the late request is carried out", LIMIT, || recorder.stale("books") == 1)?;
    assert_eq!(recorder.documents("books")["b-1"], json!({"v": 2}));
    let dest = site.kafka.read(&site.name("books_dest"))?;
    let last = dest.last().context("a result")?.offset as u64;
    assert_eq!(recorder.version("books", "b-1"), Some(GENERATION << 36 | last));
    for role in roles {
        role.signal(Signal::SIGTERM)?;
        assert_eq!(role.wait()?.code, Some(0));
    }
    Ok(())
}

#[test]
fn children_have_the_place_of_their_parent_so_a_late_request_does_not_overwrite_a_newer_one_of_them() -> Result<()> {
    let recorder = Recorder::start()?;
    let pipeline = "  partitions: 1\n  workers: {threads: 1}\n  stages:\n    - explode: {source: parts, target: part, copyFields: [v]}";
    let manifests = books("WorkerIndexer", recorder.url(), pipeline, &format!("{EXTERNAL}\n    runIdField: run"));
    let site = Site::with_manifests(Kafka::shared()?, "late-children.", "", &manifests)?;
    site.change("{maxAge: 50ms}", "{maxAge: 50ms}\n    retry: {initialBackoff: 50ms}")?;
    site.create_topics("books", 1)?;
    site.workdir.write("books.jsonl", "{\"id\":\"b-1\",\"v\":1,\"parts\":[7,8]}\n")?;
    recorder.misbehave("books", [Fault::Late(Duration::from_secs(3))]);
    let role = site.role("worker-indexer")?;
    let answer = site.publish("books", "children-1")?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    site.kafka.produce(&site.name("books_source"), &[Record::new("b-1", r#"{"v":2,"parts":[7,8]}"#)])?;
    let child = || recorder.documents("books").get("b-1#1").cloned().unwrap_or_default();
    poll_until("the second is there", LIMIT, || child()["v"] == json!(2))?;
    // the parent and both of its children
    poll_until("the late request is carried out", LIMIT, || recorder.stale("books") == 3)?;
    assert_eq!(child(), json!({"part": 8, "v": 2}), "of no run");
    assert_eq!(recorder.version("books", "b-1#1"), Some(GENERATION << 36 | 1));
    let first = recorder.history("books")["b-1#1"][0].clone().context("it was written")?;
    assert_eq!(first["run"], json!("children-1"), "{first}");
    role.signal(Signal::SIGTERM)?;
    assert_eq!(role.wait()?.code, Some(0));
    Ok(())
}

#[test]
fn opensearch_keeps_the_newer_document_and_what_is_stale_is_counted() -> Result<()> {
    let node = OpenSearch::shared()?;
    let index = "kafka-versions";
    let manifests = books("WorkerIndexer", &node.url(), "  partitions: 1\n  workers: {threads: 1}", EXTERNAL)
        .replace("index: books", &format!("index: {index}"));
    let site = Site::with_manifests(Kafka::shared()?, "versions.", "", &manifests)?;
    site.create_topics("books", 1)?;
    node.request(Method::PUT, &format!("/{index}"), None)?;
    let newer = (GENERATION + 1) << 36;
    let path = format!("/{index}/_doc/b-1?version={newer}&version_type=external&refresh=true");
    let (status, answer) = node.request(Method::PUT, &path, Some(json!({"v": "newer"})))?;
    assert_eq!(status, 201, "{answer}");
    let [port, _] = free_ports()?;
    let address = format!("127.0.0.1:{port}");
    let role = site.start("worker-indexer", &["--metrics-addr", &address])?;
    site.kafka.produce(&site.name("books_source"), &[Record::new("b-1", r#"{"v":"older"}"#), Record::new("b-2", r#"{"v":"first"}"#)])?;
    let committed = || site.kafka.committed(&site.name("books-workers"), &site.name("books_source"), 0).ok().flatten();
    poll_until("both are done", LIMIT, || committed().is_some_and(|(offset, _)| offset == 2))
        .with_context(|| role.err().unwrap_or_default())?;
    let (_, first) = node.get(&format!("/{index}/_doc/b-1"))?;
    assert_eq!((&first["_source"], &first["_version"]), (&json!({"v": "newer"}), &json!(newer)));
    let (_, second) = node.get(&format!("/{index}/_doc/b-2"))?;
    assert_eq!((&second["_source"], &second["_version"]), (&json!({"v": "first"}), &json!(GENERATION << 36 | 1)));
    assert_eq!(site.letters("books")?.len(), 0, "what is stale has not failed");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let metrics = runtime.block_on(async { reqwest::get(format!("http://{address}/metrics")).await?.text().await })?;
    let stale = metrics.lines().find(|line| line.starts_with("penstock_indexer_stale_total")).context("the figure")?;
    assert!(stale.ends_with(" 1"), "{stale}");
    role.signal(Signal::SIGTERM)?;
    assert_eq!(role.wait()?.code, Some(0));
    Ok(())
}
