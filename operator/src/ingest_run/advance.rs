//! The course of a run: from what its status says and what is seen, to what its status says next and what is to be done. Pure.
//!
//! What is to be done follows from the new status alone, so an operator that dies between the two goes on where it was.

use super::gate::{self, Facts, Gate, PipelineState};
use crate::names;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp, Unit},
};
use kube::ResourceExt;
use penstock_crds::{
    IngestRun,
    conditions::{ConnectorState as State, Reason},
    connectors::{Connector, RestartPolicy},
    ingest_run::{ConnectorStatus, Counts, FailureSample, IngestRunStatus},
    pipeline::Mode,
    report::{StepReport, Wanted},
};
use std::collections::BTreeMap;

/// So many Jobs are tried for one connector: each of them tries several pods.
const MOST_ATTEMPTS: i32 = 5;
/// So many failed documents are shown for a connector, and for a run.
const SAMPLES: (usize, usize) = (10, 100);
/// The longest text of a sample.
const LONGEST_SAMPLE: usize = 256;
/// How much longer than `cancelGracePeriod` a publisher may take to end.
const CANCEL_MARGIN: SignedDuration = SignedDuration::from_secs(60);
/// How long the last word of a pod may come after the end of its Job.
const LAST_WORD: SignedDuration = SignedDuration::from_secs(10);

/// What is seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What is wrong with the run, a line each.
    pub problems: Vec<String>,
    /// The pipelines of the connectors.
    pub pipelines: BTreeMap<String, PipelineSeen>,
    /// An older run that has to end first.
    pub older_run: Option<String>,
    /// The publisher of the connector at work, if there is one.
    pub publisher: Publisher,
    /// The image for new pods.
    pub image: String,
    /// The time.
    pub now: Timestamp,
}

/// What is seen of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSeen {
    /// Whether it takes documents.
    pub state: PipelineState,
    /// Where its parts run.
    pub mode: Mode,
    /// Whether the run's event topic is there.
    pub event_topic: EventTopic,
}

/// What is seen of the event topic of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventTopic {
    /// The pipeline works without.
    NotNeeded,
    /// It is not known.
    Unknown,
    /// There is none.
    Missing,
    /// It is there.
    There,
}

/// What is seen of a connector's publisher.
#[derive(Clone, Debug, Default)]
pub struct Publisher {
    /// Its Job.
    pub job: JobState,
    /// What it says while it works.
    pub report: Option<StepReport>,
    /// What it said at its end.
    pub last_word: Option<StepReport>,
    /// What Kubernetes says is wrong with its pod.
    pub trouble: Option<(Reason, String)>,
    /// How long nothing has moved.
    pub still_for: SignedDuration,
}

/// What is seen of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobState {
    /// There is none.
    #[default]
    Missing,
    /// It works.
    Active,
    /// Its pod ended well.
    Complete {
        /// When.
        at: Option<Timestamp>,
    },
    /// It gave up.
    Failed {
        /// Why, in Kubernetes' words.
        reason: String,
        /// The same, longer.
        message: String,
        /// When.
        at: Option<Timestamp>,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Why.
    pub reason: Reason,
    /// Why, for people.
    pub message: String,
}

/// What comes next.
#[derive(Clone, Debug)]
pub struct Next {
    /// The status but for its conditions.
    pub status: IngestRunStatus,
    /// Why the run is as it is, for its condition `Ready`.
    pub why: (Reason, String),
    /// It has ended.
    pub ending: Option<Ending>,
    /// The connector whose Job there has to be.
    pub publish: Option<usize>,
    /// What its publisher is to do.
    pub wanted: Wanted,
    /// The connector whose Job must not work any longer.
    pub stop: Option<usize>,
    /// No document has come to its end for too long.
    pub no_progress: Option<String>,
    /// A run that is cancelled, or whose pipeline is gone, is being ended.
    pub is_cancelling: bool,
}

