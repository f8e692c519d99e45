//! What is to be done about a pipeline, and what its status says. Pure: spec, status and observation in, a plan out.

use super::{
    observed::{Observed, worker_role},
    rollout::{self, Rollout},
    trouble,
};
use crate::{
    kafka::{
        Interest, Reachable, Wanting,
        plan::{self, Policy, TopicPlan, Wanted},
    },
    resources::{BuildError, Revision, Role, Settings},
    scale::{self, Load},
    status::{Conditions, holds},
};
use k8s_openapi::{
    api::apps::v1::Deployment,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{Timestamp, Unit},
};
use kube::ResourceExt;
use penstock_crds::{
    Pipeline, PipelineSpec,
    conditions::{ConditionType as C, Reason},
    pipeline::{Mode, PipelineStatus},
    pool::{Pool, PoolStatus},
    topics::{Topic, TopicRole, TopicStatus},
};
use std::{collections::BTreeMap, time::Duration};

/// How soon a pipeline that is not as it is meant to be is looked at again, if nothing wakes it before.
const UNREADY_AGAIN: Duration = Duration::from_secs(60);
/// The same for one that is.
const READY_AGAIN: Duration = Duration::from_secs(600);
/// Minutes from 1970 to 2020: version generations count from there.
const YEAR_2020: i64 = 26_297_280;

/// What is to be done. First the status is written, then topics are asked for, then revision and pods are applied.
pub struct Plan {
    /// What the status is to say.
    pub status: PipelineStatus,
    /// What the observer of the connection is asked for.
    pub wanting: Wanting,
    /// A revision that has no ConfigMap yet.
    pub new_revision: Option<Revision>,
    /// The revision that the pods are to have; nothing while there is none that works.
    pub rollout: Option<Rollout>,
    /// The pods of each role and how many there are to be.
    pub pods: Vec<(Role, Option<i32>)>,
    /// When to look again.
    pub again: Duration,
}

/// Decides.
///
/// # Errors
/// The spec cannot be made into what pods read.
pub fn decide(
    pipeline: &Pipeline,
    observed: &Observed,
    problems: &[String],
    settings: &Settings,
    now: Timestamp,
) -> Result<Plan, BuildError> {
    let old = pipeline.status.clone().unwrap_or_default();
    let mode = pipeline.spec.effective_mode();
    let topics = topics(pipeline, observed, &old, problems.is_empty());
    let lag = lag(mode, &topics.topics);
    let idle_since = idle_since(observed, lag, mode, &old, now);
    let version_generation = version_generation(&old, &topics.topics, mode, now);
    let all_there = topics.is_complete(if mode == Mode::Distributed { 3 } else { 2 }) && observed.conflict.is_none();
    let can_work = problems.is_empty() && (mode == Mode::Local || all_there);
    let rollout = rollout::decide(pipeline, observed, &old, version_generation, can_work, idle_since.is_some(), settings)?;

    let mut status = PipelineStatus {
        observed_generation: pipeline.metadata.generation,
        partitions: topics.topics.iter().find(|topic| topic.role == TopicRole::Source).and_then(|topic| topic.partitions),
        lag,
        dead_letters: topics.topics.iter().find(|topic| topic.role == TopicRole::Fail).and_then(|topic| topic.retained),
        topics: topics.topics.clone(),
        workers: None,
        indexers: None,
        revision: rollout.as_ref().map(|rollout| rollout.status.clone()).or(old.revision.clone()),
        active_runs: (observed.runs.count > 0).then(|| observed.runs.clone()),
        idle_since: idle_since.map(Time),
        version_generation,
        conditions: Vec::new(),
    };
    let mut pods = Vec::new();
    let mut again_at: Option<Timestamp> = None;
    if let (Some(rollout), true) = (&rollout, mode != Mode::Local) {
        // how many pods there are is no part of a revision, how many lanes they have is
        let (spec, running) = (&pipeline.spec, &rollout.content.pipeline.spec);
        let with_threads = |pool: &Pool, running: &Pool| Pool { threads: running.threads, ..pool.clone() };
        let load = |own: Option<i64>| Load {
            partitions: status.partitions.or(pipeline.spec.partitions).unwrap_or(1),
            lag: own,
            pipeline_lag: lag,
            active_runs: usize::try_from(observed.runs.count).unwrap_or_default(),
            idle_since,
            is_suspended: pipeline.spec.suspend,
            current: 0,
            last_change: None,
            now,
        };
        let lag_of = |role| topics.topics.iter().find(|topic| topic.role == role).and_then(|topic| topic.lag);
        let mut pool = |role: Role, pool: &Pool, seen: Option<&Deployment>, former: Option<&PoolStatus>, own: Option<i64>| {
            let current = seen.and_then(|seen| seen.spec.replicas).unwrap_or_default();
            let last_change = former.and_then(|former| former.last_scale_time.as_ref().map(|time| time.0));
            let decision = scale::decide(pool, &Load { current, last_change, ..load(own) });
            again_at = [again_at, decision.again_at].into_iter().flatten().min();
            pods.push((role, decision.replicas));
            pool_status(pipeline, role, seen, former, &decision, now)
        };
        status.workers = Some(pool(
            worker_role(pipeline),
            &with_threads(&spec.workers, &running.workers),
            observed.workers.deployment.as_deref(),
            old.workers.as_ref(),
            lag_of(TopicRole::Source),
        ));
        if mode == Mode::Distributed {
            let of = |spec: &PipelineSpec| spec.indexers.as_ref().unwrap_or(&spec.workers).clone();
            let indexers = with_threads(&of(spec), &of(running));
            status.indexers = Some(pool(
                Role::Indexer,
                &indexers,
                observed.indexers.deployment.as_deref(),
                old.indexers.as_ref(),
                lag_of(TopicRole::Dest),
            ));
        }
    }
    status.conditions = conditions(pipeline, observed, problems, (&topics, all_there), &status, &old, rollout.as_ref(), now);

    let is_ready = holds(&status.conditions, C::Ready) && !holds(&status.conditions, C::Reconciling);
    let again = if is_ready { READY_AGAIN } else { UNREADY_AGAIN };
    let again =
        again_at.and_then(|at| Duration::try_from(at.duration_since(now)).ok()).map_or(again, |at| at.clamp(Duration::from_secs(1), again));
    let new_revision = rollout.as_ref().and_then(|rollout| rollout.new_revision.clone());
    Ok(Plan {
        wanting: Wanting { interest: interest(observed, mode), actions: topics.actions },
        status,
        new_revision,
        rollout,
        pods,
        again,
    })
}

