//! Documents that are larger than a record may be: they fail alone, and say what would help.

use anyhow::Result;
use penstock_tests::{
    over_kafka::{MANIFESTS, Site, books, header, result},
    recorder::Recorder,
    services::kafka::{Kafka, Record},
};
use serde_json::{Value, json};

const SMALL: usize = 3_000;

/// Text that no compression makes small.
fn noise(length: usize, seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.alphanumeric()).collect()
}

/// One large document among many small ones, which together are more than a record may be.
fn write_books(site: &Site<'_>, large: usize) -> Result<()> {
    let small = |number: usize| format!("{{\"id\":\"b-{number}\",\"text\":\"{}\"}}\n", noise(100, number as u64));
    let large = format!("{{\"id\":\"large\",\"text\":\"{}\"}}\n", noise(large, 1));
    let lines: Vec<String> = (0..SMALL / 2).map(small).chain([large]).chain((SMALL / 2..SMALL).map(small)).collect();
    site.workdir.write("books.jsonl", lines.concat()).map(drop)
}

fn create_topics(site: &Site<'_>, source: &str, dest: &str, fail: &str) -> Result<()> {
    for (topic, largest) in [("source", source), ("dest", dest), ("fail", fail)] {
        let partitions = if topic == "fail" { 1 } else { 2 };
        site.kafka.create_topic_with(&site.name(&format!("books_{topic}")), partitions, &[("max.message.bytes", largest)])?;
    }
    Ok(())
}

/// Runs it in one process; the letter of the large document, once all others are indexed.
fn run(site: &Site<'_>, recorder: &Recorder) -> Result<Record> {
    let answer = site.run(&["--run-id", "large-1"])?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let counts: Value = result(&answer)?["connectors"][0]["counts"].clone();
    let letters = site.letters("books")?;
    assert_eq!(letters.len(), 1, "{:?}", letters.iter().map(|letter| header(letter, "penstock-reason")).collect::<Vec<_>>());
    assert_eq!((&counts["finished"], &counts["failed"]), (&json!(SMALL), &json!(1)), "{answer:?}");
    assert_eq!(recorder.documents("books").len(), SMALL);
    let letter = letters.into_iter().next().expect("there is one");
    assert_eq!(letter.key_text(), "large");
    Ok(letter)
}

fn assert_reason(letter: &Record, place: &str) {
    let reason = header(letter, "penstock-reason");
    let parts = ["the document has ", place, "max.message.bytes of the topic and message.max.bytes in the KafkaConnection's properties"];
    assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
}

fn is_truncated(letter: &Record) -> bool {
    header(letter, "penstock-truncated") == "true"
}

const USUAL: &str = "1048588";
const PIPELINE: &str = "  partitions: 2\n  workers: {threads: 2}";

#[test]
fn a_document_that_the_source_topic_does_not_take_fails_alone_p20() -> Result<()> {
    let recorder = Recorder::start()?;
    let site = Site::with_manifests(Kafka::shared()?, "large-topic.", "", &books("Distributed", recorder.url(), PIPELINE, ""))?;
    create_topics(&site, "100000", USUAL, USUAL)?;
    write_books(&site, 200_000)?;
    let letter = run(&site, &recorder)?;
    assert_reason(&letter, "source topic");
    assert!(!is_truncated(&letter) && letter.value_text().len() > 200_000, "{}", letter.value_text().len());
    Ok(())
}

#[test]
fn a_document_that_the_client_does_not_send_fails_alone_and_its_letter_is_cut_p20() -> Result<()> {
    let recorder = Recorder::start()?;
    let properties = "message.max.bytes: '100000'";
    let site = Site::with_manifests(Kafka::shared()?, "large-client.", properties, &books("Distributed", recorder.url(), PIPELINE, ""))?;
    create_topics(&site, USUAL, USUAL, USUAL)?;
    write_books(&site, 200_000)?;
    let letter = run(&site, &recorder)?;
    assert_reason(&letter, "source topic");
    assert!(is_truncated(&letter) && letter.value_text().len() < 100_000, "{}", letter.value_text().len());
    assert_eq!(header(&letter, "penstock-content"), "document", "it is one, though not the whole of it");
    let servers = site.kafka.bootstrap();
    let replayed = site.workdir.start(["dlq", "replay", MANIFESTS, "--all"], &[("KAFKA", &servers)])?.wait()?;
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert!(replayed.out.ends_with("1 passed over: it was too large to be kept as a whole\n"), "{replayed:?}");
    Ok(())
}

#[test]
fn events_of_many_failures_fit_into_the_records_of_a_client_that_sends_small_ones_only() -> Result<()> {
    const LARGEST: usize = 20_000;
    let recorder = Recorder::start()?;
    let properties = format!("message.max.bytes: '{LARGEST}'");
    let pipeline = format!("{PIPELINE}\n  stages:\n    - {{remap: {{source: 'assert!(false, string!(.text))'}}}}");
    let site = Site::with_manifests(Kafka::shared()?, "large-events.", &properties, &books("Distributed", recorder.url(), &pipeline, ""))?;
    create_topics(&site, USUAL, USUAL, USUAL)?;
    // the reason is as long as the document: many of them at once are more than a record may be
    let lines: Vec<String> =
        (0..SMALL).map(|number| format!("{{\"id\":\"b-{number}\",\"text\":\"{}\"}}\n", noise(900, number as u64))).collect();
    site.workdir.write("books.jsonl", lines.concat())?;
    let role = site.role("worker")?;
    let answer = site.publish("books", "events-1")?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(result(&answer)?["counts"]["failed"], json!(SMALL), "{answer:?} {}", role.err()?);
    assert_eq!(site.letters("books")?.len(), SMALL);
    let log = site.kafka.read(&site.name("books_event_events-1"))?;
    let largest = log.iter().filter_map(|record| record.value.as_ref().map(Vec::len)).max().unwrap_or(0);
    assert!(log.len() > SMALL / 10 && largest <= LARGEST / 4, "{} records, the largest with {largest} bytes", log.len());
    Ok(())
}

#[test]
fn a_document_that_outgrows_the_dest_topic_fails_alone_and_its_letter_is_cut_to_the_dead_letter_topic() -> Result<()> {
    let recorder = Recorder::start()?;
    let pipeline = format!("{PIPELINE}\n  stages:\n    - {{remap: {{source: '.more = string!(.text) + upcase!(.text)'}}}}");
    let site = Site::with_manifests(Kafka::shared()?, "large-dest.", "", &books("Distributed", recorder.url(), &pipeline, ""))?;
    create_topics(&site, USUAL, "200000", "150000")?;
    write_books(&site, 100_000)?;
    let letter = run(&site, &recorder)?;
    assert_reason(&letter, "dest topic");
    assert!(is_truncated(&letter) && letter.value_text().len() < 150_000, "{}", letter.value_text().len());
    Ok(())
}
