//! Which records of a process's partitions may start, and which offsets may be committed, with what. Pure: no client, no clock,
//! no IO; the thread that owns the consumer drives it.
//!
//! * A *takeover* begins with a commit that raises the partition's tenure. No record starts before it is answered.
//! * Records of superseded publishers and workers are skipped ([`filter`]).
//! * An offset is committed when all records before it are done ([`offsets`]).
//! * A record that kills the process is found and set aside ([`probation`]). For this every commit carries a limit, beyond which
//!   nothing is started: what a dead process may have been at lies between the committed offset and that limit. So a partition
//!   has at most [`IntakeSettings::window`] records in flight.

mod commits;
mod filter;
mod offsets;
mod part;
#[cfg(test)]
mod poison_tests;
mod probation;
mod rule;
#[cfg(test)]
mod tests;

use super::metadata::{Metadata, MetadataError};
pub use filter::Generation;
pub(crate) use offsets::Offsets;
use part::Part;
use probation::{Probation, Verdict};
#[cfg(test)]
pub(crate) use rule::Rule;
#[cfg(not(test))]
use rule::Rule;
use rule::Rules;
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

const SECONDS_OF_HOUR: u64 = 3_600;

/// How an [`Intake`] works.
#[derive(Clone, Copy, Debug)]
pub struct IntakeSettings {
    /// How many records of a partition may be in flight. After a crash as many are tried one by one: 2,000 take some 8 s.
    pub window: u64,
    /// How often a process may die at a record until the record is given up.
    pub max_attempts: u32,
    /// Time between commits of a partition that is busy.
    pub commit_interval: Duration,
}

impl Default for IntakeSettings {
    fn default() -> Self {
        Self { window: 2_000, max_attempts: 3, commit_interval: Duration::from_millis(200) }
    }
}

/// What a takeover has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// Where to read from.
    pub offset: u64,
    /// The new tenure.
    pub tenure: u64,
    /// Records that may have killed the reader before.
    pub suspects: usize,
    /// The reader before has left nothing readable: what it filtered and marked is not known.
    pub unreadable: Option<MetadataError>,
}

/// Whether a record may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It starts: say [`Intake::settled`] with this tenure when all that it leads to is acknowledged.
    Start {
        /// The tenure, which is the attempt of the record's passage.
        tenure: u64,
    },
    /// A superseded process has sent it: skip it, it is done. So is a record that was offered before.
    Stale,
    /// Not now: keep it and offer it again, before any later one of its partition.
    Hold,
    /// The process died at it too often. Keep it, and do nothing until [`Intake::condemned`] names it.
    SetAside,
    /// Its partition is not ours: drop it.
    NotOurs,
}

/// A record to blame for the death of processes: write it to the dead letter, report it as failed, without children, then say
/// [`Intake::settled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condemned {
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// How often a process died while it ran alone.
    pub attempts: u32,
}

/// A commit to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The partition.
    pub partition: u32,
    /// The first offset that is not done.
    pub offset: u64,
    /// What goes with it.
    pub metadata: String,
    /// Names the commit in [`Intake::commit_answered`].
    pub number: u64,
}

/// All partitions that one consumer owns.
#[derive(Debug)]
pub struct Intake {
    settings: IntakeSettings,
    started: Instant,
    started_unix: u64,
    /// As of the last call that says it; good enough for hours.
    now: Instant,
    hour: u64,
    parts: BTreeMap<u32, Part>,
    /// Commits made so far; the number of the latest.
    commits: u64,
    probation: Probation,
    rules: Rules,
}

impl Intake {
    /// No partitions yet. `unix` is the time in seconds at `now`.
    pub fn new(settings: IntakeSettings, now: Instant, unix: u64) -> Self {
        Self {
            settings: IntakeSettings { window: settings.window.max(1), ..settings },
            started: now,
            started_unix: unix,
            now,
            hour: unix / SECONDS_OF_HOUR,
            parts: BTreeMap::new(),
            commits: 0,
            probation: Probation::new(settings.max_attempts, now),
            rules: Rules::default(),
        }
    }

    /// Begins a tenure of an assigned partition, whose log holds the given offsets now. `committed` is what the group has
    /// committed last. The next [`Intake::commit_due`] has the commit that must be answered before records start.
    pub fn take_over(&mut self, partition: u32, committed: Option<(u64, &str)>, log: Range<u64>, now: Instant) -> TakeOver {
        self.lost(partition);
        self.tick(now);
        let offset = committed.map_or(log.start, |(offset, _)| offset);
        let (mut left, unreadable) = match committed.map(|(offset, text)| Metadata::decode(offset, text)) {
            Some(Ok(left)) => (left, None),
            Some(Err(error)) => (Metadata::default(), Some(error)),
            None => (Metadata::default(), None),
        };
        let may_have_run = if left.clean { offset..offset } else { offset..left.limit.min(log.end) };
        let suspects: VecDeque<u64> = may_have_run.filter(|offset| left.done.binary_search(offset).is_err()).collect();
        let count = suspects.len();
        left.tenure = self.tenure_after(left.tenure, now);
        if !self.rules.follows(Rule::FilterTravels) {
            left.seen.clear();
        }
        let tenure = left.tenure;
        self.parts.insert(partition, Part::new(offset, left, count > 0, now));
        self.probation.suspect(partition, suspects);
        TakeOver { offset, tenure, suspects: count, unreadable }
    }

