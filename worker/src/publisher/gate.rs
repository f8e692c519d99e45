//! Whether a document may be published now: rate, pending documents, pause, end.

use super::state::StepState;
use crate::connectors::Stopped;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, clock::Clock, clock::DefaultClock};
use std::{num::NonZeroU32, sync::Arc, time::Duration};

/// So many documents are let through at once before the gate is asked again.
const CREDIT: u64 = 256;
/// Longest wait before the gate looks again by itself. Whatever lets documents pass again also wakes it.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Lets documents through.
pub(super) struct Gate {
    state: Arc<StepState>,
    max_pending: u64,
    rate: Option<Rate>,
    clock: DefaultClock,
}

struct Rate {
    limiter: DefaultDirectRateLimiter,
    /// Documents that are let through together: a twentieth of a second's.
    cells: NonZeroU32,
}

/// What the gate says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// So many documents may pass.
    Pass(u64),
    /// None may until the pause is over.
    Wait(Pause),
}

/// Why nothing may pass now: it decides what ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The step is suspended, or as many documents are pending as may be.
    Blocked,
    /// The rate is reached, for so long.
    Rate(Duration),
}

impl Gate {
    pub(super) fn new(state: Arc<StepState>, max_pending: u64, max_rate: Option<u32>) -> Self {
        let rate = max_rate.and_then(NonZeroU32::new).map(|rate| {
            let cells = NonZeroU32::new((rate.get() / 20).clamp(1, CREDIT as u32)).unwrap_or(NonZeroU32::MIN);
            Rate { limiter: RateLimiter::direct(Quota::per_second(rate).allow_burst(cells)), cells }
        });
        Self { state, max_pending: max_pending.max(1), rate, clock: DefaultClock::default() }
    }

    /// Asks for documents to pass.
    ///
    /// # Errors
    /// The step takes no more documents.
    pub(super) fn ask(&self) -> Result<Verdict, Stopped> {
        if self.state.is_stopping() {
            return Err(Stopped);
        }
        let room = self.room();
        if room == 0 {
            return Ok(Verdict::Wait(Pause::Blocked));
        }
        let Some(rate) = &self.rate else { return Ok(Verdict::Pass(room.min(CREDIT))) };
        let cells = NonZeroU32::new(u32::try_from(room).unwrap_or(u32::MAX).min(rate.cells.get())).unwrap_or(NonZeroU32::MIN);
        match rate.limiter.check_n(cells) {
            Ok(Ok(())) => Ok(Verdict::Pass(cells.get().into())),
            Ok(Err(not_until)) => Ok(Verdict::Wait(Pause::Rate(not_until.wait_time_from(self.clock.now()).min(LOOK_AGAIN)))),
            // cells never exceed the burst
            Err(_) => Ok(Verdict::Pass(1)),
        }
    }

    /// How many documents may pass, were there no rate.
    fn room(&self) -> u64 {
        if self.state.is_suspended() { 0 } else { self.max_pending.saturating_sub(self.state.outstanding()) }
    }

    /// Waits until the pause is over or the step is ending. What changed since the gate was asked is seen.
    pub(super) fn wait(&self, pause: Pause) {
        match pause {
            Pause::Blocked => self.state.wait_unless(|state| state.is_stopping() || self.room() > 0, LOOK_AGAIN),
            Pause::Rate(time) => self.state.wait_unless(StepState::is_stopping, time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_crds::ingest_run::Counts;
    use std::{thread, time::Instant};

    fn published(state: &StepState, published: u64, pending: u64) {
        state.set_published(published);
        state.set_counts(Counts { published, pending, finished: published - pending, ..Counts::default() });
    }

    #[test]
    fn publishing_blocks_at_max_pending_and_goes_on_with_the_first_event_p16() {
        let state = StepState::new();
        let gate = Gate::new(Arc::clone(&state), 10, None);
        published(&state, 7, 7);
        assert_eq!(gate.ask(), Ok(Verdict::Pass(3)));
        published(&state, 10, 10);
        assert_eq!(gate.ask(), Ok(Verdict::Wait(Pause::Blocked)));
        let waker = thread::spawn({
            let state = Arc::clone(&state);
            move || published(&state, 10, 9)
        });
        let start = Instant::now();
        while gate.ask() != Ok(Verdict::Pass(1)) {
            gate.wait(Pause::Blocked);
            assert!(start.elapsed() < LOOK_AGAIN, "woken by the event");
        }
        waker.join().expect("waker");
    }

    #[test]
    fn what_changed_between_asking_and_waiting_is_not_waited_for_p16() {
        let state = StepState::new();
        let gate = Gate::new(Arc::clone(&state), 1, None);
        for unblock in [|state: &StepState| published(state, 1, 0), StepState::stop_publishing] {
            published(&state, 1, 1);
            assert_eq!(gate.ask(), Ok(Verdict::Wait(Pause::Blocked)));
            unblock(&state);
            let start = Instant::now();
            gate.wait(Pause::Blocked);
            assert!(start.elapsed() < LOOK_AGAIN);
        }
    }

    #[test]
    fn a_suspended_step_publishes_nothing_and_pausing_twice_is_no_fault_p17() {
        let state = StepState::new();
        let gate = Gate::new(Arc::clone(&state), 10, None);
        state.suspend(true);
        state.suspend(true);
        assert!(matches!(gate.ask(), Ok(Verdict::Wait(_))));
        state.suspend(false);
        state.suspend(false);
        assert_eq!(gate.ask(), Ok(Verdict::Pass(10)));
        state.stop_publishing();
        assert_eq!(gate.ask(), Err(Stopped));
    }

    #[test]
    fn a_rate_lets_a_twentieth_of_a_second_through_at_once() {
        let gate = Gate::new(StepState::new(), u64::MAX, Some(1000));
        assert_eq!(gate.ask(), Ok(Verdict::Pass(50)));
        assert!(matches!(gate.ask(), Ok(Verdict::Wait(Pause::Rate(wait))) if wait <= Duration::from_millis(51)));
        let slow = Gate::new(StepState::new(), u64::MAX, Some(1));
        assert_eq!(slow.ask(), Ok(Verdict::Pass(1)));
        assert!(matches!(slow.ask(), Ok(Verdict::Wait(_))));
    }
}
