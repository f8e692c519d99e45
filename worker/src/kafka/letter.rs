//! A record of the dead letter topic: the failed document as it was, with headers that people and other tools can read.
//!
//! The key is the document's id. The value is the document as plain JSON, or the bytes of a record that could not be read.
//! Whoever reads the topic meets records that others wrote as well: what is missing or not understood is left empty.

use jiff::Timestamp;
use rdkafka::message::{BorrowedHeaders, Header, Headers, OwnedHeaders};
use std::{borrow::Cow, fmt, str::FromStr};

/// Reasons are cut to so many bytes: a record has room for about a megabyte, and the document is to stand there too.
const LONGEST_REASON: usize = 4_000;

/// The names of the headers.
pub mod names {
    /// The id of the run; missing for documents from outside.
    pub const RUN: &str = "penstock-run";
    /// The connector.
    pub const STEP: &str = "penstock-step";
    /// The pipeline.
    pub const PIPELINE: &str = "penstock-pipeline";
    /// The stage, `indexer`, or empty for a record that could not be read.
    pub const STAGE: &str = "penstock-stage";
    /// Why it failed.
    pub const REASON: &str = "penstock-reason";
    /// How often it was tried.
    pub const ATTEMPTS: &str = "penstock-attempts";
    /// When it failed, by RFC 3339.
    pub const TIME: &str = "penstock-time";
    /// Where the source document stands: `topic/partition/offset`.
    pub const SOURCE: &str = "penstock-source";
    /// The publisher that numbered the document.
    pub const EPOCH: &str = "penstock-epoch";
    /// The number of the source document.
    pub const SEQ: &str = "penstock-seq";
    /// Which of the source document's descendants failed; 0 for itself.
    pub const ORDINAL: &str = "penstock-ordinal";
    /// What the value is: `document` or `raw`.
    pub const CONTENT: &str = "penstock-content";
    /// `true` where the value had to be cut to fit into a record.
    pub const TRUNCATED: &str = "penstock-truncated";
    /// In records that are brought in again: `indexer` for those that have passed the stages already.
    pub const RESUME: &str = "penstock-resume";
}

/// The stage that letters of the indexer name.
pub const INDEXER: &str = "indexer";

/// The headers of a letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterHeaders<'a> {
    /// The id of the run; empty for documents from outside.
    pub run: Cow<'a, str>,
    /// The connector; empty for documents from outside.
    pub step: Cow<'a, str>,
    /// The pipeline.
    pub pipeline: Cow<'a, str>,
    /// The stage, [`INDEXER`], or empty for a record that could not be read.
    pub stage: Cow<'a, str>,
    /// Why it failed.
    pub reason: Cow<'a, str>,
    /// How often it was tried.
    pub attempts: Option<u32>,
    /// When it failed.
    pub time: Option<Timestamp>,
    /// Where the source document stands.
    pub source: Option<SourcePlace<'a>>,
    /// The publisher that numbered the document; `None` for documents from outside.
    pub epoch: Option<u64>,
    /// The number of the source document; `None` for documents from outside.
    pub seq: Option<u64>,
    /// Which of the source document's descendants failed; 0 for itself.
    pub ordinal: u32,
    /// What the value is.
    pub content: LetterContent,
    /// Whether the value had to be cut.
    pub truncated: bool,
}

/// What the value of a letter is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LetterContent {
    /// The fields of the document, as JSON.
    Document,
    /// Bytes that could not be read, or were written by another tool.
    #[default]
    Raw,
}

/// Where a record stands. As text: `topic/partition/offset`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourcePlace<'a> {
    /// The topic.
    pub topic: Cow<'a, str>,
    /// The partition.
    pub partition: u32,
    /// The offset.
    pub offset: u64,
}

/// Which document a letter is about. Letters with the same reference are repeats: a document may be written more than once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LetterReference {
    /// A document of a run.
    Numbered {
        /// The id of the run.
        run: String,
        /// The connector.
        step: String,
        /// The publisher.
        epoch: u64,
        /// The number of the source document.
        seq: u64,
        /// Which of its descendants; 0 for itself.
        ordinal: u32,
    },
    /// A document from outside.
    Outside {
        /// Where it stands.
        source: SourcePlace<'static>,
        /// Which of its descendants; 0 for itself.
        ordinal: u32,
    },
}

