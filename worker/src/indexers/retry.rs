//! How long to wait before something is sent again.

use penstock_crds::indexers::Retry;
use std::time::Duration;

/// The wait after so many refusals in a row (from 0): doubles from `initialBackoff` up to `maxBackoff`. Up to half of it is
/// taken off by chance (`random`, from 0 to 1), so that lanes do not come back all at once. A wait that the backend asks for
/// is a lower bound, up to `maxBackoff`.
pub(super) fn wait(retry: &Retry, refusals: u32, asked: Option<Duration>, random: f64) -> Duration {
    let longest = retry.max_backoff.get();
    let doubled = retry.initial_backoff.get().saturating_mul(1_u32.checked_shl(refusals).unwrap_or(u32::MAX)).min(longest);
    let jittered = doubled.mul_f64(1.0 - 0.5 * random.clamp(0.0, 1.0));
    jittered.max(asked.unwrap_or_default()).min(longest)
}

/// A number from 0 to 1 by chance. Good enough to spread waits.
pub(super) fn chance() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_crds::values;
    use proptest::prelude::*;

    fn retry(initial: u64, longest: u64) -> Retry {
        Retry {
            initial_backoff: values::Duration::from_millis(initial),
            max_backoff: values::Duration::from_millis(longest),
            ..Retry::default()
        }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits: Vec<u128> = (0..7).map(|n| wait(&retry(1000, 30_000), n, None, 0.0).as_millis()).collect();
        assert_eq!(waits, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(wait(&retry(1000, 30_000), 2, None, 1.0).as_millis(), 2000);
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_longest() {
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(wait(&retry(1000, 30_000), 0, asked(7), 0.5).as_secs(), 7);
        assert_eq!(wait(&retry(1000, 30_000), 0, asked(3600), 0.5).as_secs(), 30);
    }

    proptest! {
        #[test]
        fn a_wait_is_never_longer_than_the_longest(initial in 0_u64..100_000, longest in 0_u64..100_000, n: u32, asked: Option<u32>, random in 0.0..=1.0) {
            let asked = asked.map(|ms| Duration::from_millis(ms.into()));
            prop_assert!(wait(&retry(initial, longest), n, asked, random) <= Duration::from_millis(longest));
        }

        #[test]
        fn chance_is_between_0_and_1(_ in 0..10) {
            prop_assert!((0.0..=1.0).contains(&chance()));
        }
    }
}
