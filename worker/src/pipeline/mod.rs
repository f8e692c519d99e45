//! A pipeline: the stages in order, children before their parents, every document to one end.
//!
//! ```text
//!  stages ── Plan::compile ──> Plan ── lane() ──> Pipeline ── process(document) ──> Sink
//!             once a step                one a lane             forward │ dropped │ failed
//! ```
//! Programs and regular expressions are compiled once, by the plan; the lanes share them and have their own memory.

mod measure;
mod step;

#[cfg(test)]
mod tests;

pub use measure::{DURATION_BOUNDS, Durations, StageStats};

use self::step::{PlannedStep, Step, Verdict};
use crate::{
    context::StepContext,
    document::Document,
    event::Tag,
    problem::{FieldProblem, Problems},
    stages::{self, Children, program::Predicate},
};
use penstock_crds::stages::Stage;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// Where a pipeline puts documents once their way through the stages is over: each one exactly once.
pub trait Sink {
    /// A document has passed a stage and goes on. For whoever wants to look; most do not.
    fn passed(&mut self, _stage: &str, _document: &Document) {}

    /// A document goes to the indexer. Children come before their parent.
    ///
    /// # Errors
    /// Nothing is taken any more.
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), SinkClosed>;

    /// A stage dropped a document. The reason may be empty.
    ///
    /// # Errors
    /// Nothing is taken any more.
    fn dropped(&mut self, document: Document, tag: Tag, stage: &str, reason: String) -> Result<(), SinkClosed>;

    /// A document failed.
    ///
    /// # Errors
    /// Nothing is taken any more.
    fn failed(&mut self, failure: Failure<'_>) -> Result<(), SinkClosed>;
}

/// The sink takes nothing any more: the lane ends, and what was in the pipeline stays pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step ends; no more documents are taken")]
pub struct SinkClosed;

/// A document that failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// Which one.
    pub tag: Tag,
    /// Its id.
    pub id: &'a str,
    /// The stage in which it failed.
    pub stage: &'a str,
    /// Why.
    pub reason: &'a str,
    /// A child as it entered that stage. Nothing for a source document: the caller knows it as it was received.
    pub child: Option<&'a Document>,
}

/// What a stage is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLabel {
    /// Its name in reports.
    pub name: String,
    /// Its key in the manifest.
    pub kind: &'static str,
}

/// The stages cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("failed to build the stages: {}", describe(.0))]
pub struct BuildError(pub Vec<FieldProblem>);

fn describe(problems: &[FieldProblem]) -> String {
    problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect::<Vec<_>>().join("; ")
}

/// The stages of a step, compiled.
pub struct Plan {
    steps: Vec<Arc<PlannedStep>>,
}

impl Plan {
    /// Compiles the stages. Opens what they write to.
    ///
    /// # Errors
    /// What [`stages::check`] would report, and files that cannot be opened.
    pub fn compile(stages: &[Stage], context: &StepContext) -> Result<Self, BuildError> {
        Self::build(stages, Some(context))
    }

    /// Compiles the stages for a look at what they would do: none of them writes anything.
    ///
    /// # Errors
    /// What [`stages::check`] would report.
    pub fn preview(stages: &[Stage]) -> Result<Self, BuildError> {
        Self::build(stages, None)
    }

    fn build(stages: &[Stage], context: Option<&StepContext>) -> Result<Self, BuildError> {
        let mut found = Vec::new();
        let mut problems = Problems::new("", &mut found);
        let steps: Vec<_> = stages.iter().enumerate().map(|(index, stage)| plan(index, stage, context, &mut problems)).collect();
        match steps.into_iter().collect::<Option<_>>() {
            Some(steps) if found.is_empty() => Ok(Self { steps }),
            _ => Err(BuildError(found)),
        }
    }

    /// A pipeline for one lane.
    pub fn lane(&self) -> Pipeline {
        Pipeline { steps: self.steps.iter().map(Step::new).collect(), position: Arc::new(AtomicU32::new(Pipeline::OUTSIDE)) }
    }

    /// What the stages are called, in order.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = &StageLabel> {
        self.steps.iter().map(|step| &step.label)
    }
}