/// Decides. The run has not ended.
pub fn advance(run: &IngestRun, seen: &Seen) -> Next {
    let mut course = Course::new(run, seen);
    course.go();
    course.finish()
}

struct Course<'a> {
    run: &'a IngestRun,
    seen: &'a Seen,
    next: Next,
}

impl<'a> Course<'a> {
    fn new(run: &'a IngestRun, seen: &'a Seen) -> Self {
        let mut status = run.status.clone().unwrap_or_default();
        status.observed_generation = run.metadata.generation;
        if status.connectors.is_empty() {
            status.connectors = run
                .spec
                .connectors
                .iter()
                .map(|connector| ConnectorStatus { name: connector.name.clone(), ..ConnectorStatus::default() })
                .collect();
        }
        status.run_id.get_or_insert_with(|| names::run_id(run));
        let next = Next {
            status,
            why: (Reason::ConnectorRunning, String::new()),
            ending: None,
            publish: None,
            wanted: Wanted::Run,
            stop: None,
            no_progress: None,
            is_cancelling: run.spec.cancel,
        };
        Self { run, seen, next }
    }

    fn now(&self) -> Time {
        Time(self.seen.now.round(Unit::Second).unwrap_or(self.seen.now))
    }

    fn go(&mut self) {
        let current = self.next.status.connectors.iter().position(|connector| !connector.state.is_final());
        let Some(index) = current else { return self.all_ended() };
        if self.next.status.connectors[index].state == State::Waiting {
            self.before(index);
        } else {
            self.at_work(index);
        }
    }

    /// The connector has not begun.
    fn before(&mut self, index: usize) {
        if self.run.spec.cancel {
            return self.end(false, Reason::Cancelled, "cancelled before all connectors had run".into());
        }
        if !self.seen.problems.is_empty() {
            return self.end(false, Reason::InvalidSpec, self.seen.problems.join("\n"));
        }
        let connector = &self.run.spec.connectors[index];
        let missing = PipelineState::Missing;
        let pipeline = self.seen.pipelines.get(&connector.pipeline);
        let began = self.run.metadata.creation_timestamp.as_ref().map_or(self.seen.now, |time| time.0);
        let before = index.checked_sub(1).and_then(|before| self.next.status.connectors[before].completion_time.as_ref());
        let facts = Facts {
            pipeline: &connector.pipeline,
            state: pipeline.map_or(&missing, |pipeline| &pipeline.state),
            older_run: self.seen.older_run.as_deref(),
            is_suspended: self.run.spec.suspend,
            since: before.map_or(began, |time| time.0),
            pipeline_wait: SignedDuration::try_from(self.run.spec.pipeline_wait.get()).unwrap_or(SignedDuration::MAX),
            now: self.seen.now,
        };
        match gate::decide(&facts) {
            Gate::Open => self.start(index, 1),
            Gate::Waits { reason, message } => self.next.why = (reason, message),
            Gate::Closed { reason, message } => {
                self.next.status.connectors[index].message = Some(message.clone());
                self.end(false, reason, message);
            }
        }
    }

    fn start(&mut self, index: usize, attempt: i32) {
        let now = self.now();
        let status = &mut self.next.status;
        status.start_time.get_or_insert_with(|| now.clone());
        status.image.get_or_insert_with(|| self.seen.image.clone());
        let connector = &mut status.connectors[index];
        connector.state = State::Starting;
        connector.attempt = Some(attempt);
        connector.job_name = Some(names::job(&self.run.name_any(), index, attempt));
        connector.start_time.get_or_insert(now);
        connector.message = (attempt > 1).then(|| format!("attempt {attempt}: the one before was lost"));
        self.next.publish = Some(index);
        self.running(index);
    }

