//! Stages: what a pipeline does to a document. One file a stage; [`crate::pipeline`] puts them in order.
//!
//! Every stage has `compile`: it reads the spec, reports all problems and gives the stage if there are none. Validation and
//! the building of a run are the same code, so what validates can be built. The only stage that touches anything outside is
//! [`capture`], whose file is opened when a run is built.

mod capture;
mod change_case;
mod children;
mod chunk;
mod concatenate;
mod copy;
mod drop;
mod explode;
mod extract;
mod keep;
pub(crate) mod program;
mod remap;
mod remove;
mod rename;
mod replace;
mod set;
mod setting;
mod skip;
mod template;

#[cfg(test)]
mod compliance;
#[cfg(test)]
pub(crate) mod testing;

use crate::{
    context::StepContext,
    document::{Document, PathError},
    problem::Problems,
};
use penstock_crds::stages::{Stage as StageSpec, StageKind};
use std::collections::HashMap;

/// One stage, built once for each lane.
///
/// # Contract
/// * The pipeline calls `process` for one document after the other, from one thread; `&mut self` is the stage's own
///   memory (buffers, a VRL runtime), never a channel between documents.
/// * `Err` means: this document cannot be processed. What then happens is `onError`'s matter, and the pipeline's: a stage
///   that returns an error must leave the document as it was, or say beforehand that it
///   [may not](Stage::may_leave_half_changed), so that the pipeline keeps a copy where it needs one.
/// * A stage knows documents only: no clock for measuring, no metrics, no log of its own. The pipeline measures all alike.
/// * A stage that waits (network) does so in here, with its own time limit.
pub trait Stage: Send {
    /// Changes the document and says where it goes next.
    ///
    /// # Errors
    /// The document cannot be processed, with the reason for people.
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError>;

    /// Whether an error can leave the document changed in part. Asked once.
    fn may_leave_half_changed(&self) -> bool {
        false
    }
}

/// Where a document goes after a stage.
pub enum Next {
    /// To the next stage.
    Continue,
    /// Nowhere: it is counted as dropped.
    Drop {
        /// Why; may be empty.
        reason: String,
    },
    /// Straight to the indexer.
    Skip,
    /// Children come first, each through the later stages, then the document itself.
    Children {
        /// Makes the children one by one, as they are asked for. An error fails the parent; children that were given stay.
        children: Children,
        /// Drop the parent once its children are made.
        drop_parent: bool,
    },
}

/// Children, made lazily.
pub type Children = Box<dyn Iterator<Item = Result<Document, StageError>> + Send>;

/// Why a stage cannot process a document. The text is for people: it says what is wrong with which field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StageError(pub String);

impl From<PathError> for StageError {
    fn from(error: PathError) -> Self {
        Self(error.to_string())
    }
}

/// A stage as it was compiled, once: each lane gets its own copy, which shares what can be shared.
pub(crate) trait Prototype: Send + Sync {
    /// The stage for one lane.
    fn for_lane(&self) -> Box<dyn Stage>;
}

impl<S: Stage + Clone + Sync + 'static> Prototype for S {
    fn for_lane(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}

/// Reports everything about the stages of a pipeline that can be known to be wrong before a run. The paths of the problems
/// begin with the position of the stage: `[3].remap.source`. Nothing is opened or made.
pub fn check(stages: &[StageSpec], problems: &mut Problems<'_>) {
    check_names(stages, problems);
    for (index, stage) in stages.iter().enumerate() {
        let mut problems = problems.below(&format!("[{index}]"));
        if let Some(source) = &stage.when {
            program::Predicate::compile(source, "when", &mut problems);
        }
        compile(&stage.kind, None, &mut problems);
    }
}

fn check_names(stages: &[StageSpec], problems: &mut Problems<'_>) {
    let mut taken = HashMap::new();
    for (index, stage) in stages.iter().enumerate() {
        let name = stage.display_name(index);
        let Some(first) = taken.insert(name.clone(), index) else { continue };
        problems
            .below(&format!("[{index}]"))
            .add("name", format!("the name `{name}` is taken by stage {}; give each stage a name of its own", first + 1));
    }
}

/// Compiles one stage, or reports what is wrong with it. Without a context the stage touches nothing outside.
pub(crate) fn compile(kind: &StageKind, context: Option<&StepContext>, problems: &mut Problems<'_>) -> Option<Box<dyn Prototype>> {
    fn boxed<S: Prototype + 'static>(stage: Option<S>) -> Option<Box<dyn Prototype>> {
        stage.map(|stage| Box::new(stage) as Box<dyn Prototype>)
    }
    let problems = &mut problems.below(kind.key());
    match kind {
        StageKind::Capture(spec) => boxed(capture::Capture::compile(spec, context, problems)),
        StageKind::ChangeCase(spec) => boxed(change_case::ChangeCase::compile(spec, problems)),
        StageKind::Chunk(spec) => boxed(chunk::Chunk::compile(spec, problems)),
        StageKind::Concatenate(spec) => boxed(concatenate::Concatenate::compile(spec, problems)),
        StageKind::Copy(spec) => boxed(copy::Copy::compile(spec, problems)),
        StageKind::Drop(spec) => boxed(Some(drop::Drop::new(spec))),
        StageKind::Explode(spec) => boxed(explode::Explode::compile(spec, problems)),
        StageKind::Extract(spec) => boxed(extract::Extract::compile(spec, problems)),
        StageKind::Keep(spec) => boxed(keep::Keep::compile(spec, problems)),
        StageKind::Remap(spec) => boxed(remap::Remap::compile(spec, problems)),
        StageKind::Remove(spec) => boxed(remove::Remove::compile(spec, problems)),
        StageKind::Rename(spec) => boxed(rename::Rename::compile(spec, problems)),
        StageKind::Replace(spec) => boxed(replace::Replace::compile(spec, problems)),
        StageKind::Set(spec) => boxed(set::Set::compile(spec, problems)),
        StageKind::Skip(_) => boxed(Some(skip::Skip)),
    }
}