/// What the pipeline wants to know of Kafka.
fn interest(observed: &Observed, mode: Mode) -> Interest {
    let Some(names) = &observed.names else { return Interest::default() };
    let mut interest = Interest::default();
    interest.topics.extend([names.source.clone(), names.fail.clone()]);
    interest.groups.insert((names.workers_group.clone(), names.source.clone()));
    if mode == Mode::Distributed {
        interest.topics.insert(names.dest.clone());
        interest.groups.insert((names.indexers_group.clone(), names.dest.clone()));
    }
    interest
}

fn topics(pipeline: &Pipeline, observed: &Observed, old: &PipelineStatus, is_valid: bool) -> TopicPlan {
    let (Some(connection), Some(_)) = (&observed.connection, &observed.names) else {
        return TopicPlan { topics: old.topics.clone(), ..TopicPlan::default() };
    };
    let wanted = wanted(pipeline, observed);
    let has_active_run = observed.runs.count > 0;
    let policy = Policy {
        management: connection.spec.topics.management,
        adoption: pipeline.spec.topics.adoption,
        increase: pipeline.spec.partition_increase,
        is_idle: !has_active_run && lag(pipeline.spec.effective_mode(), &old.topics) == Some(0),
        has_active_run,
    };
    let mut plan = plan::plan(&wanted, &old.topics, &observed.snapshot, policy);
    if !is_valid || observed.conflict.is_some() {
        // an invalid spec changes nothing, and what belongs to somebody else is not touched
        plan.actions.clear();
        plan.topics.retain(|topic| old.topics.iter().any(|known| known.role == topic.role && known.name == topic.name));
    }
    plan
}

fn wanted(pipeline: &Pipeline, observed: &Observed) -> Vec<Wanted> {
    let Some(names) = &observed.names else { return Vec::new() };
    let spec = &pipeline.spec;
    let partitions = spec.partitions.unwrap_or(1);
    let own = |topic: &Option<Topic>| topic.as_ref().map(|topic| topic.config.clone()).unwrap_or_default();
    let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let kept = texts(&[("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")]);
    let plain = texts(&[("cleanup.policy", "delete")]);
    let mut wanted = vec![Wanted {
        role: TopicRole::Source,
        name: names.source.clone(),
        partitions,
        defaults: plain.clone(),
        config: own(&spec.topics.source),
        group: Some(names.workers_group.clone()),
    }];
    if spec.effective_mode() == Mode::Distributed {
        wanted.push(Wanted {
            role: TopicRole::Dest,
            name: names.dest.clone(),
            partitions,
            defaults: plain,
            config: own(&spec.topics.dest),
            group: Some(names.indexers_group.clone()),
        });
    }
    wanted.push(Wanted {
        role: TopicRole::Fail,
        name: names.fail.clone(),
        partitions: 1,
        defaults: kept,
        config: own(&spec.topics.fail),
        group: None,
    });
    wanted
}

