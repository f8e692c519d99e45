//! How a step gets on, for whoever watches: where it stands, how fast it is, how long its oldest document has waited. Nobody looks
//! at a clock for a single document: what is known are the numbers that were given out at certain times.

use penstock_crds::{conditions::ConnectorState, ingest_run::FailureSample};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Over so many seconds the rate is smoothed.
const SMOOTHED_OVER: f64 = 60.0;
/// Marks that are kept at most.
const MARKS: usize = 256;

/// How a step gets on.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    looked: Option<Instant>,
    /// Where the step stands.
    pub(super) state: ConnectorState,
    /// When its source was read to the end, since it began.
    pub(super) published_after: Option<Duration>,
    /// Some of the failed documents.
    pub(super) failures: Vec<FailureSample>,
    rate: Option<Rate>,
    marks: Marks,
}

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        let (state, marks) = (ConnectorState::Starting, Marks::default());
        Self { begun: now, looked: None, state, published_after: None, failures: Vec::new(), rate: None, marks }
    }

    /// Goes on to a state.
    pub(super) fn enter(&mut self, state: ConnectorState, now: Instant) {
        self.state = state;
        if state == ConnectorState::Draining {
            self.published_after.get_or_insert(now - self.begun);
        }
    }

    /// Looks at the step, if it is time: how many documents are published and how many of those closed, and which the lowest is
    /// that is not. What was closed before the first look is the work of others.
    pub(super) fn look(&mut self, now: Instant, published: u64, closed: u64, lowest_pending: impl FnOnce() -> Option<u64>) {
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return;
        }
        self.looked = Some(now);
        self.rate.get_or_insert_with(|| Rate::new(now, closed)).update(now, closed);
        self.marks.look(now, published, lowest_pending());
    }

    /// Time since the step began.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now - self.begun
    }

    /// Documents a second that were closed, over about the last minute.
    pub(super) fn per_second(&self) -> Option<f64> {
        self.rate.as_ref()?.per_second()
    }

    /// How long the oldest document has waited.
    pub(super) fn oldest_pending(&self, now: Instant) -> Option<Duration> {
        self.marks.oldest.map(|since| now.saturating_duration_since(since))
    }
}

/// A rate, smoothed over time. It is the average of what there was, with less weight for what is longer ago.
#[derive(Debug)]
struct Rate {
    at: Instant,
    count: u64,
    faded_count: f64,
    faded_seconds: f64,
}

impl Rate {
    /// So many were counted before.
    fn new(now: Instant, count: u64) -> Self {
        Self { at: now, count, faded_count: 0.0, faded_seconds: 0.0 }
    }

    fn update(&mut self, now: Instant, count: u64) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        let fading = (-seconds / SMOOTHED_OVER).exp();
        self.faded_count = self.faded_count * fading + count.saturating_sub(self.count) as f64;
        self.faded_seconds = self.faded_seconds * fading + seconds;
        (self.at, self.count) = (now, count);
    }

    fn per_second(&self) -> Option<f64> {
        (self.faded_seconds > 0.0).then(|| self.faded_count / self.faded_seconds)
    }
}

/// Which numbers had been given out when.
#[derive(Debug, Default)]
struct Marks {
    marks: VecDeque<(u64, Instant)>,
    /// By when the oldest pending document was published.
    oldest: Option<Instant>,
}

impl Marks {
    fn look(&mut self, now: Instant, published: u64, lowest_pending: Option<u64>) {
        if self.marks.back().is_none_or(|(last, _)| *last < published) {
            self.marks.push_back((published, now));
        }
        while self.marks.front().is_some_and(|(last, _)| lowest_pending.is_none_or(|lowest| *last < lowest)) {
            self.marks.pop_front();
        }
        if self.marks.len() > MARKS {
            // half of them are exact enough where the oldest document is that old
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.oldest = lowest_pending.and_then(|_| self.marks.front().map(|(_, at)| *at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_oldest_pending_document_is_as_old_as_the_look_that_first_saw_it() {
        let begun = Instant::now();
        let mut progress = Progress::new(begun);
        let mut look = |second: u64, published, lowest| {
            let now = begun + Duration::from_secs(second);
            progress.look(now, published, 0, || lowest);
            progress.oldest_pending(now).map(|age| age.as_secs())
        };
        assert_eq!(look(0, 0, None), None);
        assert_eq!(look(1, 100, Some(1)), Some(0));
        assert_eq!(look(2, 200, Some(1)), Some(1));
        assert_eq!(look(9, 200, Some(100)), Some(8));
        assert_eq!(look(10, 200, Some(101)), Some(8), "the second hundred was there at 2 s");
        assert_eq!(look(11, 300, Some(201)), Some(0));
        assert_eq!(look(12, 300, None), None);
    }

    #[test]
    fn a_document_that_never_ends_costs_no_memory_and_keeps_its_age() {
        let begun = Instant::now();
        let mut progress = Progress::new(begun);
        for second in 0..100_000_u64 {
            progress.look(begun + Duration::from_secs(second), second + 1, second, || Some(1));
            assert!(progress.marks.marks.len() <= MARKS);
        }
        assert_eq!(progress.oldest_pending(begun + Duration::from_secs(99_999)), Some(Duration::from_secs(99_999)));
    }

    #[test]
    fn what_others_closed_before_is_no_rate() {
        let begun = Instant::now();
        let mut progress = Progress::new(begun);
        progress.look(begun, 5_000_000, 5_000_000, || None);
        assert_eq!(progress.per_second(), None);
        progress.look(begun + seconds(2.0), 5_000_100, 5_000_100, || None);
        assert_eq!(progress.per_second(), Some(50.0));
    }

    #[test]
    fn a_rate_follows_within_a_minute() {
        let begun = Instant::now();
        let mut rate = Rate::new(begun, 0);
        let mut count = 0;
        for second in 1..=600_u64 {
            count += if second <= 300 { 1_000 } else { 0 };
            rate.update(begun + Duration::from_secs(second), count);
            let now = rate.per_second().expect("a rate");
            match second {
                1..=300 => assert!((now - 1_000.0).abs() < 1e-6, "{now} at {second}"),
                360 => assert!((300.0..440.0).contains(&now), "{now} a minute after the last"),
                600 => assert!(now < 10.0, "{now}"),
                _ => {}
            }
        }
    }

    #[test]
    fn the_end_of_the_source_is_remembered_once() {
        let begun = Instant::now();
        let mut progress = Progress::new(begun);
        for (second, state) in [(1, ConnectorState::Publishing), (3, ConnectorState::Draining), (9, ConnectorState::Draining)] {
            progress.enter(state, begun + Duration::from_secs(second));
        }
        assert_eq!((progress.state, progress.published_after), (ConnectorState::Draining, Some(Duration::from_secs(3))));
    }

    proptest! {
        #[test]
        fn a_steady_rate_is_told_however_often_one_looks(steps in prop::collection::vec(0.01..100.0_f64, 1..40)) {
            let begun = Instant::now();
            let (mut rate, mut at) = (Rate::new(begun, 0), 0.0);
            for step in steps {
                at += step;
                rate.update(begun + seconds(at), (at * 1e6) as u64);
            }
            let told = rate.per_second().expect("a rate");
            prop_assert!((told - 1e6).abs() < 1_000.0, "{told}");
        }
    }
}
