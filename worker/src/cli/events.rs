//! `penstock events`: the log of a run, for people.

use super::{
    Exit,
    style::printable,
    topics::{PATIENCE, Target, TopicArgs, fail, fail_kafka},
};
use crate::{
    connectors::ResumeFrom,
    event::{EventBatch, Outcome},
    kafka::{Access, KafkaError, Resource},
    publisher::{
        log::{Checkpoint, EventLog, LogError, LogRecord},
        snapshot::SnapshotPart,
        topic_log::TopicLog,
    },
};
use anyhow::Context;
use clap::Args;
use rdkafka::producer::{BaseProducer, Producer};
use serde_json::{Value, json};
use std::{
    fmt::Write as _,
    io::{self, Write},
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  penstock events nightly.yaml                             the only run whose log is there
  penstock events nightly.yaml --pipeline books --run-id nightly-4f2a91c0
  penstock events nightly.yaml --follow                    what comes, until interrupted
  penstock events nightly.yaml --json | jq 'select(.outcome == \"failed\")'

EPOCH: a publisher begins. CHECKPOINT: up to where a successor goes on. FINISH, FAIL, DROP: how
documents ended, in batches. CREATE: the descendants that they had. SNAPSHOT: all that is known, so
that less need be read. COMPLETE: the step is accounted for.";

/// Records that are read at once.
const READ: usize = 500;

/// Ranges of numbers that a line shows.
const RANGES: usize = 6;

/// Arguments of `penstock events`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Events {
    #[command(flatten)]
    topics: TopicArgs,
    /// The id of the run. Not needed if the pipeline has the log of one run only.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Go on with what comes, until interrupted.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Print one JSON object a record, with every single event.
    #[arg(long)]
    json: bool,
}

/// Why the log is not shown.
enum Failure {
    Choice(String),
    Kafka(KafkaError),
    Log(LogError),
    Print(io::Error),
}

impl Events {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let target = match self.topics.target(false) {
            Ok(target) => target,
            Err(no_target) => return no_target.print(),
        };
        match self.show(&target) {
            Ok(()) => Ok(Exit::Complete),
            Err(Failure::Choice(message)) => fail(&message, Exit::Invalid),
            Err(Failure::Kafka(error)) => fail_kafka(&error),
            Err(Failure::Log(error @ LogError::Unreachable { .. })) => fail(&error.to_string(), Exit::Unreachable),
            Err(Failure::Log(error)) => fail(&error.to_string(), Exit::Failed),
            Err(Failure::Print(error)) => Err(error).context("failed to print the events"),
        }
    }

    fn show(&self, target: &Target) -> Result<(), Failure> {
        let topic = self.topic(target)?;
        let log = TopicLog::open(&target.connection, &topic, PATIENCE)?;
        let (mut next, end) = (log.first()?, log.end()?);
        let mut out = io::stdout().lock();
        while self.follow || next < end {
            let records = log.read_some(next, READ, Duration::from_secs(1))?;
            for (offset, record) in &records {
                let text = if self.json { json_line(*offset, record) } else { text(*offset, record) };
                out.write_all(text.as_bytes())?;
                next = offset + 1;
            }
            out.flush()?;
        }
        Ok(())
    }

    /// The topic of the run's log.
    fn topic(&self, target: &Target) -> Result<String, Failure> {
        if let Some(run_id) = &self.run_id {
            return target.names.event(run_id).map_err(|error| Failure::Choice(error.to_string()));
        }
        let runs = runs(target).map_err(Failure::Kafka)?;
        let pipeline = &target.pipeline;
        match runs.as_slice() {
            [] => Err(Failure::Choice(format!("pipeline `{pipeline}` has the log of no run: it is removed when a run has ended"))),
            [(_, topic)] => Ok(topic.clone()),
            several => {
                let ids: Vec<_> = several.iter().map(|(run, _)| run.as_str()).collect();
                Err(Failure::Choice(format!("pipeline `{pipeline}` has several logs; choose one with --run-id: {}", ids.join(", "))))
            }
        }
    }
}

