//! The clocks of a step: its timeout, whether it moves, whether a stage is stuck. Time in which it is suspended does not count.

use super::{outcome::StepError, step::Step};
use penstock_crds::ingest_run::Counts;
use std::time::{Duration, Instant};

/// The clocks of a step.
pub(super) struct Deadlines {
    begun: Instant,
    suspended: Duration,
    last_look: Instant,
    /// The sum of published and closed documents, and when it last grew.
    moved: (u64, Instant),
    stalled: bool,
}

impl Deadlines {
    /// The step begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self { begun: now, suspended: Duration::ZERO, last_look: now, moved: (0, now), stalled: false }
    }

    /// How long nothing has moved.
    pub(super) fn still_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.moved.1)
    }

    /// Looks at the clocks. An error ends the step.
    pub(super) fn look(&mut self, step: &Step<'_>, now: Instant, counts: &Counts) -> Result<(), StepError> {
        if step.state.is_suspended() {
            self.suspended += now - self.last_look;
            self.moved.1 = now;
        }
        self.last_look = now;
        self.check_progress(step, now, counts.published + (counts.published - counts.pending), counts.pending);
        let timeout = step.connector.timeout;
        if now - self.begun > timeout.get() + self.suspended {
            return Err(StepError::Timeout { timeout: timeout.to_string(), pending: counts.pending });
        }
        if let (true, Some(stuck)) = (step.limits.exit_on_stuck, step.health.stuck().into_iter().next()) {
            let stage = step.pipeline.stages.get(stuck.stage).map(|stage| stage.display_name(stuck.stage)).unwrap_or_default();
            return Err(StepError::Stuck { stage, id: stuck.id, seconds: stuck.since.as_secs() });
        }
        Ok(())
    }

    /// Says once when nothing has moved for too long. A slow backend is no failure.
    fn check_progress(&mut self, step: &Step<'_>, now: Instant, progress: u64, pending: u64) {
        if progress != self.moved.0 {
            self.moved = (progress, now);
            self.stalled = false;
            return;
        }
        let deadline = step.limits.progress_deadline;
        if !self.stalled && now - self.moved.1 > deadline {
            self.stalled = true;
            tracing::warn!(connector = step.connector.name, pending, seconds = deadline.as_secs(), "no progress");
        }
    }
}

/// Whether more documents failed than are allowed.
pub(super) fn check_failed(step: &Step<'_>, failed: u64) -> Result<(), StepError> {
    match step.limits.max_failed {
        Some(allowed) if failed > allowed => Err(StepError::FailurePolicy { failed, allowed: allowed.to_string() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{runner::tests::Stand, telemetry::testing::logged};
    use tracing::Level;

    #[test]
    fn time_in_which_a_step_is_suspended_counts_for_no_deadline_p17() {
        let stand = Stand::new(r#"{"timeout": "20m", "sequence": {"count": 1}}"#);
        let mut step = stand.step();
        step.limits.progress_deadline = Duration::from_secs(600);
        let begun = Instant::now();
        let mut deadlines = Deadlines::new(begun);
        let counts = Counts { published: 5, pending: 5, ..Counts::default() };
        let mut look = |minute: u64| deadlines.look(&step, begun + Duration::from_secs(minute * 60), &counts);
        let (ended, log) = logged(Level::INFO, || {
            look(0).expect("in time");
            step.state.suspend(true);
            (1..=600).for_each(|minute| look(minute).expect("in time"));
            step.state.suspend(false);
            (601..=609).for_each(|minute| look(minute).expect("in time"));
            (610..).find_map(|minute| look(minute).err().map(|error| (minute, error)))
        });
        assert_eq!(log.matches("no progress").count(), 1, "ten minutes after it went on: {log}");
        let (minute, error) = ended.expect("an end");
        assert_eq!(minute, 621, "20 minutes of work and 600 of rest");
        assert!(matches!(error, StepError::Timeout { pending: 5, .. }), "{error}");
    }

    #[test]
    fn a_step_without_progress_is_reported_once_and_does_not_fail_x17() {
        let stand = Stand::new(r#"{"sequence": {"count": 1}}"#);
        let mut step = stand.step();
        step.limits.progress_deadline = Duration::from_secs(600);
        let begun = Instant::now();
        let mut deadlines = Deadlines::new(begun);
        let minutes = |minutes: u64| begun + Duration::from_secs(minutes * 60);
        let mut look = |minute: u64, closed: u64| {
            let counts = Counts { published: 5, finished: closed, pending: 5 - closed, ..Counts::default() };
            deadlines.look(&step, minutes(minute), &counts).expect("no failure");
        };
        let ((), log) = logged(Level::INFO, || {
            look(0, 2);
            look(9, 2);
        });
        assert_eq!(log, "");
        let ((), log) = logged(Level::INFO, || (11..60).for_each(|minute| look(minute, 2)));
        assert_eq!(log.matches("WARN penstock::runner::deadlines: no progress").count(), 1, "{log}");
        assert!(log.contains("pending=3") && log.contains("seconds=600"), "{log}");
        let ((), log) = logged(Level::INFO, || {
            look(60, 3);
            look(71, 3);
        });
        assert_eq!(log.matches("WARN penstock::runner::deadlines: no progress").count(), 1, "it went on and stood still again: {log}");
    }
}
