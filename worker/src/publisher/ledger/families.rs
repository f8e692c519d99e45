//! Families that are partly in: documents with descendants of which some terminal events have come and others have not.
//!
//! Nearly all of them are small and of one attempt: these are packed, 16 bytes each, in pages where a bit says that a number
//! has an entry and the number of bits before it says where. What does not fit there (many members, a second attempt) is rare
//! and lives in an ordinary map.

use crate::event::{Detail, Outcome, Tag};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Members whose outcomes fit into one word, at 2 bits each: the source document and 31 descendants.
const FEW: u32 = 32;
/// The lower bit of each pair.
const LOWER: u64 = 0x5555_5555_5555_5555;
const GROUPS: usize = 64;
const PAGE: u64 = GROUPS as u64 * 64;
/// In a packed entry: the terminal event of the source document has not come.
const UNKNOWN: u32 = u32::MAX;
/// So many failed members of incomplete families keep their texts (a few megabytes); the others are counted all the same.
const DETAILS: usize = 10_000;

/// Outcomes of documents, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) created: u64,
    pub(super) finished: u64,
    pub(super) failed: u64,
    pub(super) dropped: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.created += other.created;
        self.finished += other.finished;
        self.failed += other.failed;
        self.dropped += other.dropped;
    }

    pub(super) fn add_outcome(&mut self, outcome: Outcome, documents: u64) {
        match outcome {
            Outcome::Finished => self.finished += documents,
            Outcome::Failed => self.failed += documents,
            Outcome::Dropped => self.dropped += documents,
        }
    }
}

/// Whether an event said something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Now,
    Before,
}

/// What is known of one attempt at one document.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Index of the attempt in [`Families::attempts`].
    attempt: u32,
    /// How many descendants there are, once the terminal event of the source document has come.
    children: Option<u32>,
    members: Members,
}

/// Outcomes by ordinal, 2 bits each: 0 = not in.
#[derive(Clone, Debug)]
enum Members {
    Few(u64),
    Many {
        words: Vec<u64>,
        /// How many of the expected members are not in, once it is known how many are expected.
        missing: u64,
    },
}

impl Family {
    fn new(attempt: u32) -> Self {
        Self { attempt, children: None, members: Members::Few(0) }
    }

    /// Enters a terminal event. What has come first for an ordinal stands.
    pub(super) fn enter(&mut self, tag: Tag, outcome: Outcome) -> Entered {
        if self.outcome(tag.ordinal).is_some() {
            return Entered::Before;
        }
        let code = match outcome {
            Outcome::Finished => 1,
            Outcome::Failed => 2,
            Outcome::Dropped => 3,
        };
        self.make_room(tag);
        let is_expected = self.children.is_some_and(|children| tag.ordinal <= children);
        match &mut self.members {
            Members::Few(word) => *word |= code << (2 * tag.ordinal),
            Members::Many { words, missing } => {
                words[(tag.ordinal / FEW) as usize] |= code << (2 * (tag.ordinal % FEW));
                *missing -= u64::from(is_expected);
            }
        }
        if tag.ordinal == 0 {
            self.children = Some(tag.children);
            self.count_missing();
        }
        Entered::Now
    }

    /// How a member ended, if that is known.
    pub(super) fn outcome(&self, ordinal: u32) -> Option<Outcome> {
        let (word, place) = match &self.members {
            Members::Few(_) if ordinal >= FEW => return None,
            Members::Few(word) => (*word, ordinal),
            Members::Many { words, .. } => (words.get((ordinal / FEW) as usize).copied().unwrap_or(0), ordinal % FEW),
        };
        match word >> (2 * place) & 3 {
            1 => Some(Outcome::Finished),
            2 => Some(Outcome::Failed),
            3 => Some(Outcome::Dropped),
            _ => None,
        }
    }

    /// What the family counts, if it is complete.
    pub(super) fn tally(&self) -> Option<Tally> {
        let children = self.children?;
        match &self.members {
            Members::Few(word) => {
                let expected = expected_pairs(children + 1);
                ((word | word >> 1) & expected == expected).then(|| tally([*word], children))
            }
            Members::Many { words, missing } => (*missing == 0).then(|| tally(words.iter().copied(), children)),
        }
    }