impl fmt::Display for SourcePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

impl<'a> SourcePlace<'a> {
    fn parse(text: &str) -> Option<SourcePlace<'a>> {
        let (rest, offset) = text.rsplit_once('/')?;
        let (topic, partition) = rest.rsplit_once('/')?;
        Some(SourcePlace { topic: topic.to_owned().into(), partition: partition.parse().ok()?, offset: offset.parse().ok()? })
    }

    /// The same, independent of what it was read from.
    pub fn into_owned(self) -> SourcePlace<'static> {
        SourcePlace { topic: self.topic.into_owned().into(), partition: self.partition, offset: self.offset }
    }
}

impl LetterContent {
    /// As it stands in the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Raw => "raw",
        }
    }
}

impl<'a> LetterHeaders<'a> {
    /// As headers of a record. What is empty is left out, but for the stage: there it has a meaning.
    pub fn to_kafka(&self) -> OwnedHeaders {
        let reason = &self.reason[..self.reason.floor_char_boundary(LONGEST_REASON)];
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        let mut headers = OwnedHeaders::new_with_capacity(13);
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() || key == names::STAGE {
                headers = std::mem::take(&mut headers).insert(Header { key, value: Some(value) });
            }
        };
        add(names::RUN, &self.run);
        add(names::STEP, &self.step);
        add(names::PIPELINE, &self.pipeline);
        add(names::STAGE, &self.stage);
        add(names::REASON, reason);
        add(names::ATTEMPTS, &number(self.attempts.map(u64::from)));
        add(names::TIME, &self.time.map(|time| time.to_string()).unwrap_or_default());
        add(names::SOURCE, &self.source.as_ref().map(ToString::to_string).unwrap_or_default());
        add(names::EPOCH, &number(self.epoch));
        add(names::SEQ, &number(self.seq));
        add(names::ORDINAL, &number(Some(u64::from(self.ordinal))));
        add(names::CONTENT, self.content.as_str());
        add(names::TRUNCATED, if self.truncated { "true" } else { "" });
        headers
    }

    /// From the headers of a record. Bytes that are no UTF-8 are replaced.
    pub fn from_kafka(headers: Option<&'a BorrowedHeaders>) -> Self {
        let mut letter = LetterHeaders::default();
        for header in headers.into_iter().flat_map(Headers::iter) {
            let Some(value) = header.value else { continue };
            let text = String::from_utf8_lossy(value);
            match header.key {
                names::RUN => letter.run = text,
                names::STEP => letter.step = text,
                names::PIPELINE => letter.pipeline = text,
                names::STAGE => letter.stage = text,
                names::REASON => letter.reason = text,
                names::ATTEMPTS => letter.attempts = parse(&text),
                names::TIME => letter.time = parse(&text),
                names::SOURCE => letter.source = SourcePlace::parse(&text),
                names::EPOCH => letter.epoch = parse(&text),
                names::SEQ => letter.seq = parse(&text),
                names::ORDINAL => letter.ordinal = parse(&text).unwrap_or(0),
                names::CONTENT if text == LetterContent::Document.as_str() => letter.content = LetterContent::Document,
                names::TRUNCATED => letter.truncated = text == "true",
                _ => {}
            }
        }
        letter
    }

    /// Which document it is about; `None` for records that nobody of us wrote.
    pub fn reference(&self) -> Option<LetterReference> {
        let ordinal = self.ordinal;
        if let (false, Some(epoch), Some(seq)) = (self.run.is_empty(), self.epoch, self.seq) {
            let (run, step) = (self.run.clone().into_owned(), self.step.clone().into_owned());
            return Some(LetterReference::Numbered { run, step, epoch, seq, ordinal });
        }
        let source = self.source.clone()?.into_owned();
        Some(LetterReference::Outside { source, ordinal })
    }

    /// The same, independent of the record that it was read from.
    pub fn into_owned(self) -> LetterHeaders<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        LetterHeaders {
            run: owned(self.run),
            step: owned(self.step),
            pipeline: owned(self.pipeline),
            stage: owned(self.stage),
            reason: owned(self.reason),
            attempts: self.attempts,
            time: self.time,
            source: self.source.map(SourcePlace::into_owned),
            epoch: self.epoch,
            seq: self.seq,
            ordinal: self.ordinal,
            content: self.content,
            truncated: self.truncated,
        }
    }
}

