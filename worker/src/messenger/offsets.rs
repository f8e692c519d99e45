//! Which offset of a partition may be committed: the first one that is not *done*. Pure.
//!
//! An offset is done when all that its record led to is acknowledged: results (or the backend's answer), then the dead letter,
//! then the terminal event.

use std::collections::VecDeque;

/// Follows the records of one partition from a takeover on. Memory: an entry for each record that is on its way.
#[derive(Clone, Debug)]
pub struct OffsetTracker {
    position: u64,
    /// Offset, and how many things are still to be acknowledged for it.
    records: VecDeque<(u64, u32)>,
}

impl OffsetTracker {
    /// Begins at the committed offset.
    pub fn new(committed: u64) -> Self {
        Self { position: committed, records: VecDeque::new() }
    }

    /// A record was read. It holds its offset itself, until that is [let go](OffsetTracker::release) of once.
    /// Offsets grow, perhaps with gaps.
    pub fn begin(&mut self, offset: u64) {
        self.records.push_back((offset, 1));
    }

    /// The record led to one more thing that must be acknowledged.
    pub fn hold(&mut self, offset: u64) {
        if let Some((_, open)) = self.find(offset) {
            *open += 1;
        }
    }

    /// One of the things is acknowledged.
    pub fn release(&mut self, offset: u64) {
        if let Some((_, open)) = self.find(offset) {
            *open -= 1;
        }
        while let Some((offset, 0)) = self.records.front() {
            self.position = offset + 1;
            self.records.pop_front();
        }
    }

    /// What to commit: everything before it is done.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.records.is_empty()
    }

    fn find(&mut self, offset: u64) -> Option<&mut (u64, u32)> {
        let at = self.records.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        self.records.get_mut(at).filter(|(_, open)| *open > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_the_first_contiguous_stretch_of_done_offsets_may_be_committed_x3(
            start in 0..100_u64, gaps in prop::collection::vec(1..4_u64, 1..40), order in any::<u64>(), held in 0..3_u32,
        ) {
            let offsets: Vec<u64> = gaps.iter().scan(start, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut tracker = OffsetTracker::new(start);
            let mut left: Vec<u64> = Vec::new();
            for offset in &offsets {
                tracker.begin(*offset);
                (0..held).for_each(|_| tracker.hold(*offset));
                left.extend((0..=held).map(|_| *offset));
            }
            let mut random = order;
            while !left.is_empty() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                tracker.release(left.swap_remove((random >> 33) as usize % left.len()));
                let done = offsets.iter().take_while(|offset| !left.contains(offset)).last();
                prop_assert_eq!(tracker.position(), done.map_or(start, |offset| offset + 1));
            }
            prop_assert!(tracker.is_idle());
        }
    }

    #[test]
    fn what_is_let_go_of_too_often_or_is_unknown_changes_nothing() {
        let mut tracker = OffsetTracker::new(5);
        tracker.begin(5);
        tracker.begin(6);
        tracker.release(6);
        tracker.release(6);
        tracker.release(4);
        assert_eq!(tracker.position(), 5);
        tracker.release(5);
        assert_eq!(tracker.position(), 7);
    }
}