/// The runs whose logs are there, with their topics.
fn runs(target: &Target) -> Result<Vec<(String, String)>, KafkaError> {
    let connection = &target.connection;
    let client: BaseProducer<_> = connection.client_of(|config| config.create_with_context(connection.context()))?;
    let metadata = client.client().fetch_metadata(None, PATIENCE);
    let metadata = metadata.map_err(|error| connection.error(&error, Access::Describe, Resource::Cluster))?;
    let run_of = |topic: &str| Some((target.names.run_of(topic)?.to_owned(), topic.to_owned()));
    Ok(metadata.topics().iter().filter_map(|topic| run_of(topic.name())).collect())
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Print(error)
    }
}

/// The lines of a record for people.
fn text(offset: u64, record: &LogRecord) -> String {
    let mut text = match record {
        LogRecord::Epoch { step } => format!("{offset:>8}  EPOCH       {offset}: a publisher of {step} begins\n"),
        LogRecord::Checkpoint(checkpoint) => format!("{offset:>8}  CHECKPOINT  {}\n", checkpoint_text(checkpoint)),
        LogRecord::Snapshot(snapshot) => {
            let SnapshotPart { epoch, part, parts, bytes } = snapshot;
            format!("{offset:>8}  SNAPSHOT    epoch {epoch}: part {} of {parts}, {} bytes\n", part + 1, bytes.len())
        }
        LogRecord::Complete { epoch, counts } => format!(
            "{offset:>8}  COMPLETE    epoch {epoch}: {} published, {} created, {} finished, {} failed, {} dropped\n",
            counts.published, counts.created, counts.finished, counts.failed, counts.dropped
        ),
        LogRecord::Events(events) => format!("{offset:>8}  {}\n", events_text(events)),
    };
    if let LogRecord::Events(events) = record {
        for detail in &events.details {
            let stage = if detail.stage.is_empty() { String::new() } else { format!(" in {}", detail.stage) };
            let _ = writeln!(text, "{:>22}{} {}{stage}: {}", "", detail.seq, detail.id, detail.reason.replace('\n', " "));
        }
    }
    printable(&text).into_owned()
}

fn checkpoint_text(checkpoint: &Checkpoint) -> String {
    let mut text = format!("epoch {}: safe up to {}", checkpoint.epoch, checkpoint.seq);
    if checkpoint.end {
        text.push_str(", the end of the source");
    } else if let Some(ResumeFrom { cursor, split }) = &checkpoint.resume {
        let _ = write!(text, "; a successor goes on behind record {} of {split}", cursor.record);
    }
    text
}

fn events_text(events: &EventBatch) -> String {
    let name = match events.outcome {
        Outcome::Finished => "FINISH",
        Outcome::Failed => "FAIL",
        Outcome::Dropped => "DROP",
    };
    let mut text = format!("{name:<10}  epoch {}, attempt {}: {} ({})", events.epoch, events.attempt, events.len(), ranges(events.seqs()));
    let created = created(events);
    if created > 0 {
        let _ = write!(text, "; CREATE {created}");
    }
    text
}

/// Descendants, as their source documents say.
fn created(events: &EventBatch) -> u64 {
    events.children().iter().copied().map(u64::from).sum()
}

/// `1–250, 260`: the numbers in order, each once.
fn ranges(seqs: &[u64]) -> String {
    let mut sorted = seqs.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let parts: Vec<_> = sorted.chunk_by(|a, b| a + 1 == *b).collect();
    let shown = parts.iter().take(RANGES).map(|part| match part {
        [first, .., last] => format!("{first}–{last}"),
        single => single.iter().map(u64::to_string).collect(),
    });
    let more = if parts.len() > RANGES { ", …" } else { "" };
    shown.collect::<Vec<_>>().join(", ") + more
}