    fn make_room(&mut self, tag: Tag) {
        let highest = tag.ordinal.max(tag.children);
        match &mut self.members {
            Members::Few(_) if highest < FEW => {}
            Members::Few(word) => {
                let mut words = vec![*word];
                words.resize((highest / FEW) as usize + 1, 0);
                self.members = Members::Many { words, missing: 0 };
                self.count_missing();
            }
            Members::Many { words, .. } => {
                let needed = (highest / FEW) as usize + 1;
                if words.len() < needed {
                    words.resize(needed, 0);
                }
            }
        }
    }

    fn count_missing(&mut self) {
        let (Some(children), Members::Many { words, missing }) = (self.children, &mut self.members) else { return };
        let present = tally(words.iter().copied(), children);
        *missing = u64::from(children) + 1 - (present.finished + present.failed + present.dropped);
    }
}

/// Adds up the outcomes of the source document and of so many descendants.
fn tally(words: impl IntoIterator<Item = u64>, children: u32) -> Tally {
    let mut tally = Tally { created: u64::from(children), ..Tally::default() };
    let mut left = u64::from(children) + 1;
    for word in words {
        let here = left.min(u64::from(FEW));
        left -= here;
        let expected = expected_pairs(here as u32);
        let (lower, upper) = (word & expected, word >> 1 & expected);
        tally.finished += u64::from((lower & !upper).count_ones());
        tally.failed += u64::from((upper & !lower).count_ones());
        tally.dropped += u64::from((lower & upper).count_ones());
    }
    tally
}

/// The lower bits of the first pairs, 32 at most.
fn expected_pairs(pairs: u32) -> u64 {
    if pairs >= FEW { LOWER } else { LOWER & ((1 << (2 * pairs)) - 1) }
}

/// A small family, packed.
#[derive(Clone, Copy, Debug)]
struct Packed {
    attempt: u32,
    children: u32,
    members: u64,
}

impl Packed {
    fn family(self) -> Family {
        let children = (self.children != UNKNOWN).then_some(self.children);
        Family { attempt: self.attempt, children, members: Members::Few(self.members) }
    }
}

/// Entries of 4,096 numbers.
#[derive(Debug)]
struct Page {
    present: [u64; GROUPS],
    /// For each word of `present`: the entries of its bits, in order.
    entries: [Vec<Packed>; GROUPS],
    len: usize,
}

/// All families that are partly in.
#[derive(Debug, Default)]
pub(super) struct Families {
    /// Number of the first page that is held.
    first: u64,
    pages: VecDeque<Option<Box<Page>>>,
    /// What is not small, or not the first attempt at its document; by number and attempt.
    others: BTreeMap<(u64, u32), Family>,
    /// The attempts met so far.
    attempts: Vec<u64>,
    /// Texts of failed members, by number, attempt and ordinal.
    details: BTreeMap<(u64, u32, u32), Detail>,
}

