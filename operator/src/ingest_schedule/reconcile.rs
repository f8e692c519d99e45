//! Reads what is there, decides, notes it in the status, then makes, cancels and deletes runs.

use super::{
    decide::{News, Plan, Seen, decide},
    history::KnownRun,
    validate::validate,
};
use crate::{
    context::{self, Context, write_status},
    error::Error,
    names::{FIELD_MANAGER, LABEL_SCHEDULE, SCHEDULED_FOR},
    reconciler::Reconciler,
    resources::owner_reference,
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{controller::Action, events::EventType},
};
use penstock_crds::{IngestRun, IngestSchedule, conditions::Reason};
use serde_json::json;
use std::time::Duration;

/// How soon a schedule is looked at again if it is not due before. The clock may be set.
const AGAIN: Duration = Duration::from_secs(300);
/// How soon one that waits for a run is: that the run was deleted is not told.
const WAITING_AGAIN: Duration = Duration::from_secs(10);

impl Reconciler for IngestSchedule {
    async fn reconcile(&self, context: &Context) -> Result<Action, Error> {
        if self.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let mut seen = Seen { now: context.now(), checked: validate(self), runs: runs_of(self, context) };
        let mut plan = decide(self, &seen);
        if plan.start.is_some()
            && let Some(unseen) = last_run_if_unseen(self, &seen, context).await?
        {
            seen.runs.push(unseen);
            plan = decide(self, &seen);
        }
        write_status(context, self, self.status.as_ref(), &plan.status).await?;
        tell(self, context, &plan);
        for run in &plan.cancel {
            cancel(self, context, run).await?;
        }
        if let Some(run) = &plan.start {
            start(self, context, &plan, run).await?;
        }
        for run in plan.outlived.iter().filter_map(|name| context::get(&context.stores.runs, &namespace(self), name)) {
            context.shared.applier.delete(&run).await?;
        }
        Ok(again(&plan, context))
    }
}

fn namespace(schedule: &IngestSchedule) -> String {
    schedule.namespace().unwrap_or_default()
}

/// The runs that this schedule made.
fn runs_of(schedule: &IngestSchedule, context: &Context) -> Vec<KnownRun> {
    let (namespace, name) = (schedule.namespace(), schedule.name_any());
    let is_ours = |run: &IngestRun| {
        run.namespace() == namespace
            && run.labels().get(LABEL_SCHEDULE) == Some(&name)
            && run.owner_references().iter().any(|owner| Some(&owner.uid) == schedule.metadata.uid.as_ref())
    };
    let all = context.stores.runs.state();
    all.iter().filter_map(|run| run.0.as_ref().ok()).filter(|run| is_ours(run)).map(KnownRun::of).collect()
}

/// The run that was started last, if the watch has not told of it yet: nothing is started beside it by mistake.
async fn last_run_if_unseen(schedule: &IngestSchedule, seen: &Seen, context: &Context) -> Result<Option<KnownRun>, Error> {
    let last = schedule.status.as_ref().and_then(|status| status.last_run.as_ref());
    let Some(last) = last.filter(|last| !seen.runs.iter().any(|run| run.name == **last)) else { return Ok(None) };
    let run = context::read::<IngestRun>(context, &namespace(schedule), last).await?;
    Ok(run
        .filter(|run| run.owner_references().iter().any(|owner| Some(&owner.uid) == schedule.metadata.uid.as_ref()))
        .as_ref()
        .map(KnownRun::of))
}

fn tell(schedule: &IngestSchedule, context: &Context, plan: &Plan) {
    for news in &plan.news {
        match news {
            News::Skipped(note) => context.shared.tell(schedule, EventType::Normal, "RunSkipped", note.clone()),
            News::Missed(note) => context.shared.tell(schedule, EventType::Warning, &Reason::StartMissed.to_string(), note.clone()),
        }
    }
}

async fn cancel(schedule: &IngestSchedule, context: &Context, run: &str) -> Result<(), Error> {
    let api: Api<IngestRun> = Api::namespaced(context.shared.client.clone(), &namespace(schedule));
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    match api.patch(run, &parameters, &Patch::Merge(json!({"spec": {"cancel": true}}))).await {
        Ok(_) => {
            context.shared.metrics.applied("IngestRun");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api("cancel", format!("IngestRun {}/{run}", namespace(schedule)), error)),
    }
}

async fn start(schedule: &IngestSchedule, context: &Context, plan: &Plan, name: &str) -> Result<(), Error> {
    let made = context.shared.applier.create_once(&build(schedule, plan, name)).await;
    let (is_made, reason, note) = match made {
        Ok(()) => (true, "RunStarted", format!("{name} is started")),
        // it would be in the way for ever; the next run has another name
        Err(Error::Api { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.reason == "AlreadyExists") => {
            (false, "RunSkipped", format!("{name} is left out: there is an IngestRun of that name which this schedule did not make"))
        }
        Err(error) => return Err(error),
    };
    write_status(context, schedule, Some(&plan.status), &plan.settled(is_made)).await?;
    context.shared.tell(schedule, EventType::Normal, reason, note);
    Ok(())
}

/// The run that is started.
fn build(schedule: &IngestSchedule, plan: &Plan, name: &str) -> IngestRun {
    let template = &schedule.spec.run_template;
    let given = template.metadata.clone().unwrap_or_default();
    let mut run = IngestRun::new(name, template.spec.clone());
    run.metadata.namespace = schedule.namespace();
    run.metadata.labels = Some(given.labels);
    run.metadata.annotations = Some(given.annotations).filter(|annotations| !annotations.is_empty());
    run.metadata.owner_references = Some(vec![owner_reference(schedule)]);
    run.labels_mut().insert(LABEL_SCHEDULE.into(), schedule.name_any());
    let tick = plan.status.last_schedule_time.as_ref().filter(|tick| super::due::name_of_tick(&schedule.name_any(), tick.0) == name);
    if let Some(tick) = tick {
        run.annotations_mut().insert(SCHEDULED_FOR.into(), tick.0.to_string());
    }
    run
}

fn again(plan: &Plan, context: &Context) -> Action {
    let longest = if plan.waits { WAITING_AGAIN } else { AGAIN };
    let until_next = plan.status.next_schedule_time.as_ref().map(|next| next.0.duration_since(context.now()));
    // what has become due meanwhile is due at once
    let until_next = until_next.map(|span| Duration::try_from(span).unwrap_or_default());
    Action::requeue(until_next.map_or(longest, |until_next| until_next.min(longest)))
}
