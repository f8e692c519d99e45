//! How many pods a pool is to have. Pure: partitions, unread records and limits in, a number and its reason out.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use penstock_crds::pool::{Pool, ScalingMode};

/// A pool grows at most so often …
const UP_EVERY: SignedDuration = SignedDuration::from_secs(30);
/// … and shrinks, a step at a time, only when nothing was unread since it last changed, and not more often than this.
const DOWN_EVERY: SignedDuration = SignedDuration::from_secs(300);

/// What a decision depends on, besides the pool's spec.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Partitions that the topic has.
    pub partitions: i32,
    /// Unread records of this pool; nothing if they are not known.
    pub lag: Option<i64>,
    /// Unread records of the whole pipeline: what workers have not read yet, indexers will have to.
    pub pipeline_lag: Option<i64>,
    /// Runs at work, or that are about to be.
    pub active_runs: usize,
    /// Since when there is no run and nothing is unread.
    pub idle_since: Option<Timestamp>,
    /// The pipeline is suspended.
    pub is_suspended: bool,
    /// The number of pods now.
    pub current: i32,
    /// When that number last changed.
    pub last_change: Option<Timestamp>,
    /// The time.
    pub now: Timestamp,
}

/// How many pods there are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The number; nothing if somebody else decides.
    pub replicas: Option<i32>,
    /// Why, for people.
    pub why: String,
    /// When the decision may be another one although nothing else changes.
    pub again_at: Option<Timestamp>,
}

impl Decision {
    fn of(replicas: i32, why: impl Into<String>) -> Self {
        Self { replicas: Some(replicas), why: why.into(), again_at: None }
    }
}

/// Decides.
pub fn decide(pool: &Pool, load: &Load) -> Decision {
    if load.is_suspended {
        return Decision::of(0, "suspended");
    }
    let scaling = &pool.scaling;
    match scaling.mode {
        ScalingMode::External => return Decision { replicas: None, why: "somebody else decides".into(), again_at: None },
        ScalingMode::Fixed => return Decision::of(pool.replicas.unwrap_or(1), "fixed"),
        ScalingMode::Partitions | ScalingMode::Lag => {}
    }
    let threads = i32::try_from(pool.threads.unwrap_or(1)).unwrap_or(i32::MAX).max(1);
    let useful = (load.partitions.max(1) + threads - 1) / threads;
    let most = scaling.max_replicas.unwrap_or(useful).min(useful).max(1);
    let least = scaling.min_replicas.clamp(1, most);
    if scaling.min_replicas == 0
        && let Some(decision) = to_zero(pool, load)
    {
        return decision;
    }
    match scaling.mode {
        ScalingMode::Lag => by_lag(pool, load, useful, least, most),
        _ => Decision::of(most, format!("{} partitions, {threads} to a pod", load.partitions)),
    }
}

/// Whether nothing is to be done, so that no pod is needed. An unknown lag changes nothing.
fn to_zero(pool: &Pool, load: &Load) -> Option<Decision> {
    if load.active_runs > 0 {
        return None;
    }
    match (load.pipeline_lag, load.idle_since) {
        (None, _) => Some(Decision::of(load.current, "unread records are not known, so nothing is changed")),
        (Some(0), Some(since)) => {
            let until = since.checked_add(pool.scaling.idle_before_zero.get()).unwrap_or(Timestamp::MAX);
            if load.current == 0 || until <= load.now {
                return Some(Decision::of(0, "nothing to do"));
            }
            Some(Decision { again_at: Some(until), ..Decision::of(load.current, "nothing to do for a short time") })
        }
        _ => None,
    }
}

fn by_lag(pool: &Pool, load: &Load, useful: i32, least: i32, most: i32) -> Decision {
    let Some(lag) = load.lag else {
        return Decision::of(load.current.max(least), "unread records are not known, so nothing is changed");
    };
    let per_pod = pool.scaling.lag.as_ref().map_or(1, |lag| lag.per_pod.max(1));
    let asked = i32::try_from((lag + per_pod - 1) / per_pod).unwrap_or(i32::MAX);
    let target = step_at_least(useful, asked.max(1)).clamp(least, most);
    let current = load.current;
    let changed_at = load.last_change;
    let allowed_at = |every| changed_at.and_then(|at: Timestamp| at.checked_add(every).ok()).filter(|at| *at > load.now);
    let hold = |at, why: &str| Decision { again_at: at, ..Decision::of(current, why) };
    if target > current {
        // the first pod starts at once
        return match allowed_at(UP_EVERY).filter(|_| current > 0) {
            Some(at) => hold(Some(at), "has just changed"),
            None => Decision::of(target, format!("{lag} unread records, {per_pod} to a pod")),
        };
    }
    if target == current {
        return Decision::of(current, format!("{lag} unread records, {per_pod} to a pod"));
    }
    if current > most {
        return Decision::of(most, "more pods than are of use");
    }
    if lag > 0 {
        return hold(None, "no pod goes while records are unread");
    }
    match allowed_at(DOWN_EVERY) {
        Some(at) => hold(Some(at), "has just changed"),
        None => Decision::of(step_below(useful, current).clamp(least, most), "nothing is unread"),
    }
}

/// The least number of pods, at least so many, of which the busiest has less than with one pod fewer.
fn step_at_least(partitions: i32, asked: i32) -> i32 {
    let share = (partitions / asked.clamp(1, partitions)).max(1);
    (partitions + share - 1) / share
}

