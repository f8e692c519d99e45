//! Which ids a step has written already.
//!
//! To replace a document the index first deletes the one of that id, and keeps that deletion in memory until the commit. Most
//! documents are new, so remembering their ids in a few bits is much cheaper than a deletion for each.

use foldhash::fast::RandomState;
use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

/// Bits for the ids: 16 MiB. Of ten million ids 2 in 100 are taken for known ones; that only costs them a deletion.
const BITS: u64 = 1 << 27;

/// A Bloom filter: what it does not know is new for certain.
pub(super) struct SeenIds {
    words: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl SeenIds {
    pub fn new() -> Self {
        let words = (0..BITS / 64).map(|_| AtomicU64::new(0)).collect();
        Self { words, hasher: RandomState::default() }
    }

    /// Enters an id; the answer is whether it may have been entered before.
    pub fn enter(&self, id: &str) -> bool {
        let hash = self.hasher.hash_one(id);
        // both bits are entered in any case
        self.set(hash % BITS) & self.set((hash >> 32) % BITS)
    }

    fn set(&self, bit: u64) -> bool {
        let mask = 1 << (bit % 64);
        // one lane at a time has the documents of an id, so there is nothing to order
        self.words[(bit / 64) as usize].fetch_or(mask, Ordering::Relaxed) & mask != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_entered_is_known_and_few_others_are() {
        let seen = SeenIds::new();
        let unjustly = (0..100_000).filter(|n| seen.enter(&format!("id-{n}"))).count();
        assert!((0..100_000).all(|n| seen.enter(&format!("id-{n}"))));
        assert!(unjustly < 100, "{unjustly}");
    }
}
