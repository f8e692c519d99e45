//! `remap`: a VRL program.

use super::{
    Next, Stage, StageError,
    program::{Ended, Program},
};
use crate::{document::Document, problem::Problems};
use penstock_crds::stages as spec;

/// Changes the document by a program.
#[derive(Clone)]
pub(super) struct Remap {
    program: Program,
}

impl Remap {
    pub(super) fn compile(spec: &spec::Remap, problems: &mut Problems<'_>) -> Option<Self> {
        Program::compile(&spec.source, "source", problems).map(|program| Self { program })
    }
}

impl Stage for Remap {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        match self.program.run(document) {
            Ok(()) => Ok(Next::Continue),
            Err(Ended::Aborted(reason)) => Ok(Next::Drop { reason }),
            Err(Ended::Failed(error)) => Err(error),
        }
    }
}
