//! Finds the record that kills the process, without blaming another. After a crash every record that may have been running is a
//! suspect. Suspects run alone, each with a committed mark that counts its attempts; a record with too many of them is set
//! aside, and is given up only when another one has passed: if none does, the process is ill, not the documents. Pure.

use super::{
    Condemned,
    rule::{Rule, Rules},
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// For how long other records wait for the next suspect to be read.
const SUSPECTS_FIRST: Duration = Duration::from_secs(1);
/// How long the process must live for a record that was set aside to be blamed.
const ALIVE: Duration = Duration::from_secs(30);
/// So many records set aside one after the other speak against the process.
const ILL: usize = 3;

/// Partition and offset of a record.
pub(super) type Place = (u32, u64);

/// Whether a record may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Start,
    Hold,
    SetAside,
}

/// Whose turn it is to run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Free,
    /// Waits until nothing else runs, and for its mark.
    Waiting(Place),
    Marked(Place),
    Running(Place),
}

#[derive(Debug)]
struct Aside {
    place: Place,
    attempts: u32,
    since: Instant,
    /// Another record has passed since.
    cleared: bool,
    /// Handed out to be written to the dead letter.
    given_up: bool,
}

/// All suspects of a process.
#[derive(Debug)]
pub(super) struct Probation {
    max_attempts: u32,
    /// Not yet passed, by partition, in order; no empty ones.
    suspects: BTreeMap<u32, VecDeque<u64>>,
    /// Whose suspects go first, as long as they come.
    first: u32,
    turn: Turn,
    aside: Vec<Aside>,
    is_ill: bool,
    now: Instant,
    suspects_first_until: Instant,
    pub(super) rules: Rules,
}

impl Probation {
    pub(super) fn new(max_attempts: u32, now: Instant) -> Self {
        Self {
            max_attempts,
            suspects: BTreeMap::new(),
            first: 0,
            turn: Turn::Free,
            aside: Vec::new(),
            is_ill: false,
            now,
            suspects_first_until: now,
            rules: Rules::default(),
        }
    }

    /// Whether there is nothing to look after.
    pub(super) fn is_idle(&self) -> bool {
        self.suspects.is_empty() && self.aside.is_empty() && self.turn == Turn::Free && !self.is_ill
    }

    /// Whether it is the turn of one to run alone.
    pub(super) fn has_turn(&self) -> bool {
        self.turn != Turn::Free
    }

