//! `drop`: the end of a document's way.

use super::{Next, Stage, StageError};
use crate::document::Document;
use penstock_crds::stages as spec;

/// Drops documents.
#[derive(Clone, Debug)]
pub(super) struct Drop {
    reason: String,
}

impl Drop {
    pub(super) fn new(spec: &spec::Drop) -> Self {
        Self { reason: spec.reason.clone().unwrap_or_default() }
    }
}

impl Stage for Drop {
    fn process(&mut self, _: &mut Document) -> Result<Next, StageError> {
        Ok(Next::Drop { reason: self.reason.clone() })
    }
}
