//! Runs: connectors one after the other, each a Job that starts only after the one before it succeeded.
//!
//! A reconcile: read what is there ([`observed`]), decide ([`advance`]), write the status, then act.

mod advance;
mod after;
mod conditions;
mod gate;
pub mod observed;
mod poller;
mod publish;
mod validate;

pub use poller::Pollers;

use crate::{
    context::{Context, write_status},
    error::Error,
    finalizer,
    reconciler::Reconciler,
};
use advance::Next;
use kube::{ResourceExt, runtime::controller::Action};
use penstock_crds::{IngestRun, conditions::RunPhase};
use std::time::Duration;

/// How soon a run at work is looked at again, if nothing wakes it before.
const AGAIN: Duration = Duration::from_secs(10);

impl Reconciler for IngestRun {
    async fn reconcile(&self, context: &Context) -> Result<Action, Error> {
        if self.metadata.deletion_timestamp.is_some() {
            return after::deleted(self, context).await;
        }
        if self.status.as_ref().and_then(|status| status.phase).is_some_and(RunPhase::is_final) {
            return after::ended(self, context).await;
        }
        let seen = observed::read(self, context);
        let next = advance::advance(self, &seen);
        let uses_kafka = seen.pipelines.values().any(|pipeline| pipeline.event_topic != advance::EventTopic::NotNeeded);
        if next.status.start_time.is_some() && next.ending.is_none() {
            finalizer::keep(context, self, uses_kafka).await?;
        }
        let status = conditions::complete(self, &next, &seen.problems, seen.now);
        let changed = write_status(context, self, self.status.as_ref(), &status).await?;
        act(self, context, &next).await?;
        // what was just written decides what comes next
        Ok(if changed && next.ending.is_some() { Action::requeue(Duration::from_secs(1)) } else { Action::requeue(AGAIN) })
    }
}

async fn act(run: &IngestRun, context: &Context, next: &Next) -> Result<(), Error> {
    if let Some(index) = next.stop {
        publish::stop(run, context, &next.status, index).await?;
    }
    if next.ending.is_some() {
        context.pollers.stop(&run.namespace().unwrap_or_default(), &run.name_any());
    }
    match next.publish {
        Some(index) => publish::keep_publishing(run, context, next, index).await,
        None => Ok(()),
    }
}