impl Families {
    /// Whether no family is partly in.
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.others.is_empty() && self.details.is_empty()
    }

    /// Takes out what is known of an attempt at a document; nothing, if it is new.
    pub(super) fn take(&mut self, seq: u64, attempt: u64) -> Family {
        let attempt = self.attempt_index(attempt);
        if let Some(packed) = self.packed(seq)
            && packed.attempt == attempt
        {
            self.remove_packed(seq);
            return packed.family();
        }
        let other = if self.others.is_empty() { None } else { self.others.remove(&(seq, attempt)) };
        other.unwrap_or_else(|| Family::new(attempt))
    }

    /// Keeps what is known of an attempt at a document.
    pub(super) fn put(&mut self, seq: u64, family: Family) {
        match family.members {
            Members::Few(members) if self.packed(seq).is_none() => {
                let children = family.children.unwrap_or(UNKNOWN);
                self.insert_packed(seq, Packed { attempt: family.attempt, children, members });
            }
            _ => {
                self.others.insert((seq, family.attempt), family);
            }
        }
    }

    /// Gives up all that is known of a document.
    pub(super) fn forget(&mut self, seq: u64) {
        if self.is_empty() {
            return;
        }
        self.remove_packed(seq);
        while let Some((key, _)) = self.others.range((seq, 0)..=(seq, u32::MAX)).next() {
            let key = *key;
            self.others.remove(&key);
        }
        while let Some((key, _)) = self.details.range((seq, 0, 0)..=(seq, u32::MAX, u32::MAX)).next() {
            let key = *key;
            self.details.remove(&key);
        }
    }

    /// Keeps the text of a failed member until its family is complete.
    pub(super) fn keep_detail(&mut self, tag: Tag, attempt: u64, detail: Detail) {
        if self.details.len() < DETAILS {
            let attempt = self.attempt_index(attempt);
            self.details.insert((tag.seq, attempt, tag.ordinal), detail);
        }
    }

    /// The text of a failed member.
    pub(super) fn take_detail(&mut self, seq: u64, attempt: u64, ordinal: u32) -> Detail {
        let attempt = self.attempt_index(attempt);
        self.details.remove(&(seq, attempt, ordinal)).unwrap_or_else(|| Detail { seq, ..Detail::default() })
    }

    /// Attempts are few (takeovers of partitions) and the latest is the likeliest.
    fn attempt_index(&mut self, attempt: u64) -> u32 {
        let index = self.attempts.iter().rposition(|known| *known == attempt).unwrap_or_else(|| {
            self.attempts.push(attempt);
            self.attempts.len() - 1
        });
        index as u32
    }

    fn packed(&self, seq: u64) -> Option<Packed> {
        let place = Place::of(seq);
        let page = self.pages.get(place.page.checked_sub(self.first)? as usize)?.as_ref()?;
        page.find(&place).map(|at| page.entries[place.group][at])
    }

    fn insert_packed(&mut self, seq: u64, packed: Packed) {
        let place = Place::of(seq);
        if self.pages.is_empty() {
            self.first = place.page;
        }
        while place.page < self.first {
            self.pages.push_front(None);
            self.first -= 1;
        }
        let index = (place.page - self.first) as usize;
        if index >= self.pages.len() {
            self.pages.resize_with(index + 1, || None);
        }
        self.pages[index].get_or_insert_with(Page::empty).insert(&place, packed);
    }

    fn remove_packed(&mut self, seq: u64) {
        let place = Place::of(seq);
        let Some(index) = place.page.checked_sub(self.first) else { return };
        let Some(slot) = self.pages.get_mut(index as usize) else { return };
        let Some(page) = slot else { return };
        page.remove(&place);
        if page.len > 0 {
            return;
        }
        *slot = None;
        while matches!(self.pages.front(), Some(None)) {
            self.pages.pop_front();
            self.first += 1;
        }
        while matches!(self.pages.back(), Some(None)) {
            self.pages.pop_back();
        }
    }
}

/// A family in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WrittenFamily {
    seq: u64,
    /// Index of the attempt.
    attempt: u32,
    children: Option<u32>,
    /// Outcomes by ordinal, 2 bits each.
    members: Vec<u64>,
}

/// Number, index of the attempt, ordinal; and the text.
type Details = Vec<((u64, u32, u32), Detail)>;

impl Families {
    /// The attempts, the families by number, and the texts.
    pub(super) fn written(&self) -> (Vec<u64>, Vec<WrittenFamily>, Details) {
        let packed = self.pages.iter().enumerate().flat_map(|(at, page)| {
            let number = self.first + at as u64;
            page.iter().flat_map(move |page| page.entries()).map(move |(place, packed)| (number * PAGE + place, packed.family()))
        });
        let others = self.others.iter().map(|((seq, _), family)| (*seq, family.clone()));
        let written = |(seq, family): (u64, Family)| WrittenFamily {
            seq,
            attempt: family.attempt,
            children: family.children,
            members: match family.members {
                Members::Few(word) => vec![word],
                Members::Many { words, .. } => words,
            },
        };
        let details = self.details.iter().map(|(at, detail)| (*at, detail.clone())).collect();
        (self.attempts.clone(), packed.chain(others).map(written).collect(), details)
    }

    /// Families of numbers up to the last one. `None`: damaged.
    pub(super) fn read(last: u64, attempts: Vec<u64>, written: Vec<WrittenFamily>, details: Details) -> Option<Self> {
        let known = attempts.len();
        let mut families = Self { attempts, details: details.into_iter().collect(), ..Self::default() };
        for WrittenFamily { seq, attempt, children, members } in written {
            if attempt as usize >= known || seq == 0 || seq > last {
                return None;
            }
            let members = match members[..] {
                [] => return None,
                [word] if children.is_none_or(|children| children < FEW) => Members::Few(word),
                [_] => return None,
                _ => Members::Many { words: members, missing: 0 },
            };
            let mut family = Family { attempt, children, members };
            family.count_missing();
            families.put(seq, family);
        }
        Some(families)
    }
}

