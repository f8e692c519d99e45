//! How a run is asked to end.

use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Asks a run to end. Clones ask the same run.
#[derive(Clone, Debug)]
pub struct Control {
    /// Take no more documents; finish what was taken.
    pub drain: CancellationToken,
    /// End at once; what is in work stays pending.
    pub abort: CancellationToken,
    /// How long draining may take.
    pub grace: Arc<Duration>,
}

impl Control {
    /// A run that nobody has asked to end, and that may drain that long.
    pub fn new(grace: Duration) -> Self {
        Self { drain: CancellationToken::new(), abort: CancellationToken::new(), grace: Arc::new(grace) }
    }

    /// Waits until the run was asked to end and its time to drain is over.
    pub async fn grace_is_over(&self) {
        self.drain.cancelled().await;
        tokio::time::sleep(*self.grace).await;
    }

    /// Whether the run is to end.
    pub fn is_ending(&self) -> bool {
        self.drain.is_cancelled() || self.abort.is_cancelled()
    }
}
