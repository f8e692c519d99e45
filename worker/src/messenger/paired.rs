//! Memory between a worker and its indexer: both are one lane on one thread, so a document is handed over by a call and
//! never leaves the thread that made it.

use super::{Closed, Dest};
use crate::{document::Document, event::Tag, indexers::IndexerLane};
use std::time::Instant;

impl Dest for IndexerLane {
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), Closed> {
        self.accept(document, tag).map_err(|_| Closed)
    }

    fn deadline(&self) -> Option<Instant> {
        IndexerLane::deadline(self)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        IndexerLane::flush(self).map_err(|_| Closed)
    }

    fn drain(self) -> Result<(), Closed> {
        IndexerLane::drain(self).map_err(|_| Closed)
    }
}
