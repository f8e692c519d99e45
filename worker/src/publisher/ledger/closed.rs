//! Which numbers are closed: pages of done bits. A full page is given up, and so is the room of full pages at the front.

use crate::event::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

const WORDS: usize = 64;
const PAGE: u64 = WORDS as u64 * 64;

type Bits = [u64; WORDS];

/// What [`Closed::close`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// The document was open.
    Now,
    /// The document was closed; with that outcome, if it is remembered.
    Before(Option<Outcome>),
}

/// Numbers of closed documents, from 1.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Number of the first page that is held; all before it are full.
    first: u64,
    pages: VecDeque<Slot>,
    len: u64,
}

#[derive(Debug)]
enum Slot {
    Untouched,
    Partly(Box<Page>),
    Full,
}

#[derive(Debug)]
struct Page {
    done: Bits,
    len: u64,
    /// Outcomes other than finished are exceptions and cost room only where there are some.
    failed: Option<Box<Bits>>,
    dropped: Option<Box<Bits>>,
}

impl Closed {
    /// How many numbers are closed.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Closes a document.
    #[inline]
    pub(super) fn close(&mut self, seq: u64, outcome: Outcome) -> Closing {
        let (number, word, mask) = place(seq);
        let Some(index) = number.checked_sub(self.first) else { return Closing::Before(None) };
        let index = index as usize;
        if index >= self.pages.len() {
            self.pages.resize_with(index + 1, || Slot::Untouched);
        }
        let slot = &mut self.pages[index];
        if matches!(slot, Slot::Untouched) {
            *slot = Slot::Partly(Box::new(Page { done: [0; WORDS], len: 0, failed: None, dropped: None }));
        }
        let Slot::Partly(page) = slot else { return Closing::Before(None) };
        if page.done[word] & mask != 0 {
            return Closing::Before(Some(page.outcome(word, mask)));
        }
        page.done[word] |= mask;
        page.len += 1;
        self.len += 1;
        if outcome != Outcome::Finished {
            page.remember(word, mask, outcome);
        }
        if page.len == PAGE {
            *slot = Slot::Full;
            self.give_up_full_pages();
        }
        Closing::Now
    }

    /// `None` if the document is open, else its outcome where it is remembered.
    #[inline]
    pub(super) fn outcome(&self, seq: u64) -> Option<Option<Outcome>> {
        let (number, word, mask) = place(seq);
        let Some(index) = number.checked_sub(self.first) else { return Some(None) };
        match self.pages.get(index as usize) {
            None | Some(Slot::Untouched) => None,
            Some(Slot::Full) => Some(None),
            Some(Slot::Partly(page)) => (page.done[word] & mask != 0).then(|| Some(page.outcome(word, mask))),
        }
    }

    /// The numbers up to `last` that are not closed, in order.
    pub(super) fn missing(&self, last: u64) -> impl Iterator<Item = u64> + '_ {
        let pages = self.first..last.div_ceil(PAGE).max(self.first);
        pages.flat_map(|number| self.missing_of_page(number)).take_while(move |seq| *seq <= last)
    }

    fn missing_of_page(&self, number: u64) -> impl Iterator<Item = u64> + '_ {
        let (done, words) = match self.pages.get((number - self.first) as usize) {
            None | Some(Slot::Untouched) => (None, WORDS),
            Some(Slot::Full) => (None, 0),
            Some(Slot::Partly(page)) => (Some(&page.done), WORDS),
        };
        (0..words).flat_map(move |word| {
            let mut open = !done.map_or(0, |done| done[word]);
            std::iter::from_fn(move || {
                let bit = (open != 0).then(|| open.trailing_zeros())?;
                open &= open - 1;
                Some(number * PAGE + word as u64 * 64 + u64::from(bit) + 1)
            })
        })
    }

    fn give_up_full_pages(&mut self) {
        while matches!(self.pages.front(), Some(Slot::Full)) {
            self.pages.pop_front();
            self.first += 1;
        }
    }
}

impl Page {
    fn outcome(&self, word: usize, mask: u64) -> Outcome {
        let is_in = |bits: &Option<Box<Bits>>| bits.as_ref().is_some_and(|bits| bits[word] & mask != 0);
        if is_in(&self.failed) {
            Outcome::Failed
        } else if is_in(&self.dropped) {
            Outcome::Dropped
        } else {
            Outcome::Finished
        }
    }

    fn remember(&mut self, word: usize, mask: u64, outcome: Outcome) {
        let bits = if outcome == Outcome::Failed { &mut self.failed } else { &mut self.dropped };
        bits.get_or_insert_with(|| Box::new([0; WORDS]))[word] |= mask;
    }
}

