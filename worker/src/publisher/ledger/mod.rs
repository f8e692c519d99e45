//! The ledger: which documents of a step are accounted for, and how. Pure bookkeeping, no clock, no thread.
//!
//! An *attempt* is one passage of a source document through the pipeline. It is complete when its terminal event (ordinal 0,
//! `children: N`) and those of ordinals 1 to N of the same attempt are in. A document is closed by its first complete attempt
//! and counts, at once, with exactly the outcomes of that attempt; until then it is 1 pending. Attempts never mix, and events
//! of a closed document change nothing. So at every moment
//! `published + created = finished + failed + dropped + pending`.
//!
//! Memory follows what is outstanding: one bit a document ([`closed`]), and 16 bytes and a bit for a family that is partly in
//! ([`families`]).

mod closed;
mod families;
#[cfg(test)]
mod reference;
mod snapshot;
#[cfg(test)]
mod tests;

pub use snapshot::{LedgerSnapshot, SnapshotError};

use crate::event::{Detail, EventBatch, Outcome, Tag};
use closed::{Closed, Closing};
use families::{Entered, Families, Family, Tally};
use penstock_crds::ingest_run::Counts;

/// What [`Ledger::apply`] did with events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Source documents that were closed.
    pub closed: u64,
    /// Events that came too late or again: their document was closed, or they were in already.
    pub superseded: u64,
    /// Among events of closed source documents those with another outcome than the one that counts; as far as it is still
    /// remembered, which is until 4,096 neighbours are closed. They are not in `superseded`.
    pub contradicted: u64,
    /// Events of numbers that no valid epoch has given out.
    pub void: u64,
}

impl Applied {
    /// Adds what was done with other events.
    pub fn add(&mut self, other: Applied) {
        self.closed += other.closed;
        self.superseded += other.superseded;
        self.contradicted += other.contradicted;
        self.void += other.void;
    }
}

/// Numbers that count, all given out by one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidRange {
    /// The epoch.
    pub epoch: u64,
    /// The first number.
    pub first: u64,
    /// The last number; less than `first` if there is none.
    pub last: u64,
}

impl ValidRange {
    /// Whether the number is one of them.
    pub fn contains(&self, seq: u64) -> bool {
        self.first <= seq && seq <= self.last
    }
}

/// The accounting of one step.
#[derive(Debug)]
pub struct Ledger {
    /// What earlier epochs have given out, one behind the other from 1.
    earlier: Vec<ValidRange>,
    /// What the running epoch has given out so far.
    running: ValidRange,
    closed: Closed,
    families: Families,
    tally: Tally,
}

impl Ledger {
    /// The ledger of a step that starts from the beginning.
    pub fn new(epoch: u64) -> Self {
        Self::resumed(epoch, Vec::new())
    }

    /// The ledger of a step that goes on: `earlier` are the ranges that count, dense from 1, in order. Their events may come
    /// (again) at any time.
    pub fn resumed(epoch: u64, earlier: Vec<ValidRange>) -> Self {
        let last = earlier.last().map_or(0, |range| range.last);
        let running = ValidRange { epoch, first: last + 1, last };
        Self { earlier, running, closed: Closed::default(), families: Families::default(), tally: Tally::default() }
    }

    /// Says that every number up to this one has been given out. To be called before the first event of such a number is
    /// applied: until then the number is not valid.
    pub fn published_to(&mut self, seq: u64) {
        self.running.last = self.running.last.max(seq);
    }

    /// Enters events. `on_failed` is called once for each failed document that is counted, when it is counted.
    pub fn apply(&mut self, events: &EventBatch, on_failed: &mut dyn FnMut(&Detail)) -> Applied {
        let Some(valid) = self.valid_range(events.epoch) else {
            return Applied { void: events.len() as u64, ..Applied::default() };
        };
        if events.is_plain() { self.apply_plain(events, valid, on_failed) } else { self.apply_families(events, valid, on_failed) }
    }

    /// How many documents are in which state.
    pub fn counts(&self) -> Counts {
        Counts {
            published: self.running.last,
            created: self.tally.created,
            finished: self.tally.finished,
            failed: self.tally.failed,
            dropped: self.tally.dropped,
            pending: self.running.last - self.closed.len(),
        }
    }

    /// Whether nothing is pending.
    pub fn is_settled(&self) -> bool {
        self.running.last == self.closed.len()
    }

