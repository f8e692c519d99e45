//! What a schedule does now. Pure: spec, status, runs and the time in; the new status and what to do out.
//!
//! A run that is to be started is noted first, in `lastRun` and by a `Reconciling` condition, then made, then the condition goes. So a
//! tick is looked at once, a process that dies in between makes the run that it noted, and one that waits for the run it replaces is
//! not forgotten.

use super::{
    cron::Cron,
    due::{self, due},
    history::{KnownRun, outlived},
};
use crate::status::{self, Conditions};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::ResourceExt;
use penstock_crds::{
    IngestSchedule,
    conditions::{ConditionType as C, Reason},
    ingest_schedule::{ConcurrencyPolicy, IngestScheduleStatus},
};

/// What is known when it is decided.
pub struct Seen {
    /// The time.
    pub now: Timestamp,
    /// When it is due; or what is wrong with it.
    pub checked: Result<Option<Cron>, Vec<String>>,
    /// Its runs.
    pub runs: Vec<KnownRun>,
}

/// What is done.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// What is noted before anything else.
    pub status: IngestScheduleStatus,
    /// The run that is made then.
    pub start: Option<String>,
    /// Runs that are cancelled, to be replaced.
    pub cancel: Vec<String>,
    /// Runs that are deleted: there are newer ones.
    pub outlived: Vec<String>,
    /// What people are told.
    pub news: Vec<News>,
    /// Whether it waits for a run that is at work.
    pub waits: bool,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// A run was left out.
    Skipped(String),
    /// It was too late for a run.
    Missed(String),
}

impl Plan {
    /// The status when the run is made, or will never be.
    pub fn settled(&self, is_made: bool) -> IngestScheduleStatus {
        let mut status = self.status.clone();
        status.conditions.retain(|condition| condition.type_ != C::Reconciling.to_string());
        status.active = status.active.map(|active| active.saturating_add(is_made.into()));
        status
    }
}

/// Decides.
pub fn decide(schedule: &IngestSchedule, seen: &Seen) -> Plan {
    let mut course = Course::new(schedule, seen);
    match &seen.checked {
        Ok(cron) if !schedule.spec.suspend => {
            course.look_at_ticks(cron.as_ref());
            course.look_at_nonce();
            course.keep_promise();
        }
        // ticks that pass while it is suspended are left out
        Ok(_) => course.plan.status.next_schedule_time = None,
        Err(_) => {}
    }
    course.finish()
}

/// A decision on its way.
struct Course<'a> {
    schedule: &'a IngestSchedule,
    seen: &'a Seen,
    old: IngestScheduleStatus,
    plan: Plan,
    /// The run that was noted and not made yet.
    promised: Option<String>,
    /// What is being brought about.
    pending: Option<(Reason, String)>,
    /// How the last tick went.
    last: (Reason, String),
}

impl<'a> Course<'a> {
    fn new(schedule: &'a IngestSchedule, seen: &'a Seen) -> Self {
        let old = schedule.status.clone().unwrap_or_default();
        let noted = status::find(&old.conditions, C::Reconciling).filter(|condition| condition.reason == Reason::ChangePending.to_string());
        let promised = noted.and(old.last_run.clone());
        let went = |condition: &&_| [Reason::RunStillActive, Reason::StartMissed].contains(&reason(condition));
        let last = status::find(&old.conditions, C::Ready).filter(went);
        let last = last.map_or((Reason::AsSpecified, String::new()), |ready| (reason(ready), ready.message.clone()));
        let pending = promised.as_ref().map(|name| (Reason::ChangePending, format!("{name} is to be started")));
        let active = seen.runs.iter().filter(|run| run.end.is_none()).count();
        let ended_well = seen.runs.iter().filter_map(|run| run.end.filter(|end| end.succeeded)).map(|end| Time(end.at)).max();
        let new = IngestScheduleStatus {
            observed_generation: schedule.metadata.generation,
            active: i32::try_from(active).ok(),
            last_successful_time: old.last_successful_time.clone().max(ended_well),
            ..old.clone()
        };
        Self { schedule, seen, old, plan: Plan { status: new, ..Plan::default() }, promised, pending, last }
    }

