//! What a publisher says of its work, and what it is told to do: the words between data pods and the operator.

use crate::{
    conditions::{ConnectorState, Reason},
    ingest_run::{Counts, FailureSample},
};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Kubernetes keeps so many bytes of a container's termination message, which is where a result ends up.
pub const LARGEST_RESULT: usize = 4_096;
/// Bytes of a text in a sample of a failure.
const SAMPLE_TEXT: usize = 256;
/// Stands where something was left out.
const ELLIPSIS: &str = "…";

/// One connector of a run as its publisher sees it: the answer of `/progress` while it works, the result when it has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// Name of the connector.
    pub name: String,
    /// Where it stands. Of a result that is no final state, the publisher was interrupted there.
    pub state: ConnectorState,
    /// Publishing is paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// Its documents.
    pub counts: Counts,
    /// Records that the connector gave, if some of them were merged into one document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// Documents a second that reach their end, over the last minute. While it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docs_per_second: Option<i64>,
    /// Age of the oldest document without an outcome, in seconds. While there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_pending_seconds: Option<i64>,
    /// When the source was read to its end, in seconds since this publisher began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_seconds: Option<f64>,
    /// Why it did not succeed, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What it waits for, or why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The first failed documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureSample>,
    /// Since this publisher began; of a result, how long it took.
    pub seconds: f64,
}

/// The answer of `GET /progress` and `PUT /control`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressReport {
    /// Name of the run.
    pub run: String,
    /// The connectors that this process has begun, in order.
    pub connectors: Vec<StepReport>,
}

/// What a run is wanted to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// Work.
    #[default]
    Run,
    /// Publish nothing until `Run` is wanted again. What was published is processed.
    Suspend,
    /// Publish nothing more, finish what was published, and end. Cannot be taken back.
    Cancel,
}

/// The body of `PUT /control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// What the run is wanted to do.
    pub wanted: Wanted,
}

