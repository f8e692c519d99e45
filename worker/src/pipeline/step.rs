//! One stage in its place: `when` before it, `onError` behind it, measured like all others.

use super::{
    StageLabel,
    measure::{Meter, Timing},
};
use crate::{
    document::{Document, LARGEST_DOCUMENT},
    memory::Meter as MemoryMeter,
    stages::{Children, Next, Prototype, Stage, StageError, program::Predicate},
    wording::Bytes,
};
use penstock_crds::stages::OnError;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// A document is measured once a stage has allocated so much: what goes by unmeasured in as many stages as there can be is
/// no more than a document may have.
const WORTH_MEASURING: u64 = LARGEST_DOCUMENT as u64 / 256;

/// A stage as it was compiled, with all that belongs to it.
pub(super) struct PlannedStep {
    pub(super) label: StageLabel,
    pub(super) when: Option<Predicate>,
    pub(super) on_error: OnError,
    pub(super) stage: Box<dyn Prototype>,
}

/// A stage of one lane.
pub(super) struct Step {
    plan: Arc<PlannedStep>,
    when: Option<Predicate>,
    stage: Box<dyn Stage>,
    may_leave_half_changed: bool,
    pub(super) meter: Meter,
    /// Of the call that is going on.
    timing: Option<Timing>,
}

/// What a step made of a document.
pub(super) enum Verdict {
    Continue,
    Skip,
    Drop(String),
    Children(Children, bool),
    /// Failed, with the reason and the document as it entered the stage if it is not that any more.
    Fail(String, Option<Document>),
}

/// What a stage could not do.
enum Trouble {
    Error(StageError),
    /// It panicked: whatever it holds, and the document, may be broken.
    Panic(String),
}

impl Step {
    pub(super) fn new(plan: &Arc<PlannedStep>) -> Self {
        let stage = plan.stage.for_lane();
        Self {
            may_leave_half_changed: stage.may_leave_half_changed(),
            stage,
            when: plan.when.clone(),
            plan: Arc::clone(plan),
            meter: Meter::default(),
            timing: None,
        }
    }

    pub(super) fn label(&self) -> &StageLabel {
        &self.plan.label
    }

    /// Runs the stage for a document. The original of a child is kept where the stage could damage it: a source document
    /// can be had again from where it came.
    pub(super) fn apply(&mut self, document: &mut Document, is_child: bool) -> Verdict {
        let is_kept = self.may_leave_half_changed && (is_child || self.plan.on_error == OnError::Continue);
        let before = is_kept.then(|| document.clone());
        let memory = MemoryMeter::start();
        self.timing = self.meter.begin();
        let result = self.run(document);
        Timing::pause(&mut self.timing);
        let verdict = match result {
            Ok(None) => {
                self.meter.stats.passed_over += 1;
                Verdict::Continue
            }
            Ok(Some(next)) => {
                self.meter.stats.processed += 1;
                match next {
                    Next::Continue | Next::Skip if memory.allocated() > WORTH_MEASURING && document.estimated_size() > LARGEST_DOCUMENT => {
                        self.too_large(document, before)
                    }
                    Next::Continue => Verdict::Continue,
                    Next::Skip => Verdict::Skip,
                    Next::Drop { reason } => {
                        self.meter.stats.dropped += 1;
                        Verdict::Drop(reason)
                    }
                    // their making belongs to this call
                    Next::Children { children, drop_parent } => return Verdict::Children(children, drop_parent),
                }
            }
            Err(trouble) => {
                self.meter.stats.processed += 1;
                self.trouble(trouble, document, before)
            }
        };
        self.end();
        verdict
    }

    fn run(&mut self, document: &mut Document) -> Result<Option<Next>, Trouble> {
        let Self { when, stage, .. } = self;
        guard(|| match when.as_mut().map_or(Ok(true), |when| when.holds(document)) {
            Ok(true) => stage.process(document).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// The next child; after an error there is none.
    pub(super) fn next_child(&mut self, children: &mut Children) -> Option<Result<Document, Verdict>> {
        Timing::resume(&mut self.timing);
        let next = guard(|| children.next().transpose());
        Timing::pause(&mut self.timing);
        match next {
            Ok(None) => None,
            Ok(Some(child)) => {
                self.meter.stats.children += 1;
                Some(Ok(child))
            }
            // the parent itself was left alone
            Err(Trouble::Panic(reason)) => Some(Err(self.fail(reason, None))),
            Err(Trouble::Error(StageError(reason))) => Some(Err(self.on_error(reason, None))),
        }
    }

    /// Ends the call that [`Step::apply`] began, once there are no more children.
    pub(super) fn end(&mut self) {
        let timing = self.timing.take();
        self.meter.end(timing);
    }

    /// The parent of children is dropped.
    pub(super) fn drop_parent(&mut self) -> Verdict {
        self.meter.stats.dropped += 1;
        Verdict::Drop("replaced by its children".into())
    }

    fn trouble(&mut self, trouble: Trouble, document: &mut Document, before: Option<Document>) -> Verdict {
        match trouble {
            Trouble::Error(StageError(reason)) => {
                if let (OnError::Continue, Some(before)) = (self.plan.on_error, &before) {
                    document.clone_from(before);
                }
                self.on_error(reason, before)
            }
            Trouble::Panic(reason) => {
                self.stage = self.plan.stage.for_lane();
                self.when = self.plan.when.clone();
                self.fail(reason, before)
            }
        }
    }

    fn on_error(&mut self, reason: String, before: Option<Document>) -> Verdict {
        match self.plan.on_error {
            OnError::Fail => self.fail(reason, before),
            OnError::Continue => {
                self.meter.stats.continued += 1;
                Verdict::Continue
            }
            OnError::Drop => {
                self.meter.stats.dropped += 1;
                Verdict::Drop(reason)
            }
        }
    }

    /// Whatever `onError` says: the document must not go on.
    fn too_large(&mut self, document: &Document, before: Option<Document>) -> Verdict {
        let (size, most) = (Bytes(document.estimated_size()), Bytes(LARGEST_DOCUMENT));
        self.fail(format!("the document has {size} after stage `{}`, and may have {most}", self.plan.label.name), before)
    }

    fn fail(&mut self, reason: String, before: Option<Document>) -> Verdict {
        self.meter.stats.failed += 1;
        Verdict::Fail(reason, before)
    }
}

/// Turns a panic into trouble: a stage that cannot cope with one document must not end all the others.
fn guard<T>(work: impl FnOnce() -> Result<T, StageError>) -> Result<T, Trouble> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(Trouble::Error),
        Err(panic) => Err(Trouble::Panic(format!("the stage panicked, which is a bug in it: {}", panic_text(&*panic)))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
