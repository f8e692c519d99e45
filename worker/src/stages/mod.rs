//! Stages: what a pipeline does to a document. One file a stage; [`crate::pipeline`] puts them in order.

use crate::document::Document;

/// One stage, built once for each lane.
///
/// # Contract
/// * The pipeline calls `process` for one document after the other, from one thread; `&mut self` is the stage's own
///   memory (buffers, a VRL runtime), never a channel between documents.
/// * `Err` means: this document cannot be processed. What then happens is `onError`'s matter, and the pipeline's: a stage
///   that returns an error must leave the document as it was, or as good as (the pipeline keeps a copy where it must go on).
/// * A stage knows documents only: no clock for measuring, no metrics, no log of its own. The pipeline measures all alike.
/// * A stage that waits (network) does so in here, with its own time limit.
pub trait Stage: Send {
    /// Changes the document and says where it goes next.
    ///
    /// # Errors
    /// The document cannot be processed, with the reason for people.
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError>;
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
