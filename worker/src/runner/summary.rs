//! What became of a run: as text for people, as JSON for programs.

use crate::{event::Detail, wording::counted};
use penstock_crds::{
    ingest_run::{Counts, FailureSample},
    report::StepReport,
};
use serde::Serialize;
use std::fmt::Write as _;

/// How a step or a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// Every document is accounted for.
    Succeeded,
    /// It failed.
    Failed,
    /// It was asked to stop; work remains.
    Interrupted,
    /// It was not started, because a step before it did not succeed, or because the run was cancelled.
    Skipped,
    /// It was cancelled.
    Cancelled,
}

/// A run that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// Name of the run.
    pub run: String,
    /// How it ended.
    pub phase: State,
    /// How long it took.
    pub seconds: f64,
    /// The sums over all connectors.
    pub totals: Counts,
    /// The connectors, in the order of the run.
    pub connectors: Vec<StepSummary>,
}

/// A step that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct StepSummary {
    /// Name of the connector.
    pub name: String,
    /// How it ended.
    pub state: State,
    /// Documents by state.
    pub counts: Counts,
    /// Records that the connector gave, if some of them were merged into one document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The first failed documents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureSample>,
    /// How long it took.
    pub seconds: f64,
}

/// Samples of failures that are kept for each step.
const SAMPLES: usize = 10;

/// Collects the failures with the lowest numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    first: Vec<(u64, FailureSample)>,
    has_new: bool,
}

impl Samples {
    pub(super) fn add(&mut self, detail: &Detail) {
        if self.first.len() == SAMPLES && self.first.last().is_some_and(|(last, _)| *last <= detail.seq) {
            return;
        }
        let at = self.first.partition_point(|(present, _)| *present <= detail.seq);
        self.first.insert(at, (detail.seq, FailureSample::of(&detail.id, &detail.stage, &detail.reason)));
        self.first.truncate(SAMPLES);
        self.has_new = true;
    }

    /// The samples, if there are others than those that were taken last.
    pub(super) fn take_new(&mut self) -> Option<Vec<FailureSample>> {
        std::mem::take(&mut self.has_new).then(|| self.first.iter().map(|(_, sample)| sample.clone()).collect())
    }
}

impl StepSummary {
    /// The summary of a step that has ended that way.
    pub fn of(report: &StepReport, state: State) -> Self {
        let StepReport { name, counts, received, message, failures, seconds, .. } = report.clone();
        Self { name, state, counts, received, message, failures, seconds }
    }
}

impl RunSummary {
    /// The summary as text: a table, then what failed and why.
    pub fn to_text(&self, dead_letter: Option<&str>) -> String {
        let mut text = String::new();
        // writing into a string cannot fail
        let _ = writeln!(text, "{}", self.table());
        let _ = writeln!(text, "run {}: {} in {}", self.run, self.headline(), duration(self.seconds));
        for step in &self.connectors {
            if let Some(received) = step.received {
                let _ =
                    writeln!(text, "  {}: {} published, {received} before merging", step.name, counted(step.counts.published, "document"));
            }
            if let Some(message) = &step.message {
                let _ = writeln!(text, "  {}: {message}", step.name);
            }
            for failure in &step.failures {
                let _ = writeln!(text, "  {}: {}", step.name, line(failure));
            }
            let more = step.counts.failed.saturating_sub(step.failures.len() as u64);
            if more > 0 {
                let _ = writeln!(text, "  {}: and {more} more failed", step.name);
            }
        }
        if let Some(path) = dead_letter {
            let _ = writeln!(text, "  failed documents are kept in {path}");
        }
        text
    }

    fn table(&self) -> comfy_table::Table {
        use comfy_table::{Cell, CellAlignment, Table, presets};
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let head = ["CONNECTOR", "STATE", "PUBLISHED", "CREATED", "FINISHED", "FAILED", "DROPPED", "PENDING", "TIME"];
        table.set_header(head);
        let mut row = |name: &str, state: State, counts: &Counts, seconds: f64| {
            let numbers = [counts.published, counts.created, counts.finished, counts.failed, counts.dropped, counts.pending];
            let mut cells = vec![Cell::new(name), Cell::new(format!("{state:?}"))];
            cells.extend(numbers.map(|number| Cell::new(number).set_alignment(CellAlignment::Right)));
            cells.push(Cell::new(duration(seconds)).set_alignment(CellAlignment::Right));
            table.add_row(cells);
        };
        for step in &self.connectors {
            row(&step.name, step.state, &step.counts, step.seconds);
        }
        if self.connectors.len() > 1 {
            row("total", self.phase, &self.totals, self.seconds);
        }
        table
    }

    fn headline(&self) -> String {
        let connectors = counted(self.connectors.len() as u64, "connector");
        let succeeded = self.connectors.iter().filter(|step| step.state == State::Succeeded).count();
        let state = format!("{:?}", self.phase).to_lowercase();
        let Counts { published, created, finished, failed, dropped, pending } = self.totals;
        let all = published + created;
        let documents = counted(all, "document");
        let fate = match (all, failed + dropped + pending) {
            (0, _) => "no documents were published".to_owned(),
            (1, 0) => format!("{documents} finished"),
            (_, 0) => format!("all {documents} finished"),
            _ => {
                let parts = [(finished, "finished"), (failed, "failed"), (dropped, "dropped"), (pending, "pending")];
                let said: Vec<_> = parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
                format!("of {documents} {}", said.join(", "))
            }
        };
        format!("{state}, {succeeded} of {connectors} complete, {fate}")
    }
}

