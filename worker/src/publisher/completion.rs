//! When a step is over. Pure: the publisher's loop says what it knows, the answer is what to do next.
//!
//! The connector has returned → CHECKPOINT with `end` is in the log → the barrier has passed → nothing is pending → COMPLETE is
//! written → and read back, with no other publisher's claim before it → `post` actions → complete. What is pending once the
//! barrier has passed is unaccounted for: no event can come any more.

use penstock_crds::ingest_run::Counts;

/// Where the connector is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// It reads.
    #[default]
    Reading,
    /// It has given all that its source has, and everything was handed on.
    Exhausted,
    /// It has returned before the end, since it was told to stop; what it gave was handed on.
    Stopped,
    /// It has failed.
    Failed,
}

/// What is known of a step. Nothing of it is ever taken back, save that documents are pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Where the connector is.
    pub source: Source,
    /// CHECKPOINT with `end` is in the log.
    pub end_is_safe: bool,
    /// The ledger, as far as the log was read.
    pub counts: Counts,
    /// No event of the step can come any more that is not in the ledger.
    pub barrier_passed: bool,
    /// COMPLETE of this publisher, or of one before it, was read.
    pub is_complete: bool,
    /// The epoch of another publisher that has claimed the log.
    pub superseded_by: Option<u64>,
    /// The step was cancelled, or has failed: it will not be complete, whatever becomes of what was accepted.
    pub is_given_up: bool,
    /// The time that a stopped step has for what was accepted is over.
    pub grace_is_over: bool,
    /// How the `post` actions went, once they were run.
    pub post: Option<Post>,
}

/// How the `post` actions went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// All succeeded, or there are none.
    Succeeded,
    /// One failed.
    Failed,
}

/// What to do next. The answer stays the same until a fact changes: what has been begun is not begun again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on reading the source, or wait until all that it gave is acknowledged and the last checkpoint is written.
    Publish,
    /// See to it that no event can be under way: begin the barrier, or wait for it.
    PassBarrier,
    /// Wait for the events of what was accepted.
    Drain,
    /// Write COMPLETE with the counts and read the log on to it.
    WriteComplete,
    /// Run the `post` actions. It may be the second time: a publisher before may have died in them.
    RunPost,
    /// The step is over.
    End(End),
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every document is accounted for, and the `post` actions succeeded.
    Complete,
    /// Every document is accounted for, but a `post` action failed.
    PostFailed,
    /// So many documents were accepted and nobody can say what became of them.
    Unaccounted(u64),
    /// The connector failed; what it gave may still be processed, but is no longer waited for.
    SourceFailed,
    /// The step was stopped; so many documents were still pending.
    Stopped {
        /// Accepted, and not accounted for in time.
        pending: u64,
    },
    /// Another publisher goes on with the step.
    Superseded {
        /// Its epoch.
        by: u64,
    },
}