/// Unread records of the whole pipeline; nothing if any part is not known.
fn lag(mode: Mode, topics: &[TopicStatus]) -> Option<i64> {
    let of = |role| topics.iter().find(|topic| topic.role == role).and_then(|topic| topic.lag);
    match mode {
        Mode::Local => None,
        Mode::WorkerIndexer => of(TopicRole::Source),
        Mode::Distributed => Some(of(TopicRole::Source)? + of(TopicRole::Dest)?),
    }
}

fn idle_since(observed: &Observed, lag: Option<i64>, mode: Mode, old: &PipelineStatus, now: Timestamp) -> Option<Timestamp> {
    let is_idle = observed.runs.count == 0 && (lag == Some(0) || mode == Mode::Local);
    let now = now.round(Unit::Second).unwrap_or(now);
    is_idle.then(|| old.idle_since.as_ref().map_or(now, |since| since.0))
}

/// Moves when the topic that positions are taken from is another one, or has grown.
fn version_generation(old: &PipelineStatus, topics: &[TopicStatus], mode: Mode, now: Timestamp) -> Option<i64> {
    let role = if mode == Mode::Distributed { TopicRole::Dest } else { TopicRole::Source };
    let place = |topics: &[TopicStatus]| {
        let topic = topics.iter().find(|topic| topic.role == role)?;
        Some((topic.topic_id.clone()?, topic.partitions?))
    };
    match (place(topics), place(&old.topics), old.version_generation) {
        (None, _, former) => former,
        (Some(there), Some(former), Some(generation)) if there == former => Some(generation),
        (Some(_), _, former) => Some((now.as_second() / 60 - YEAR_2020).max(former.map_or(0, |former| former + 1))),
    }
}

fn pool_status(
    pipeline: &Pipeline,
    role: Role,
    seen: Option<&Deployment>,
    former: Option<&PoolStatus>,
    decision: &scale::Decision,
    now: Timestamp,
) -> PoolStatus {
    let status = seen.and_then(|seen| seen.status.as_ref());
    let asked = seen.and_then(|seen| seen.spec.replicas).unwrap_or_default();
    let desired = decision.replicas.unwrap_or(asked);
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or_default();
    let changes = former.is_none_or(|former| former.desired != desired);
    PoolStatus {
        desired,
        replicas: status.and_then(|status| status.replicas).unwrap_or_default(),
        ready,
        updated: status.and_then(|status| status.updated_replicas).unwrap_or_default(),
        assigned_partitions: None,
        summary: format!("{ready}/{desired}"),
        selector: crate::names::selector(&pipeline.name_any(), role),
        last_scale_time: if changes {
            Some(Time(now.round(Unit::Second).unwrap_or(now)))
        } else {
            former.and_then(|former| former.last_scale_time.clone())
        },
        last_scale_reason: if changes { Some(decision.why.clone()) } else { former.and_then(|former| former.last_scale_reason.clone()) },
    }
}

