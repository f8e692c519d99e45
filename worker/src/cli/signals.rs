//! SIGINT and SIGTERM: the first drains, the second ends at once; so does the first where there is nothing to finish.

use super::{Exit, result::LastWords};
use crate::runner::Control;
use anyhow::Context;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};

/// Listens for signals as long as the process lives. From the return of this function on, none of them kills the process unheard.
pub(super) fn end_on_signal(control: Control, is_idle: Arc<AtomicBool>, last_words: LastWords, runtime: &Runtime) -> anyhow::Result<()> {
    let _inside = runtime.enter();
    let listen = |kind| signal(kind).context("failed to listen for signals");
    runtime.spawn(wait(control, is_idle, last_words, listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?));
    Ok(())
}

async fn wait(control: Control, is_idle: Arc<AtomicBool>, last_words: LastWords, mut interrupts: Signal, mut terminations: Signal) {
    loop {
        let exit = tokio::select! {
            _ = interrupts.recv() => Exit::SecondInterrupt,
            _ = terminations.recv() => Exit::SecondTerminate,
        };
        if control.drain.is_cancelled() {
            last_words.say();
            std::process::exit(exit.code().into());
        }
        if is_idle.load(Ordering::Acquire) {
            tracing::warn!("ended before it had begun: nothing was read");
            std::process::exit(Exit::Interrupted.code().into());
        }
        tracing::warn!("stopping: finishing the documents in flight; a second signal ends at once");
        control.drain.cancel();
    }
}
