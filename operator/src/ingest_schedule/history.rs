//! Which runs of a schedule are there, and which of those that ended are kept. Pure.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use penstock_crds::{IngestRun, conditions::RunPhase};

/// A run of the schedule, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRun {
    /// Its name.
    pub name: String,
    /// Whether and how it has ended.
    pub end: Option<End>,
    /// Whether it was told to end.
    pub is_cancelled: bool,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// Whether it ended well.
    pub succeeded: bool,
}

impl KnownRun {
    /// What matters of a run.
    pub fn of(run: &IngestRun) -> Self {
        let status = run.status.clone().unwrap_or_default();
        let at = status.completion_time.or_else(|| run.creation_timestamp()).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let phase = status.phase.filter(|phase| phase.is_final());
        let end = phase.map(|phase| End { at, succeeded: phase == RunPhase::Succeeded });
        Self { name: run.name_any(), end, is_cancelled: run.spec.cancel }
    }
}

/// The names of runs that are kept no longer: of those that ended well, and of the others, the newest stay.
pub fn outlived(runs: &[KnownRun], succeeded_kept: i32, others_kept: i32) -> Vec<String> {
    let mut outlived = Vec::new();
    for (succeeded, kept) in [(true, succeeded_kept), (false, others_kept)] {
        let mut ended: Vec<(Timestamp, &str)> =
            runs.iter().filter_map(|run| Some((run.end.filter(|end| end.succeeded == succeeded)?.at, run.name.as_str()))).collect();
        ended.sort_unstable();
        let too_many = ended.len().saturating_sub(usize::try_from(kept).unwrap_or_default());
        outlived.extend(ended.into_iter().take(too_many).map(|(_, name)| name.to_owned()));
    }
    outlived
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(name: &str, end: Option<(i64, bool)>) -> KnownRun {
        let end = end.map(|(at, succeeded)| End { at: Timestamp::from_second(at).expect("a time"), succeeded });
        KnownRun { name: name.to_owned(), end, is_cancelled: false }
    }

    #[test]
    fn the_oldest_of_each_sort_go_and_what_works_stays() {
        let runs = [
            run("e", Some((5, true))),
            run("a", Some((1, true))),
            run("b", Some((2, false))),
            run("c", Some((3, true))),
            run("d", Some((4, false))),
            run("f", None),
        ];
        assert_eq!(outlived(&runs, 2, 1), ["a", "b"]);
        assert_eq!(outlived(&runs, 0, 0), ["a", "c", "e", "b", "d"]);
        assert!(outlived(&runs, 3, 2).is_empty());
    }

    proptest! {
        #[test]
        fn as_many_stay_as_are_asked_for_and_none_that_stays_is_older(
            ends in prop::collection::vec(prop::option::of((0..50_i64, any::<bool>())), 0..30), succeeded in 0..6_i32, others in 0..6_i32
        ) {
            let runs: Vec<KnownRun> = ends.iter().enumerate().map(|(index, end)| run(&format!("r{index}"), *end)).collect();
            let gone = outlived(&runs, succeeded, others);
            let (went, stay): (Vec<_>, Vec<_>) = runs.iter().partition(|run| gone.contains(&run.name));
            for (sort, limit) in [(true, succeeded), (false, others)] {
                let of_sort = |runs: &[&KnownRun]| -> Vec<Timestamp> {
                    runs.iter().filter_map(|run| run.end).filter(|end| end.succeeded == sort).map(|end| end.at).collect()
                };
                let (went, stay) = (of_sort(&went), of_sort(&stay));
                prop_assert_eq!(stay.len(), (went.len() + stay.len()).min(limit as usize));
                prop_assert!(went.iter().max() <= stay.iter().min() || stay.is_empty());
            }
            prop_assert!(went.iter().all(|run| run.end.is_some()));
            let kept: Vec<KnownRun> = stay.into_iter().cloned().collect();
            prop_assert!(outlived(&kept, succeeded, others).is_empty());
        }
    }
}
