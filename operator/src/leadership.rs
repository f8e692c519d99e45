//! Who may write: one of several operators, by a Lease. All of them keep their caches warm.

use anyhow::Context;
use kube::Client;
use kube_lease_manager::LeaseManagerBuilder;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a lease holds without being renewed, in seconds …
const DURATION: u64 = 15;
/// … and how long before its end it is renewed.
const GRACE: u64 = 5;

/// Whether this process may write.
#[derive(Clone)]
pub struct Leadership {
    leads: watch::Receiver<bool>,
}

impl Leadership {
    /// It may: it is alone.
    pub fn alone() -> Self {
        let (sender, leads) = watch::channel(true);
        // nothing ever changes
        std::mem::forget(sender);
        Self { leads }
    }

    /// Stands for election from now on. Who loses the lease ends: `end` is cancelled then.
    ///
    /// # Errors
    /// The lease can neither be read nor made.
    pub async fn by_lease(client: Client, namespace: &str, name: &str, identity: &str, end: CancellationToken) -> anyhow::Result<Self> {
        let manager = LeaseManagerBuilder::new(client, name).with_namespace(namespace).with_identity(identity);
        let manager = manager.with_duration(DURATION).with_grace(GRACE).build().await;
        let manager = manager.with_context(|| format!("failed to read or make the Lease {namespace}/{name}"))?;
        let (mut held, task) = manager.watch().await;
        let (sender, leads) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let holds = *held.borrow_and_update();
                if holds != *sender.borrow() {
                    if !holds {
                        tracing::error!("the lease is lost: somebody else leads; this process ends and stands for election again");
                        break;
                    }
                    tracing::info!("this process leads");
                    let _ = sender.send(true);
                }
                tokio::select! {
                    changed = held.changed() => if changed.is_err() { break },
                    () = end.cancelled() => break,
                }
            }
            let _ = sender.send(false);
            end.cancel();
            // dropping the channel releases the lease
            drop(held);
            if let Ok(Err(error)) = task.await {
                tracing::warn!(%error, "the lease could not be released");
            }
        });
        Ok(Self { leads })
    }

    /// Whether this process may write.
    pub fn is_leader(&self) -> bool {
        *self.leads.borrow()
    }

    /// Waits until it may.
    pub async fn wait(&self) {
        let mut leads = self.leads.clone();
        // without a sender nothing changes any more: the process ends
        let _ = leads.wait_for(|leads| *leads).await;
    }
}