    /// Whether the record at an offset may start. Each partition's records come in order; `generation` is by what the record
    /// is filtered, `None` for one from outside.
    pub fn offer(&mut self, partition: u32, offset: u64, generation: Option<Generation>) -> Admission {
        let rules = self.rules;
        let Some(part) = self.parts.get_mut(&partition) else { return Admission::NotOurs };
        if offset < part.offsets.next() {
            return Admission::Stale;
        }
        if !part.is_open && rules.follows(Rule::TakeoverFirst) || part.is_revoking {
            return Admission::Hold;
        }
        part.offsets.jump(offset);
        let is_watched = !self.probation.is_idle();
        if is_watched {
            self.probation.reached(partition, offset);
            part.has_suspects = self.probation.has_suspects(partition);
        }
        if offset >= part.limit && rules.follows(Rule::Window) {
            return Admission::Hold;
        }
        if let Some(generation) = generation
            && !part.filter.passes(offset, generation, self.hour)
            && rules.follows(Rule::Filter)
        {
            part.offsets.begin(offset);
            part.offsets.settle(offset);
            part.clear(offset);
            if is_watched {
                self.probation.reached(partition, offset + 1);
                part.has_suspects = self.probation.has_suspects(partition);
            }
            return Admission::Stale;
        }
        if is_watched {
            return self.judge(partition, offset);
        }
        part.offsets.begin(offset);
        Admission::Start { tenure: part.tenure }
    }

    fn judge(&mut self, partition: u32, offset: u64) -> Admission {
        let Some(part) = self.parts.get_mut(&partition) else { return Admission::NotOurs };
        match self.probation.judge((partition, offset), part.attempts(offset)) {
            Verdict::Start => {
                part.offsets.begin(offset);
                Admission::Start { tenure: part.tenure }
            }
            Verdict::SetAside => {
                part.offsets.begin(offset);
                part.has_suspects = self.probation.has_suspects(partition);
                Admission::SetAside
            }
            Verdict::Hold => {
                if self.probation.is_ill() {
                    self.parts.values_mut().for_each(Part::clear_all);
                }
                Admission::Hold
            }
        }
    }

    /// All that a record led to is acknowledged. Of a partition that was lost or rewound since, this is ignored.
    pub fn settled(&mut self, partition: u32, tenure: u64, offset: u64) {
        let is_contiguous = self.rules.follows(Rule::Contiguous);
        let Some(part) = self.parts.get_mut(&partition).filter(|part| part.tenure == tenure) else { return };
        if !is_contiguous {
            for before in part.offsets.position()..offset {
                part.offsets.settle(before);
            }
        }
        if !part.offsets.settle(offset) {
            return;
        }
        part.clear(offset);
        if !self.probation.is_idle() {
            self.probation.settled((partition, offset));
            part.has_suspects = self.probation.has_suspects(partition);
        }
    }

    /// Records that were set aside and are now to blame.
    pub fn condemned(&mut self, now: Instant) -> Vec<Condemned> {
        self.tick(now);
        self.probation.condemned()
    }

    /// Whether the process is ill: records are set aside one after the other and none passes. It should end; the records are
    /// not blamed. True once that is committed.
    pub fn is_ill(&self) -> bool {
        self.probation.is_ill() && self.parts.values().all(Part::marks_are_committed)
    }

    /// Whether there are suspects, which run one at a time.
    pub fn is_probing(&self) -> bool {
        !self.probation.is_idle()
    }

    /// Whether one of them runs now, or is about to: nothing else does, so nothing would come to go with what it leads to.
    pub fn runs_alone(&self) -> bool {
        self.probation.has_turn()
    }

    /// A record is about to end the process, as its stage does not return: counts as an attempt, with the next commit.
    pub fn blame(&mut self, partition: u32, tenure: u64, offset: u64) {
        let Some(part) = self.parts.get_mut(&partition).filter(|part| part.tenure == tenure) else { return };
        if !self.probation.is_running((partition, offset)) && offset >= part.offsets.position() {
            part.mark(offset);
        }
    }

    /// The first record of a partition that is not done.
    pub fn position(&self, partition: u32) -> Option<u64> {
        self.parts.get(&partition).map(|part| part.offsets.position())
    }

    /// Whether what a record of that tenure leads to is still wanted.
    pub fn owns(&self, partition: u32, tenure: u64) -> bool {
        self.parts.get(&partition).is_some_and(|part| part.tenure == tenure)
    }

    /// A tenure is at least the time, should the metadata be lost.
    fn tenure_after(&self, before: u64, now: Instant) -> u64 {
        if !self.rules.follows(Rule::TenureGrows) {
            return before.max(1);
        }
        before.saturating_add(1).max(self.started_unix + now.saturating_duration_since(self.started).as_secs())
    }

    fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.probation.tick(self.now);
        let hour = (self.started_unix + (self.now - self.started).as_secs()) / SECONDS_OF_HOUR;
        if hour != self.hour {
            self.hour = hour;
            self.parts.values_mut().for_each(|part| part.filter.forget_old(hour));
        }
    }

    /// For tests: breaks a rule.
    #[cfg(test)]
    pub(crate) fn without(mut self, off: Option<Rule>) -> Self {
        self.rules.off = off;
        self.probation.rules.off = off;
        self
    }
}