/// Where the entry of a number is.
struct Place {
    page: u64,
    group: usize,
    mask: u64,
}

impl Place {
    fn of(seq: u64) -> Self {
        Self { page: seq / PAGE, group: (seq % PAGE / 64) as usize, mask: 1 << (seq % 64) }
    }
}

impl Page {
    fn empty() -> Box<Self> {
        Box::new(Self { present: [0; GROUPS], entries: [const { Vec::new() }; GROUPS], len: 0 })
    }

    /// The entries with their places in the page, in order.
    fn entries(&self) -> impl Iterator<Item = (u64, Packed)> + '_ {
        self.entries.iter().enumerate().flat_map(move |(group, entries)| {
            let bits = (0..64).filter(move |bit| self.present[group] >> bit & 1 == 1);
            bits.zip(entries).map(move |(bit, packed)| (group as u64 * 64 + bit, *packed))
        })
    }

    fn rank(&self, place: &Place) -> usize {
        (self.present[place.group] & (place.mask - 1)).count_ones() as usize
    }

    fn find(&self, place: &Place) -> Option<usize> {
        (self.present[place.group] & place.mask != 0).then(|| self.rank(place))
    }

    fn insert(&mut self, place: &Place, packed: Packed) {
        let rank = self.rank(place);
        self.entries[place.group].insert(rank, packed);
        self.present[place.group] |= place.mask;
        self.len += 1;
    }

    fn remove(&mut self, place: &Place) {
        let Some(at) = self.find(place) else { return };
        let entries = &mut self.entries[place.group];
        entries.remove(at);
        if entries.is_empty() {
            *entries = Vec::new();
        }
        self.present[place.group] &= !place.mask;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(ordinal: u32) -> Tag {
        Tag { seq: 1, ordinal, children: 0 }
    }

    fn parent(children: u32) -> Tag {
        Tag { seq: 1, ordinal: 0, children }
    }

    #[test]
    fn a_packed_family_takes_16_bytes() {
        assert_eq!(size_of::<Packed>(), 16);
    }

    #[test]
    fn families_of_any_size_are_complete_with_their_last_member() {
        for children in [0, 1, 30, 31, 32, 33, 63, 64, 1000] {
            for parent_at in [0, children / 2, children] {
                let mut family = Family::new(0);
                for step in 0..=children {
                    assert_eq!(family.tally(), None, "{children} children, step {step}");
                    let tag = match step.cmp(&parent_at) {
                        std::cmp::Ordering::Less => child(step + 1),
                        std::cmp::Ordering::Equal => parent(children),
                        std::cmp::Ordering::Greater => child(step),
                    };
                    assert_eq!(family.enter(tag, Outcome::Finished), Entered::Now);
                    assert_eq!(family.enter(tag, Outcome::Failed), Entered::Before);
                }
                let all = Tally { created: children.into(), finished: u64::from(children) + 1, failed: 0, dropped: 0 };
                assert_eq!(family.tally(), Some(all));
            }
        }
    }

    #[test]
    fn a_hundred_thousand_small_families_give_back_their_memory() {
        let mut families = Families::default();
        for seq in (1..=100_000).rev() {
            let mut family = families.take(seq, 7);
            family.enter(child(1), Outcome::Failed);
            families.put(seq, family);
        }
        assert!(families.others.is_empty());
        let used: usize = families.pages.iter().flatten().map(|page| page.entries.iter().map(Vec::len).sum::<usize>()).sum();
        assert_eq!(used, 100_000);
        for seq in 1..=100_000 {
            assert_eq!(families.take(seq, 7).outcome(1), Some(Outcome::Failed));
        }
        assert!(families.is_empty());
    }

    #[test]
    fn a_second_attempt_stays_apart_and_goes_with_the_first() {
        let mut families = Families::default();
        for attempt in [1, 2] {
            let mut family = families.take(5, attempt);
            family.enter(child(attempt as u32), Outcome::Finished);
            families.put(5, family);
        }
        let first = families.take(5, 1);
        assert_eq!((first.outcome(1), first.outcome(2)), (Some(Outcome::Finished), None));
        families.put(5, first);
        families.forget(5);
        assert!(families.is_empty());
        assert_eq!(families.take(5, 2).outcome(2), None);
    }
}