    /// The lowest number that is pending.
    pub fn lowest_pending(&self) -> Option<u64> {
        self.closed.missing(self.running.last).next()
    }

    /// Numbers that are pending, the lowest first, so many at most.
    pub fn pending(&self, limit: usize) -> Vec<u64> {
        self.closed.missing(self.running.last).take(limit).collect()
    }

    fn valid_range(&self, epoch: u64) -> Option<ValidRange> {
        if epoch == self.running.epoch {
            return Some(self.running);
        }
        self.earlier.iter().find(|range| range.epoch == epoch).copied()
    }

    /// Documents without descendants: each event is a complete attempt and closes its document.
    fn apply_plain(&mut self, events: &EventBatch, valid: ValidRange, on_failed: &mut dyn FnMut(&Detail)) -> Applied {
        let mut applied = Applied::default();
        let only_closes = self.families.is_empty() && events.outcome != Outcome::Failed;
        for (at, seq) in events.seqs().iter().enumerate() {
            if !valid.contains(*seq) {
                applied.void += 1;
                continue;
            }
            match self.closed.close(*seq, events.outcome) {
                Closing::Now if only_closes => applied.closed += 1,
                Closing::Now => {
                    applied.closed += 1;
                    self.families.forget(*seq);
                    if events.outcome == Outcome::Failed {
                        on_failed(&detail_of(events, at, *seq));
                    }
                }
                Closing::Before(outcome) => applied.late(events.outcome, outcome),
            }
        }
        self.tally.add_outcome(events.outcome, applied.closed);
        applied
    }

    /// Members of families, among documents without descendants. The members of a family mostly stand side by side, so the
    /// family at hand goes into the map only if it is still not complete when another document's event comes.
    fn apply_families(&mut self, events: &EventBatch, valid: ValidRange, on_failed: &mut dyn FnMut(&Detail)) -> Applied {
        let mut applied = Applied::default();
        let mut at_hand: Option<(u64, Family)> = None;
        for (at, tag) in events.tags().enumerate() {
            if !valid.contains(tag.seq) {
                applied.void += 1;
                continue;
            }
            if let Some(before) = self.closed.outcome(tag.seq) {
                applied.late(events.outcome, before.filter(|_| tag.ordinal == 0));
                continue;
            }
            let mut family = match at_hand.take() {
                Some((seq, family)) if seq == tag.seq => family,
                other => {
                    if let Some((seq, family)) = other {
                        self.families.put(seq, family);
                    }
                    self.families.take(tag.seq, events.attempt)
                }
            };
            match family.enter(tag, events.outcome) {
                Entered::Before => applied.superseded += 1,
                Entered::Now if events.outcome == Outcome::Failed => {
                    self.families.keep_detail(tag, events.attempt, detail_of(events, at, tag.seq));
                }
                Entered::Now => {}
            }
            match family.tally() {
                Some(tally) => {
                    self.close_family(tag, events.attempt, &family, tally, on_failed);
                    applied.closed += 1;
                }
                None => at_hand = Some((tag.seq, family)),
            }
        }
        if let Some((seq, family)) = at_hand {
            self.families.put(seq, family);
        }
        applied
    }

    fn close_family(&mut self, tag: Tag, attempt: u64, family: &Family, tally: Tally, on_failed: &mut dyn FnMut(&Detail)) {
        self.closed.close(tag.seq, family.outcome(0).unwrap_or(Outcome::Finished));
        self.tally.add(tally);
        if tally.failed > 0 {
            let created = u32::try_from(tally.created).unwrap_or(u32::MAX);
            for ordinal in (0..=created).filter(|ordinal| family.outcome(*ordinal) == Some(Outcome::Failed)) {
                on_failed(&self.families.take_detail(tag.seq, attempt, ordinal));
            }
        }
        self.families.forget(tag.seq);
    }
}

impl Applied {
    /// An event of a document that was closed with that outcome, where it is known.
    fn late(&mut self, outcome: Outcome, before: Option<Outcome>) {
        if before.is_some_and(|before| before != outcome) {
            self.contradicted += 1;
        } else {
            self.superseded += 1;
        }
    }
}

/// The detail of the event at that place of a batch of failed documents; without a text where it has none.
fn detail_of(events: &EventBatch, at: usize, seq: u64) -> Detail {
    if events.details.len() != events.len() {
        return Detail { seq, ..Detail::default() };
    }
    events.details[at].clone()
}