fn line(sample: &FailureSample) -> String {
    let first = sample.reason.lines().next().unwrap_or_default();
    match (sample.id.as_str(), sample.stage.as_str()) {
        ("", _) => first.to_owned(),
        (id, "") => format!("document `{id}`: {first}"),
        (id, stage) => format!("document `{id}` failed in {stage}: {first}"),
    }
}

/// Seconds for people.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{} min {:02} s", (s / 60.0) as u64, s as u64 % 60),
        s => format!("{} h {:02} min", (s / 3600.0) as u64, (s / 60.0) as u64 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(counts: Counts) -> RunSummary {
        let failures = vec![FailureSample::of("p-11", "price", "no number\nat line 1")];
        let step =
            StepSummary { name: "products".into(), state: State::Succeeded, counts, received: None, message: None, failures, seconds: 0.4 };
        RunSummary { run: "r".into(), phase: State::Succeeded, seconds: 0.4, totals: counts, connectors: vec![step] }
    }

    #[test]
    fn the_summary_is_a_table_for_people_and_json_for_programs_m7() {
        let counts = Counts { published: 12, created: 3, finished: 15, ..Counts::default() };
        let mut summary = summary(counts);
        summary.connectors[0].failures.clear();
        let text = summary.to_text(None);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["CONNECTOR", "STATE", "PUBLISHED", "CREATED", "FINISHED", "FAILED", "DROPPED", "PENDING", "TIME"]);
        assert_eq!(rows[1], ["products", "Succeeded", "12", "3", "15", "0", "0", "0", "0.4", "s"]);
        assert!(text.ends_with("run r: succeeded, 1 of 1 connector complete, all 15 documents finished in 0.4 s\n"), "{text}");
        let json = serde_json::to_value(&summary).expect("JSON");
        let numbers = serde_json::json!({"published": 12, "created": 3, "finished": 15, "failed": 0, "dropped": 0, "pending": 0});
        assert_eq!(
            json,
            serde_json::json!({"run": "r", "phase": "Succeeded", "seconds": 0.4, "totals": numbers,
                "connectors": [{"name": "products", "state": "Succeeded", "counts": numbers, "seconds": 0.4}]})
        );
    }

    #[test]
    fn what_was_merged_is_told_m7() {
        let mut summary = summary(Counts { published: 12, finished: 12, ..Counts::default() });
        assert!(!summary.to_text(None).contains("merging"));
        summary.connectors[0].received = Some(40);
        assert!(summary.to_text(None).contains("\n  products: 12 documents published, 40 before merging\n"), "{}", summary.to_text(None));
        assert_eq!(serde_json::to_value(&summary).expect("JSON")["connectors"][0]["received"], 40);
    }

    #[test]
    fn a_single_document_is_told_as_one() {
        let one = |counts| summary(counts).headline();
        let finished = one(Counts { published: 1, finished: 1, ..Counts::default() });
        assert_eq!(finished, "succeeded, 1 of 1 connector complete, 1 document finished");
        assert!(one(Counts { published: 1, failed: 1, ..Counts::default() }).ends_with("of 1 document 1 failed"));
    }

    #[test]
    fn dropped_documents_are_shown_beside_failed_ones_x15() {
        let counts = Counts { published: 12, created: 3, finished: 11, failed: 2, dropped: 2, pending: 0 };
        let text = summary(counts).to_text(Some("r_fail.jsonl"));
        assert!(text.contains("of 15 documents 11 finished, 2 failed, 2 dropped"), "{text}");
        assert!(text.contains("document `p-11` failed in price: no number\n"), "{text}");
        assert!(text.contains("and 1 more failed") && text.contains("r_fail.jsonl"), "{text}");
    }

    #[test]
    fn a_run_whose_documents_were_all_dropped_says_so_x15() {
        let counts = Counts { published: 3, dropped: 3, ..Counts::default() };
        assert!(summary(counts).headline().contains("of 3 documents 3 dropped"));
        assert!(summary(Counts::default()).headline().contains("no documents were published"));
    }

    #[test]
    fn samples_are_the_first_failures_in_order() {
        let mut samples = Samples::default();
        let detail = |seq: u64| Detail { seq, id: seq.to_string(), stage: String::new(), reason: "x".repeat(1000) };
        (1..=30).rev().for_each(|seq| samples.add(&detail(seq)));
        let kept = samples.take_new().expect("new ones");
        assert_eq!(kept.iter().map(|sample| sample.id.as_str()).collect::<Vec<_>>(), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
        assert!(kept.iter().all(|sample| sample.reason.len() == 256 && sample.reason.ends_with('…')));
        samples.add(&detail(31));
        assert_eq!(samples.take_new(), None, "they are the same");
    }
}