    /// The connector has begun.
    fn at_work(&mut self, index: usize) {
        if let Some((reason, message)) = self.lost_ground(index) {
            self.next.stop = Some(index);
            return self.connector_failed(index, reason, message);
        }
        self.next.wanted = if self.next.is_cancelling {
            Wanted::Cancel
        } else if self.run.spec.suspend {
            Wanted::Suspend
        } else {
            Wanted::Run
        };
        match &self.seen.publisher.job {
            JobState::Missing if self.next.status.connectors[index].state == State::Starting => self.not_started(index),
            JobState::Missing => self.lost(index, "its Job is gone"),
            JobState::Active => self.working(index),
            JobState::Complete { at } => self.completed(index, *at),
            JobState::Failed { reason, message, at } => self.gave_up(index, reason, message, *at),
        }
    }

    /// What takes the ground from under a connector: its pipeline or its topics are gone.
    fn lost_ground(&mut self, index: usize) -> Option<(Reason, String)> {
        let name = &self.run.spec.connectors[index].pipeline;
        match self.seen.pipelines.get(name).map(|pipeline| &pipeline.state) {
            Some(PipelineState::NotReady { reason: Reason::TopicLost, message }) => Some((Reason::TopicLost, message.clone())),
            None | Some(PipelineState::Missing | PipelineState::Deleting) => {
                // what was accepted may still be finished
                self.next.is_cancelling = true;
                None
            }
            Some(_) => None,
        }
    }

    /// Intent was written, the Job was not made yet.
    fn not_started(&mut self, index: usize) {
        if self.next.is_cancelling {
            return self.cancelled(index);
        }
        self.next.publish = Some(index);
        self.running(index);
    }

    fn working(&mut self, index: usize) {
        self.next.publish = Some(index);
        if let Some(report) = &self.seen.publisher.report {
            let report = report.clone();
            self.enter(index, &report);
        }
        if let Some((_, message)) = &self.seen.publisher.trouble {
            self.next.status.connectors[index].message = Some(message.clone());
        }
        let deadline = SignedDuration::try_from(self.run.spec.progress_deadline.get()).unwrap_or(SignedDuration::MAX);
        if !self.run.spec.suspend && self.seen.publisher.still_for >= deadline {
            let pending = self.next.status.connectors[index].counts.pending;
            self.next.no_progress =
                Some(format!("nothing has moved for {} s, with {pending} documents pending", self.seen.publisher.still_for.as_secs()));
        }
        if self.next.is_cancelling && self.is_over_grace() {
            self.next.stop = Some(index);
            return self.cancelled(index);
        }
        self.running(index);
    }

    /// Whether a cancelled publisher has had its time.
    fn is_over_grace(&self) -> bool {
        let old = self.run.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let cancelling = crate::status::find(old, penstock_crds::conditions::ConditionType::Cancelling);
        let grace = SignedDuration::try_from(self.run.spec.cancel_grace_period.get()).unwrap_or(SignedDuration::MAX);
        cancelling.is_some_and(|cancelling| {
            self.seen.now.duration_since(cancelling.last_transition_time.0)
                > grace.checked_add(CANCEL_MARGIN).unwrap_or(SignedDuration::MAX)
        })
    }

    fn completed(&mut self, index: usize, at: Option<Timestamp>) {
        match self.seen.publisher.last_word.clone() {
            Some(report) => {
                self.enter(index, &report);
                self.connector_ended(index, State::Succeeded);
            }
            None if self.may_still_speak(at) => self.running(index),
            // the log of the run knows all: another publisher reads it and says it again
            None if self.has_log(index) => self.lost(index, "its pod was removed before its result was read"),
            None => {
                self.next.status.connectors[index].message =
                    Some("its pod was removed before its result was read: the counts are the last ones seen".into());
                self.connector_ended(index, State::Succeeded);
            }
        }
    }

