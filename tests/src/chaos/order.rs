//! The order of what was done to one id: nothing is left out, nothing overtakes, and after a crash a stretch may come again.

/// Whether a history is that of these operations, in their order. It may step back to any operation that was there before and go
/// on from it, as often as it likes; it never leaves one out; and it ends with the last one.
///
/// # Errors
/// Where it goes wrong, in words.
pub fn check<T: PartialEq + std::fmt::Debug>(accepted: &[T], history: &[T]) -> Result<(), String> {
    // equal operations look alike: the positions where the history may be
    let mut at: Vec<bool> = vec![false; accepted.len()];
    // before the first one
    let mut reach = 0;
    for (number, operation) in history.iter().enumerate() {
        let next: Vec<bool> = accepted.iter().enumerate().map(|(position, one)| position <= reach && one == operation).collect();
        let Some(furthest) = next.iter().rposition(|possible| *possible) else {
            return Err(match accepted.contains(operation) {
                true => format!("operation {number} comes too early, others are left out: {operation:?}"),
                false => format!("operation {number} was never accepted: {operation:?}"),
            });
        };
        reach = furthest + 1;
        at = next;
    }
    match (accepted.last(), at.last()) {
        (None, _) | (Some(_), Some(true)) => Ok(()),
        (Some(last), _) => Err(format!("it does not end with the last operation {last:?}, but with {:?}", history.last())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_may_come_again_but_nothing_is_left_out() {
        let accepted = [1, 2, 3, 4];
        for history in [&[1, 2, 3, 4][..], &[1, 2, 1, 2, 3, 4], &[1, 1, 2, 3, 2, 3, 4, 4], &[1, 2, 3, 4, 1, 2, 3, 4]] {
            assert_eq!(check(&accepted, history), Ok(()), "{history:?}");
        }
        for history in [&[2, 3, 4][..], &[1, 2, 4], &[1, 2, 3], &[1, 2, 3, 4, 3], &[1, 2, 1, 3, 4], &[], &[1, 2, 3, 4, 5]] {
            assert!(check(&accepted, history).is_err(), "{history:?}");
        }
    }

    #[test]
    fn operations_that_look_alike_are_taken_for_whichever_fits() {
        let accepted = ["a", "gone", "b", "gone", "c"];
        assert_eq!(check(&accepted, &["a", "gone", "b", "gone", "b", "gone", "c"]), Ok(()));
        assert!(check(&accepted, &["a", "gone", "c"]).is_err());
        assert_eq!(check::<&str>(&[], &[]), Ok(()));
    }
}
