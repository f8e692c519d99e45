//! All that a decision about a run depends on, read from stores, snapshots and pollers. Reads only, no checks.

use super::{
    advance::{EventTopic, JobState, PipelineSeen, Publisher, Seen},
    gate::PipelineState,
};
use crate::{
    context::{self, Context},
    kafka::Topic,
    names,
    pipeline::{observed::topic_names, trouble},
    status,
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    jiff::SignedDuration,
};
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use penstock_crds::{
    IngestRun, Pipeline,
    conditions::{ConditionType, Reason, RunPhase},
    ingest_run::RunConcurrency,
    pipeline::Mode,
    report::StepReport,
};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// Reads it all.
pub fn read(run: &IngestRun, context: &Context) -> Seen {
    let names = run.spec.connectors.iter().map(|connector| connector.pipeline.clone());
    let pipelines: BTreeMap<String, PipelineSeen> = names.map(|name| (name.clone(), pipeline(run, context, &name))).collect();
    Seen {
        problems: super::validate::problems(run, context),
        pipelines,
        older_run: older_run(run, context),
        publisher: publisher(run, context),
        image: context.shared.settings.image.clone(),
        now: context.now(),
    }
}

fn pipeline(run: &IngestRun, context: &Context, name: &str) -> PipelineSeen {
    let namespace = run.namespace().unwrap_or_default();
    let Some(pipeline) = context::get(&context.stores.pipelines, &namespace, name) else {
        return PipelineSeen { state: PipelineState::Missing, mode: Mode::Local, event_topic: EventTopic::Unknown };
    };
    let mode = pipeline.spec.effective_mode();
    let event_topic = match (mode, event_topic_name(run, &pipeline, context)) {
        (Mode::Local, _) => EventTopic::NotNeeded,
        (_, None) => EventTopic::Unknown,
        (_, Some(topic)) => {
            let snapshot = observer(&pipeline, context).map(|observer| observer.snapshot()).unwrap_or_default();
            match snapshot.topics.get(&topic) {
                Some(Topic::There(_)) => EventTopic::There,
                Some(Topic::Missing) if snapshot.is_fresh() => EventTopic::Missing,
                _ => EventTopic::Unknown,
            }
        }
    };
    PipelineSeen { state: state(&pipeline), mode, event_topic }
}

/// The observer of the Kafka that a pipeline uses.
pub fn observer(pipeline: &Pipeline, context: &Context) -> Option<Arc<crate::kafka::Observer>> {
    let reference = pipeline.spec.kafka_ref.as_ref()?;
    context.observers.get(&pipeline.namespace().unwrap_or_default(), &reference.name)
}

/// The name of the run's event topic for a pipeline; nothing without Kafka, or if it is none that Kafka takes.
pub fn event_topic_name(run: &IngestRun, pipeline: &Pipeline, context: &Context) -> Option<String> {
    let reference = pipeline.spec.kafka_ref.as_ref()?;
    let connection = context::get(&context.stores.connections, &pipeline.namespace().unwrap_or_default(), &reference.name)?;
    topic_names(pipeline, &connection).event(&names::run_id(run)).ok()
}

/// Whether a pipeline takes documents. Its pods may still be on their way: records wait for them.
fn state(pipeline: &Pipeline) -> PipelineState {
    if pipeline.metadata.deletion_timestamp.is_some() {
        return PipelineState::Deleting;
    }
    let conditions = pipeline.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let observed = pipeline.status.as_ref().and_then(|status| status.observed_generation);
    if observed != pipeline.metadata.generation {
        return PipelineState::NotReady { reason: Reason::ChangePending, message: "the operator has not looked at it yet".into() };
    }
    if pipeline.spec.suspend {
        return PipelineState::NotReady { reason: Reason::Suspended, message: "it is suspended".into() };
    }
    let needed = match pipeline.spec.effective_mode() {
        Mode::Local => &[ConditionType::SpecValid][..],
        _ => &[ConditionType::SpecValid, ConditionType::KafkaReachable, ConditionType::TopicsReady],
    };
    for kind in needed {
        match status::find(conditions, *kind) {
            Some(condition) if condition.status == "True" => {}
            Some(condition) => {
                let reason = Reason::from_name(&condition.reason).unwrap_or(Reason::ChangePending);
                return PipelineState::NotReady { reason, message: condition.message.clone() };
            }
            None => return PipelineState::NotReady { reason: Reason::ChangePending, message: format!("{kind} is not known yet") },
        }
    }
    PipelineState::Ready
}

