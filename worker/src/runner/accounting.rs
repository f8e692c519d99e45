//! Enters events into the ledger of a step and keeps what is shown of it up to date.

use super::summary::Samples;
use crate::{
    event::{Detail, EventBatch},
    publisher::{
        StepState,
        ledger::{Applied, Ledger},
        log::LogRecord,
        recovery::{self, Seen},
    },
};
use penstock_crds::ingest_run::Counts;
use std::sync::Arc;

/// The ledger of a step with its surroundings.
pub(super) struct Accounting {
    ledger: Ledger,
    state: Arc<StepState>,
    samples: Samples,
    applied: Applied,
}

impl Accounting {
    pub(super) fn new(epoch: u64, state: Arc<StepState>) -> Self {
        Self { ledger: Ledger::new(epoch), state, samples: Samples::default(), applied: Applied::default() }
    }

    /// Goes on with what earlier publishers left.
    pub(super) fn resume(&mut self, ledger: Ledger) {
        self.ledger = ledger;
    }

    /// The ledger, with everything that is published.
    pub(super) fn ledger(&mut self) -> &Ledger {
        self.ledger.published_to(self.state.published());
        &self.ledger
    }

    /// A document that an earlier publisher saw fail.
    pub(super) fn sample(&mut self, detail: &Detail) {
        self.samples.add(detail);
    }

    /// Enters a record of the run's log that stands behind the own epoch.
    pub(super) fn read_on(&mut self, epoch: u64, offset: u64, record: &LogRecord) -> Seen {
        self.ledger.published_to(self.state.published());
        let seen = recovery::read_on(&mut self.ledger, epoch, offset, record, &mut |detail| self.samples.add(detail));
        if let Seen::Events(applied) = seen {
            self.applied.add(applied);
        }
        seen
    }

    /// Enters events.
    pub(super) fn enter(&mut self, events: &EventBatch) {
        // a number is given out before its document is sent, so it is known here before any event of it
        self.ledger.published_to(self.state.published());
        let applied = self.ledger.apply(events, &mut |detail| self.samples.add(detail));
        self.applied.add(applied);
    }

    /// Shows the counts.
    pub(super) fn show(&mut self) -> Counts {
        self.ledger.published_to(self.state.published());
        let counts = self.ledger.counts();
        self.state.set_counts(counts);
        self.state.look(&counts, || self.ledger.lowest_pending());
        if let Some(samples) = self.samples.take_new() {
            self.state.set_failures(samples);
        }
        counts
    }

    /// Numbers of some documents that are not accounted for.
    pub(super) fn pending(&self) -> Vec<u64> {
        self.ledger.pending(10)
    }

    /// Nothing more comes.
    pub(super) fn end(self) {
        if self.applied != (Applied { closed: self.applied.closed, ..Applied::default() }) {
            tracing::info!(applied = ?self.applied, "some events came again or too late and were not counted");
        }
    }
}
