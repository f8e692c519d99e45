//! Figures of the lanes of one step, for metrics: plain counters, added to once a batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Figures of all lanes of one step.
#[derive(Debug, Default)]
pub struct IndexerStats {
    /// Documents that the backend has, stale ones included.
    pub finished: AtomicU64,
    /// Documents that failed here.
    pub failed: AtomicU64,
    /// Documents of which the backend had a newer version.
    pub stale: AtomicU64,
    /// Requests that were answered.
    pub batches: AtomicU64,
    /// Nanoseconds that these requests took, waits between repetitions not included.
    pub batch_nanos: AtomicU64,
    /// Documents that were sent again because the backend was busy with them while it took others.
    pub retries: AtomicU64,
    /// How often a lane has met a backend that takes nothing.
    pub outages: AtomicU64,
    /// Lanes that wait for such a backend now.
    pub waiting_lanes: AtomicU64,
    /// Requests in flight now.
    pub in_flight: AtomicU64,
}

impl IndexerStats {
    pub(super) fn answered(&self, took: Duration) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.batch_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