/// As much of a value as fits into so many bytes, and whether it was cut. A character is kept whole or not at all.
pub fn cut_to_fit(value: &[u8], most: usize) -> (&[u8], bool) {
    if value.len() <= most {
        return (value, false);
    }
    let cut = &value[..most];
    let whole = match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
        _ => cut,
    };
    (whole, true)
}

fn parse<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &OwnedHeaders) -> LetterHeaders<'_> {
        LetterHeaders::from_kafka(Some(headers.as_borrowed()))
    }

    fn letter() -> LetterHeaders<'static> {
        LetterHeaders {
            run: "nightly-1".into(),
            step: "products".into(),
            pipeline: "books".into(),
            stage: "price".into(),
            reason: "no number: „n/a“".into(),
            attempts: Some(1),
            time: Some("2026-05-01T10:00:00.25Z".parse().expect("time")),
            source: Some(SourcePlace { topic: "books_source".into(), partition: 3, offset: 44 }),
            epoch: Some(0),
            seq: Some(12),
            ordinal: 2,
            content: LetterContent::Document,
            truncated: true,
        }
    }

    #[test]
    fn headers_of_a_letter_are_read_as_they_were_written_x4() {
        let all = letter();
        assert_eq!(read(&all.to_kafka()), all);
        let outside = LetterHeaders {
            run: "".into(),
            step: "".into(),
            stage: "".into(),
            epoch: None,
            seq: None,
            content: LetterContent::Raw,
            truncated: false,
            ..letter()
        };
        let headers = outside.to_kafka();
        assert_eq!(read(&headers), outside);
        let keys: Vec<_> = headers.iter().map(|header| header.key.to_owned()).collect();
        assert!(keys.contains(&names::STAGE.to_owned()) && !keys.contains(&names::RUN.to_owned()), "{keys:?}");
    }

    #[test]
    fn records_of_other_tools_are_read_as_far_as_they_can_be() {
        assert_eq!(LetterHeaders::from_kafka(None), LetterHeaders::default());
        let mut headers = OwnedHeaders::new();
        let given: [(&str, &[u8]); 5] = [
            ("other", b"x"),
            (names::REASON, b"a\xffb"),
            (names::ATTEMPTS, b"many"),
            (names::SOURCE, b"no place"),
            (names::TIME, b"yesterday"),
        ];
        for (key, value) in given {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let letter = read(&headers);
        assert_eq!(letter, LetterHeaders { reason: "a\u{fffd}b".into(), ..LetterHeaders::default() });
        assert_eq!(letter.reference(), None);
    }

    #[test]
    fn letters_about_the_same_document_have_the_same_reference() {
        let first = letter();
        let repeat = LetterHeaders { reason: "other words".into(), attempts: Some(9), time: None, ..letter() };
        assert_eq!(first.reference(), repeat.reference());
        let outside = LetterHeaders { run: "".into(), ..letter() };
        let references = [letter(), LetterHeaders { ordinal: 0, ..letter() }, LetterHeaders { seq: Some(13), ..letter() }, outside]
            .map(|letter| letter.reference().expect("ours"));
        let distinct: std::collections::BTreeSet<_> = references.iter().collect();
        assert_eq!(distinct.len(), 4);
    }

    #[test]
    fn a_topic_may_have_any_legal_name() {
        for text in ["a/0/0", "team.books_source/12/9007199254740993"] {
            assert_eq!(SourcePlace::parse(text).map(|place| place.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_long_reason_and_a_long_value_are_cut_between_characters() {
        let long = LetterHeaders { reason: "ä".repeat(LONGEST_REASON).into(), ..letter() };
        assert_eq!(read(&long.to_kafka()).reason, "ä".repeat(LONGEST_REASON / 2));
        assert_eq!(cut_to_fit("aä".as_bytes(), 3), ("aä".as_bytes(), false));
        assert_eq!(cut_to_fit("aä".as_bytes(), 2), (&b"a"[..], true));
        assert_eq!(cut_to_fit(b"\xff\xff\xff", 2), (&b"\xff\xff"[..], true));
    }
}
