//! What the threads of a step share: how much is published and closed, and whether publishing may go on.

use super::progress::Progress;
use crate::wording::counted;
use parking_lot::{Condvar, Mutex};
use penstock_crds::{
    conditions::ConnectorState,
    ingest_run::{Counts, FailureSample},
    report::StepReport,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Shared by the connector's thread, the accounting, the progress display and whoever pauses or ends the step.
#[derive(Debug)]
pub struct StepState {
    /// The highest number that was given out. Written before the document is sent, so that no event can be ahead of it.
    published: AtomicU64,
    /// Records that the connector gave, where `collapse` merges them; else 0. Written now and then.
    received: AtomicU64,
    /// Source documents that are accounted for.
    closed: AtomicU64,
    counts: Mutex<Counts>,
    progress: Mutex<Progress>,
    suspended: AtomicBool,
    /// No more documents are taken from the connector; what was taken is processed.
    stopping: AtomicBool,
    /// How far the connector is, in units of its own; a total of 0 is unknown.
    source: Mutex<(u64, Option<u64>)>,
    changed: Condvar,
    waiting: Mutex<()>,
}

impl StepState {
    /// A step at its beginning.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            published: AtomicU64::default(),
            received: AtomicU64::default(),
            closed: AtomicU64::default(),
            counts: Mutex::default(),
            progress: Mutex::new(Progress::new(Instant::now())),
            suspended: AtomicBool::default(),
            stopping: AtomicBool::default(),
            source: Mutex::default(),
            changed: Condvar::default(),
            waiting: Mutex::default(),
        })
    }

    /// The step goes on to a state.
    pub(crate) fn enter(&self, state: ConnectorState) {
        self.progress.lock().enter(state, Instant::now());
    }

    /// Some of the failed documents.
    pub(crate) fn set_failures(&self, failures: Vec<FailureSample>) {
        self.progress.lock().failures = failures;
    }

    /// A number was given out.
    pub(crate) fn set_published(&self, seq: u64) {
        self.published.store(seq, Ordering::Release);
    }

    /// The highest number that was given out.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    pub(super) fn set_received(&self, records: u64) {
        self.received.store(records, Ordering::Relaxed);
    }

    /// Records that the connector gave, if they are merged. While the step runs it lags behind a little.
    pub fn received(&self) -> Option<u64> {
        let received = self.received.load(Ordering::Relaxed);
        (received > 0).then(|| received.max(self.published()))
    }

    /// The accounting has moved on.
    pub(crate) fn set_counts(&self, counts: Counts) {
        *self.counts.lock() = counts;
        self.closed.store(counts.published - counts.pending, Ordering::Release);
        self.wake();
    }

    /// Looks now and then at how the step gets on. `lowest_pending` is asked only then.
    pub(crate) fn look(&self, counts: &Counts, lowest_pending: impl FnOnce() -> Option<u64>) {
        self.progress.lock().look(Instant::now(), counts.published, counts.published - counts.pending, lowest_pending);
    }

    /// What is known of the step while it works. `name` is that of its connector.
    pub fn report(&self, name: &str) -> StepReport {
        let (now, counts, progress) = (Instant::now(), self.counts(), self.progress.lock());
        let whole_seconds = |age: Duration| i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        StepReport {
            state: progress.state,
            suspended: self.is_suspended(),
            counts,
            received: self.received(),
            docs_per_second: progress.per_second().map(|rate| rate.round() as i64),
            oldest_pending_seconds: progress.oldest_pending(now).map(whole_seconds),
            published_seconds: progress.published_after.map(|after| after.as_secs_f64()),
            message: self.waits_for(progress.state, counts.pending),
            failures: progress.failures.clone(),
            seconds: progress.age(now).as_secs_f64(),
            ..StepReport::new(name)
        }
    }

    fn waits_for(&self, state: ConnectorState, pending: u64) -> Option<String> {
        let documents = || format!("waiting for {}", counted(pending, "document"));
        match state {
            ConnectorState::Publishing if self.is_stopping() => Some(format!("publishing has been ended, {}", documents())),
            ConnectorState::Publishing if self.is_suspended() => Some("publishing is paused".into()),
            ConnectorState::Draining => Some(documents()),
            _ => None,
        }
    }

    /// The counts, with everything that is published by now.
    pub fn counts(&self) -> Counts {
        let mut counts = *self.counts.lock();
        let published = self.published().max(counts.published);
        counts.pending += published - counts.published;
        counts.published = published;
        counts
    }

    /// Source documents that are published and not accounted for.
    pub(super) fn outstanding(&self) -> u64 {
        self.published().saturating_sub(self.closed.load(Ordering::Acquire))
    }

    /// Blocks publishing, or lets it go on. Doing so twice changes nothing.
    pub fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Release);
        self.wake();
    }

    /// Whether publishing is blocked.
    pub fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    /// Takes no more documents from the connector.
    pub fn stop_publishing(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether no more documents are taken.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(super) fn set_source(&self, done: u64, total: Option<u64>) {
        *self.source.lock() = (done, total);
    }

    /// How far the connector is, in units of its own, and the total if it is known.
    pub fn source(&self) -> (u64, Option<u64>) {
        *self.source.lock()
    }

    fn wake(&self) {
        // the lock orders this behind a waiter that has looked and not yet slept
        drop(self.waiting.lock());
        self.changed.notify_all();
    }

    /// Waits until something changes, at most that long.
    pub(super) fn wait_unless(&self, ready: impl Fn(&Self) -> bool, at_most: Duration) {
        let mut guard = self.waiting.lock();
        if !ready(self) {
            self.changed.wait_for(&mut guard, at_most);
        }
    }
}
