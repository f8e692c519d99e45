//! Who may write: one of several operators, by a Lease. All of them keep their caches warm.
//!
//! [`election`] decides (pure), [`candidate`] talks to the API server, [`gate`] holds back the writes of whoever does not lead.
//! The lease is our own work because a leader must know by itself that its time is over: one whose renewals are not answered has to
//! stop before somebody else begins, and a takeover has to be refused if another one was faster.

mod candidate;
mod election;
mod gate;

pub use candidate::{Candidate, Lease};
pub use gate::Gate;

use std::time::Instant;
use tokio::sync::watch;

/// Whether this process may write. Clones know the same.
#[derive(Clone)]
pub struct Leadership(Option<watch::Receiver<Option<Instant>>>);

impl Leadership {
    /// It may: it is alone.
    pub fn alone() -> Self {
        Self(None)
    }

    /// Whether this process may write at this moment. A leader that could not renew its lease in time does not lead any more, even if
    /// it could not act on it yet: it may have been stopped, or its requests hang.
    pub fn is_leader(&self) -> bool {
        self.0.as_ref().is_none_or(|until| until.borrow().is_some_and(|until| Instant::now() < until))
    }

    /// Waits until this process leads, or has ceased to.
    pub async fn changed(&self) {
        let Some(until) = &self.0 else { return std::future::pending().await };
        let (mut until, leads) = (until.clone(), self.is_leader());
        // without a sender nothing changes any more: the process ends
        let _ = until.wait_for(|until| until.is_some() != leads).await;
    }
}
