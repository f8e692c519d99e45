//! Which offset of a partition may be committed: the first one that is not *done*. Pure.

use std::collections::VecDeque;

/// Offsets in one word.
const WORD: u64 = 64;

/// Follows the records of one partition from a takeover on. Memory: a bit for each offset between the first that is not done
/// and the last that was started.
#[derive(Clone, Debug)]
pub(crate) struct Offsets {
    position: u64,
    next: u64,
    /// Done bits; the first word holds `position`.
    done: VecDeque<u64>,
    in_flight: usize,
}

impl Offsets {
    /// Begins at the committed offset.
    pub(crate) fn new(committed: u64) -> Self {
        Self { position: committed, next: committed, done: VecDeque::new(), in_flight: 0 }
    }

    /// What to commit: everything before it is done.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The first offset that was not started.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Records that were started and are not done.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Grows with each record that is done.
    pub(super) fn done_count(&self) -> u64 {
        self.next - self.in_flight as u64
    }

    /// The next record is at that offset: where a topic has gaps there is nothing to wait for.
    pub(crate) fn jump(&mut self, offset: u64) {
        if self.in_flight == 0 && offset > self.next {
            self.position = offset;
            self.next = offset;
            self.done.clear();
        }
    }

    /// A record is started. Offsets grow; those left out have no record.
    pub(crate) fn begin(&mut self, offset: u64) {
        self.jump(offset);
        let words = offset / WORD - self.position / WORD + 1;
        self.done.resize(self.done.len().max(words as usize), 0);
        for gap in self.next..offset {
            self.mark(gap);
        }
        self.next = offset + 1;
        self.in_flight += 1;
    }

    /// A record is done. False: it was not in flight.
    pub(crate) fn settle(&mut self, offset: u64) -> bool {
        if offset < self.position || offset >= self.next || self.is_done(offset) {
            return false;
        }
        self.mark(offset);
        self.in_flight -= 1;
        if offset == self.position {
            self.advance();
        }
        true
    }

    /// The offsets behind the position that are done.
    pub(crate) fn done(&self) -> impl Iterator<Item = u64> + '_ {
        (self.position..self.next).filter(|offset| self.is_done(*offset))
    }

    fn mark(&mut self, offset: u64) {
        let (word, mask) = self.place(offset);
        self.done[word] |= mask;
    }

    fn is_done(&self, offset: u64) -> bool {
        let (word, mask) = self.place(offset);
        self.done[word] & mask != 0
    }

    fn place(&self, offset: u64) -> (usize, u64) {
        ((offset / WORD - self.position / WORD) as usize, 1 << (offset % WORD))
    }

    fn advance(&mut self) {
        while let Some(word) = self.done.front() {
            let bit = self.position % WORD;
            let stretch = u64::from((!(word >> bit)).trailing_zeros()).min(WORD - bit);
            self.position += stretch;
            if bit + stretch < WORD {
                return;
            }
            self.done.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_the_first_contiguous_stretch_of_done_offsets_may_be_committed_x3(
            start in 0..200_u64, gaps in prop::collection::vec(prop_oneof![8 => Just(1_u64), 1 => 2..200_u64], 1..80), order in any::<u64>(),
        ) {
            let found: Vec<u64> = gaps.iter().scan(start, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut offsets = Offsets::new(start);
            let mut random = fastrand::Rng::with_seed(order);
            let mut to_come = found.iter().copied().peekable();
            let mut open: Vec<u64> = Vec::new();
            let mut last_done = start;
            while to_come.peek().is_some() || !open.is_empty() {
                if open.is_empty() || random.bool() && to_come.peek().is_some() {
                    let Some(offset) = to_come.next() else { continue };
                    offsets.begin(offset);
                    open.push(offset);
                } else {
                    let offset = open.swap_remove(random.usize(..open.len()));
                    prop_assert!(offsets.settle(offset));
                    prop_assert!(!offsets.settle(offset));
                    last_done = last_done.max(offset);
                }
                let position = offsets.position();
                prop_assert_eq!(offsets.in_flight(), open.len());
                match open.iter().min() {
                    Some(lowest) => prop_assert_eq!(position, *lowest),
                    None => prop_assert_eq!(position, last_done + 1),
                }
                let expected: Vec<u64> = (position..offsets.next()).filter(|offset| !open.contains(offset)).collect();
                prop_assert_eq!(offsets.done().collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn offsets_1_2_3_5_6_7_done_and_4_not_commits_3_x3() {
        let mut offsets = Offsets::new(1);
        (1..=7).for_each(|offset| offsets.begin(offset));
        for offset in [7, 1, 3, 2, 6, 5] {
            assert!(offsets.settle(offset));
        }
        assert_eq!(offsets.position(), 4, "3 is the last that is committed");
        assert_eq!(offsets.done().collect::<Vec<_>>(), [5, 6, 7]);
    }

    #[test]
    fn what_is_done_already_or_unknown_changes_nothing() {
        let mut offsets = Offsets::new(5);
        offsets.begin(5);
        offsets.begin(6);
        assert!(offsets.settle(6));
        for unknown in [4, 6, 7, 1_000] {
            assert!(!offsets.settle(unknown));
        }
        assert_eq!(offsets.position(), 5);
        assert!(offsets.settle(5));
        assert_eq!((offsets.position(), offsets.in_flight()), (7, 0));
    }

    #[test]
    fn a_gap_of_a_billion_offsets_takes_no_memory() {
        let mut offsets = Offsets::new(5);
        offsets.begin(1_000_000_000);
        assert_eq!((offsets.position(), offsets.done.len()), (1_000_000_000, 1));
    }
}
