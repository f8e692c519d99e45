//! Working with the dead letter topic of a pipeline: looking for letters, bringing their documents in again, removing letters.

mod purge;
mod replay;
mod send;

pub use purge::{Purged, purge};
pub use replay::{Replay, Replayed, Skipped, replay};

use super::{
    Connection, KafkaError,
    letter::{LetterHeaders, LetterReference},
    scan::{Ranges, Scan},
};
use jiff::Timestamp;
use rdkafka::{Message, message::BorrowedMessage};
use std::{borrow::Cow, collections::HashSet, ops::ControlFlow, time::Duration};

/// The dead letter topic cannot be worked with.
#[derive(Debug, thiserror::Error)]
pub enum DlqError {
    /// A topic cannot be read.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// Records were not taken.
    #[error("topic `{topic}` was not written to the end, {sent} records were: {source}; all letters are still there")]
    NotSent {
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
        /// Records that were acknowledged.
        sent: u64,
    },
    /// Letters were copied, but the old ones could not be removed.
    #[error("letters of topic `{topic}` cannot be removed: {source}; those to keep stand there twice now, which does no harm")]
    NotRemoved {
        /// The topic.
        topic: String,
        /// Why.
        source: KafkaError,
    },
}

/// A letter, as it stands in its topic.
#[derive(Debug)]
pub struct Letter<'a> {
    /// The partition of the dead letter topic.
    pub partition: i32,
    /// The offset there.
    pub offset: i64,
    /// When the document failed.
    pub time: Timestamp,
    /// The document's id as bytes; nothing for a record without one.
    pub key: Option<&'a [u8]>,
    /// The document, or the record.
    pub value: &'a [u8],
    /// What is said of it.
    pub headers: LetterHeaders<'a>,
}

impl<'a> Letter<'a> {
    fn of(message: &'a BorrowedMessage<'_>) -> Self {
        let headers = LetterHeaders::from_kafka(message.headers());
        let written = || message.timestamp().to_millis().and_then(|millis| Timestamp::from_millisecond(millis).ok());
        Self {
            partition: message.partition(),
            offset: message.offset(),
            time: headers.time.or_else(written).unwrap_or_default(),
            key: message.key(),
            value: message.payload().unwrap_or_default(),
            headers,
        }
    }

    /// The document's id; empty if there is none.
    pub fn id(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.key.unwrap_or_default())
    }
}

/// Which letters. Each part that is given has to be met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The id of the run, or its name: `nightly` is any of `nightly-…`.
    pub run: Option<String>,
    /// The stage, or `indexer`; empty: records that could not be read.
    pub stage: Option<String>,
    /// A part of the reason, in upper or lower case.
    pub reason: Option<String>,
    /// The id of the document.
    pub id: Option<String>,
    /// Failed then or later.
    pub since: Option<Timestamp>,
    /// Failed before that.
    pub until: Option<Timestamp>,
    /// The letter that stands there: partition and offset.
    pub at: Option<(i32, i64)>,
}

impl Filter {
    /// Whether every letter is meant.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the letter is meant.
    pub fn takes(&self, letter: &Letter<'_>) -> bool {
        let run = letter.headers.run.as_ref();
        let is_run = |wanted: &String| run.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        let has_reason = |wanted: &String| letter.headers.reason.to_lowercase().contains(&wanted.to_lowercase());
        self.run.as_ref().is_none_or(is_run)
            && self.stage.as_ref().is_none_or(|stage| *stage == letter.headers.stage)
            && self.reason.as_ref().is_none_or(has_reason)
            && self.id.as_ref().is_none_or(|id| letter.key == Some(id.as_bytes()))
            && self.since.is_none_or(|since| letter.time >= since)
            && self.until.is_none_or(|until| letter.time < until)
            && self.at.is_none_or(|place| place == (letter.partition, letter.offset))
    }
}

/// What was met on the way through the topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Letters that are meant.
    pub letters: u64,
    /// Letters about a document that another one was about already.
    pub repeats: u64,
    /// Letters that are not meant.
    pub others: u64,
}

/// The letters of a pipeline, as they are at present.
pub struct DeadLetters<'a> {
    scan: Scan<'a>,
    present: Ranges,
}

impl<'a> DeadLetters<'a> {
    /// The letters that stand in the topic now. Each answer of the broker is waited for so long at most.
    ///
    /// # Errors
    /// The topic is not there, or nobody answers.
    pub fn open(connection: &'a Connection, topic: &str, patience: Duration) -> Result<Self, DlqError> {
        let scan = Scan::open(connection, topic, patience)?;
        let present = scan.present()?;
        Ok(Self { scan, present })
    }

    /// The letters that are meant, until `each` has seen enough. Of several letters about the same document the first one:
    /// after a crash a document may be written again.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn for_each(&self, filter: &Filter, each: &mut dyn FnMut(&Letter<'_>) -> ControlFlow<()>) -> Result<Met, DlqError> {
        let (mut met, mut seen) = (Met::default(), HashSet::<LetterReference>::new());
        self.scan.read(&self.present, &mut |message| {
            let letter = Letter::of(message);
            if !filter.takes(&letter) {
                met.others += 1;
                return ControlFlow::Continue(());
            }
            if letter.headers.reference().is_some_and(|reference| !seen.insert(reference)) {
                met.repeats += 1;
                return ControlFlow::Continue(());
            }
            met.letters += 1;
            each(&letter)
        })?;
        Ok(met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn letter() -> Letter<'static> {
        let headers =
            LetterHeaders { run: "nightly-4f".into(), stage: "price".into(), reason: "No Number: n/a".into(), ..LetterHeaders::default() };
        Letter { partition: 0, offset: 7, time: time("2026-05-01T10:00:00Z"), key: Some(b"p-11"), value: b"{}", headers }
    }

    #[test]
    fn each_part_of_a_filter_has_to_be_met() {
        let text = |text: &str| Some(text.to_owned());
        let filters = [
            (Filter::default(), true),
            (Filter { run: text("nightly-4f"), ..Filter::default() }, true),
            (Filter { run: text("nightly"), ..Filter::default() }, true),
            (Filter { run: text("night"), ..Filter::default() }, false),
            (Filter { stage: text("price"), ..Filter::default() }, true),
            (Filter { stage: text(""), ..Filter::default() }, false),
            (Filter { reason: text("no number"), ..Filter::default() }, true),
            (Filter { reason: text("timeout"), ..Filter::default() }, false),
            (Filter { id: text("p-11"), ..Filter::default() }, true),
            (Filter { id: text("p-1"), ..Filter::default() }, false),
            (Filter { since: Some(time("2026-05-01T10:00:00Z")), ..Filter::default() }, true),
            (Filter { until: Some(time("2026-05-01T10:00:00Z")), ..Filter::default() }, false),
            (Filter { at: Some((0, 7)), ..Filter::default() }, true),
            (Filter { at: Some((1, 7)), ..Filter::default() }, false),
            (Filter { stage: text("price"), id: text("p-12"), ..Filter::default() }, false),
        ];
        for (filter, wanted) in filters {
            assert_eq!(filter.takes(&letter()), wanted, "{filter:?}");
        }
    }

    #[test]
    fn a_record_without_id_has_none_to_be_found_by() {
        let filter = Filter { id: Some(String::new()), ..Filter::default() };
        assert!(!filter.takes(&Letter { key: None, ..letter() }));
    }
}
