//! What of a schedule has come due, and how its runs are called. Pure: the same at any time, in any process, so that no run is ever
//! started twice.

use super::cron::Cron;
use crate::names;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Digits of the hash of a nonce: with them the longest schedule has runs whose names are still labels.
const NONCE_DIGITS: usize = 9;

/// What is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The tick that a run is due for. Of several the last: one run makes up for all of them.
    pub tick: Option<Timestamp>,
    /// The last tick that it is too late for.
    pub missed: Option<Timestamp>,
    /// The first tick that is still to come.
    pub next: Option<Timestamp>,
}

/// Looks at the ticks that nobody has looked at yet.
pub fn due(cron: &Cron, from: Timestamp, now: Timestamp, deadline: Option<Duration>) -> Due {
    let latest = cron.latest(from, now);
    let in_time = |tick: &Timestamp| {
        let late = now.duration_since(*tick).unsigned_abs();
        deadline.is_none_or(|deadline| late <= deadline)
    };
    Due { tick: latest.filter(in_time), missed: latest.filter(|tick| !in_time(tick)), next: cron.next(now) }
}

/// The run of a tick.
pub fn name_of_tick(schedule: &str, tick: Timestamp) -> String {
    format!("{schedule}-{}", tick.as_second().div_euclid(60))
}

/// The run of a nonce.
pub fn name_of_nonce(schedule: &str, nonce: &str) -> String {
    let hash: String = names::hash(nonce.as_bytes()).chars().take(NONCE_DIGITS).collect();
    format!("{schedule}-n{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::SignedDuration;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn hourly() -> Cron {
        Cron::new("0 * * * *", "UTC").expect("valid")
    }

    #[test]
    fn of_several_ticks_that_were_missed_the_last_is_due() {
        let due = due(&hourly(), time("2026-11-30T01:00:00Z"), time("2026-11-30T05:10:00Z"), None);
        assert_eq!((due.tick, due.missed), (Some(time("2026-11-30T05:00:00Z")), None));
        assert_eq!(due.next, Some(time("2026-11-30T06:00:00Z")));
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let due = due(&hourly(), time("2026-11-30T05:00:00Z"), time("2026-11-30T04:59:59Z"), None);
        assert_eq!((due.tick, due.missed, due.next), (None, None, Some(time("2026-11-30T05:00:00Z"))));
    }

    #[test]
    fn a_tick_that_it_is_too_late_for_is_missed() {
        let at = |now: &str| due(&hourly(), time("2026-11-30T05:00:00Z"), time(now), Some(Duration::from_secs(600)));
        assert_eq!(at("2026-11-30T05:10:00Z").tick, Some(time("2026-11-30T05:00:00Z")));
        assert_eq!((at("2026-11-30T05:10:01Z").tick, at("2026-11-30T05:10:01Z").missed), (None, Some(time("2026-11-30T05:00:00Z"))));
    }

    #[test]
    fn names_are_labels_whatever_the_schedule_is_called() {
        let longest = "a".repeat(52);
        assert_eq!(name_of_tick("nightly", time("2026-11-30T02:15:00Z")), "nightly-29933415");
        assert!(name_of_tick(&longest, time("2026-11-30T02:15:00Z")).len() <= 63);
        assert_eq!(name_of_nonce(&longest, "2026-11-30-a").len(), 63);
        assert_ne!(name_of_nonce("nightly", "a"), name_of_nonce("nightly", "b"));
    }

    proptest! {
        /// Processes that look at any time, crash before they note that they looked, and start again: each tick has one name at most,
        /// and all names are those of ticks.
        #[test]
        fn whenever_it_is_restarted_the_names_are_the_same(looks in prop::collection::vec((0..90_i64, any::<bool>()), 1..60)) {
            let cron = Cron::new("*/10 * * * *", "Europe/Berlin").expect("valid");
            let mut now = time("2026-10-24T23:00:00Z");
            let mut from = now;
            let mut names: Vec<String> = Vec::new();
            for (minutes, is_noted) in looks {
                now += SignedDuration::from_mins(minutes);
                let due = due(&cron, from, now, None);
                if let Some(tick) = due.tick {
                    prop_assert!(tick >= from && tick <= now && tick.as_second() % 600 == 0);
                    names.push(name_of_tick("often", tick));
                }
                if is_noted {
                    from = due.next.expect("it never ends");
                    prop_assert!(from > now);
                }
            }
            // what was started again after a crash has the name that it had
            names.dedup();
            let different: BTreeSet<&String> = names.iter().collect();
            prop_assert_eq!(different.len(), names.len());
        }
    }
}