    pub(super) fn is_ill(&self) -> bool {
        self.is_ill
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(super) fn suspect(&mut self, partition: u32, offsets: VecDeque<u64>) {
        if !offsets.is_empty() {
            self.suspects.insert(partition, offsets);
            if self.turn == Turn::Free {
                self.first = self.suspects.keys().next().copied().unwrap_or(partition);
            }
            self.expect_suspects();
        }
    }

    pub(super) fn has_suspects(&self, partition: u32) -> bool {
        self.suspects.contains_key(&partition)
    }

    /// Whether suspects have precedence now.
    pub(super) fn is_probing(&self) -> bool {
        !self.is_ill && !self.suspects.is_empty() && (self.turn != Turn::Free || self.now < self.suspects_first_until)
    }

    /// A partition is read at an offset: suspects before it do not exist.
    pub(super) fn reached(&mut self, partition: u32, offset: u64) {
        let Some(offsets) = self.suspects.get_mut(&partition) else { return };
        while offsets.front().is_some_and(|suspect| *suspect < offset) {
            offsets.pop_front();
        }
        if offsets.is_empty() {
            self.suspects.remove(&partition);
        }
    }

    /// Whether a record may start, that has so many attempts behind it.
    pub(super) fn judge(&mut self, place: Place, attempts: u32) -> Verdict {
        if self.is_ill {
            return Verdict::Hold;
        }
        match self.turn {
            Turn::Marked(marked) if marked == place => {
                self.turn = Turn::Running(place);
                return Verdict::Start;
            }
            Turn::Free => {}
            Turn::Running(_) if !self.rules.follows(Rule::Alone) => {}
            _ => return Verdict::Hold,
        }
        let Some(offsets) = self.suspects.get(&place.0) else {
            return if self.is_probing() { Verdict::Hold } else { Verdict::Start };
        };
        if offsets.front() != Some(&place.1) {
            return Verdict::Start;
        }
        if self.must_wait(place.0) {
            return Verdict::Hold;
        }
        if attempts < self.max_attempts && !self.rules.follows(Rule::MarkFirst) {
            self.turn = Turn::Running(place);
            return Verdict::Start;
        }
        if attempts < self.max_attempts {
            self.turn = Turn::Waiting(place);
            return Verdict::Hold;
        }
        self.set_aside(place, attempts)
    }

    /// Partition after partition: so a process that dies again and again does so at few records, and shows soon that it is ill.
    fn must_wait(&mut self, partition: u32) -> bool {
        if !self.suspects.contains_key(&self.first)
            && let Some(first) = self.suspects.keys().next()
        {
            self.first = *first;
        }
        if self.first != partition && self.is_probing() && self.rules.follows(Rule::Alone) {
            return true;
        }
        self.first = partition;
        false
    }

    fn set_aside(&mut self, place: Place, attempts: u32) -> Verdict {
        let waits = self.rules.follows(Rule::SetAside);
        if waits && self.aside.iter().filter(|aside| !aside.cleared && !aside.given_up).count() + 1 >= ILL {
            self.is_ill = true;
            return Verdict::Hold;
        }
        self.aside.push(Aside { place, attempts, since: self.now, cleared: !waits, given_up: false });
        self.reached(place.0, place.1 + 1);
        self.expect_suspects();
        Verdict::SetAside
    }

    /// The suspect that waits for its mark.
    pub(super) fn waiting(&self) -> Option<Place> {
        if let Turn::Waiting(place) = self.turn { Some(place) } else { None }
    }

    pub(super) fn marked(&mut self, place: Place) {
        if self.turn == Turn::Waiting(place) {
            self.turn = Turn::Marked(place);
        }
    }

    /// A record is done with.
    pub(super) fn settled(&mut self, place: Place) {
        if self.turn == Turn::Running(place) {
            self.turn = Turn::Free;
        }
        if self.suspects.get(&place.0).is_some_and(|offsets| offsets.front() == Some(&place.1)) {
            self.reached(place.0, place.1 + 1);
            self.expect_suspects();
        }
        if let Some(at) = self.aside.iter().position(|aside| aside.place == place) {
            self.aside.swap_remove(at);
        } else {
            self.aside.iter_mut().for_each(|aside| aside.cleared = true);
        }
    }

    /// Records set aside that are to blame: another one has passed since, or the process has lived long enough.
    pub(super) fn condemned(&mut self) -> Vec<Condemned> {
        let now = self.now;
        let ready = self.aside.iter_mut().filter(|aside| !aside.given_up && (aside.cleared || now >= aside.since + ALIVE));
        ready
            .map(|aside| {
                aside.given_up = true;
                Condemned { partition: aside.place.0, offset: aside.place.1, attempts: aside.attempts }
            })
            .collect()
    }

    /// Records that are in flight but do not run.
    pub(super) fn resting(&self) -> usize {
        self.aside.iter().filter(|aside| !aside.given_up).count()
    }

    /// A partition is read again: what was set aside is a suspect again.
    pub(super) fn rewind(&mut self, partition: u32) {
        self.step_down(partition);
        let mut again: Vec<u64> = self.aside.extract_if(.., |aside| aside.place.0 == partition).map(|aside| aside.place.1).collect();
        again.sort_unstable();
        let mut offsets: VecDeque<u64> = again.into();
        offsets.extend(self.suspects.remove(&partition).unwrap_or_default());
        self.suspect(partition, offsets);
    }

    /// A partition is no longer ours.
    pub(super) fn forget(&mut self, partition: u32) {
        self.step_down(partition);
        self.aside.retain(|aside| aside.place.0 != partition);
        self.suspects.remove(&partition);
    }

    /// A partition is not read any more. Whether a suspect of it was about to start.
    pub(super) fn pause(&mut self, partition: u32) -> bool {
        !matches!(self.turn, Turn::Running(_)) && self.step_down(partition)
    }

    pub(super) fn is_running(&self, place: Place) -> bool {
        self.turn == Turn::Running(place)
    }

    fn step_down(&mut self, partition: u32) -> bool {
        let (Turn::Waiting(place) | Turn::Marked(place) | Turn::Running(place)) = self.turn else { return false };
        if place.0 == partition {
            self.turn = Turn::Free;
        }
        place.0 == partition
    }

    fn expect_suspects(&mut self) {
        self.suspects_first_until = self.now + SUSPECTS_FIRST;
    }
}
