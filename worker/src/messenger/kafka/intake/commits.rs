//! When an [`Intake`] commits, and how it gives partitions back.

use super::{Commit, Intake, TakeOver, part::Now, probation::Place, rule::Rule};
use std::time::Instant;

impl Intake {
    /// The commits to send now, all of them in one request; none, most of the time. To be called often: this is what moves time.
    ///
    /// A takeover goes at once, so does a mark, and what there is to say when a partition has run idle; a busy one waits for
    /// the interval, or until a quarter of the window is used up.
    pub fn commit_due(&mut self, now: Instant) -> Vec<Commit> {
        self.tick(now);
        let now = self.now_for_parts();
        let mark = self.mark_due(&now);
        if mark.is_none() && !self.parts.values().any(|part| part.is_due(&now)) {
            return Vec::new();
        }
        if let Some((partition, suspect)) = mark
            && let Some(part) = self.parts.get_mut(&partition)
        {
            part.mark(suspect);
        }
        let clears = self.rules.follows(Rule::ClearWithMark);
        let is_of_mark = |partition: u32| clears || mark.is_none_or(|(of, _)| of == partition);
        let goes = self.parts.iter_mut().filter(|(partition, part)| part.may_commit(&now) && is_of_mark(**partition));
        goes.map(|(partition, part)| {
            self.commits += 1;
            let marked = mark.filter(|(of, _)| of == partition).map(|(_, suspect)| suspect);
            part.commit(*partition, self.commits, &now, marked, false)
        })
        .collect()
    }

    /// The suspect to mark now: nothing else runs and no commit is under way.
    fn mark_due(&self, now: &Now) -> Option<Place> {
        let place = self.probation.waiting()?;
        let running: usize = self.parts.values().map(|part| part.offsets.in_flight()).sum();
        let is_alone = running == self.probation.resting() || !self.rules.follows(Rule::Alone);
        (is_alone && self.parts.values().all(|part| part.is_ready(now))).then_some(place)
    }

    /// The answer to a commit. After a failure it is sent again in a while: whether the partition is lost is the caller's to
    /// find out.
    pub fn commit_answered(&mut self, partition: u32, number: u64, ok: bool) {
        let Some(part) = self.parts.get_mut(&partition) else { return };
        if let Some(suspect) = part.answered(number, ok) {
            self.probation.marked((partition, suspect));
        }
    }

    /// No record of the partition starts any more.
    pub fn begin_revoke(&mut self, partition: u32) {
        if let Some(part) = self.parts.get_mut(&partition) {
            part.is_revoking = true;
            if self.probation.pause(partition) {
                part.unmark();
            }
        }
    }

    /// Whether nothing of the partition is in flight.
    pub fn is_drained(&self, partition: u32) -> bool {
        self.parts.get(&partition).is_none_or(|part| part.offsets.in_flight() == 0)
    }

    /// Gives a partition back. The last commit, to be sent behind all others and answered before the partition goes; it says
    /// that there is nothing to suspect if that is so. `None`: there is nothing to say.
    pub fn release(&mut self, partition: u32, now: Instant) -> Option<Commit> {
        self.tick(now);
        let now = self.now_for_parts();
        let mut part = self.parts.remove(&partition)?;
        self.probation.forget(partition);
        let is_clean = part.offsets.in_flight() == 0 && !part.has_suspects && !part.has_marks();
        part.has_committed.then(|| {
            self.commits += 1;
            part.commit(partition, self.commits, &now, None, is_clean)
        })
    }

    /// A partition is gone: nothing may be committed.
    pub fn lost(&mut self, partition: u32) {
        self.parts.remove(&partition);
        self.probation.forget(partition);
    }

    /// Drops all that is in flight and begins a new tenure, as after a failed send. The caller reads again from the offset.
    pub fn rewind(&mut self, partition: u32, now: Instant) -> Option<TakeOver> {
        self.tick(now);
        let before = self.parts.get(&partition)?.tenure;
        let tenure = self.tenure_after(before, now);
        let hour = self.hour;
        let part = self.parts.get_mut(&partition)?;
        part.rewind(tenure, hour);
        self.probation.rewind(partition);
        part.has_suspects = self.probation.has_suspects(partition);
        Some(TakeOver { offset: part.offsets.position(), tenure, suspects: 0, unreadable: None })
    }

    fn now_for_parts(&self) -> Now {
        Now {
            instant: self.now,
            hour: self.hour,
            interval: self.settings.commit_interval,
            window: self.settings.window,
            writes_ahead: self.rules.follows(Rule::Window),
            is_probing: self.probation.is_probing(),
        }
    }
}
