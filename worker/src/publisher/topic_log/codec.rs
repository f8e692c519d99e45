//! Log records as bytes: a version byte, then the record by postcard. Events are columns: numbers as differences to the one
//! before, and nothing for a column that holds only zeros, so that most events are one byte before they are compressed.

use crate::{
    connectors::{Cursor, ResumeFrom},
    event::{Detail, EventBatch, Outcome},
    publisher::{
        log::{Checkpoint, LogRecord},
        snapshot::SnapshotPart,
    },
};
use penstock_crds::ingest_run::Counts;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// What the first byte says; another layout gets another number.
const VERSION: u8 = 1;

/// Reasons are cut to so many bytes, and ids too: the dead letter has the whole, and a batch has to fit into a record.
const LONGEST_TEXT: usize = 1_000;

/// Room that is made before the numbers are seen: damaged bytes may promise any.
const TRUSTED_LENGTH: usize = 1 << 14;

/// The bytes are no log record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// They are of another layout.
    #[error("it has version {0}, but this build knows {VERSION} only: go on with the build that wrote it, or update this one")]
    Version(u8),
    /// They are something else, or damaged.
    #[error("it is no record of an event log, or damaged")]
    Damaged,
}

/// A record as it is written; the texts of one that was read stand in its bytes.
#[derive(Serialize, Deserialize)]
enum Wire<'a> {
    Epoch {
        step: Cow<'a, str>,
    },
    Checkpoint {
        epoch: u64,
        seq: u64,
        resume: Option<WireResume>,
        source_offsets: Cow<'a, BTreeMap<u32, u64>>,
        end: bool,
    },
    Events {
        epoch: u64,
        attempt: u64,
        outcome: WireOutcome,
        seqs: Differences<'a>,
        ordinals: Cow<'a, [u32]>,
        children: Cow<'a, [u32]>,
        #[serde(borrow)]
        details: Vec<WireDetail<'a>>,
    },
    Complete {
        epoch: u64,
        /// published, created, finished, failed, dropped, pending
        counts: [u64; 6],
    },
    Snapshot {
        epoch: u64,
        part: u32,
        parts: u32,
        bytes: &'a [u8],
    },
}

#[derive(Serialize, Deserialize)]
struct WireResume {
    split: u32,
    offset: u64,
    record: u64,
    line: u64,
    /// What the connector said of the split, as JSON.
    what: String,
}

#[derive(Serialize, Deserialize)]
enum WireOutcome {
    Finished,
    Failed,
    Dropped,
}

#[derive(Serialize, Deserialize)]
struct WireDetail<'a> {
    seq: u64,
    id: &'a str,
    stage: &'a str,
    reason: &'a str,
}

/// Numbers, written as the difference of each to the one before.
struct Differences<'a>(Cow<'a, [u64]>);

/// Appends the bytes of a record.
pub fn encode(record: &LogRecord, into: &mut Vec<u8>) {
    into.push(VERSION);
    postcard::to_io(&Wire::of(record), into).expect("a vector takes every byte, and nothing here fails to be written");
}

/// Reads the bytes of a record.
///
/// # Errors
/// They are not what [`encode`] writes.
pub fn decode(bytes: &[u8]) -> Result<LogRecord, CodecError> {
    let (version, body) = bytes.split_first().ok_or(CodecError::Damaged)?;
    if *version != VERSION {
        return Err(CodecError::Version(*version));
    }
    match postcard::take_from_bytes::<Wire<'_>>(body) {
        Ok((wire, [])) => wire.into_record().ok_or(CodecError::Damaged),
        _ => Err(CodecError::Damaged),
    }
}

impl<'a> Wire<'a> {
    fn of(record: &'a LogRecord) -> Self {
        match record {
            LogRecord::Epoch { step } => Self::Epoch { step: step.into() },
            LogRecord::Checkpoint(checkpoint) => Self::Checkpoint {
                epoch: checkpoint.epoch,
                seq: checkpoint.seq,
                resume: checkpoint.resume.as_ref().map(WireResume::of),
                source_offsets: Cow::Borrowed(&checkpoint.source_offsets),
                end: checkpoint.end,
            },
            LogRecord::Events(events) => Self::Events {
                epoch: events.epoch,
                attempt: events.attempt,
                outcome: match events.outcome {
                    Outcome::Finished => WireOutcome::Finished,
                    Outcome::Failed => WireOutcome::Failed,
                    Outcome::Dropped => WireOutcome::Dropped,
                },
                seqs: Differences(events.seqs().into()),
                ordinals: events.ordinals().into(),
                children: events.children().into(),
                details: events.details.iter().map(WireDetail::of).collect(),
            },
            LogRecord::Snapshot(SnapshotPart { epoch, part, parts, bytes }) => {
                Self::Snapshot { epoch: *epoch, part: *part, parts: *parts, bytes }
            }
            LogRecord::Complete { epoch, counts } => Self::Complete {
                epoch: *epoch,
                counts: [counts.published, counts.created, counts.finished, counts.failed, counts.dropped, counts.pending],
            },
        }
    }

