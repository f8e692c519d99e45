//! The event log of a step over a real broker.

use anyhow::{Context, Result, bail};
use penstock::{
    event::{Detail, EventBatch, Outcome, Tag},
    kafka::Connection,
    publisher::{
        ledger::Ledger,
        log::{Checkpoint, EventLog, LogError, LogRecord},
        recovery::{claim, recover},
        snapshot::Snapshot,
        topic_log::{TopicLog, codec},
    },
    secrets::Secrets,
};
use penstock_tests::{
    over_kafka::bare_pipeline,
    penstock::Workdir,
    services::{
        kafka::{Kafka, records::Record},
        poll_until,
    },
};
use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: [(&str, &str); 3] = [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")];

fn connection(servers: &str) -> Result<Connection> {
    let spec = serde_json::from_value(json!({"bootstrapServers": servers}))?;
    Ok(Connection::new(&spec, "default", &Secrets::default())?)
}

fn open(kafka: &Kafka, topic: &str) -> Result<TopicLog> {
    Ok(TopicLog::open(&connection(&kafka.bootstrap())?, topic, PATIENCE)?)
}

/// A log that is there, and empty.
fn log(kafka: &Kafka, topic: &str) -> Result<TopicLog> {
    kafka.create_topic_with(topic, 1, &SETTINGS)?;
    open(kafka, topic)
}

fn finished(epoch: u64, seqs: impl Iterator<Item = u64>) -> LogRecord {
    let mut batch = EventBatch::new(epoch, 1, Outcome::Finished);
    seqs.for_each(|seq| batch.push(Tag::source(seq)));
    LogRecord::Events(batch)
}

fn checkpoint(epoch: u64, seq: u64) -> LogRecord {
    LogRecord::Checkpoint(Checkpoint { epoch, seq, resume: None, source_offsets: BTreeMap::new(), end: true })
}

fn as_record(record: &LogRecord) -> Record {
    let mut bytes = Vec::new();
    codec::encode(record, &mut bytes);
    Record { partition: 0, value: Some(bytes), ..Record::default() }
}

/// Removes the records in front of an offset.
fn forget_before(kafka: &Kafka, topic: &str, offset: i64) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = kafka.client().create()?;
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(topic, 0, Offset::Offset(offset))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(admin.delete_records(&offsets, &AdminOptions::new()))?;
    Ok(())
}

fn offsets(records: &[(u64, Arc<LogRecord>)]) -> Vec<u64> {
    records.iter().map(|(offset, _)| *offset).collect()
}

#[test]
fn records_stand_in_the_log_in_the_order_in_which_they_were_appended() -> Result<()> {
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-order")?;
    assert_eq!((log.end()?, log.read(0, 10)?), (0, vec![]));
    let epoch = claim(&log, "products")?;
    let on_their_way: Vec<_> = (1..=50).map(|seq| log.begin_append(&checkpoint(epoch, seq))).collect::<Result<_, _>>()?;
    for (offset, appending) in (1..).zip(on_their_way) {
        assert_eq!(appending.wait(PATIENCE)?, Some(offset));
    }
    assert_eq!(log.append(finished(epoch, 1..=3))?, 51);
    let read = log.read(0, 1_000)?;
    assert_eq!(offsets(&read), (0..52).collect::<Vec<_>>());
    assert_eq!(*read[51].1, finished(epoch, 1..=3));
    assert_eq!(*read[7].1, checkpoint(epoch, 7));
    assert_eq!(offsets(&log.read(10, 5)?), [10, 11, 12, 13, 14], "from any place, so many at most");
    assert_eq!(offsets(&log.read(15, 2)?), [15, 16]);
    assert_eq!((log.end()?, log.read(52, 1)?), (52, vec![]));
    Ok(())
}

