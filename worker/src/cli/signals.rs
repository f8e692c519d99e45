//! SIGINT and SIGTERM: the first drains, the second ends at once.

use super::Exit;
use crate::runner::Control;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for signals as long as the process lives.
pub(super) async fn end_on_signal(control: Control) {
    let (Ok(mut interrupts), Ok(mut terminations)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        tracing::error!("failed to listen for signals; the process can only be killed");
        return;
    };
    loop {
        let exit = tokio::select! {
            _ = interrupts.recv() => Exit::SecondInterrupt,
            _ = terminations.recv() => Exit::SecondTerminate,
        };
        if control.drain.is_cancelled() {
            std::process::exit(exit.code().into());
        }
        tracing::warn!("stopping: finishing the documents in flight; a second signal ends at once");
        control.drain.cancel();
    }
}
