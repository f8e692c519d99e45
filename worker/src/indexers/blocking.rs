//! Calls that block a thread, from async code.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs work that blocks (a disk, a lock). The other tasks of this thread go on elsewhere, where the runtime has elsewhere.
pub(super) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
