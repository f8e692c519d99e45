//! How a run is asked to end, to pause, or to go on.

use crate::publisher::StepState;
use parking_lot::Mutex;
use penstock_crds::report::Wanted;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Asks a run to end or to pause. Clones ask the same run.
#[derive(Clone, Debug)]
pub struct Control {
    /// Take no more documents; finish what was taken.
    pub drain: CancellationToken,
    /// End at once; what is in work stays pending.
    pub abort: CancellationToken,
    /// How long draining may take.
    pub grace: Arc<Duration>,
    cancel: CancellationToken,
    governed: Arc<Mutex<Governed>>,
}

/// What is wanted, and the step at work. Both change under one lock, so that no step misses a word.
#[derive(Debug, Default)]
struct Governed {
    wanted: Wanted,
    step: Weak<StepState>,
}

/// A cancelled run cannot be revived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run is cancelled, and that cannot be taken back: start a new one")]
pub struct AlreadyCancelled;

impl Control {
    /// A run that nobody has asked to end, and that may drain that long.
    pub fn new(grace: Duration) -> Self {
        Self {
            drain: CancellationToken::new(),
            abort: CancellationToken::new(),
            grace: Arc::new(grace),
            cancel: CancellationToken::new(),
            governed: Arc::default(),
        }
    }

    /// Waits until the run was asked to end and its time to drain is over.
    pub async fn grace_is_over(&self) {
        self.drain.cancelled().await;
        tokio::time::sleep(*self.grace).await;
    }

    /// Whether the run is to end, and can be gone on with.
    pub fn is_ending(&self) -> bool {
        self.drain.is_cancelled() || self.abort.is_cancelled()
    }

    /// Says what is wanted of the run. It holds at once, for the step at work and for those that follow.
    ///
    /// # Errors
    /// The run is cancelled, and something else is wanted now.
    pub fn want(&self, wanted: Wanted) -> Result<(), AlreadyCancelled> {
        let mut governed = self.governed.lock();
        if governed.wanted == wanted {
            return Ok(());
        }
        if governed.wanted == Wanted::Cancel {
            return Err(AlreadyCancelled);
        }
        tracing::info!(before = %governed.wanted, %wanted, "the run is told what to do");
        governed.wanted = wanted;
        governed.apply();
        if wanted == Wanted::Cancel {
            self.cancel.cancel();
        }
        Ok(())
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the run is cancelled.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// A step begins: what is wanted holds for it, from before its first document.
    pub(super) fn govern(&self, step: &Arc<StepState>) {
        let mut governed = self.governed.lock();
        governed.step = Arc::downgrade(step);
        governed.apply();
    }
}

impl Governed {
    fn apply(&self) {
        let Some(step) = self.step.upgrade() else { return };
        step.suspend(self.wanted == Wanted::Suspend);
        if self.wanted == Wanted::Cancel {
            step.stop_publishing();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_holds_for_the_step_at_work_and_for_the_next() {
        let control = Control::new(Duration::ZERO);
        let (first, second) = (StepState::new(), StepState::new());
        control.govern(&first);
        assert!(!first.is_suspended());
        control.want(Wanted::Suspend).expect("allowed");
        control.want(Wanted::Suspend).expect("twice is no fault");
        assert!(first.is_suspended());
        control.govern(&second);
        assert!(second.is_suspended());
        control.want(Wanted::Run).expect("allowed");
        assert_eq!((second.is_suspended(), second.is_stopping()), (false, false));
    }

    #[test]
    fn a_cancelled_run_publishes_nothing_more_and_cannot_be_revived() {
        let control = Control::new(Duration::ZERO);
        let (first, second) = (StepState::new(), StepState::new());
        control.govern(&first);
        control.want(Wanted::Suspend).expect("allowed");
        control.want(Wanted::Cancel).expect("allowed");
        assert_eq!((first.is_suspended(), first.is_stopping(), control.is_cancelled()), (false, true, true));
        for wanted in [Wanted::Run, Wanted::Suspend] {
            assert_eq!(control.want(wanted), Err(AlreadyCancelled));
        }
        assert_eq!(control.want(Wanted::Cancel), Ok(()));
        control.govern(&second);
        assert!(second.is_stopping());
        assert!(!control.is_ending(), "nobody goes on with it");
    }
}
