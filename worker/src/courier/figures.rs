//! What a courier shows of itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Figures of one courier. Written by its thread, read by whoever shows them.
#[derive(Debug, Default)]
pub struct CourierFigures {
    assigned: AtomicU64,
    in_work: AtomicU64,
    read: AtomicU64,
    stale: AtomicU64,
    discarded: AtomicU64,
    rounds: AtomicU64,
}

/// The figures at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Partitions that it owns.
    pub assigned: u64,
    /// Records that were read and are not done.
    pub in_work: u64,
    /// Records that were read.
    pub read: u64,
    /// Records of superseded processes that were passed over.
    pub stale: u64,
    /// Events whose log was gone.
    pub discarded: u64,
    /// Grows while the thread lives.
    pub rounds: u64,
}

impl CourierFigures {
    /// The figures now.
    pub fn now(&self) -> Figures {
        Figures {
            assigned: self.assigned.load(Relaxed),
            in_work: self.in_work.load(Relaxed),
            read: self.read.load(Relaxed),
            stale: self.stale.load(Relaxed),
            discarded: self.discarded.load(Relaxed),
            rounds: self.rounds.load(Relaxed),
        }
    }

    pub(super) fn set_assigned(&self, partitions: usize) {
        self.assigned.store(partitions as u64, Relaxed);
    }

    pub(super) fn add_stale(&self) {
        self.stale.fetch_add(1, Relaxed);
    }

    /// One round of the thread has ended.
    pub(super) fn round(&self, read: u64, in_work: usize, discarded: u64) {
        self.read.fetch_add(read, Relaxed);
        self.in_work.store(in_work as u64, Relaxed);
        self.discarded.store(discarded, Relaxed);
        self.rounds.fetch_add(1, Relaxed);
    }
}