/// Decides what to do next.
pub fn next(facts: &Facts) -> Next {
    if let Some(by) = facts.superseded_by {
        return Next::End(End::Superseded { by });
    }
    if facts.is_complete {
        return match facts.post {
            None => Next::RunPost,
            Some(Post::Succeeded) => Next::End(End::Complete),
            Some(Post::Failed) => Next::End(End::PostFailed),
        };
    }
    let pending = facts.counts.pending;
    match facts.source {
        Source::Failed => Next::End(End::SourceFailed),
        // it may wait for brokers that are gone, and never return
        _ if facts.grace_is_over => Next::End(End::Stopped { pending }),
        Source::Reading => Next::Publish,
        Source::Stopped if pending == 0 => Next::End(End::Stopped { pending }),
        Source::Stopped => Next::Drain,
        Source::Exhausted if facts.is_given_up && pending == 0 => Next::End(End::Stopped { pending }),
        Source::Exhausted if facts.is_given_up => Next::Drain,
        Source::Exhausted if !facts.end_is_safe => Next::Publish,
        Source::Exhausted if !facts.barrier_passed => Next::PassBarrier,
        Source::Exhausted if pending > 0 => Next::End(End::Unaccounted(pending)),
        Source::Exhausted => Next::WriteComplete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pending(pending: u64) -> Counts {
        Counts { published: 9, finished: 9 - pending, pending, ..Counts::default() }
    }

    fn settled() -> Facts {
        Facts { source: Source::Exhausted, end_is_safe: true, counts: pending(0), barrier_passed: true, ..Facts::default() }
    }

    #[test]
    fn a_step_ends_by_these_stations() {
        let mut facts = Facts { counts: pending(3), ..Facts::default() };
        assert_eq!(next(&facts), Next::Publish);
        facts.source = Source::Exhausted;
        assert_eq!(next(&facts), Next::Publish, "the last checkpoint is not in the log");
        facts.end_is_safe = true;
        assert_eq!(next(&facts), Next::PassBarrier);
        facts.counts = pending(0);
        assert_eq!(next(&facts), Next::PassBarrier);
        facts.barrier_passed = true;
        assert_eq!(next(&facts), Next::WriteComplete);
        facts.is_complete = true;
        assert_eq!(next(&facts), Next::RunPost);
        facts.post = Some(Post::Succeeded);
        assert_eq!(next(&facts), Next::End(End::Complete));
        facts.post = Some(Post::Failed);
        assert_eq!(next(&facts), Next::End(End::PostFailed));
    }

    #[test]
    fn never_complete_before_connector_checkpoint_barrier_and_documents_are_done_p12() {
        let lacking = [
            Facts { source: Source::Reading, ..settled() },
            Facts { source: Source::Stopped, ..settled() },
            Facts { end_is_safe: false, ..settled() },
            Facts { barrier_passed: false, ..settled() },
            Facts { counts: pending(1), ..settled() },
        ];
        assert_eq!(next(&settled()), Next::WriteComplete);
        for facts in lacking {
            assert_ne!(next(&facts), Next::WriteComplete, "{facts:?}");
        }
    }

    #[test]
    fn a_failed_connector_ends_the_step_at_once_without_draining_p13() {
        assert_eq!(next(&Facts { source: Source::Failed, counts: pending(5), ..Facts::default() }), Next::End(End::SourceFailed));
    }

    #[test]
    fn row_15_a_superseded_publisher_runs_no_post_actions() {
        assert_eq!(next(&Facts { superseded_by: Some(8), ..settled() }), Next::End(End::Superseded { by: 8 }));
    }

    #[test]
    fn row_15_the_successor_of_a_complete_step_publishes_nothing() {
        assert_eq!(next(&Facts { is_complete: true, ..Facts::default() }), Next::RunPost);
    }

    #[test]
    fn row_16_nothing_pending_is_not_enough_without_the_barrier() {
        assert_eq!(next(&Facts { barrier_passed: false, ..settled() }), Next::PassBarrier);
    }

    #[test]
    fn row_18_what_is_pending_behind_the_barrier_is_unaccounted_for_x5() {
        assert_eq!(next(&Facts { counts: pending(4), ..settled() }), Next::End(End::Unaccounted(4)));
    }

    #[test]
    fn a_stopped_step_waits_for_what_was_accepted_until_its_time_is_over() {
        let mut facts = Facts { source: Source::Stopped, counts: pending(2), ..Facts::default() };
        assert_eq!(next(&facts), Next::Drain);
        facts.grace_is_over = true;
        assert_eq!(next(&facts), Next::End(End::Stopped { pending: 2 }));
        facts.counts = pending(0);
        facts.grace_is_over = false;
        assert_eq!(next(&facts), Next::End(End::Stopped { pending: 0 }));
    }

    #[test]
    fn a_step_that_was_given_up_finishes_what_was_accepted_and_is_never_complete() {
        let given_up = Facts { is_given_up: true, ..settled() };
        assert_eq!(next(&given_up), Next::End(End::Stopped { pending: 0 }));
        let mut facts = Facts { counts: pending(4), end_is_safe: false, barrier_passed: false, ..given_up };
        assert_eq!(next(&facts), Next::Drain, "neither checkpoint nor barrier is waited for");
        facts.source = Source::Reading;
        assert_eq!(next(&facts), Next::Publish, "the connector is told to stop");
        facts.grace_is_over = true;
        assert_eq!(next(&facts), Next::End(End::Stopped { pending: 4 }), "also if the connector does not return");
    }

    #[test]
    fn a_step_that_is_complete_stays_so_when_it_is_given_up() {
        let facts = Facts { is_complete: true, is_given_up: true, grace_is_over: true, ..settled() };
        assert_eq!(next(&facts), Next::RunPost);
        assert_eq!(next(&Facts { post: Some(Post::Succeeded), ..facts }), Next::End(End::Complete));
    }

    proptest! {
        #[test]
        fn whatever_is_known_only_a_true_complete_counts_as_success(
            source in prop_oneof![Just(Source::Reading), Just(Source::Exhausted), Just(Source::Stopped), Just(Source::Failed)],
            flags in any::<[bool; 5]>(), open in 0..2_u64, superseded in any::<bool>(), post in any::<Option<bool>>(),
        ) {
            let [end_is_safe, barrier_passed, is_complete, is_given_up, grace_is_over] = flags;
            let post = post.map(|succeeded| if succeeded { Post::Succeeded } else { Post::Failed });
            let superseded_by = superseded.then_some(3);
            let counts = pending(open);
            let facts = Facts { source, end_is_safe, counts, barrier_passed, is_complete, superseded_by, is_given_up, grace_is_over, post };
            match next(&facts) {
                Next::WriteComplete => {
                    prop_assert!(source == Source::Exhausted && end_is_safe && barrier_passed && open == 0 && !superseded && !is_given_up)
                }
                Next::RunPost => prop_assert!(is_complete && !superseded && post.is_none()),
                Next::End(End::Complete) => prop_assert!(is_complete && !superseded && post == Some(Post::Succeeded)),
                Next::End(End::Unaccounted(number)) => prop_assert!(barrier_passed && number == open && open > 0),
                _ => {}
            }
        }
    }
}
