//! The dead letter topic of a pipeline on a real broker: looking, bringing in again, removing.

use anyhow::Result;
use penstock::{
    kafka::{
        Connection,
        dlq::{DeadLetters, Filter, Met, Purged, Replay, Replayed, Skipped, purge, replay},
        letter::{INDEXER, LetterContent, LetterHeaders, SourcePlace},
    },
    secrets::Secrets,
};
use penstock_tests::{
    over_kafka::bare_pipeline,
    penstock::{Answer, Workdir},
    services::kafka::{Kafka, records::Record},
};
use rdkafka::message::Headers;
use serde_json::json;
use std::{borrow::Cow, collections::BTreeMap, ops::ControlFlow, time::Duration};

const PATIENCE: Duration = Duration::from_secs(60);
const STAGE: &str = "price";

/// A pipeline's topics of its own on the shared broker.
struct Topics {
    kafka: &'static Kafka,
    connection: Connection,
    source: String,
    fail: String,
}

impl Topics {
    fn new(name: &str) -> Result<Self> {
        let kafka = Kafka::shared()?;
        let spec = serde_json::from_value(json!({"bootstrapServers": kafka.bootstrap()}))?;
        let connection = Connection::new(&spec, "default", &Secrets::default())?;
        let topics = Self { kafka, connection, source: format!("{name}_source"), fail: format!("{name}_fail") };
        kafka.create_topic(&topics.source, 4)?;
        kafka.create_topic(&topics.fail, 1)?;
        Ok(topics)
    }

    /// Publishes documents; the answer is where each of them is.
    fn publish(&self, documents: &[(&str, &str)]) -> Result<Vec<SourcePlace<'static>>> {
        let before = self.kafka.read(&self.source)?.len();
        let records: Vec<_> = documents.iter().map(|(id, value)| Record::new(id, value)).collect();
        self.kafka.produce(&self.source, &records)?;
        let after = self.kafka.read(&self.source)?;
        assert_eq!(after.len(), before + documents.len());
        let place = |(id, value): &(&str, &str)| {
            let found = after.iter().rfind(|record| record.key_text() == *id && record.value_text() == *value).expect("published");
            SourcePlace { topic: self.source.clone().into(), partition: found.partition as u32, offset: found.offset as u64 }
        };
        Ok(documents.iter().map(place).collect())
    }

    fn fail(&self, letters: &[(&str, &str, LetterHeaders<'_>)]) -> Result<()> {
        let records = letters.iter().map(|(id, value, headers)| {
            let headers = headers.to_kafka();
            let headers = headers.iter().map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec())).collect();
            Record { headers, ..Record::new(id, value) }
        });
        self.kafka.produce(&self.fail, &records.collect::<Vec<_>>())
    }

    fn replay(&self, filter: &Filter, force: bool, dry_run: bool) -> Result<Replayed> {
        let (letters, source) = (&self.fail, &self.source);
        Ok(replay(&self.connection, &Replay { letters, source, filter, force, dry_run, patience: PATIENCE })?)
    }

    fn purge(&self, filter: &Filter, dry_run: bool) -> Result<Purged> {
        Ok(purge(&self.connection, &self.fail, filter, dry_run, PATIENCE)?)
    }

    /// Ids of the letters that are meant, and what was met.
    fn letters(&self, filter: &Filter) -> Result<(Vec<String>, Met)> {
        let mut ids = Vec::new();
        let letters = DeadLetters::open(&self.connection, &self.fail, PATIENCE)?;
        let met = letters.for_each(filter, &mut |letter| {
            ids.push(letter.id().into_owned());
            ControlFlow::Continue(())
        })?;
        Ok((ids, met))
    }
}

fn letter(stage: &'static str, seq: u64, source: &SourcePlace<'static>) -> LetterHeaders<'static> {
    LetterHeaders {
        run: "nightly-1".into(),
        step: "products".into(),
        pipeline: "books".into(),
        stage: stage.into(),
        reason: "no number: n/a".into(),
        attempts: Some(1),
        time: Some("2026-05-01T10:00:00Z".parse().expect("a time")),
        source: Some(source.clone()),
        epoch: Some(0),
        seq: Some(seq),
        ordinal: 0,
        content: LetterContent::Document,
        truncated: false,
    }
}

