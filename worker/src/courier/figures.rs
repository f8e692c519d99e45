//! What a courier shows of itself.

use super::Role;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// Figures of a courier; over several steps of a run, of one after the other. Written by its thread, read by whoever shows them.
#[derive(Debug)]
pub struct CourierFigures {
    /// What the courier does.
    pub role: Role,
    /// For which pipeline.
    pub pipeline: String,
    joined: AtomicBool,
    assigned: AtomicU64,
    in_work: AtomicU64,
    read: AtomicU64,
    stale: AtomicU64,
    discarded: AtomicU64,
    /// By partition that it owns, the first record that is not done.
    positions: Mutex<BTreeMap<u32, u64>>,
    /// Where partitions end.
    ends: Mutex<BTreeMap<u32, u64>>,
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
}

impl CourierFigures {
    /// Nothing yet.
    pub fn new(role: Role, pipeline: &str) -> Self {
        let [assigned, in_work, read, stale, discarded] = Default::default();
        let (joined, positions, ends) = Default::default();
        Self { role, pipeline: pipeline.into(), joined, assigned, in_work, read, stale, discarded, positions, ends }
    }

    /// Whether it is a member of its group: it has got its share of the partitions, which may be none.
    pub fn has_joined(&self) -> bool {
        self.joined.load(Relaxed)
    }

    /// The figures now.
    pub fn now(&self) -> Figures {
        Figures {
            assigned: self.assigned.load(Relaxed),
            in_work: self.in_work.load(Relaxed),
            read: self.read.load(Relaxed),
            stale: self.stale.load(Relaxed),
            discarded: self.discarded.load(Relaxed),
        }
    }

    /// Records of each partition that are not done, as of some seconds ago; partitions of which that is not known are left out.
    pub fn lags(&self) -> BTreeMap<u32, u64> {
        let ends = self.ends.lock();
        let lag = |(partition, position): (&u32, &u64)| Some((*partition, ends.get(partition)?.saturating_sub(*position)));
        self.positions.lock().iter().filter_map(lag).collect()
    }

    /// The partitions that it owns.
    pub fn partitions(&self) -> Vec<u32> {
        self.positions.lock().keys().copied().collect()
    }

    /// Somebody has asked where partitions end.
    pub fn set_ends(&self, ends: BTreeMap<u32, u64>) {
        *self.ends.lock() = ends;
    }

    /// By partition that it owns, the first record that is not done.
    pub(crate) fn set_positions(&self, positions: BTreeMap<u32, u64>) {
        *self.positions.lock() = positions;
    }

    /// It has ended, and owns nothing.
    pub(super) fn end(&self) {
        self.assigned.store(0, Relaxed);
        self.in_work.store(0, Relaxed);
        self.positions.lock().clear();
    }

    pub(super) fn set_assigned(&self, partitions: usize) {
        self.joined.store(true, Relaxed);
        self.assigned.store(partitions as u64, Relaxed);
    }

    pub(super) fn add_stale(&self) {
        self.stale.fetch_add(1, Relaxed);
    }

    /// One round of the thread has ended.
    pub(crate) fn round(&self, read: u64, in_work: usize, discarded: u64) {
        self.read.fetch_add(read, Relaxed);
        self.in_work.store(in_work as u64, Relaxed);
        self.discarded.fetch_add(discarded, Relaxed);
    }
}