    fn gave_up(&mut self, index: usize, reason: &str, message: &str, at: Option<Timestamp>) {
        match self.seen.publisher.last_word.clone() {
            Some(report) => {
                self.enter(index, &report);
                let said = report.message.clone().unwrap_or_else(|| message.to_owned());
                match report.state {
                    State::Cancelled => self.cancelled(index),
                    State::Failed => self.connector_failed(index, report.reason.unwrap_or(Reason::ConnectorFailed), said),
                    _ if self.next.is_cancelling => self.cancelled(index),
                    _ => self.connector_failed(index, Reason::PublisherLost, format!("{said} ({reason}: {message})")),
                }
            }
            None if self.may_still_speak(at) => self.running(index),
            None if self.next.is_cancelling => self.cancelled(index),
            None => self.connector_failed(index, Reason::PublisherLost, format!("{reason}: {message}")),
        }
    }

    fn may_still_speak(&self, at: Option<Timestamp>) -> bool {
        at.is_some_and(|at| self.seen.now.duration_since(at) < LAST_WORD)
    }

    fn has_log(&self, index: usize) -> bool {
        self.seen
            .pipelines
            .get(&self.run.spec.connectors[index].pipeline)
            .is_some_and(|pipeline| pipeline.event_topic != EventTopic::NotNeeded)
    }

    /// The publisher is gone without a word: another one goes on, if it may.
    fn lost(&mut self, index: usize, why: &str) {
        if self.next.is_cancelling {
            return self.cancelled(index);
        }
        let attempt = self.next.status.connectors[index].attempt.unwrap_or(1);
        let connector: &Connector = &self.run.spec.connectors[index];
        if connector.restart_policy == RestartPolicy::Never || attempt >= MOST_ATTEMPTS {
            return self.connector_failed(
                index,
                Reason::PublisherLost,
                format!("{why}, and restartPolicy or the number of attempts allows no other one"),
            );
        }
        self.start(index, attempt + 1);
    }

    /// Takes over what a publisher says.
    fn enter(&mut self, index: usize, report: &StepReport) {
        let now = self.now();
        let connector = &mut self.next.status.connectors[index];
        connector.counts = report.counts;
        connector.docs_per_second = report.docs_per_second;
        connector.oldest_pending_seconds = report.oldest_pending_seconds;
        connector.message = report.message.clone();
        connector.failures = report.failures.iter().take(SAMPLES.0).map(cut_sample).collect();
        if report.published_seconds.is_some() {
            connector.published_time.get_or_insert(now);
        }
        if !report.state.is_final() && may_become(connector.state, report.state) {
            connector.state = report.state;
        }
    }

    fn running(&mut self, index: usize) {
        let connector = &self.next.status.connectors[index];
        let what = match connector.state {
            State::Starting => "is being started".to_owned(),
            State::Publishing => "reads its source".to_owned(),
            State::Draining => format!("waits for {} documents", connector.counts.pending),
            _ => "is finishing".to_owned(),
        };
        let more = connector.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        self.next.why = (Reason::ConnectorRunning, format!("{} {what}{more}", connector.name));
    }

    fn connector_ended(&mut self, index: usize, state: State) {
        let now = self.now();
        let connector = &mut self.next.status.connectors[index];
        connector.state = state;
        connector.docs_per_second = None;
        connector.oldest_pending_seconds = None;
        connector.completion_time = Some(now);
        self.next.publish = None;
        if state == State::Succeeded {
            if let Some((failed, allowed)) = self.too_many_failed() {
                return self.end(
                    false,
                    Reason::TooManyFailures,
                    format!("{failed} documents failed, more than the {allowed} that are allowed"),
                );
            }
            self.go();
        }
    }

    fn connector_failed(&mut self, index: usize, reason: Reason, message: String) {
        self.connector_ended(index, State::Failed);
        let connector = &mut self.next.status.connectors[index];
        connector.message = Some(message.clone());
        let message = format!("{}: {message}", connector.name);
        self.end(false, reason, message);
    }

    fn cancelled(&mut self, index: usize) {
        self.connector_ended(index, State::Cancelled);
        let pending = self.next.status.connectors[index].counts.pending;
        let left = if pending > 0 { format!(", {pending} documents had no outcome yet") } else { String::new() };
        let (reason, why) = if self.run.spec.cancel {
            (Reason::Cancelled, format!("cancelled{left}"))
        } else {
            (Reason::PipelineDeleted, format!("Pipeline `{}` was deleted{left}", self.run.spec.connectors[index].pipeline))
        };
        self.end(false, reason, why);
    }

