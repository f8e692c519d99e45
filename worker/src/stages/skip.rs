//! `skip`: straight to the indexer.

use super::{Next, Stage, StageError};
use crate::document::Document;

/// Sends documents straight to the indexer.
#[derive(Clone, Debug)]
pub(super) struct Skip;

impl Stage for Skip {
    fn process(&mut self, _: &mut Document) -> Result<Next, StageError> {
        Ok(Next::Skip)
    }
}
