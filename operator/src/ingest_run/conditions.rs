//! The conditions of a run, and its phase, which follows from them. Pure.

use super::advance::Next;
use crate::status::Conditions;
use k8s_openapi::jiff::Timestamp;
use penstock_crds::{
    IngestRun,
    conditions::{ConditionType as C, Reason, RunPhase},
    ingest_run::IngestRunStatus,
};

/// Completes the status of a run.
pub fn complete(run: &IngestRun, next: &Next, problems: &[String], now: Timestamp) -> IngestRunStatus {
    let mut status = next.status.clone();
    let old = run.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut conditions = Conditions::new(old, run.metadata.generation, now);
    let (reason, message) = &next.why;
    match &next.ending {
        Some(ending) if ending.succeeded => {
            conditions.set(C::Ready, Some(true), ending.reason, ending.message.clone());
            conditions.set(C::Complete, Some(true), ending.reason, ending.message.clone());
        }
        Some(ending) => {
            conditions.set(C::Ready, Some(false), ending.reason, ending.message.clone());
            conditions.set(C::Failed, Some(true), ending.reason, ending.message.clone());
            conditions.set(C::Stalled, Some(true), ending.reason, ending.message.clone());
        }
        None => {
            conditions.set(C::Ready, Some(false), *reason, message.clone());
            conditions.set(C::Reconciling, Some(true), *reason, message.clone());
        }
    }
    if problems.is_empty() {
        conditions.set(C::SpecValid, Some(true), Reason::AsSpecified, "");
    } else {
        conditions.set(C::SpecValid, Some(false), Reason::InvalidSpec, problems.join("\n"));
    }
    if status.start_time.is_some() && next.ending.is_none() {
        match &next.no_progress {
            Some(message) => conditions.set(C::Progressing, Some(false), Reason::NoProgress, message.clone()),
            None => conditions.set(C::Progressing, Some(true), Reason::DocumentsCompleting, ""),
        };
    }
    if next.ending.is_none() {
        conditions.set_while(run.spec.suspend, C::Suspended, Reason::Suspended, "suspend is set: nothing is published");
        conditions.set_while(next.is_cancelling, C::Cancelling, Reason::Cancelling, "what was published is being finished");
    }
    status.conditions = conditions.finish();
    status.phase = Some(RunPhase::from_conditions(&status.conditions));
    status
}