/// A page in a snapshot; of bits those bytes that are set, as far as the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WrittenPage {
    Untouched,
    Full,
    Partly { done: Vec<u8>, failed: Vec<u8>, dropped: Vec<u8> },
}

impl Closed {
    /// Number of the first page that is held, and the pages.
    pub(super) fn written(&self) -> (u64, Vec<WrittenPage>) {
        let pages = self.pages.iter().map(|slot| match slot {
            Slot::Untouched => WrittenPage::Untouched,
            Slot::Full => WrittenPage::Full,
            Slot::Partly(page) => WrittenPage::Partly {
                done: bytes_of(&page.done),
                failed: page.failed.as_deref().map(bytes_of).unwrap_or_default(),
                dropped: page.dropped.as_deref().map(bytes_of).unwrap_or_default(),
            },
        });
        (self.first, pages.collect())
    }

    /// `None`: damaged.
    pub(super) fn read(first: u64, written: Vec<WrittenPage>) -> Option<Self> {
        let mut len = first.checked_mul(PAGE)?;
        let mut pages = VecDeque::with_capacity(written.len());
        for page in written {
            let slot = match page {
                WrittenPage::Untouched => Slot::Untouched,
                WrittenPage::Full => Slot::Full,
                WrittenPage::Partly { done, failed, dropped } => Slot::Partly(Box::new(Page::read(&done, &failed, &dropped)?)),
            };
            let closed = match &slot {
                Slot::Untouched => 0,
                Slot::Full => PAGE,
                Slot::Partly(page) => page.len,
            };
            len = len.checked_add(closed)?;
            pages.push_back(slot);
        }
        Some(Self { first, pages, len })
    }
}

impl Page {
    fn read(done: &[u8], failed: &[u8], dropped: &[u8]) -> Option<Self> {
        let done = bits_of(done)?;
        let exceptions = |bytes: &[u8]| if bytes.is_empty() { Some(None) } else { bits_of(bytes).map(|bits| Some(Box::new(bits))) };
        let len = done.iter().map(|word| u64::from(word.count_ones())).sum();
        Some(Self { done, len, failed: exceptions(failed)?, dropped: exceptions(dropped)? })
    }
}

fn bytes_of(bits: &Bits) -> Vec<u8> {
    let mut bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_le_bytes()).collect();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
    bytes
}

fn bits_of(bytes: &[u8]) -> Option<Bits> {
    let mut all = [0; WORDS * 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let mut bits = [0; WORDS];
    for (word, bytes) in bits.iter_mut().zip(all.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Some(bits)
}

/// Page, word and bit of a number.
#[inline]
fn place(seq: u64) -> (u64, usize, u64) {
    let index = seq - 1;
    (index / PAGE, (index % PAGE / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_pages_give_back_their_memory() {
        let mut closed = Closed::default();
        for seq in (PAGE + 1..=3 * PAGE).chain(2..=PAGE) {
            assert_eq!(closed.close(seq, Outcome::Finished), Closing::Now);
        }
        assert_eq!(closed.pages.len(), 3);
        assert!(matches!(closed.pages[1], Slot::Full));
        assert_eq!(closed.missing(3 * PAGE + 2).collect::<Vec<_>>(), [1, 3 * PAGE + 1, 3 * PAGE + 2]);
        assert_eq!(closed.close(1, Outcome::Finished), Closing::Now);
        assert!(closed.pages.is_empty());
        assert_eq!(closed.close(1, Outcome::Failed), Closing::Before(None));
        assert_eq!(closed.missing(3 * PAGE).count(), 0);
        assert_eq!(closed.len(), 3 * PAGE);
    }

    #[test]
    fn outcomes_are_remembered_while_their_page_is_held() {
        let mut closed = Closed::default();
        let outcomes = [Outcome::Finished, Outcome::Failed, Outcome::Dropped];
        for (seq, outcome) in (1..).zip(outcomes) {
            closed.close(seq, outcome);
        }
        for (seq, outcome) in (1..).zip(outcomes) {
            assert_eq!(closed.close(seq, Outcome::Finished), Closing::Before(Some(outcome)));
            assert_eq!(closed.outcome(seq), Some(Some(outcome)));
        }
        assert_eq!(closed.outcome(4), None);
    }

    #[test]
    fn a_gap_of_a_billion_numbers_costs_little() {
        let mut closed = Closed::default();
        closed.close(1_000_000_000, Outcome::Finished);
        assert!(closed.pages.len() * size_of::<Slot>() < 4 << 20);
        assert_eq!(closed.missing(1_000_000_000).next(), Some(1));
    }
}