/// An older run on one of the same pipelines, if either of the two wants to be alone.
fn older_run(run: &IngestRun, context: &Context) -> Option<String> {
    let age = |run: &IngestRun| (run.metadata.creation_timestamp.clone(), run.name_any());
    let shares = |other: &IngestRun| {
        let theirs = |connector: &penstock_crds::connectors::Connector| {
            other.spec.connectors.iter().any(|other| other.pipeline == connector.pipeline)
        };
        run.spec.connectors.iter().any(theirs)
    };
    let runs = context.stores.runs.state();
    let before = runs.iter().filter_map(|other| other.0.as_ref().ok()).filter(|other| {
        other.namespace() == run.namespace()
            && other.uid() != run.uid()
            && !other.status.as_ref().and_then(|status| status.phase).is_some_and(RunPhase::is_final)
            && [other.spec.concurrency, run.spec.concurrency].contains(&RunConcurrency::Exclusive)
            && age(other) < age(run)
            && shares(other)
    });
    before.map(age).min().map(|(_, name)| name)
}

fn publisher(run: &IngestRun, context: &Context) -> Publisher {
    let Some(job_name) = current_job(run) else { return Publisher::default() };
    let namespace = run.namespace().unwrap_or_default();
    let job = context.stores.jobs.get(&ObjectRef::new(&job_name).within(&namespace));
    let is_ours = job.as_ref().filter(|job| job.owner_references().iter().any(|owner| Some(&owner.uid) == run.uid().as_ref()));
    let pods = pods(&namespace, &job_name, context);
    let heard = context.pollers.heard(&namespace, &run.name_any(), &job_name);
    Publisher {
        job: is_ours.map(|job| job_state(job)).unwrap_or_default(),
        last_word: pods.iter().rev().find_map(|pod| last_word(pod)),
        trouble: pods.last().and_then(|pod| trouble::of_pod(pod)),
        still_for: heard.as_ref().map(|heard| SignedDuration::try_from(heard.moved.elapsed()).unwrap_or_default()).unwrap_or_default(),
        report: heard.map(|heard| heard.report),
    }
}

/// The Job of the connector at work.
pub fn current_job(run: &IngestRun) -> Option<String> {
    let connectors = &run.status.as_ref()?.connectors;
    connectors.iter().find(|connector| !connector.state.is_final())?.job_name.clone()
}

/// The pods of a Job, the oldest first.
fn pods(namespace: &str, job: &str, context: &Context) -> Vec<Arc<Pod>> {
    let of_job =
        |pod: &Pod| pod.metadata.namespace.as_deref() == Some(namespace) && pod.labels().get("job-name").is_some_and(|name| name == job);
    let mut pods = context.stores.pods.state_filter(of_job);
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    pods
}

/// The address of the publisher at work.
pub fn address(run: &IngestRun, context: &Context) -> Option<IpAddr> {
    let pods = pods(&run.namespace().unwrap_or_default(), &current_job(run)?, context);
    let status = pods.last()?.status.as_ref()?;
    let runs = status.phase.as_deref() == Some("Running");
    status.pod_ip.as_ref().filter(|_| runs)?.parse().ok()
}

fn job_state(job: &Job) -> JobState {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    let holds = |kind: &str| conditions.into_iter().flatten().find(|condition| condition.type_ == kind && condition.status == "True");
    if let Some(complete) = holds("Complete") {
        return JobState::Complete { at: complete.last_transition_time.as_ref().map(|time| time.0) };
    }
    match holds("Failed") {
        Some(failed) => JobState::Failed {
            reason: failed.reason.clone().unwrap_or_default(),
            message: failed.message.clone().unwrap_or_default(),
            at: failed.last_transition_time.as_ref().map(|time| time.0),
        },
        None => JobState::Active,
    }
}

/// What a pod's container said at its end.
fn last_word(pod: &Pod) -> Option<StepReport> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let ended = containers.iter().find(|container| container.name == names::CONTAINER)?.state.as_ref()?.terminated.as_ref()?;
    serde_json::from_str(ended.message.as_ref()?).ok()
}
