//! What a lane knows about its stages: exact counts, and durations by samples.

use std::time::{Duration, Instant};

/// Upper bounds of the buckets for durations, in seconds; one more bucket takes what is longer.
pub const DURATION_BOUNDS: [f64; 18] = [
    0.000_000_25,
    0.000_000_5,
    0.000_001,
    0.000_002_5,
    0.000_005,
    0.000_01,
    0.000_025,
    0.000_05,
    0.000_1,
    0.000_25,
    0.001,
    0.005,
    0.01,
    0.05,
    0.1,
    0.5,
    1.0,
    10.0,
];

/// Of a fast stage one call of so many is timed, and stands for all of them.
const SAMPLE: u64 = 64;

/// A stage that takes longer is timed with every call: the clock is cheap then.
const SLOW: Duration = Duration::from_micros(10);

/// Counts of one stage since they were last taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageStats {
    /// Documents that the stage was run for.
    pub processed: u64,
    /// Documents that passed because `when` did not hold for them.
    pub passed_over: u64,
    /// Documents that failed in it.
    pub failed: u64,
    /// Documents that it dropped, also those dropped by `onError: Drop`.
    pub dropped: u64,
    /// Children that it made.
    pub children: u64,
    /// Errors after which the document went on, by `onError: Continue`.
    pub continued: u64,
    /// How long it took, `when` and the making of children included.
    pub durations: Durations,
}

/// Durations in buckets. Sampled, so that its counts are estimates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// For each of [`DURATION_BOUNDS`] and beyond, how many calls fell between it and the bound before it.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    /// The sum of all durations, in seconds.
    pub sum_seconds: f64,
}

impl StageStats {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, more: &Self) {
        self.processed += more.processed;
        self.passed_over += more.passed_over;
        self.failed += more.failed;
        self.dropped += more.dropped;
        self.children += more.children;
        self.continued += more.continued;
        self.durations.buckets.iter_mut().zip(more.durations.buckets).for_each(|(bucket, count)| *bucket += count);
        self.durations.sum_seconds += more.durations.sum_seconds;
    }
}

impl Durations {
    /// How many calls are counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn add(&mut self, duration: Duration, weight: u64) {
        let seconds = duration.as_secs_f64();
        let bucket = DURATION_BOUNDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket] += weight;
        self.sum_seconds += seconds * weight as f64;
    }
}

/// Measures one stage of one lane.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) stats: StageStats,
    calls: u64,
    is_slow: bool,
}

/// A call that is timed.
#[derive(Debug)]
pub(super) struct Timing {
    started: Instant,
    spent: Duration,
    weight: u64,
}

impl Meter {
    /// Begins a call; gives a timing if this one is timed.
    pub(super) fn begin(&mut self) -> Option<Timing> {
        let is_timed = self.is_slow || self.calls.is_multiple_of(SAMPLE);
        self.calls += 1;
        let weight = if self.is_slow { 1 } else { SAMPLE };
        is_timed.then(|| Timing { started: Instant::now(), spent: Duration::ZERO, weight })
    }

    /// Ends a call.
    pub(super) fn end(&mut self, timing: Option<Timing>) {
        let Some(timing) = timing else { return };
        self.is_slow = timing.spent > SLOW;
        self.stats.durations.add(timing.spent, timing.weight);
    }
}

impl Timing {
    /// The stage hands over to somebody else for a while.
    pub(super) fn pause(timing: &mut Option<Self>) {
        if let Some(timing) = timing {
            timing.spent += timing.started.elapsed();
        }
    }

    /// It is the stage's turn again.
    pub(super) fn resume(timing: &mut Option<Self>) {
        if let Some(timing) = timing {
            timing.started = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(meter: &mut Meter, duration: Duration) -> bool {
        let timing = meter.begin().map(|timing| Timing { spent: duration, ..timing });
        let is_timed = timing.is_some();
        meter.end(timing);
        is_timed
    }

    #[test]
    fn a_fast_stage_is_timed_once_in_64_calls_and_each_stands_for_64() {
        let mut meter = Meter::default();
        let timed = (0..640).filter(|_| time(&mut meter, Duration::from_nanos(700))).count();
        assert_eq!(timed, 10);
        assert_eq!(meter.stats.durations.count(), 640);
        assert_eq!(meter.stats.durations.buckets[2], 640);
        assert!((meter.stats.durations.sum_seconds - 640.0 * 700e-9).abs() < 1e-9);
    }

    #[test]
    fn a_slow_stage_is_timed_with_every_call_until_it_is_fast_again() {
        let mut meter = Meter::default();
        assert!(time(&mut meter, Duration::from_millis(2)));
        assert!(time(&mut meter, Duration::from_millis(2)));
        assert!(time(&mut meter, Duration::from_nanos(100)));
        assert!(!time(&mut meter, Duration::from_nanos(100)));
        assert_eq!(meter.stats.durations.count(), 64 + 1 + 1);
    }

    #[test]
    fn bounds_rise_and_everything_has_a_bucket() {
        assert!(DURATION_BOUNDS.is_sorted());
        let mut durations = Durations::default();
        for duration in [Duration::ZERO, Duration::from_secs(3600), Duration::from_millis(1)] {
            durations.add(duration, 1);
        }
        assert_eq!((durations.buckets[0], durations.buckets[10], durations.buckets[18], durations.count()), (1, 1, 1, 3));
    }
}
