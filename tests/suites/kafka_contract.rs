//! The contract over Kafka: in one process, and as processes of their own. The same counts and results as over memory.

use anyhow::Result;
use nix::sys::signal::Signal;
use penstock_tests::{
    contract::{assert_categories, assert_products, assert_quickstart},
    over_kafka::{Site, header, result},
    services::kafka::Kafka,
};
use serde_json::json;

fn assert_letters(site: &Site<'_>) -> Result<()> {
    let mut letters = site.letters("products")?;
    letters.sort_by_key(|letter| header(letter, "penstock-seq").parse::<u64>().unwrap_or_default());
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert_eq!((letters[0].key_text().as_str(), letters[0].value_text().as_str()), ("", "p-8,Broken row,Office"));
    assert_eq!((letters[1].key_text().as_str(), header(&letters[1], "penstock-stage").as_str()), ("p-11", "price"));
    assert!(header(&letters[1], "penstock-reason").contains("float"), "{letters:?}");
    assert_eq!(site.records("categories_fail")?, 0);
    Ok(())
}

fn assert_products_file(site: &Site<'_>) -> Result<()> {
    let products = site.workdir.read_json_lines("out/products.jsonl")?;
    assert_eq!(products.len(), 11, "{products:?}");
    assert!(products.contains(&json!({"id": "p-2#sharp", "tag": "sharp"})), "{products:?}");
    assert_eq!(site.workdir.read_json_lines("out/categories.jsonl")?.len(), 4);
    Ok(())
}

#[test]
fn the_run_in_one_process_gives_the_counts_of_the_one_over_memory() -> Result<()> {
    let site = Site::contract(Kafka::shared()?, "")?;
    let answer = site.run(&["--run-id", "whole-1"])?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_quickstart(&answer.summary()?);
    assert_products_file(&site)?;
    assert_letters(&site)?;
    assert_eq!((site.records("products_source")?, site.records("products_dest")?), (11, 11));
    for pipeline in ["categories", "products"] {
        assert!(!site.has_topic(&format!("{pipeline}_event_whole-1"))?, "the log of {pipeline} is left");
    }
    Ok(())
}

#[test]
fn publisher_worker_and_indexer_as_processes_give_the_same() -> Result<()> {
    let site = Site::contract(Kafka::shared()?, "apart.")?;
    site.create_topics("categories", 4)?;
    site.create_topics("products", 4)?;
    let (worker, indexer) = (site.role("worker")?, site.role("indexer")?);
    let publish = |connector: &str| site.publish(connector, "apart-1")?.wait();
    let (categories, products) = (publish("categories")?, publish("products")?);
    assert_eq!((categories.code, products.code), (Some(0), Some(0)), "{categories:?} {products:?}");
    assert_categories(&result(&categories)?);
    assert_products(&result(&products)?);
    for role in [worker, indexer] {
        role.signal(Signal::SIGTERM)?;
        let answer = role.wait()?;
        assert_eq!(answer.code, Some(0), "{answer:?}");
    }
    assert_products_file(&site)?;
    assert_letters(&site)
}

#[test]
fn a_paired_worker_indexer_gives_the_same_without_a_dest_topic() -> Result<()> {
    let site = Site::contract(Kafka::shared()?, "paired.")?;
    site.change("mode: Distributed", "mode: WorkerIndexer")?;
    site.create_topics("categories", 4)?;
    site.create_topics("products", 4)?;
    let role = site.role("worker-indexer")?;
    let publish = |connector: &str| site.publish(connector, "paired-1")?.wait();
    let (categories, products) = (publish("categories")?, publish("products")?);
    assert_eq!((categories.code, products.code), (Some(0), Some(0)), "{categories:?} {products:?}");
    assert_categories(&result(&categories)?);
    assert_products(&result(&products)?);
    role.signal(Signal::SIGTERM)?;
    let answer = role.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_products_file(&site)?;
    assert_eq!(site.records("products_dest")?, 0);
    assert_letters(&site)
}
