//! Records what goes in, for tests: the history of documents and events.

use super::{Closed, Dest};
use crate::{
    document::Document,
    event::{Detail, EventBatch, Outcome, Tag},
    indexers::EventSink,
};
use parking_lot::Mutex;
use std::{sync::Arc, time::Instant};

/// A [`Dest`] and [`EventSink`] that keeps everything. Clones share the history.
#[derive(Clone, Default)]
pub struct Recording {
    history: Arc<Mutex<History>>,
}

/// What was recorded, in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Documents that reached the indexer.
    pub documents: Vec<(Document, Tag)>,
    /// Terminal events.
    pub events: Vec<(Outcome, Tag)>,
    /// Why documents failed or were dropped.
    pub details: Vec<Detail>,
}

impl Recording {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was recorded up to now.
    pub fn history(&self) -> History {
        self.history.lock().clone()
    }
}

impl Dest for Recording {
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), Closed> {
        self.history.lock().documents.push((document, tag));
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn flush(&mut self) -> Result<(), Closed> {
        Ok(())
    }

    fn drain(self) -> Result<(), Closed> {
        Ok(())
    }
}

impl EventSink for Recording {
    fn report(&self, events: EventBatch) {
        let mut history = self.history.lock();
        history.events.extend(events.tags().map(|tag| (events.outcome, tag)));
        history.details.extend(events.details);
    }
}