    fn too_many_failed(&self) -> Option<(u64, String)> {
        let policy = self.run.spec.failure_policy.as_ref()?;
        let totals = totals(&self.next.status);
        if let Some(allowed) = policy.max_failed.and_then(|allowed| u64::try_from(allowed).ok()) {
            return (totals.failed > allowed).then(|| (totals.failed, allowed.to_string()));
        }
        let percent = u64::try_from(policy.max_failed_percent?).ok()?;
        let all = totals.published + totals.created;
        (u128::from(totals.failed) * 100 > u128::from(all) * u128::from(percent)).then(|| (totals.failed, format!("{percent} % of {all}")))
    }

    fn all_ended(&mut self) {
        let totals = totals(&self.next.status);
        let succeeded = self.next.status.connectors.iter().all(|connector| connector.state == State::Succeeded);
        match (succeeded, totals.failed) {
            (false, _) => self.end(false, Reason::ConnectorFailed, "not all connectors succeeded".into()),
            (true, 0) => self.end(
                true,
                Reason::AllDocumentsIndexed,
                format!("{} documents are indexed, {} were dropped", totals.finished, totals.dropped),
            ),
            (true, failed) => {
                let text = format!(
                    "{} documents are indexed, {} were dropped, {failed} failed and are in the dead letter topic",
                    totals.finished, totals.dropped
                );
                self.end(true, Reason::CompletedWithFailures, text);
            }
        }
    }

    fn end(&mut self, succeeded: bool, reason: Reason, message: String) {
        let now = self.now();
        for connector in &mut self.next.status.connectors {
            if !connector.state.is_final() {
                connector.state = State::Skipped;
            }
        }
        self.next.status.completion_time.get_or_insert(now);
        self.next.publish = None;
        self.next.why = (reason, message.clone());
        self.next.ending = Some(Ending { succeeded, reason, message });
    }

    fn finish(mut self) -> Next {
        let status = &mut self.next.status;
        let mut left = SAMPLES.1;
        for connector in &mut status.connectors {
            connector.failures.truncate(left);
            left -= connector.failures.len();
        }
        status.totals = Some(totals(status));
        let rate: i64 = status.connectors.iter().filter_map(|connector| connector.docs_per_second).sum();
        status.docs_per_second = self.next.ending.is_none().then_some(rate).filter(|_| status.start_time.is_some());
        let all = status.connectors.len();
        let at = status
            .connectors
            .iter()
            .position(|connector| !connector.state.is_final())
            .or_else(|| status.connectors.iter().rposition(|connector| connector.state != State::Skipped));
        status.progress = at.map(|at| format!("{}/{all} {}", at + 1, status.connectors[at].name));
        self.next
    }
}

/// The sums over all connectors.
fn totals(status: &IngestRunStatus) -> Counts {
    let mut totals = Counts::default();
    status.connectors.iter().for_each(|connector| totals.add(&connector.counts));
    totals
}

/// Whether one state may come after another, perhaps with some in between that nobody saw.
fn may_become(from: State, to: State) -> bool {
    let order = |state| match state {
        State::Starting => Some(0),
        State::Publishing => Some(1),
        State::Draining => Some(2),
        State::Finishing => Some(3),
        _ => None,
    };
    // a new publisher begins anew
    matches!((order(from), order(to)), (Some(from), Some(to)) if to >= from || to <= 1)
}

fn cut_sample(sample: &FailureSample) -> FailureSample {
    let cut = |text: &str| crate::status::cut(text.to_owned(), LONGEST_SAMPLE);
    FailureSample { id: cut(&sample.id), stage: cut(&sample.stage), reason: cut(&sample.reason) }
}
