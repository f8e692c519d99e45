//! The rules of the ledger written down as plainly as possible, to compare with.

use super::ValidRange;
use crate::event::{EventBatch, Outcome, Tag};
use penstock_crds::ingest_run::Counts;
use std::collections::{BTreeMap, HashMap, HashSet};

/// By ordinal: the outcome, and with ordinal 0 the number of descendants.
type Attempt = BTreeMap<u32, (Outcome, u32)>;

pub(super) struct Reference {
    pub valid: Vec<ValidRange>,
    pub closed: HashMap<u64, Attempt>,
    pub open: HashMap<(u64, u64), Attempt>,
    pub changed_nothing: u64,
    pub void: u64,
    /// Numbers of failed documents, as often as they are counted.
    pub failed: Vec<u64>,
    pub seen: HashSet<(u64, u64, u32)>,
}

impl Reference {
    /// The last of the ranges is the running epoch's.
    pub fn new(valid: Vec<ValidRange>) -> Self {
        Self { valid, closed: HashMap::new(), open: HashMap::new(), changed_nothing: 0, void: 0, failed: Vec::new(), seen: HashSet::new() }
    }

    pub fn published(&self) -> u64 {
        self.valid.last().map_or(0, |range| range.last)
    }

    pub fn apply(&mut self, events: &EventBatch) {
        for tag in events.tags() {
            self.enter(events.epoch, events.attempt, events.outcome, tag);
        }
    }

    fn enter(&mut self, epoch: u64, attempt: u64, outcome: Outcome, tag: Tag) {
        if !self.valid.iter().any(|range| range.epoch == epoch && range.contains(tag.seq)) {
            self.void += 1;
            return;
        }
        if self.closed.contains_key(&tag.seq) || !self.seen.insert((tag.seq, attempt, tag.ordinal)) {
            self.changed_nothing += 1;
            return;
        }
        let members = self.open.entry((tag.seq, attempt)).or_default();
        members.insert(tag.ordinal, (outcome, tag.children));
        let Some((_, children)) = members.get(&0).copied() else { return };
        if (1..=children).any(|ordinal| !members.contains_key(&ordinal)) {
            return;
        }
        members.retain(|ordinal, _| *ordinal <= children);
        self.failed.extend(members.values().filter(|(outcome, _)| *outcome == Outcome::Failed).map(|_| tag.seq));
        self.closed.insert(tag.seq, members.clone());
        self.open.retain(|(seq, _), _| *seq != tag.seq);
    }

    pub fn counts(&self) -> Counts {
        let with = |outcome| self.closed.values().flat_map(BTreeMap::values).filter(|(ended, _)| *ended == outcome).count() as u64;
        Counts {
            published: self.published(),
            created: self.closed.values().map(|members| members.len() as u64 - 1).sum(),
            finished: with(Outcome::Finished),
            failed: with(Outcome::Failed),
            dropped: with(Outcome::Dropped),
            pending: self.published() - self.closed.len() as u64,
        }
    }

    pub fn pending(&self) -> Vec<u64> {
        (1..=self.published()).filter(|seq| !self.closed.contains_key(seq)).collect()
    }
}