/// The largest number of pods below this one that shares the partitions as evenly.
fn step_below(partitions: i32, current: i32) -> i32 {
    let share = (partitions + current.max(1) - 1) / current.max(1);
    (partitions + share) / (share + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_crds::pool::{LagScaling, Scaling};
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).expect("a time")
    }

    fn load() -> Load {
        Load {
            partitions: 12,
            lag: Some(100),
            pipeline_lag: Some(100),
            active_runs: 1,
            idle_since: None,
            is_suspended: false,
            current: 0,
            last_change: None,
            now: at(0),
        }
    }

    fn unread(lag: Option<i64>) -> Load {
        Load { lag, pipeline_lag: lag, ..load() }
    }

    fn pool(mode: ScalingMode) -> Pool {
        let lag = (mode == ScalingMode::Lag).then_some(LagScaling { per_pod: 1_000 });
        Pool { scaling: Scaling { mode, lag, ..Scaling::default() }, ..Pool::default() }
    }

    #[test]
    fn pods_follow_partitions_and_threads_within_limits() {
        for (threads, min, max, replicas) in
            [(None, 0, None, 12), (Some(4), 0, None, 3), (Some(5), 0, None, 3), (None, 0, Some(5), 5), (None, 2, Some(40), 12)]
        {
            let mut pool = pool(ScalingMode::Partitions);
            (pool.threads, pool.scaling.min_replicas, pool.scaling.max_replicas) = (threads, min, max);
            assert_eq!(decide(&pool, &load()).replicas, Some(replicas), "{threads:?} {min} {max:?}");
        }
    }

    #[test]
    fn the_last_pod_goes_after_a_time_of_idleness_and_comes_back_with_work() {
        let pool = pool(ScalingMode::Partitions);
        let idle = Load { active_runs: 0, idle_since: Some(at(0)), current: 12, ..unread(Some(0)) };
        let waits = decide(&pool, &Load { now: at(299), ..idle });
        assert_eq!((waits.replicas, waits.again_at), (Some(12), Some(at(300))));
        assert_eq!(decide(&pool, &Load { now: at(300), ..idle }).replicas, Some(0));
        let gone = Load { current: 0, now: at(400), ..idle };
        assert_eq!(decide(&pool, &gone).replicas, Some(0));
        assert_eq!(decide(&pool, &Load { active_runs: 1, ..gone }).replicas, Some(12), "a run wakes it");
        assert_eq!(
            decide(&pool, &Load { idle_since: None, current: 0, active_runs: 0, ..unread(Some(1)) }).replicas,
            Some(12),
            "unread records wake it"
        );
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        for mode in [ScalingMode::Partitions, ScalingMode::Lag] {
            for current in [0, 3, 12] {
                let unknown = Load { active_runs: 0, current, ..unread(None) };
                assert_eq!(decide(&pool(mode), &unknown).replicas, Some(current), "{mode:?}");
            }
        }
    }

    #[test]
    fn lag_chooses_numbers_that_make_a_difference() {
        for (lag, replicas) in [(1, 1), (1_001, 2), (3_500, 4), (4_500, 6), (6_001, 12), (1_000_000, 12)] {
            let load = unread(Some(lag));
            assert_eq!(decide(&pool(ScalingMode::Lag), &load).replicas, Some(replicas), "{lag}");
        }
    }

    #[test]
    fn a_pool_grows_fast_and_shrinks_slowly_and_never_while_records_are_unread() {
        let pool = pool(ScalingMode::Lag);
        let busy = Load { current: 2, last_change: Some(at(0)), ..unread(Some(4_000)) };
        let waits = decide(&pool, &Load { now: at(29), ..busy });
        assert_eq!((waits.replicas, waits.again_at), (Some(2), Some(at(30))));
        assert_eq!(decide(&pool, &Load { now: at(30), ..busy }).replicas, Some(4));
        let less = Load { current: 12, lag: Some(1), pipeline_lag: Some(1), now: at(10_000), ..busy };
        assert_eq!(decide(&pool, &less).replicas, Some(12), "records are unread");
        let nothing = Load { lag: Some(0), ..less };
        assert_eq!(decide(&pool, &nothing).replicas, Some(6), "one step");
        assert_eq!(decide(&pool, &Load { now: at(299), ..nothing }).replicas, Some(12));
    }

    #[test]
    fn suspended_fixed_and_external_pools_ask_for_nothing_else() {
        let mut fixed = pool(ScalingMode::Fixed);
        fixed.replicas = Some(7);
        assert_eq!(decide(&fixed, &Load { active_runs: 0, ..unread(None) }).replicas, Some(7));
        assert_eq!(decide(&fixed, &Load { is_suspended: true, ..load() }).replicas, Some(0));
        assert_eq!(decide(&pool(ScalingMode::External), &load()).replicas, None);
    }

    proptest! {
        #[test]
        fn a_decision_is_within_limits_and_stays_when_nothing_changes(
            partitions in 1..200i32, threads in 1..9u32, min in 0..10i32, max in prop::option::of(1..60i32),
            lag in prop::option::of(0..1_000_000i64), active_runs in 0..2usize, current in 0..60i32, by_lag: bool,
        ) {
            let mut pool = pool(if by_lag { ScalingMode::Lag } else { ScalingMode::Partitions });
            pool.threads = Some(threads);
            pool.scaling.min_replicas = max.map_or(min, |max| min.min(max));
            pool.scaling.max_replicas = max;
            let idle_since = (active_runs == 0 && lag == Some(0)).then_some(at(-1_000));
            let load = Load { partitions, active_runs, idle_since, current, ..unread(lag) };
            let first = decide(&pool, &load).replicas.expect("it decides");
            let useful = (partitions + threads as i32 - 1) / threads as i32;
            if first != current {
                prop_assert!(first <= max.unwrap_or(useful).min(useful).max(1));
            }
            let second = decide(&pool, &Load { current: first, last_change: Some(load.now), ..load });
            prop_assert_eq!(second.replicas, Some(first));
        }
    }
}
