//! Help for the tests of stages: run one stage, given as JSON, over one document.

use crate::{
    context::StepContext,
    document::{Document, Fields},
    event::Tag,
    pipeline::{Failure, Pipeline, Plan, Sink, SinkClosed},
    problem::{FieldProblem, Problems},
    secrets::Secrets,
};
use penstock_crds::stages::Stage;
use std::{path::Path, sync::LazyLock};

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().expect("runtime"));

/// A context whose relative paths begin in that folder.
pub(crate) fn context_in(base_dir: &Path) -> StepContext {
    StepContext {
        run: "test".into(),
        run_id: "test-1".into(),
        connector: "connector".into(),
        pipeline: "pipeline".into(),
        base_dir: base_dir.into(),
        run_base_dir: Default::default(),
        secrets: Secrets::default(),
        runtime: RUNTIME.handle().clone(),
        stop: Default::default(),
        is_continuous: false,
        written: Default::default(),
    }
}

/// Stages out of JSON: one stage or a list.
pub(crate) fn stages(json: &str) -> Vec<Stage> {
    if json.trim_start().starts_with('[') { serde_json::from_str(json).expect(json) } else { vec![serde_json::from_str(json).expect(json)] }
}

pub(crate) fn plan_in(context: &StepContext, json: &str) -> Plan {
    Plan::compile(&stages(json), context).expect(json)
}

pub(crate) fn lane(json: &str) -> Pipeline {
    plan_in(&context_in(Path::new("/nonexistent")), json).lane()
}

/// What is wrong with the stages.
pub(crate) fn problems(json: &str) -> Vec<FieldProblem> {
    let mut found = Vec::new();
    super::check(&stages(json), &mut Problems::new("", &mut found));
    found
}

pub(crate) fn document(id: &str, json: &str) -> Document {
    Document::with_fields(id, Fields::from_json(json.as_bytes()).expect(json))
}

pub(crate) fn to_json(document: &Document) -> String {
    let mut out = Vec::new();
    document.write_json(&mut out);
    String::from_utf8(out).expect("utf-8")
}

/// Remembers everything that a pipeline tells.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) forwarded: Vec<(Document, Tag)>,
    pub(crate) dropped: Vec<(String, Tag, String, String)>,
    pub(crate) failed: Vec<(String, Tag, String, String, Option<Document>)>,
    /// How each document ended, in order: `+id`, `-id` and `!id`.
    pub(crate) story: Vec<String>,
}

pub(crate) fn sink() -> Recording {
    Recording::default()
}

impl Sink for Recording {
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), SinkClosed> {
        self.story.push(format!("+{}", document.id()));
        self.forwarded.push((document, tag));
        Ok(())
    }

    fn dropped(&mut self, document: Document, tag: Tag, stage: &str, reason: String) -> Result<(), SinkClosed> {
        self.story.push(format!("-{}", document.id()));
        self.dropped.push((document.id().into(), tag, stage.into(), reason));
        Ok(())
    }

    fn failed(&mut self, failure: Failure<'_>) -> Result<(), SinkClosed> {
        self.story.push(format!("!{}", failure.id));
        self.failed.push((failure.id.into(), failure.tag, failure.stage.into(), failure.reason.into(), failure.child.cloned()));
        Ok(())
    }
}

pub(crate) fn run(json: &str, document: Document) -> Recording {
    let mut recording = sink();
    lane(json).process(document, 1, &mut recording).expect("open");
    recording
}

/// The fields behind a stage that makes no children.
pub(crate) fn transform(stage: &str, before: &str) -> String {
    transform_id(stage, "d", before)
}

pub(crate) fn transform_id(stage: &str, id: &str, before: &str) -> String {
    let recording = run(stage, document(id, before));
    assert_eq!(recording.story, [format!("+{id}")], "{recording:?}");
    to_json(&recording.forwarded[0].0)
}

/// Why the document fails.
pub(crate) fn failure(stage: &str, before: &str) -> String {
    let mut recording = run(stage, document("d", before));
    assert_eq!(recording.failed.len(), 1, "{recording:?}");
    recording.failed.remove(0).3
}

/// Ids and fields of the children.
pub(crate) fn family(stage: &str, id: &str, before: &str) -> Vec<(String, String)> {
    let mut recording = run(stage, document(id, before));
    let parent = recording.forwarded.pop().expect("the parent");
    assert_eq!((parent.0.id(), parent.1.children as usize), (id, recording.forwarded.len()), "{recording:?}");
    recording.forwarded.iter().map(|(child, _)| (child.id().to_owned(), to_json(child))).collect()
}