    /// `None` if its parts do not fit together.
    fn into_record(self) -> Option<LogRecord> {
        Some(match self {
            Self::Epoch { step } => LogRecord::Epoch { step: step.into_owned() },
            Self::Checkpoint { epoch, seq, resume, source_offsets, end } => LogRecord::Checkpoint(Checkpoint {
                epoch,
                seq,
                resume: match resume {
                    Some(resume) => Some(resume.into_place()?),
                    None => None,
                },
                source_offsets: source_offsets.into_owned(),
                end,
            }),
            Self::Events { epoch, attempt, outcome, seqs, ordinals, children, details } => {
                let outcome = match outcome {
                    WireOutcome::Finished => Outcome::Finished,
                    WireOutcome::Failed => Outcome::Failed,
                    WireOutcome::Dropped => Outcome::Dropped,
                };
                let empty = EventBatch::new(epoch, attempt, outcome);
                let details = details.into_iter().map(WireDetail::into_detail).collect();
                LogRecord::Events(empty.with_columns(seqs.0.into_owned(), ordinals.into_owned(), children.into_owned(), details)?)
            }
            Self::Snapshot { epoch, part, parts, bytes } => LogRecord::Snapshot(SnapshotPart { epoch, part, parts, bytes: bytes.to_vec() }),
            Self::Complete { epoch, counts: [published, created, finished, failed, dropped, pending] } => {
                LogRecord::Complete { epoch, counts: Counts { published, created, finished, failed, dropped, pending } }
            }
        })
    }
}

impl WireResume {
    fn of(place: &ResumeFrom) -> Self {
        let Cursor { split, offset, record, line } = place.cursor;
        Self { split, offset, record, line, what: place.split.to_string() }
    }

    fn into_place(self) -> Option<ResumeFrom> {
        let cursor = Cursor { split: self.split, offset: self.offset, record: self.record, line: self.line };
        Some(ResumeFrom { cursor, split: serde_json::from_str(&self.what).ok()? })
    }
}

impl<'a> WireDetail<'a> {
    fn of(detail: &'a Detail) -> Self {
        Self { seq: detail.seq, id: cut(&detail.id), stage: cut(&detail.stage), reason: cut(&detail.reason) }
    }

    fn into_detail(self) -> Detail {
        Detail { seq: self.seq, id: self.id.to_owned(), stage: self.stage.to_owned(), reason: self.reason.to_owned() }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

impl Serialize for Differences<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut before = 0_u64;
        serializer.collect_seq(self.0.iter().map(|seq| {
            let difference = seq.wrapping_sub(before).cast_signed();
            before = *seq;
            difference
        }))
    }
}