impl Wanted {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Run, Self::Suspend, Self::Cancel];

    /// What the fields of a run amount to. A cancelled run is not paused.
    pub const fn of_run(suspend: bool, cancel: bool) -> Self {
        match (suspend, cancel) {
            (_, true) => Self::Cancel,
            (true, false) => Self::Suspend,
            (false, false) => Self::Run,
        }
    }

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::Suspend => "Suspend",
            Self::Cancel => "Cancel",
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Wanted {
    type Err = String;

    /// The word as it is written; a line break at the end is no matter.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|wanted| wanted.as_str() == text.trim_end());
        known.ok_or_else(|| format!("must be one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

impl StepReport {
    /// A connector that has not begun.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The report as JSON of so many bytes at most: samples are left out, the last first, then the message is cut.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn to_json_within(&self, bytes: usize) -> serde_json::Result<String> {
        let mut report = self.clone();
        let mut json = serde_json::to_string(&report)?;
        while json.len() > bytes && report.failures.pop().is_some() {
            json = serde_json::to_string(&report)?;
        }
        if json.len() <= bytes {
            return Ok(json);
        }
        let Some(message) = report.message.replace(String::new()) else { return Ok(json) };
        let left = bytes.saturating_sub(serde_json::to_string(&report)?.len());
        report.message = Some(cut_by(&message, left, bytes_in_json));
        serde_json::to_string(&report)
    }
}

impl FailureSample {
    /// A sample with texts that are short enough to be shown.
    pub fn of(id: &str, stage: &str, reason: &str) -> Self {
        let short = |text| cut_by(text, SAMPLE_TEXT, char::len_utf8);
        Self { id: short(id), stage: short(stage), reason: short(reason) }
    }
}

/// The beginning of a text that takes so many bytes at most, with `…` if something is missing.
fn cut_by(text: &str, bytes: usize, size: impl Fn(char) -> usize) -> String {
    let (mut taken, mut end) = (0, 0);
    for (at, char) in text.char_indices() {
        if taken + ELLIPSIS.len() <= bytes {
            end = at;
        }
        taken += size(char);
        if taken > bytes {
            return if bytes < ELLIPSIS.len() { String::new() } else { format!("{}{ELLIPSIS}", &text[..end]) };
        }
    }
    text.to_owned()
}

/// What a character takes inside of a JSON text.
fn bytes_in_json(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> StepReport {
        StepReport { state: ConnectorState::Failed, message: Some("no such file".into()), ..StepReport::new("books") }
    }

    #[test]
    fn a_report_says_only_what_is_known() {
        let counts = json!({"published": 0, "created": 0, "finished": 0, "failed": 0, "dropped": 0, "pending": 0});
        assert_eq!(
            serde_json::to_value(report()).expect("JSON"),
            json!({"name": "books", "state": "Failed", "counts": counts, "message": "no such file", "seconds": 0.0})
        );
        let full = StepReport {
            suspended: true,
            received: Some(9),
            docs_per_second: Some(5),
            oldest_pending_seconds: Some(3),
            published_seconds: Some(1.5),
            reason: Some(Reason::ConnectorFailed),
            failures: vec![FailureSample::of("b-1", "price", "no number")],
            ..report()
        };
        let json = serde_json::to_value(&full).expect("JSON");
        for (field, value) in [
            ("suspended", json!(true)),
            ("received", json!(9)),
            ("docsPerSecond", json!(5)),
            ("oldestPendingSeconds", json!(3)),
            ("publishedSeconds", json!(1.5)),
            ("reason", json!("ConnectorFailed")),
            ("failures", json!([{"id": "b-1", "stage": "price", "reason": "no number"}])),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
        assert_eq!(serde_json::from_value::<StepReport>(json).expect("a report"), full);
    }

    #[test]
    fn samples_are_dropped_before_the_message_is_cut() {
        let mut large = report();
        large.failures = (0..10).map(|n| FailureSample::of(&format!("b-{n}"), "price", &"é".repeat(500))).collect();
        let whole = serde_json::to_string(&large).expect("JSON");
        assert!(whole.len() < LARGEST_RESULT && large.to_json_within(LARGEST_RESULT).expect("JSON") == whole);
        let read = |bytes| serde_json::from_str::<StepReport>(&large.to_json_within(bytes).expect("JSON")).expect("a report");
        let fewer = read(2_000);
        assert!((1..10).contains(&fewer.failures.len()), "{fewer:?}");
        assert_eq!((&fewer.failures[..], &fewer.message), (&large.failures[..fewer.failures.len()], &large.message));
        large.message = Some("\"\n\u{1}é".repeat(5_000));
        for bytes in 300..400 {
            let text = large.to_json_within(bytes).expect("JSON");
            assert!(text.len() <= bytes && text.len() + 6 >= bytes, "{} of {bytes}", text.len());
            let cut: StepReport = serde_json::from_str(&text).expect("a report");
            assert!(cut.failures.is_empty() && cut.message.is_some_and(|message| message.ends_with('…')));
        }
    }

    #[test]
    fn what_cannot_be_made_smaller_is_left_as_it_is() {
        assert_eq!(serde_json::from_str::<StepReport>(&report().to_json_within(1).expect("JSON")).expect("a report").name, "books");
    }

    #[test]
    fn texts_of_a_sample_are_cut_between_characters() {
        let sample = FailureSample::of(&"é".repeat(200), "s", &"x".repeat(256));
        assert_eq!((sample.id.len(), sample.id.chars().last(), sample.reason.len()), (255, Some('…'), 256));
        assert_eq!(FailureSample::of("", "", &"x".repeat(257)).reason, "x".repeat(253) + "…");
        assert_eq!(cut_by("abc", 2, char::len_utf8), "");
        assert_eq!(cut_by("abcd", 3, char::len_utf8), "…");
    }

    #[test]
    fn the_words_of_control_are_read_back() {
        for wanted in Wanted::ALL {
            assert_eq!(format!("{wanted}\n").parse(), Ok(wanted));
            assert_eq!(serde_json::to_value(ControlRequest { wanted }).expect("JSON"), json!({"wanted": wanted.as_str()}));
        }
        assert_eq!("run".parse::<Wanted>(), Err("must be one of Run, Suspend, Cancel".to_owned()));
        assert_eq!(Wanted::of_run(true, true), Wanted::Cancel);
    }
}
