//! Random schedules of crashes: see `penstock_tests::chaos`. Many by hand:
//! `PENSTOCK_CHAOS_SCHEDULES=200 PENSTOCK_CHAOS_SEED=1 cargo test --workspace --test suites -- kafka_chaos --nocapture`.

use anyhow::{Context, Result};
use penstock_tests::chaos;

/// How many schedules are run where nobody asks for more.
const SCHEDULES: u64 = 24;
/// How many at a time: they wait more than they work.
const AT_A_TIME: u64 = 3;

fn asked(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number: {text}")),
        Err(_) => Ok(default),
    }
}

#[test]
fn whatever_crashes_the_run_ends_with_what_an_undisturbed_one_gives() -> Result<()> {
    let (seed, schedules) = (asked("PENSTOCK_CHAOS_SEED", 1)?, asked("PENSTOCK_CHAOS_SCHEDULES", SCHEDULES)?);
    chaos::run_all(seed, schedules, asked("PENSTOCK_CHAOS_AT_A_TIME", AT_A_TIME)? as usize)
}