fn plan(index: usize, stage: &Stage, context: Option<&StepContext>, problems: &mut Problems<'_>) -> Option<Arc<PlannedStep>> {
    let problems = &mut problems.below(&format!("[{index}]"));
    let when = match &stage.when {
        Some(source) => Predicate::compile(source, "when", problems).map(Some),
        None => Some(None),
    };
    let compiled = stages::compile(&stage.kind, context, problems);
    let label = StageLabel { name: stage.display_name(index), kind: stage.kind.key() };
    Some(Arc::new(PlannedStep { label, when: when?, on_error: stage.on_error, stage: compiled? }))
}

/// The stages of one lane.
pub struct Pipeline {
    steps: Vec<Step>,
    position: Arc<AtomicU32>,
}

/// One source document and its descendants on their way.
struct Passage<'a, S> {
    seq: u64,
    /// Descendants made so far.
    made: u32,
    sink: &'a mut S,
}

impl<S> Passage<'_, S> {
    fn tag(&self, ordinal: u32) -> Tag {
        Tag { seq: self.seq, ordinal, children: if ordinal == 0 { self.made } else { 0 } }
    }
}

impl Pipeline {
    /// The position of a pipeline that is in no stage.
    pub const OUTSIDE: u32 = u32::MAX;

    /// Passes a document through the stages: depth first, children one by one and before their parent. The sink learns of
    /// each document exactly once, of the source document last.
    ///
    /// # Errors
    /// The sink takes nothing any more.
    pub fn process(&mut self, document: Document, seq: u64, sink: &mut impl Sink) -> Result<(), SinkClosed> {
        let result = self.walk(0, document, 0, &mut Passage { seq, made: 0, sink });
        self.enter(Self::OUTSIDE);
        result
    }

    /// Which stage is at work: its index, or [`Pipeline::OUTSIDE`]. For whoever watches the lane from outside.
    pub fn position(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.position)
    }

    /// What was measured since the last time, stage by stage.
    pub fn take_stats(&mut self) -> impl ExactSizeIterator<Item = (&StageLabel, StageStats)> {
        self.steps.iter_mut().map(|step| {
            let stats = std::mem::take(&mut step.meter.stats);
            (step.label(), stats)
        })
    }

    fn enter(&self, position: u32) {
        self.position.store(position, Ordering::Relaxed);
    }

    fn walk<S: Sink>(&mut self, from: usize, mut document: Document, ordinal: u32, passage: &mut Passage<'_, S>) -> Result<(), SinkClosed> {
        for at in from..self.steps.len() {
            self.enter(at as u32);
            let verdict = match self.steps[at].apply(&mut document, ordinal > 0) {
                Verdict::Children(children, drop_parent) => self.walk_children(at, children, drop_parent, passage)?,
                verdict => verdict,
            };
            match verdict {
                Verdict::Continue => passage.sink.passed(&self.steps[at].label().name, &document),
                Verdict::Skip => break,
                Verdict::Drop(reason) => {
                    self.enter(Self::OUTSIDE);
                    return passage.sink.dropped(document, passage.tag(ordinal), &self.steps[at].label().name, reason);
                }
                Verdict::Fail(reason, before) => {
                    self.enter(Self::OUTSIDE);
                    let child = (ordinal > 0).then_some(before.as_ref().unwrap_or(&document));
                    let stage = self.steps[at].label().name.as_str();
                    let tag = passage.tag(ordinal);
                    return passage.sink.failed(Failure { tag, id: document.id(), stage, reason: &reason, child });
                }
                Verdict::Children(..) => debug_assert!(false, "children have no children of the same stage"),
            }
        }
        self.enter(Self::OUTSIDE);
        passage.sink.forward(document, passage.tag(ordinal))
    }

    /// Walks the children that a stage makes, each through the stages behind it; says what becomes of their parent.
    fn walk_children<S: Sink>(
        &mut self,
        at: usize,
        mut children: Children,
        drop_parent: bool,
        passage: &mut Passage<'_, S>,
    ) -> Result<Verdict, SinkClosed> {
        let verdict = loop {
            self.enter(at as u32);
            match self.steps[at].next_child(&mut children) {
                None if drop_parent => break self.steps[at].drop_parent(),
                None => break Verdict::Continue,
                Some(Err(verdict)) => break verdict,
                Some(Ok(child)) => {
                    passage.made += 1;
                    let ordinal = passage.made;
                    self.walk(at + 1, child, ordinal, passage)?;
                }
            }
        };
        self.steps[at].end();
        Ok(verdict)
    }
}
