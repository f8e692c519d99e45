//! The examples of `deploy/examples`, run as a user runs them.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    penstock::{Answer, Workdir},
    services::{
        kafka::{Kafka, Record},
        opensearch::OpenSearch,
        poll_until,
    },
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};

fn examples() -> Result<Workdir> {
    Workdir::with_copy_of("deploy/examples")
}

fn counts(published: u64, created: u64, finished: u64, failed: u64, dropped: u64) -> Value {
    json!({"published": published, "created": created, "finished": finished, "failed": failed, "dropped": dropped, "pending": 0})
}

/// The documents that a query finds in an index, each with its id.
fn found(workdir: &Workdir, index: &str, query: &str) -> Result<Vec<(String, Value)>> {
    let answer = workdir.penstock(["search", index, query, "--json", "--limit", "1000"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let read = |line| -> Result<(String, Value)> {
        let mut hit: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
        Ok((hit["id"].as_str().context("no id")?.to_owned(), hit["document"].take()))
    };
    answer.out.lines().map(read).collect()
}

#[test]
fn every_example_is_valid_and_has_a_test_here() -> Result<()> {
    let workdir = examples()?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(workdir.path().join("deploy/examples"))? {
        let name = entry?.file_name().into_string().expect("a name in UTF-8");
        names.extend(name.strip_suffix(".yaml").map(str::to_owned));
    }
    assert_eq!(names, ["csv-to-opensearch", "kafka", "kafka-stream", "nested-json", "quickstart"].map(String::from).into());
    let answer = workdir.penstock(["validate", "deploy/examples"])?;
    assert_eq!((answer.code, answer.out.as_str()), (Some(0), ""), "{answer:?}");
    Ok(())
}

#[test]
fn the_quickstart_fills_an_index_and_keeps_what_failed() -> Result<()> {
    let workdir = examples()?;
    let (summary, answer) = workdir.run(["deploy/examples/quickstart.yaml"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(summary["connectors"][0]["counts"], counts(20, 0, 20, 0, 0));
    assert_eq!(summary["connectors"][1]["counts"], counts(302, 305, 601, 3, 3));
    let places = ["data/products.csv:172", "data/products.csv:202", "invalid float literal"];
    let letters = workdir.read_json_lines("quickstart_fail.jsonl")?;
    assert_eq!(letters.len(), places.len());
    for place in places {
        assert!(letters.iter().any(|letter| letter["reason"].as_str().is_some_and(|reason| reason.contains(place))), "{letters:?}");
    }
    let kettles = found(&workdir, "deploy/examples/out/index", "name:kettle")?;
    assert_eq!(kettles.len(), 3);
    let (_, small) = kettles.iter().find(|(id, _)| id == "P-0004").context("the small kettle")?;
    assert_eq!((&small["price"], &small["label"]), (&json!(7.0), &json!("Small Aluminium Kettle (coffee-tea)")));
    assert_eq!(found(&workdir, "deploy/examples/out/index", "product:P-0004 tag:sale")?.len(), 1);
    // the products find the category that the step before has brought in
    assert_eq!(found(&workdir, "deploy/examples/out/index", "id:coffee-tea")?.len(), 1);
    Ok(())
}

#[test]
fn nested_json_becomes_articles_comments_and_passages() -> Result<()> {
    let workdir = examples()?;
    let (summary, answer) = workdir.run(["deploy/examples/nested-json.yaml"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let articles: Vec<Value> = workdir.read_json_lines("deploy/examples/data/articles.jsonl")?;
    let comments: usize = articles.iter().filter_map(|article| article["comments"].as_array()).map(Vec::len).sum();
    let of_kind = |kind: &str| found(&workdir, "deploy/examples/out/articles", &format!("kind:{kind}"));
    let passages = of_kind("passage")?;
    assert_eq!((of_kind("article")?.len(), of_kind("comment")?.len()), (articles.len(), comments));
    let created = (comments + passages.len()) as u64;
    assert_eq!(summary["totals"], counts(12, created, 12 + created, 0, 0));
    for (id, passage) in &passages {
        let text = passage["text"].as_str().context("no text")?;
        assert!(text.chars().count() <= 220, "{id}: {text}");
        let article = articles.iter().find(|article| article["id"] == passage["article"]).context("no article")?;
        assert!(article["body"].as_str().is_some_and(|body| body.contains(text)), "{id} is no part of its article");
        assert_eq!(passage["written_by"], article["author"]["name"]);
    }
    assert_eq!(found(&workdir, "deploy/examples/out/articles", "example.org")?.len(), 0, "mail addresses stay out");
    Ok(())
}

fn node() -> Result<Arc<OpenSearch>> {
    OpenSearch::shared()
}

fn run_shop(workdir: &Workdir, node: &OpenSearch, run_id: &str) -> Result<Answer> {
    let arguments = ["run", "deploy/examples/csv-to-opensearch.yaml", "--summary", "json", "--run-id", run_id];
    workdir.start(arguments, &[("OPENSEARCH", &node.url())])?.wait()
}

/// The indexes behind the alias.
fn behind_alias(node: &OpenSearch) -> Result<Vec<String>> {
    let (_, answer) = node.get("/_alias/products")?;
    Ok(answer.as_object().into_iter().flatten().filter(|(_, index)| index["aliases"].is_object()).map(|(name, _)| name.clone()).collect())
}

#[test]
fn a_new_index_takes_over_the_alias_only_when_it_is_complete() -> Result<()> {
    let (workdir, node) = (examples()?, node()?);
    for run_id in ["shop-1", "shop-2"] {
        let answer = run_shop(&workdir, &node, run_id)?;
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert_eq!(answer.summary()?["totals"], counts(302, 0, 296, 3, 3));
        assert_eq!(behind_alias(&node)?, [format!("products-{run_id}")]);
    }
    assert_eq!((node.count("products")?, node.count("products-shop-1")?), (296, 296));
    let kettle = node.document("products-shop-2", "P-0004")?;
    assert_eq!((&kettle["price"], &kettle["tags"]), (&json!(7.0), &json!(["sale", "bestseller"])));

    let broken = workdir.read("deploy/examples/data/products.csv")?.lines().take(200).map(|line| format!("{line},\n")).collect::<String>();
    workdir.write("deploy/examples/data/products.csv", broken.replacen("description,", "description", 1))?;
    let answer = run_shop(&workdir, &node, "shop-3")?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert_eq!(behind_alias(&node)?, ["products-shop-2"]);
    Ok(())
}

/// How many letters a pipeline of a file has.
fn letters(workdir: &Workdir, file: &str, environment: &[(&str, &str)]) -> Result<String> {
    let answer = workdir.start(["dlq", "list", file, "--count"], environment)?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    Ok(answer.out.trim().to_owned())
}

#[test]
fn the_catalogue_flows_over_kafka_and_keeps_what_failed_in_a_topic() -> Result<()> {
    let (workdir, servers) = (examples()?, Kafka::shared()?.bootstrap());
    let environment = [("KAFKA", servers.as_str()), ("TOPIC_PREFIX", "examples.")];
    let file = "deploy/examples/kafka.yaml";
    let answer = workdir.start(["run", file, "--summary", "json"], &environment)?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(answer.summary()?["totals"], counts(302, 305, 601, 3, 3));
    let documents = workdir.read_json_lines("deploy/examples/out/catalogue.jsonl")?;
    assert_eq!(documents.len(), 601);
    assert!(documents.iter().any(|document| document["id"] == "P-0004#sale" && document["product"] == "P-0004"), "{documents:?}");
    assert_eq!(letters(&workdir, file, &environment)?, "3");
    Ok(())
}

#[test]
fn a_stream_of_outside_records_flows_without_a_run() -> Result<()> {
    let (workdir, node, kafka) = (examples()?, node()?, Kafka::shared()?);
    let (servers, search) = (kafka.bootstrap(), node.url());
    let environment = [("KAFKA", servers.as_str()), ("TOPIC_PREFIX", "examples-stream."), ("OPENSEARCH", search.as_str())];
    let file = "deploy/examples/kafka-stream.yaml";
    kafka.create_topic("examples-stream.stock", 4)?;
    kafka.create_topic("examples-stream.stock_fail", 1)?;
    let role = workdir.start(["worker-indexer", file], &environment)?;
    let keyless = Record { key: None, ..Record::new("", r#"{"id": "P-0003", "stock": "3"}"#) };
    let records = [
        Record::new("P-0001", r#"{"stock": 12}"#),
        Record::new("P-0002", r#"{"stock": 1}"#),
        Record::new("P-0002", r#"{"gone": true}"#),
        Record::new("P-0001", r#"{"stock": "11"}"#),
        keyless,
        Record::new("P-0004", r#"{"stock": "#),
        Record::new("P-0005", r#"{"stock": "many"}"#),
    ];
    kafka.produce("examples-stream.stock", &records)?;
    let stock = |id: &str| node.get(&format!("/stock/_doc/{id}")).map(|(_, answer)| answer);
    poll_until("the stream has arrived", Duration::from_secs(60), || {
        let has = |id: &str, wanted: i64| stock(id).is_ok_and(|found| found["_source"]["stock"] == json!(wanted));
        has("P-0001", 11) && has("P-0003", 3) && letters(&workdir, file, &environment).is_ok_and(|count| count == "2")
    })
    .with_context(|| role.err().unwrap_or_default())?;
    assert_eq!(stock("P-0001")?["_version"].as_u64().map(|version| version >> 36), Some(3_329_280), "the place in the topic");
    role.signal(Signal::SIGTERM)?;
    let answer = role.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(stock("P-0002")?["found"], json!(false), "deleted behind its creation");
    Ok(())
}