fn skipped(reasons: &[(Skipped, u64)]) -> BTreeMap<Skipped, u64> {
    reasons.iter().copied().collect()
}

#[test]
fn row_20_a_failed_document_is_brought_in_again_unless_a_newer_one_has_come() -> Result<()> {
    let topics = Topics::new("dlq-superseded")?;
    let places = topics.publish(&[("a", r#"{"v":1}"#), ("b", r#"{"v":1}"#), ("c", r#"{"v":1}"#)])?;
    topics.publish(&[("b", r#"{"v":2}"#)])?;
    let letters: Vec<_> =
        ["a", "b", "c"].into_iter().zip(&places).zip(1..).map(|((id, place), seq)| (id, r#"{"v":1}"#, letter(STAGE, seq, place))).collect();
    topics.fail(&letters)?;
    let all = Filter::default();
    let wanted = Replayed { letters: 3, sent: 2, skipped: skipped(&[(Skipped::Superseded, 1)]) };
    assert_eq!(topics.replay(&all, false, true)?, wanted, "what would be done");
    assert_eq!(topics.kafka.read(&topics.source)?.len(), 4, "and nothing is done");
    assert_eq!(topics.replay(&all, false, false)?, wanted);
    let source = topics.kafka.read(&topics.source)?;
    for (id, versions) in [("a", 2), ("b", 2), ("c", 2)] {
        let of_id: Vec<_> = source.iter().filter(|record| record.key_text() == id).collect();
        assert_eq!(of_id.len(), versions, "{id}");
        assert_eq!(
            of_id.iter().map(|record| record.partition).max(),
            of_id.iter().map(|record| record.partition).min(),
            "{id}: where it was"
        );
        assert!(of_id.iter().all(|record| record.headers.is_empty()), "{id}: a new operation, that no run counts");
    }
    let last_of_b = source.iter().rfind(|record| record.key_text() == "b").map(Record::value_text);
    assert_eq!(last_of_b.as_deref(), Some(r#"{"v":2}"#));
    let only_b = Filter { id: Some("b".into()), ..Filter::default() };
    assert_eq!(topics.replay(&only_b, true, false)?, Replayed { letters: 1, sent: 1, skipped: skipped(&[]) }, "by force");
    assert_eq!(topics.letters(&all)?.0.len(), 3, "letters stay until they are removed");
    Ok(())
}

#[test]
fn row_20_what_failed_at_the_indexer_does_not_pass_the_stages_twice() -> Result<()> {
    let topics = Topics::new("dlq-resume")?;
    let places = topics.publish(&[("a", r#"{"v":1}"#), ("p", r#"{"parent":true}"#)])?;
    let child = LetterHeaders { ordinal: 2, ..letter(INDEXER, 2, &places[1]) };
    topics.fail(&[("a", r#"{"v":1,"done":true}"#, letter(INDEXER, 1, &places[0])), ("p-2", r#"{"child":2}"#, child)])?;
    assert_eq!(topics.replay(&Filter::default(), false, false)?.sent, 2);
    let source = topics.kafka.read(&topics.source)?;
    for (id, value) in [("a", r#"{"v":1,"done":true}"#), ("p-2", r#"{"child":2}"#)] {
        let last = source.iter().rfind(|record| record.key_text() == id).expect("brought in again");
        assert_eq!((last.value_text().as_str(), &*last.headers), (value, &[("penstock-resume".to_owned(), b"indexer".to_vec())][..]));
    }
    topics.publish(&[("p", r#"{"parent":"newer"}"#)])?;
    let again = topics.replay(&Filter { id: Some("p-2".into()), ..Filter::default() }, false, false)?;
    assert_eq!(again, Replayed { letters: 1, sent: 0, skipped: skipped(&[(Skipped::Superseded, 1)]) }, "its document has come again");
    Ok(())
}

#[test]
fn row_20_descendants_that_failed_in_a_stage_are_made_anew_by_their_document() -> Result<()> {
    let topics = Topics::new("dlq-children")?;
    let places = topics.publish(&[("p", r#"{"parts":3}"#)])?;
    let child = |ordinal| LetterHeaders { ordinal, ..letter(STAGE, 1, &places[0]) };
    topics.fail(&[("p-1", r#"{"part":1}"#, child(1)), ("p-3", r#"{"part":3}"#, child(3))])?;
    assert_eq!(topics.replay(&Filter::default(), false, false)?, Replayed { letters: 2, sent: 1, skipped: skipped(&[]) });
    let source: Vec<_> = topics.kafka.read(&topics.source)?.iter().map(|record| (record.key_text(), record.value_text())).collect();
    assert_eq!(source, vec![("p".to_owned(), r#"{"parts":3}"#.to_owned()); 2]);
    Ok(())
}

#[test]
fn what_cannot_be_brought_in_again_is_said() -> Result<()> {
    let topics = Topics::new("dlq-skipped")?;
    let places = topics.publish(&[("a", "{}")])?;
    let ours = || letter(STAGE, 1, &places[0]);
    let elsewhere = SourcePlace { topic: "other_source".into(), partition: 0, offset: 0 };
    topics.fail(&[
        ("raw", "{broken", LetterHeaders { content: LetterContent::Raw, stage: "".into(), seq: Some(1), ..ours() }),
        ("cut", "{\"a\":", LetterHeaders { truncated: true, seq: Some(2), ..ours() }),
        ("elsewhere", "{}", LetterHeaders { seq: Some(3), ..letter(STAGE, 3, &elsewhere) }),
        ("gone", "{}", LetterHeaders { source: Some(SourcePlace { offset: 1_000, ..places[0].clone() }), seq: Some(4), ..ours() }),
    ])?;
    topics.kafka.produce(&topics.fail, &[Record::new("strange", "hello")])?;
    let wanted = [(Skipped::NoDocument, 2), (Skipped::Truncated, 1), (Skipped::NoPlace, 1), (Skipped::OutOfReach, 1)];
    let all = Filter::default();
    assert_eq!(topics.replay(&all, false, true)?, Replayed { letters: 5, sent: 0, skipped: skipped(&wanted) });
    assert_eq!(topics.replay(&all, true, true)?, Replayed { letters: 5, sent: 2, skipped: skipped(&wanted[..2]) }, "by force");
    Ok(())
}

#[test]
fn ten_thousand_letters_are_found_brought_in_again_and_removed() -> Result<()> {
    const LETTERS: usize = 10_000;
    let topics = Topics::new("dlq-many")?;
    let ids: Vec<String> = (0..LETTERS).map(|number| format!("p-{number}")).collect();
    let value = format!(r#"{{"text":"{}"}}"#, "x".repeat(200));
    let documents: Vec<_> = ids.iter().map(|id| Record::new(id, &value)).collect();
    topics.kafka.produce(&topics.source, &documents)?;
    let places: BTreeMap<String, SourcePlace<'static>> = topics
        .kafka
        .read(&topics.source)?
        .iter()
        .map(|record| {
            let topic = Cow::Owned(topics.source.clone());
            (record.key_text(), SourcePlace { topic, partition: record.partition as u32, offset: record.offset as u64 })
        })
        .collect();
    let of = |number: usize| {
        let (stage, reason) = if number.is_multiple_of(4) { (INDEXER, "mapper_parsing_exception") } else { (STAGE, "no number") };
        LetterHeaders { reason: reason.into(), ..letter(stage, number as u64 + 1, &places[&ids[number]]) }
    };
    let letters: Vec<_> = (0..LETTERS).map(|number| (ids[number].as_str(), value.as_str(), of(number))).collect();
    topics.fail(&letters)?;
    // after a crash some are written again
    topics.fail(&letters[..500])?;

    let at_indexer = Filter { stage: Some(INDEXER.into()), ..Filter::default() };
    let (found, met) = topics.letters(&at_indexer)?;
    assert_eq!((found.len(), met), (2_500, Met { letters: 2_500, repeats: 125, others: 7_875 }));
    let parsing = Filter { reason: Some("PARSING".into()), id: Some("p-8".into()), ..Filter::default() };
    assert_eq!(topics.letters(&parsing)?.0, ["p-8"]);
    let (found, met) = topics.letters(&Filter::default())?;
    assert_eq!((found.len(), met.repeats), (LETTERS, 500));

    assert_eq!(topics.replay(&at_indexer, false, false)?, Replayed { letters: 2_500, sent: 2_500, skipped: skipped(&[]) });
    assert_eq!(topics.kafka.read(&topics.source)?.len(), LETTERS + 2_500);

    let wanted = Purged { removed: 2_625, kept: 7_875 };
    assert_eq!(topics.purge(&at_indexer, true)?, wanted);
    assert_eq!(topics.letters(&Filter::default())?.0.len(), LETTERS, "nothing was done");
    let before = topics.kafka.read(&topics.fail)?;
    assert_eq!(topics.purge(&at_indexer, false)?, wanted);
    let bare = |record: &Record| (record.key_text(), record.value_text(), record.headers.clone());
    let kept: Vec<_> =
        before.iter().filter(|record| !record.headers.contains(&("penstock-stage".into(), INDEXER.into()))).map(bare).collect();
    assert_eq!(topics.kafka.read(&topics.fail)?.iter().map(bare).collect::<Vec<_>>(), kept, "the others are as they were");
    assert_eq!(topics.purge(&at_indexer, false)?, Purged { removed: 0, kept: 7_875 }, "nothing to do");
    assert_eq!(topics.purge(&Filter::default(), false)?.removed, 7_875);
    assert_eq!(topics.letters(&Filter::default())?, (vec![], Met::default()));
    Ok(())
}

#[test]
fn the_command_lists_shows_brings_in_again_and_removes() -> Result<()> {
    let topics = Topics::new("dlq-command")?;
    let places = topics.publish(&[("a", r#"{"v":1}"#), ("b", r#"{"v":2}"#)])?;
    let at_indexer = LetterHeaders { reason: "mapper_parsing_exception".into(), ..letter(INDEXER, 2, &places[1]) };
    topics.fail(&[("a", r#"{"v":1}"#, letter(STAGE, 1, &places[0])), ("b", r#"{"v":2}"#, at_indexer)])?;
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", bare_pipeline(topics.kafka, "dlq-command"))?;
    let dlq = |action: &str, more: &[&str]| -> Result<Answer> {
        workdir.penstock(["dlq", action, "m.yaml"].into_iter().chain(more.iter().copied()))
    };
    let listed = dlq("list", &[])?;
    let lines: Vec<_> = listed.out.lines().collect();
    assert_eq!((listed.code, lines.len()), (Some(0), 2), "{listed:?}");
    assert!(lines[0].starts_with("0/0 ") && lines[0].contains("price") && lines[0].ends_with("no number: n/a"), "{listed:?}");
    assert_eq!(dlq("list", &["--count", "--reason", "parsing"])?.out, "1\n");
    let shown = dlq("show", &["--id", "b"])?;
    let shown: serde_json::Value = serde_json::from_str(&shown.out)?;
    assert_eq!((&shown["document"], &shown["stage"], &shown["seq"]), (&json!({"v": 2}), &json!("indexer"), &json!(2)));
    assert_eq!(shown["source"], json!(places[1].to_string()));

    assert_eq!(dlq("replay", &[])?.code, Some(2), "which letters?");
    let planned = dlq("replay", &["--all", "--dry-run"])?;
    assert_eq!(planned.out, "2 letters, 2 documents would be sent to dlq-command_source\n");
    assert_eq!(topics.kafka.read(&topics.source)?.len(), 2);
    assert_eq!(dlq("replay", &["--all"])?.out, "2 letters, 2 documents sent to dlq-command_source\n");
    assert_eq!(topics.kafka.read(&topics.source)?.len(), 4);

    assert_eq!(dlq("purge", &[])?.code, Some(2), "which letters?");
    assert_eq!(dlq("purge", &["--id", "a", "--dry-run"])?.out, "1 letter would be removed, 1 kept\n");
    assert_eq!(dlq("purge", &["--id", "a"])?.out, "1 letter removed, 1 kept\n");
    assert_eq!(dlq("list", &["--count"])?.out, "1\n");
    let elsewhere = dlq("list", &["--pipeline", "books"])?;
    assert!(elsewhere.code == Some(64) && elsewhere.err.contains("dlq-command"), "{elsewhere:?}");
    Ok(())
}
