//! Keeps out what a superseded process sends late: a record is stale if its generation (the tenure of a worker, the epoch of a
//! publisher) is lower than the highest seen before it in the same partition for the same origin. Pure.
//!
//! The memory must outlive the process: the state *as of the committed offset* travels in the commit's metadata. A state from
//! further ahead would keep out records that the successor must still process.

use std::collections::{BTreeMap, VecDeque};

/// The highest generation seen, by origin, in one partition.
#[derive(Clone, Debug)]
pub struct StaleFilter<Origin> {
    seen: BTreeMap<Origin, u64>,
    committed: BTreeMap<Origin, u64>,
    /// What was seen behind the committed offset.
    changes: VecDeque<(u64, Origin, u64)>,
}

impl<Origin: Ord + Clone> StaleFilter<Origin> {
    /// Goes on from the state that was committed.
    pub fn new(committed: BTreeMap<Origin, u64>) -> Self {
        Self { seen: committed.clone(), committed, changes: VecDeque::new() }
    }

    /// Whether the record at an offset may pass. Offsets grow.
    pub fn passes(&mut self, offset: u64, origin: &Origin, generation: u64) -> bool {
        match self.seen.get_mut(origin) {
            Some(highest) if generation < *highest => return false,
            Some(highest) if generation == *highest => return true,
            Some(highest) => *highest = generation,
            None => {
                self.seen.insert(origin.clone(), generation);
            }
        }
        self.changes.push_back((offset, origin.clone(), generation));
        true
    }

    /// The state to commit together with an offset (the first that is not done).
    pub fn state_at(&mut self, position: u64) -> &BTreeMap<Origin, u64> {
        while self.changes.front().is_some_and(|(offset, ..)| *offset < position)
            && let Some((_, origin, generation)) = self.changes.pop_front()
        {
            self.committed.insert(origin, generation);
        }
        &self.committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn row_06_and_07_what_comes_late_from_a_lower_generation_is_kept_out() {
        let mut filter = StaleFilter::new(BTreeMap::new());
        let passed: Vec<bool> = [("a", 3), ("a", 3), ("b", 1), ("a", 4), ("a", 3), ("b", 1)]
            .iter()
            .zip(0..)
            .map(|((origin, generation), offset)| filter.passes(offset, origin, *generation))
            .collect();
        assert_eq!(passed, [true, true, true, true, false, true]);
    }

    proptest! {
        #[test]
        fn row_08_a_successor_decides_as_its_predecessor_did(
            records in prop::collection::vec((0..3_u8, 0..5_u64), 1..40), cut in any::<prop::sample::Index>(),
        ) {
            let mut whole = StaleFilter::new(BTreeMap::new());
            let decided: Vec<bool> = records.iter().zip(0..).map(|((origin, generation), offset)| whole.passes(offset, origin, *generation)).collect();
            let cut = cut.index(records.len());
            let mut successor = StaleFilter::new(whole.state_at(cut as u64).clone());
            for (at, (origin, generation)) in records.iter().enumerate().skip(cut) {
                prop_assert_eq!(successor.passes(at as u64, origin, *generation), decided[at]);
            }
        }
    }
}
