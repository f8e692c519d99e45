//! Keeps out what a superseded process sends late: a record is stale if its generation (the tenure of a worker, the epoch of a
//! publisher) is lower than the highest seen before it in the same partition for the same origin. Pure.
//!
//! The memory must outlive the process: the state *as of the committed offset* travels in the commit's metadata. A state from
//! further ahead would keep out records that the successor must still process.

use super::super::metadata::Highest;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// For how many hours a superseded process is expected to send.
const HORIZON: u64 = 24;

/// By which a record is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Who sends: for a worker a hash of (run, step), for an indexer the source partition.
    pub origin: u64,
    /// Which of the processes that follow each other there: the publisher's epoch, the worker's tenure.
    pub number: u64,
    /// Whether records of a lower one may still come, so that a successor must know of it: the publisher has replaced another;
    /// the tenure is younger than a day.
    pub remember: bool,
}

/// The highest generation seen, by origin, in one partition.
#[derive(Clone, Debug)]
pub(super) struct StaleFilter {
    seen: HashMap<u64, Highest, RandomState>,
    committed: BTreeMap<u64, Highest>,
    /// What was seen behind the committed offset and must be remembered.
    changes: VecDeque<(u64, u64, Highest)>,
}

impl StaleFilter {
    /// Goes on from the state that was committed.
    pub(super) fn new(committed: BTreeMap<u64, Highest>) -> Self {
        Self { seen: committed.iter().map(|(origin, highest)| (*origin, *highest)).collect(), committed, changes: VecDeque::new() }
    }

    /// Whether the record at an offset may pass. Offsets do not shrink.
    pub(super) fn passes(&mut self, offset: u64, generation: Generation, hour: u64) -> bool {
        let highest = self.seen.entry(generation.origin).or_insert(Highest { number: 0, hour: 0 });
        if generation.number < highest.number {
            return false;
        }
        if generation.number > highest.number || highest.hour == 0 {
            *highest = Highest { number: generation.number, hour };
            if generation.remember {
                self.changes.push_back((offset, generation.origin, *highest));
            }
        }
        true
    }

    /// The state to commit together with an offset (the first that is not done).
    pub(super) fn state_at(&mut self, position: u64, hour: u64) -> &BTreeMap<u64, Highest> {
        while self.changes.front().is_some_and(|(offset, ..)| *offset < position)
            && let Some((_, origin, highest)) = self.changes.pop_front()
        {
            self.committed.insert(origin, highest);
        }
        let is_young = |highest: &Highest| highest.hour + HORIZON > hour;
        if !self.committed.values().all(is_young) {
            self.committed.retain(|_, highest| is_young(highest));
        }
        &self.committed
    }

    /// Reading starts again at an offset.
    pub(super) fn rewind(&mut self, position: u64, hour: u64) {
        *self = Self::new(self.state_at(position, hour).clone());
    }

    /// Forgets origins that are of no use any more. To be called now and then, as it looks at all of them.
    pub(super) fn forget_old(&mut self, hour: u64) {
        self.seen.retain(|_, highest| highest.hour + HORIZON > hour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn generation(origin: u64, number: u64) -> Generation {
        Generation { origin, number, remember: true }
    }

    #[test]
    fn row_06_and_07_what_comes_late_from_a_lower_generation_is_kept_out() {
        let mut filter = StaleFilter::new(BTreeMap::new());
        let passed: Vec<bool> = [(1, 3), (1, 3), (2, 0), (1, 4), (1, 3), (2, 0)]
            .iter()
            .zip(0..)
            .map(|((origin, number), offset)| filter.passes(offset, generation(*origin, *number), 7))
            .collect();
        assert_eq!(passed, [true, true, true, true, false, true]);
    }

    #[test]
    fn only_what_must_be_remembered_travels_and_for_a_day_only() {
        let mut filter = StaleFilter::new(BTreeMap::new());
        assert!(filter.passes(0, Generation { origin: 1, number: 5, remember: false }, 100));
        assert!(filter.passes(1, generation(2, 5), 100));
        assert!(!filter.passes(2, generation(1, 4), 100), "in the process everything is remembered");
        let origins = |filter: &mut StaleFilter, hour| filter.state_at(3, hour).keys().copied().collect::<Vec<_>>();
        assert_eq!(origins(&mut filter, 123), [2]);
        assert_eq!(origins(&mut filter, 124), [0_u64; 0]);
        filter.forget_old(123);
        assert!(!filter.passes(3, generation(1, 4), 123));
        filter.forget_old(124);
        assert!(filter.passes(4, generation(1, 4), 124));
    }

    proptest! {
        #[test]
        fn row_08_a_successor_decides_as_its_predecessor_did(
            records in prop::collection::vec((0..3_u64, 0..5_u64), 1..40), cut in any::<prop::sample::Index>(), rewinds in any::<bool>(),
        ) {
            let mut whole = StaleFilter::new(BTreeMap::new());
            let decided: Vec<bool> =
                records.iter().zip(0..).map(|((origin, number), offset)| whole.passes(offset, generation(*origin, *number), 9)).collect();
            let cut = cut.index(records.len());
            let mut successor = StaleFilter::new(whole.state_at(cut as u64, 9).clone());
            if rewinds {
                whole.rewind(cut as u64, 9);
                successor = whole;
            }
            for (at, (origin, number)) in records.iter().enumerate().skip(cut) {
                prop_assert_eq!(successor.passes(at as u64, generation(*origin, *number), 9), decided[at]);
            }
        }
    }
}