impl<'de> Deserialize<'de> for Differences<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> de::Visitor<'de> for Numbers {
            type Value = Vec<u64>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("differences")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut differences: A) -> Result<Self::Value, A::Error> {
                let mut numbers = Vec::with_capacity(differences.size_hint().unwrap_or(0).min(TRUSTED_LENGTH));
                let mut before = 0_u64;
                while let Some(difference) = differences.next_element::<i64>()? {
                    before = before.wrapping_add_signed(difference);
                    numbers.push(before);
                }
                Ok(numbers)
            }
        }
        deserializer.deserialize_seq(Numbers).map(|numbers| Differences(numbers.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Tag;
    use proptest::prelude::*;
    use serde_json::json;

    fn encoded(record: &LogRecord) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        bytes
    }

    fn events(outcome: Outcome, tags: &[Tag]) -> EventBatch {
        let mut batch = EventBatch::new(7, 1_790_000_000, outcome);
        tags.iter().for_each(|tag| batch.push(*tag));
        batch
    }

    fn any_record() -> impl Strategy<Value = LogRecord> {
        let place = (any::<(u32, u64, u64, u64)>(), ".{0,20}").prop_map(|((split, offset, record, line), name)| ResumeFrom {
            cursor: Cursor { split, offset, record, line },
            split: json!({"path": name, "size": 1.5e300, "etag": null}),
        });
        let checkpoint =
            (any::<(u64, u64, bool)>(), prop::option::of(place), prop::collection::btree_map(any::<u32>(), any::<u64>(), 0..5)).prop_map(
                |((epoch, seq, end), resume, source_offsets)| LogRecord::Checkpoint(Checkpoint { epoch, seq, resume, source_offsets, end }),
            );
        let tags = prop::collection::vec(any::<(u64, u32, u32)>(), 0..20);
        let events = (any::<(u64, u64)>(), 0..3_usize, tags, ".{0,9}").prop_map(|((epoch, attempt), outcome, tags, text)| {
            let outcome = [Outcome::Finished, Outcome::Failed, Outcome::Dropped][outcome];
            let mut batch = EventBatch::new(epoch, attempt, outcome);
            for (seq, ordinal, children) in tags {
                let tag = Tag { seq, ordinal: ordinal % 3, children: children % 2 };
                if outcome == Outcome::Finished {
                    batch.push(tag);
                } else {
                    batch.push_with(tag, Detail { seq, id: text.clone(), stage: "s".into(), reason: text.clone() });
                }
            }
            LogRecord::Events(batch)
        });
        let complete = (any::<u64>(), any::<[u64; 6]>()).prop_map(|(epoch, [published, created, finished, failed, dropped, pending])| {
            LogRecord::Complete { epoch, counts: Counts { published, created, finished, failed, dropped, pending } }
        });
        let bytes = prop::collection::vec(any::<u8>(), 0..20);
        let snapshot = (any::<(u64, u32, u32)>(), bytes)
            .prop_map(|((epoch, part, parts), bytes)| LogRecord::Snapshot(SnapshotPart { epoch, part, parts, bytes }));
        prop_oneof![".{0,20}".prop_map(|step| LogRecord::Epoch { step }), checkpoint, events, complete, snapshot]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(record in any_record()) {
            prop_assert_eq!(decode(&encoded(&record)), Ok(record));
        }

        #[test]
        fn damaged_bytes_are_read_or_refused(record in any_record(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = encoded(&record);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decode(&bytes);
            prop_assert!(decode(&bytes[..at]).is_err(), "cut");
        }
    }

    #[test]
    fn an_event_of_a_document_without_descendants_is_one_byte() {
        let tags: Vec<_> = (1_000_000..1_000_250).map(Tag::source).collect();
        let bytes = encoded(&LogRecord::Events(events(Outcome::Finished, &tags)));
        assert!(bytes.len() < 250 + 20, "{}", bytes.len());
    }

    #[test]
    fn texts_that_would_not_fit_into_a_record_are_cut() {
        let mut batch = EventBatch::new(1, 1, Outcome::Failed);
        batch.push_with(Tag::source(1), Detail { seq: 1, id: "i".into(), stage: "s".into(), reason: "ä".repeat(100_000) });
        let Ok(LogRecord::Events(read)) = decode(&encoded(&LogRecord::Events(batch))) else { unreachable!("events were written") };
        assert_eq!(read.details[0].reason, "ä".repeat(LONGEST_TEXT / 2));
    }

    #[test]
    fn bytes_of_version_1_are_read_for_ever() {
        let place = ResumeFrom { cursor: Cursor { split: 1, offset: 300, record: 9, line: 10 }, split: json!({"path": "a.csv"}) };
        let mut failed = EventBatch::new(3, 300, Outcome::Failed);
        failed.push_with(Tag { seq: 9, ordinal: 1, children: 0 }, Detail { seq: 9, id: "p".into(), stage: "s".into(), reason: "r".into() });
        let family = events(Outcome::Finished, &[Tag::source(5), Tag { seq: 3, ordinal: 0, children: 2 }]);
        let fixtures: [(&[u8], LogRecord); 6] = [
            (b"\x01\x04\x03\x01\x02\x02ab", LogRecord::Snapshot(SnapshotPart { epoch: 3, part: 1, parts: 2, bytes: b"ab".to_vec() })),
            (b"\x01\x00\x08products", LogRecord::Epoch { step: "products".into() }),
            (
                b"\x01\x01\x03\xac\x02\x01\x01\xac\x02\x09\x0a\x10{\"path\":\"a.csv\"}\x01\x03\x2c\x01",
                LogRecord::Checkpoint(Checkpoint {
                    epoch: 3,
                    seq: 300,
                    resume: Some(place),
                    source_offsets: BTreeMap::from([(3, 44)]),
                    end: true,
                }),
            ),
            (b"\x01\x02\x03\xac\x02\x01\x01\x12\x01\x01\x00\x01\x09\x01p\x01s\x01r", LogRecord::Events(failed)),
            (b"\x01\x02\x07\x80\xf7\xc4\xd5\x06\x00\x02\x0a\x03\x00\x02\x00\x02\x00", LogRecord::Events(family)),
            (
                b"\x01\x03\x03\x06\x05\x04\x03\x02\x01",
                LogRecord::Complete {
                    epoch: 3,
                    counts: Counts { published: 6, created: 5, finished: 4, failed: 3, dropped: 2, pending: 1 },
                },
            ),
        ];
        for (bytes, record) in fixtures {
            assert_eq!(decode(bytes).as_ref(), Ok(&record));
            assert_eq!(encoded(&record), bytes, "{record:?}");
        }
    }

    #[test]
    fn what_is_no_record_says_so() {
        assert_eq!(decode(b""), Err(CodecError::Damaged));
        assert_eq!(decode(b"\x01\x00\x01ab"), Err(CodecError::Damaged), "more than it should be");
        assert_eq!(decode(b"\x01\x02\x07\x01\x00\x02\x0a\x03\x01\x01\x00\x00"), Err(CodecError::Damaged), "columns of unequal length");
        assert_eq!(decode(b"\x02\x00\x01a"), Err(CodecError::Version(2)));
    }
}