/// The record as one line of JSON.
fn json_line(offset: u64, record: &LogRecord) -> String {
    let value = match record {
        LogRecord::Epoch { step } => json!({"offset": offset, "type": "epoch", "step": step}),
        LogRecord::Checkpoint(checkpoint) => json!({
            "offset": offset, "type": "checkpoint", "epoch": checkpoint.epoch, "seq": checkpoint.seq, "end": checkpoint.end,
            "record": checkpoint.resume.as_ref().map(|resume| resume.cursor.record),
            "split": checkpoint.resume.as_ref().map(|resume| &resume.split),
            "sourceOffsets": checkpoint.source_offsets,
        }),
        LogRecord::Snapshot(snapshot) => json!({
            "offset": offset, "type": "snapshot", "epoch": snapshot.epoch, "part": snapshot.part + 1, "parts": snapshot.parts,
            "bytes": snapshot.bytes.len(),
        }),
        LogRecord::Complete { epoch, counts } => json!({"offset": offset, "type": "complete", "epoch": epoch, "counts": counts}),
        LogRecord::Events(events) => {
            let each = events.tags().map(|tag| match (tag.ordinal, tag.children) {
                (0, children) => json!({"seq": tag.seq, "children": children}),
                (ordinal, _) => json!({"seq": tag.seq, "ordinal": ordinal}),
            });
            let details = events
                .details
                .iter()
                .map(|detail| json!({"seq": detail.seq, "id": detail.id, "stage": detail.stage, "reason": detail.reason}));
            json!({
                "offset": offset, "type": "events", "epoch": events.epoch, "attempt": events.attempt,
                "outcome": events.outcome.as_str(), "created": created(events),
                "events": each.collect::<Vec<Value>>(), "details": details.collect::<Vec<Value>>(),
            })
        }
    };
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        connectors::Cursor,
        event::{Detail, Tag},
    };
    use penstock_crds::ingest_run::Counts;
    use std::collections::BTreeMap;

    fn failed() -> LogRecord {
        let mut events = EventBatch::new(3, 1_790_000_000, Outcome::Failed);
        let detail = Detail { seq: 9, id: "p-9".into(), stage: "price".into(), reason: "no\nnumber\u{7}".into() };
        events.push_with(Tag { seq: 9, ordinal: 0, children: 2 }, detail);
        LogRecord::Events(events)
    }

    #[test]
    fn each_kind_of_record_is_told_in_words() {
        let resume = Some(ResumeFrom { cursor: Cursor { record: 40, ..Cursor::default() }, split: json!({"path": "a.csv"}) });
        let checkpoint = Checkpoint { epoch: 3, seq: 50, resume, source_offsets: BTreeMap::new(), end: false };
        let end = Checkpoint { end: true, ..checkpoint.clone() };
        let counts = Counts { published: 50, created: 2, finished: 49, failed: 1, dropped: 2, pending: 0 };
        let wanted = [
            (LogRecord::Epoch { step: "products".into() }, "       7  EPOCH       7: a publisher of products begins\n"),
            (
                LogRecord::Checkpoint(checkpoint),
                "       7  CHECKPOINT  epoch 3: safe up to 50; a successor goes on behind record 40 of {\"path\":\"a.csv\"}\n",
            ),
            (LogRecord::Checkpoint(end), "       7  CHECKPOINT  epoch 3: safe up to 50, the end of the source\n"),
            (
                LogRecord::Complete { epoch: 3, counts },
                "       7  COMPLETE    epoch 3: 50 published, 2 created, 49 finished, 1 failed, 2 dropped\n",
            ),
            (
                failed(),
                "       7  FAIL        epoch 3, attempt 1790000000: 1 (9); CREATE 2\n                      9 p-9 in price: no number\\u{7}\n",
            ),
        ];
        for (record, wanted) in wanted {
            assert_eq!(text(7, &record), wanted);
        }
    }

    #[test]
    fn numbers_are_shown_as_ranges() {
        assert_eq!(ranges(&[3, 1, 2, 2, 9]), "1–3, 9");
        let odd: Vec<u64> = (0..20).map(|n| n * 2 + 1).collect();
        assert_eq!(ranges(&odd), "1, 3, 5, 7, 9, 11, …");
    }

    #[test]
    fn json_has_every_event() {
        let value: Value = serde_json::from_str(&json_line(7, &failed())).expect("one line of JSON");
        assert_eq!((&value["outcome"], &value["created"]), (&json!("failed"), &json!(2)));
        assert_eq!(value["events"], json!([{"seq": 9, "children": 2}]));
        assert_eq!(value["details"][0]["id"], "p-9");
    }
}