    /// Runs that are at work, other than the promised one.
    fn at_work(&self) -> Vec<&'a KnownRun> {
        self.seen.runs.iter().filter(|run| run.end.is_none() && Some(&run.name) != self.promised.as_ref()).collect()
    }

    /// Whether a run has to be at its end before another one begins.
    fn is_taken(&self) -> bool {
        self.schedule.spec.concurrency_policy == ConcurrencyPolicy::Forbid && (self.promised.is_some() || !self.at_work().is_empty())
    }

    fn look_at_ticks(&mut self, cron: Option<&Cron>) {
        let Some(cron) = cron else {
            self.plan.status.next_schedule_time = None;
            return;
        };
        let deadline = self.schedule.spec.starting_deadline.map(penstock_crds::values::Duration::get);
        let due = due(cron, self.looked_at_until(), self.seen.now, deadline);
        self.plan.status.next_schedule_time = due.next.map(Time);
        if let Some(missed) = due.missed {
            let text = format!("the run due at {} was not started within startingDeadline, and is left out", shown(missed));
            self.last = (Reason::StartMissed, text.clone());
            self.plan.news.push(News::Missed(text));
        }
        let Some(tick) = due.tick else { return };
        if self.is_taken() {
            let text = format!("the run due at {} is left out: {} is still at work", shown(tick), self.names_at_work());
            self.last = (Reason::RunStillActive, text.clone());
            self.plan.news.push(News::Skipped(text));
            return;
        }
        self.promise(due::name_of_tick(&self.schedule.name_any(), tick));
        self.plan.status.last_schedule_time = Some(Time(tick));
    }

    /// The first tick that nobody has looked at yet is not before this time. A new schedule begins with its creation, one that was
    /// suspended or had no times with this moment.
    fn looked_at_until(&self) -> Timestamp {
        let created = self.schedule.creation_timestamp().map_or(self.seen.now, |time| time.0);
        match &self.old.next_schedule_time {
            Some(next) => next.0,
            None if self.old.observed_generation.is_some() => self.seen.now,
            None => created,
        }
    }

    fn look_at_nonce(&mut self) {
        let nonce = self.schedule.spec.trigger_nonce.clone();
        let Some(nonce) = nonce.filter(|nonce| self.old.handled_nonce.as_ref() != Some(nonce)) else { return };
        let name = due::name_of_nonce(&self.schedule.name_any(), &nonce);
        if self.seen.runs.iter().any(|run| run.name == name) {
            let text = format!("triggerNonce `{nonce}` had its run already, {name}; write a value that was not used before");
            self.plan.news.push(News::Skipped(text));
            self.plan.status.handled_nonce = Some(nonce);
        } else if self.is_taken() {
            self.plan.waits = true;
            let text = format!("the run for triggerNonce `{nonce}` waits until {} has ended", self.names_at_work());
            self.pending = self.pending.take().or(Some((Reason::RunStillActive, text)));
        } else if self.promised.is_some() {
            // one after the other
            self.plan.waits = true;
        } else {
            self.promise(name);
            self.plan.status.handled_nonce = Some(nonce);
        }
    }

    /// Notes a run that is to be made.
    fn promise(&mut self, name: String) {
        if let Some(never_made) = self.promised.replace(name.clone()) {
            self.plan.news.push(News::Skipped(format!("{never_made} is left out: {name} was due before it could start")));
        }
        self.plan.status.last_run = Some(name);
        self.last = (Reason::AsSpecified, String::new());
    }

    /// Makes the run that was noted, when it may begin.
    fn keep_promise(&mut self) {
        let Some(name) = self.promised.clone() else { return };
        if self.seen.runs.iter().any(|run| run.name == name) {
            self.promised = None;
            self.pending = None;
            return;
        }
        let others = self.at_work();
        if self.schedule.spec.concurrency_policy == ConcurrencyPolicy::Replace && !others.is_empty() {
            self.plan.cancel = others.iter().filter(|run| !run.is_cancelled).map(|run| run.name.clone()).collect();
            self.plan.waits = true;
            self.pending =
                Some((Reason::ChangePending, format!("{name} waits until {}, which it replaces, has ended", self.names_at_work())));
            return;
        }
        self.pending = Some((Reason::ChangePending, format!("{name} is being started")));
        self.plan.start = Some(name);
    }

    fn names_at_work(&self) -> String {
        let names: Vec<&str> = self.at_work().iter().map(|run| run.name.as_str()).chain(self.promised.as_deref()).collect();
        match names.as_slice() {
            [first, _, _, ..] => format!("{first} and {} more", names.len() - 1),
            names => names.join(" and "),
        }
    }

    fn finish(mut self) -> Plan {
        let spec = &self.schedule.spec;
        self.plan.outlived = outlived(&self.seen.runs, spec.successful_runs_history_limit, spec.failed_runs_history_limit);
        let mut conditions = Conditions::new(&self.old.conditions, self.schedule.metadata.generation, self.seen.now);
        match &self.seen.checked {
            Err(problems) => {
                let message = problems.join("\n");
                conditions.set(C::Ready, Some(false), Reason::InvalidSpec, message.clone());
                conditions.set(C::SpecValid, Some(false), Reason::InvalidSpec, message.clone());
                conditions.set(C::Stalled, Some(true), Reason::InvalidSpec, message);
            }
            Ok(_) => {
                let (reason, message) = if spec.suspend { (Reason::Suspended, SUSPENDED.to_owned()) } else { self.last };
                conditions.set(C::Ready, Some(!spec.suspend), reason, message);
                conditions.set(C::SpecValid, Some(true), Reason::AsSpecified, "");
            }
        }
        conditions.set_while(spec.suspend, C::Suspended, Reason::Suspended, SUSPENDED);
        if let Some((reason, message)) = self.pending {
            conditions.set(C::Reconciling, Some(true), reason, message);
        }
        self.plan.status.conditions = conditions.finish();
        self.plan
    }
}

const SUSPENDED: &str = "suspend is set: nothing is started";

fn reason(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> Reason {
    Reason::from_name(&condition.reason).unwrap_or(Reason::AsSpecified)
}

/// A time for people, to the second.
fn shown(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests;