#[test]
fn reading_on_waits_for_the_first_record_only() -> Result<()> {
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-read-on")?;
    assert_eq!(log.read_some(0, 10, Duration::from_millis(20))?, []);
    let other = open(kafka, "log-read-on")?;
    let epoch = claim(&other, "products")?;
    other.append(checkpoint(epoch, 1))?;
    let mut seen = Vec::new();
    poll_until("both records are read", PATIENCE, || {
        let next = seen.len() as u64;
        seen.extend(offsets(&log.read_some(next, 10, Duration::from_secs(5)).expect("the log can be read")));
        seen.len() == 2
    })?;
    let began = Instant::now();
    assert_eq!(log.read_some(2, 10, Duration::from_millis(20))?, []);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn row_21_a_log_whose_head_is_gone_is_not_counted() -> Result<()> {
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-head")?;
    for seq in 0..6 {
        log.append(checkpoint(0, seq))?;
    }
    forget_before(kafka, "log-head", 4)?;
    let fresh = open(kafka, "log-head")?;
    let truncated = LogError::Truncated { wanted: 0, first: 4 };
    assert_eq!((fresh.read(0, 10), fresh.first()), (Err(truncated.clone()), Ok(4)));
    assert_eq!(recover(&fresh, "products", true, 5, &mut |_| {}).map(|recovered| recovered.epoch), Err(truncated));
    assert_eq!(offsets(&fresh.read(4, 10)?), [4, 5], "what is there can be read");
    assert_eq!(fresh.append(checkpoint(0, 7))?, 6);
    Ok(())
}

#[test]
fn row_21_a_log_that_is_deleted_is_lost() -> Result<()> {
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-deleted")?;
    claim(&log, "products")?;
    assert_eq!(log.read(0, 10)?.len(), 1);
    kafka.delete_topic("log-deleted")?;
    let lost = LogError::Lost { log: "log-deleted".into() };
    assert_eq!(log.end(), Err(lost.clone()));
    let mut said = None;
    poll_until("the reader notices", PATIENCE, || {
        said = log.read_some(1, 10, Duration::from_millis(500)).err();
        said.is_some()
    })?;
    assert_eq!(said, Some(lost.clone()));
    assert_eq!(log.append(checkpoint(0, 1)), Err(lost.clone()));
    assert_eq!(open(kafka, "log-deleted").err().map(|error| error.to_string()), Some(lost.to_string()));
    Ok(())
}

#[test]
fn row_21_a_log_that_was_made_anew_is_not_taken_for_the_old_one() -> Result<()> {
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-anew")?;
    for seq in 0..3 {
        log.append(checkpoint(0, seq))?;
    }
    assert_eq!(log.read(0, 10)?.len(), 3);
    kafka.delete_topic("log-anew")?;
    kafka.create_topic_with("log-anew", 1, &SETTINGS)?;
    let lost = LogError::Lost { log: "log-anew".into() };
    let mut said = None;
    poll_until("the reader notices", PATIENCE, || {
        said = log.read_some(3, 10, Duration::from_millis(500)).err();
        said.is_some()
    })?;
    assert_eq!(said, Some(lost.clone()));
    assert_eq!(log.read(3, 10), Err(lost));
    Ok(())
}

#[test]
fn row_21_a_topic_with_several_partitions_is_no_log() -> Result<()> {
    let kafka = Kafka::shared()?;
    kafka.create_topic("log-wide", 3)?;
    let error = TopicLog::open(&connection(&kafka.bootstrap())?, "log-wide", PATIENCE).err();
    assert_eq!(error, Some(LogError::Partitions { log: "log-wide".into(), partitions: 3 }));
    Ok(())
}

#[test]
fn a_record_that_is_none_of_ours_is_named_s27() -> Result<()> {
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-strange")?;
    claim(&log, "products")?;
    kafka.produce("log-strange", &[Record::new("a", "hello")])?;
    match log.read(0, 10) {
        Err(LogError::Unreadable { offset: 1, reason, .. }) => assert!(reason.contains("version 104"), "{reason}"),
        other => bail!("{other:?}"),
    }
    Ok(())
}

#[test]
fn nobody_waits_longer_than_told_for_a_broker_that_is_not_there() -> Result<()> {
    let began = Instant::now();
    let error = TopicLog::open(&connection("127.0.0.1:1")?, "log-nobody", Duration::from_secs(2)).err().context("nobody is there")?;
    match error {
        LogError::Unreachable { reason, .. } => assert!(reason.contains("Connection refused"), "{reason}"),
        other => bail!("{other}"),
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn a_log_outlives_its_broker_and_what_was_sent_meanwhile_arrives_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kafka = Kafka::start(folder.path())?;
    let log = log(&kafka, "log-restart")?;
    let epoch = claim(&log, "products")?;
    kafka.kill();
    let on_its_way = log.begin_append(&checkpoint(epoch, 1))?;
    assert_eq!(on_its_way.wait(Duration::from_millis(300))?, None);
    assert_eq!(log.read_some(1, 10, Duration::from_millis(100))?, []);
    kafka.start_again()?;
    assert_eq!(on_its_way.wait(PATIENCE)?, Some(1));
    assert_eq!(offsets(&log.read(0, 10)?), [0, 1]);
    Ok(())
}

#[test]
fn a_step_of_a_million_documents_is_recovered_x6_p23() -> Result<()> {
    const DOCUMENTS: u64 = 1_000_000;
    const BATCH: u64 = 250;
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-million")?;
    let first = claim(&log, "products")?;
    let events = (0..DOCUMENTS / BATCH).map(|batch| as_record(&finished(first, batch * BATCH + 1..(batch + 1) * BATCH + 1)));
    kafka.produce("log-million", &events.collect::<Vec<_>>())?;
    log.append(checkpoint(first, DOCUMENTS + 3))?;
    let successor = open(kafka, "log-million")?;
    let epoch = claim(&successor, "products")?;
    let began = Instant::now();
    let recovered = recover(&successor, "products", true, epoch, &mut |_| {})?;
    eprintln!("{DOCUMENTS} events recovered in {:?}", began.elapsed());
    let counts = recovered.ledger.counts();
    assert_eq!((counts.published, counts.finished, counts.pending), (DOCUMENTS + 3, DOCUMENTS, 3));
    Ok(())
}

#[test]
fn the_command_tells_what_happened_in_a_run() -> Result<()> {
    let kafka = Kafka::shared()?;
    let log = log(kafka, "told_event_nightly-1")?;
    let epoch = claim(&log, "products")?;
    let mut failed = EventBatch::new(epoch, 1, Outcome::Failed);
    let detail = Detail { seq: 3, id: "p-3".into(), stage: "price".into(), reason: "no number".into() };
    failed.push_with(Tag { seq: 3, ordinal: 0, children: 2 }, detail);
    log.append(finished(epoch, 1..=2))?;
    log.append(LogRecord::Events(failed))?;
    log.append(checkpoint(epoch, 3))?;
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", bare_pipeline(kafka, "told"))?;
    let told = workdir.penstock(["events", "m.yaml"])?;
    let wanted = "       0  EPOCH       0: a publisher of products begins
       1  FINISH      epoch 0, attempt 1: 2 (1–2)
       2  FAIL        epoch 0, attempt 1: 1 (3); CREATE 2
                      3 p-3 in price: no number
       3  CHECKPOINT  epoch 0: safe up to 3, the end of the source
";
    assert_eq!((told.out.as_str(), told.code), (wanted, Some(0)), "{}", told.err);
    let json = workdir.penstock(["events", "m.yaml", "--run-id", "nightly-1", "--json"])?;
    let third: serde_json::Value = serde_json::from_str(json.out.lines().nth(2).context("four records")?)?;
    assert_eq!((&third["outcome"], &third["created"], &third["details"][0]["id"]), (&json!("failed"), &json!(2), &json!("p-3")));
    let other = workdir.penstock(["events", "m.yaml", "--run-id", "nightly-2"])?;
    assert!(other.code == Some(1) && other.err.contains("told_event_nightly-2"), "{other:?}");
    Ok(())
}

#[test]
fn a_step_is_recovered_from_its_snapshot_after_the_head_was_deleted() -> Result<()> {
    const DOCUMENTS: u64 = 6_000_000;
    let kafka = Kafka::shared()?;
    let log = log(kafka, "log-snapshot")?;
    let first = claim(&log, "products")?;
    log.append(finished(first, (1..=DOCUMENTS).step_by(1_000)))?;
    let mut ledger = Ledger::new(first);
    ledger.published_to(DOCUMENTS);
    for (_, record) in log.read(0, 10)? {
        if let LogRecord::Events(events) = &*record {
            ledger.apply(events, &mut |_| {});
        }
    }
    let snapshot = Snapshot::take(first, "products", log.end()?, &ledger, &BTreeMap::new());
    log.append(checkpoint(first, DOCUMENTS))?;
    let parts = snapshot.records();
    assert!(parts.len() > 1, "more than a record may hold");
    for part in parts {
        log.append(part)?;
    }
    log.append(finished(first, 2..=2))?;
    forget_before(kafka, "log-snapshot", 2)?;
    let successor = open(kafka, "log-snapshot")?;
    let epoch = claim(&successor, "products")?;
    let counts = recover(&successor, "products", true, epoch, &mut |_| {})?.ledger.counts();
    assert_eq!((counts.published, counts.finished), (DOCUMENTS, DOCUMENTS / 1_000 + 1));
    Ok(())
}
