//! What is known of one partition: its tenure, its records, and what its next commit says.

use super::{
    super::metadata::{Highest, Metadata},
    Commit,
    filter::StaleFilter,
    offsets::Offsets,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A commit that is not answered yet.
#[derive(Debug)]
struct Sent {
    number: u64,
    tenure: u64,
    limit: u64,
    marked: Option<u64>,
}

/// What the process can say in the next commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub instant: Instant,
    /// Hours since 1970.
    pub hour: u64,
    pub interval: Duration,
    /// Records that may be started ahead of the first that is not done.
    pub window: u64,
    /// Commits say up to where records may start, not up to where they have started.
    pub writes_ahead: bool,
    /// Suspects have precedence: each commit of a mark says what else there is to say.
    pub is_probing: bool,
}

/// A partition that the process reads.
#[derive(Debug)]
pub(super) struct Part {
    pub tenure: u64,
    pub offsets: Offsets,
    pub filter: StaleFilter,
    /// Committed: no record at or beyond it may start.
    pub limit: u64,
    /// The takeover is committed.
    pub is_open: bool,
    pub is_revoking: bool,
    pub has_suspects: bool,
    /// A takeover or a later commit was sent: a successor must know that this one was here.
    pub has_committed: bool,
    marks: BTreeMap<u64, u32>,
    /// The suspect that was marked last and has not passed.
    attempted: Option<u64>,
    /// Done by an earlier reader and not started again: not suspects, should this one die.
    done_before: Vec<u64>,
    sent: Option<Sent>,
    /// How much was done at the latest commit, and its limit.
    said: Option<(u64, u64)>,
    marks_changed: bool,
    sent_at: Instant,
    /// A commit has failed: the next one waits.
    failed: bool,
}

impl Part {
    pub(super) fn new(position: u64, left: Metadata, has_suspects: bool, now: Instant) -> Self {
        Self {
            tenure: left.tenure,
            offsets: Offsets::new(position),
            filter: StaleFilter::new(left.seen),
            limit: left.limit.max(position),
            is_open: false,
            is_revoking: false,
            has_suspects,
            has_committed: false,
            marks: left.marks,
            attempted: None,
            done_before: left.done,
            sent: None,
            said: None,
            marks_changed: false,
            sent_at: now,
            failed: false,
        }
    }

    /// Reading starts again at the first record that is not done, under a new tenure.
    pub(super) fn rewind(&mut self, tenure: u64, hour: u64) {
        let (position, next) = (self.offsets.position(), self.offsets.next());
        self.tenure = tenure;
        self.offsets = Offsets::new(position);
        self.filter.rewind(position, hour);
        self.done_before.retain(|offset| *offset >= next);
        self.unmark();
        self.is_open = false;
        self.said = None;
    }

    pub(super) fn attempts(&self, offset: u64) -> u32 {
        self.marks.get(&offset).copied().unwrap_or(0)
    }

    /// One more attempt at a record.
    pub(super) fn mark(&mut self, offset: u64) {
        *self.marks.entry(offset).or_insert(0) += 1;
        self.marks_changed = true;
    }

    /// The attempt has not come to an end, and the process is alive: it does not count.
    pub(super) fn unmark(&mut self) {
        let Some(suspect) = self.attempted.take() else { return };
        if let Some(attempts) = self.marks.get_mut(&suspect) {
            *attempts -= 1;
            self.marks_changed = true;
        }
        self.marks.retain(|_, attempts| *attempts > 0);
    }

    /// The record has passed.
    pub(super) fn clear(&mut self, offset: u64) {
        if self.marks.remove(&offset).is_some() {
            self.attempted.take_if(|suspect| *suspect == offset);
            self.marks_changed = true;
        }
    }

    pub(super) fn clear_all(&mut self) {
        self.attempted = None;
        self.marks_changed |= !self.marks.is_empty();
        self.marks.clear();
    }

    pub(super) fn has_marks(&self) -> bool {
        self.marks.range(self.offsets.position()..).next().is_some()
    }

    pub(super) fn marks_are_committed(&self) -> bool {
        !self.marks_changed && self.sent.is_none()
    }

    /// Whether the latest commit does not say all.
    pub(super) fn has_news(&self, now: &Now) -> bool {
        let Some((done, limit)) = self.said else { return !self.is_revoking };
        self.marks_changed || self.offsets.done_count() > done || self.limit_to_come(now) > limit
    }

    /// Whether a commit may go now, at most one at a time; after a failure after a while.
    pub(super) fn may_commit(&self, now: &Now) -> bool {
        self.has_news(now) && self.is_ready(now)
    }

    /// No commit is under way, and none has failed a moment ago.
    pub(super) fn is_ready(&self, now: &Now) -> bool {
        self.sent.is_none() && (!self.failed || now.instant >= self.sent_at + now.interval)
    }

    /// Whether the commit should not wait for others.
    pub(super) fn is_due(&self, now: &Now) -> bool {
        if !self.may_commit(now) {
            return false;
        }
        let Some((_, limit)) = self.said else { return true };
        let is_idle = self.offsets.in_flight() == 0;
        now.writes_ahead && self.limit_to_come(now) >= limit + now.window.div_ceil(4)
            || now.instant >= self.sent_at + now.interval
            || (is_idle || self.marks_changed) && !now.is_probing
    }

    /// The next commit: with it a suspect is marked, or the partition given back in order.
    pub(super) fn commit(&mut self, partition: u32, number: u64, now: &Now, marked: Option<u64>, clean: bool) -> Commit {
        let offset = self.offsets.position();
        let limit = if clean { offset } else { self.limit_to_come(now) };
        self.attempted = marked.or(self.attempted);
        self.has_committed = true;
        self.said = Some((self.offsets.done_count(), limit));
        self.sent = Some(Sent { number, tenure: self.tenure, limit, marked });
        self.marks_changed = false;
        self.sent_at = now.instant;
        self.failed = false;
        let metadata = Metadata {
            tenure: self.tenure,
            clean,
            limit,
            done: self.done(),
            marks: self.marks.range(offset..).map(|(at, attempts)| (*at, *attempts)).collect(),
            seen: self.seen(now.hour),
        };
        Commit { partition, offset, metadata: metadata.encode(offset), number }
    }

    /// The suspect whose mark is now committed, if it was one.
    pub(super) fn answered(&mut self, number: u64, ok: bool) -> Option<u64> {
        let sent = self.sent.take_if(|sent| sent.number == number)?;
        if ok {
            self.limit = self.limit.max(sent.limit);
            self.is_open |= sent.tenure == self.tenure;
            return sent.marked;
        }
        self.failed = true;
        self.said = None;
        self.marks_changed = true;
        if sent.marked.is_some() {
            self.unmark();
        }
        None
    }

    /// While there are suspects no more are made.
    fn limit_to_come(&self, now: &Now) -> u64 {
        let ahead = if now.writes_ahead { self.offsets.position() + now.window } else { self.offsets.next() };
        if self.has_suspects { self.limit } else { self.limit.max(ahead) }
    }

    fn done(&self) -> Vec<u64> {
        let next = self.offsets.next();
        self.offsets.done().chain(self.done_before.iter().copied().filter(|offset| *offset >= next)).collect()
    }

    fn seen(&mut self, hour: u64) -> BTreeMap<u64, Highest> {
        self.filter.state_at(self.offsets.position(), hour).clone()
    }
}