#[expect(clippy::too_many_arguments, reason = "the conditions depend on all that was seen and decided")]
fn conditions(
    pipeline: &Pipeline,
    observed: &Observed,
    problems: &[String],
    (topics, all_there): (&TopicPlan, bool),
    status: &PipelineStatus,
    old: &PipelineStatus,
    rollout: Option<&Rollout>,
    now: Timestamp,
) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let spec = &pipeline.spec;
    let mut conditions = Conditions::new(&old.conditions, pipeline.metadata.generation, now);
    let mut blocked: Option<(Reason, String, bool)> = None; // why it is not ready, and whether only a person can help
    let mut pending: Option<(Reason, String)> = None; // what is under way
    let block = |blocked: &mut Option<(Reason, String, bool)>, reason: Reason, message: &str, stalled: bool| {
        blocked.get_or_insert_with(|| (reason, message.to_owned(), stalled));
    };

    if problems.is_empty() {
        conditions.set(C::SpecValid, Some(true), Reason::AsSpecified, "");
    } else {
        let message = problems.join("\n");
        conditions.set(C::SpecValid, Some(false), Reason::InvalidSpec, message.clone());
        let kept = if observed.in_use.is_some() { "; the last revision that was valid goes on" } else { "" };
        block(&mut blocked, Reason::InvalidSpec, &format!("{message}{kept}"), true);
    }
    if let (Some(reference), true) = (&spec.kafka_ref, spec.effective_mode() != Mode::Local) {
        let (reachable, reason, message) = match (&observed.connection, &observed.snapshot.reachable) {
            (None, _) => (
                Some(false),
                Reason::BrokersUnreachable,
                format!("there is no KafkaConnection `{}` in the namespace; create it", reference.name),
            ),
            (_, Reachable::Yes { .. }) => (Some(true), Reason::BrokersReachable, String::new()),
            (_, Reachable::No(trouble)) => (Some(false), trouble.reason, trouble.message.clone()),
            (Some(connection), Reachable::Unknown) => connection_trouble(connection),
        };
        conditions.set(C::KafkaReachable, reachable, reason, message.clone());
        match reachable {
            Some(false) => block(&mut blocked, reason, &message, observed.connection.is_none() || reason == Reason::AuthenticationFailed),
            None => pending = pending.or(Some((reason, message))),
            Some(true) => {}
        }
        let conflict = observed
            .conflict
            .as_ref()
            .map(|conflict| format!("topic `{}` belongs to Pipeline {}; give this one other topic names", conflict.topic, conflict.owner));
        let (ready, reason, message) = match (conflict, &topics.problem, &topics.note) {
            (Some(message), _, _) => (Some(false), Reason::TopicConflict, message),
            (None, Some(problem), _) => (Some(false), problem.reason, problem.message.clone()),
            (None, None, _) if !all_there => (None, Reason::ChangePending, "topics are being made".to_owned()),
            (None, None, Some(note)) => (Some(true), note.reason, note.message.clone()),
            (None, None, None) => (Some(true), Reason::AsSpecified, String::new()),
        };
        conditions.set(C::TopicsReady, ready, reason, message.clone());
        match ready {
            Some(false) => block(&mut blocked, reason, &message, true),
            None => pending = pending.or(Some((reason, message))),
            Some(true) if reason == Reason::PartitionIncreasePending => pending = pending.or(Some((reason, message))),
            Some(true) => {}
        }
    }
    for (kind, pods, pool) in
        [(C::WorkersAvailable, &observed.workers, &status.workers), (C::IndexersAvailable, &observed.indexers, &status.indexers)]
    {
        let Some(pool) = pool else { continue };
        let (available, reason, message) = trouble::availability(pods, pool);
        conditions.set(kind, Some(available), reason, message.clone());
        if !available && reason == Reason::ChangePending {
            pending = pending.or(Some((reason, message)));
        } else if !available {
            block(&mut blocked, reason, &message, false);
        }
    }
    if let Some(rollout) = rollout.filter(|rollout| rollout.status.update.is_some()) {
        pending = pending.or(Some((Reason::ChangePending, rollout.why.clone())));
    }
    conditions.set_while(spec.suspend, C::Suspended, Reason::Suspended, "suspend is set: nothing is processed");

    match (&blocked, &pending) {
        (Some((reason, message, _)), _) => conditions.set(C::Ready, Some(false), *reason, message.clone()),
        (None, _) if spec.suspend => conditions.set(C::Ready, Some(false), Reason::Suspended, "suspend is set: nothing is processed"),
        // more partitions or pods may come; it works as it is
        (None, Some((reason, message))) if all_there && *reason != Reason::ChangePending => {
            conditions.set(C::Ready, Some(true), *reason, message.clone())
        }
        (None, Some((reason, message))) => conditions.set(C::Ready, Some(false), *reason, message.clone()),
        (None, None) => conditions.set(C::Ready, Some(true), Reason::AsSpecified, ""),
    };
    if let Some((reason, message)) = pending {
        conditions.set(C::Reconciling, Some(true), reason, message);
    }
    if let Some((reason, message, true)) = blocked {
        conditions.set(C::Stalled, Some(true), reason, message);
    }
    conditions.finish()
}

/// What the status of a connection says whose brokers were not asked yet.
fn connection_trouble(connection: &penstock_crds::KafkaConnection) -> (Option<bool>, Reason, String) {
    let ready = connection.status.as_ref().and_then(|status| crate::status::find(&status.conditions, C::Ready));
    match ready {
        Some(ready) if ready.status == "False" => {
            let reason = Reason::from_name(&ready.reason).unwrap_or(Reason::BrokersUnreachable);
            (Some(false), reason, format!("KafkaConnection `{}`: {}", connection.name_any(), ready.message))
        }
        _ => (None, Reason::ChangePending, "the brokers are being asked".to_owned()),
    }
}
