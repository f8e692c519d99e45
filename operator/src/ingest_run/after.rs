//! What is left to do for a run that has ended or is deleted: its event topics go, after their time; then itself, if that was asked for.

use super::{
    observed::{event_topic_name, observer},
    publish::owner,
};
use crate::{
    context::{self, Context},
    error::Error,
    finalizer,
    kafka::{Action as TopicAction, Interest, Observer, Topic, Wanting},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{
    ResourceExt,
    runtime::{controller::Action, events::EventType},
};
use penstock_crds::IngestRun;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How long a deletion tries to remove the event topics.
const LONGEST: SignedDuration = SignedDuration::from_secs(90);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A run that has ended.
pub async fn ended(run: &IngestRun, context: &Context) -> Result<Action, Error> {
    context.pollers.stop(&run.namespace().unwrap_or_default(), &run.name_any());
    let status = run.status.as_ref();
    let Some(ended_at) = status.and_then(|status| status.completion_time.as_ref()).map(|time| time.0) else {
        return Ok(Action::await_change());
    };
    let now = context.now();
    let kept_until = match run.spec.event_topic.retain {
        Some(retain) => after(ended_at, SignedDuration::try_from(retain.get()).unwrap_or(SignedDuration::MAX)),
        None => ended_at,
    };
    if finalizer::is_there(run) {
        if now < kept_until {
            return Ok(Action::requeue(wait(now, kept_until)));
        }
        if !topics_are_gone(run, context, after(kept_until, LONGEST) < now).await? {
            return Ok(Action::requeue(LOOK_AGAIN));
        }
    }
    let Some(ttl) = run.spec.ttl_seconds_after_finished else { return Ok(Action::await_change()) };
    let until = after(ended_at, SignedDuration::from_secs(i64::from(ttl)));
    if now < until {
        return Ok(Action::requeue(wait(now, until)));
    }
    context.shared.applier.delete(run).await?;
    Ok(Action::await_change())
}

/// A run that is being deleted.
pub async fn deleted(run: &IngestRun, context: &Context) -> Result<Action, Error> {
    context.pollers.stop(&run.namespace().unwrap_or_default(), &run.name_any());
    if !finalizer::is_there(run) {
        return Ok(Action::await_change());
    }
    let since = run.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let is_late = since.is_some_and(|since| context.now().duration_since(since) > LONGEST);
    if topics_are_gone(run, context, is_late).await? {
        return Ok(Action::await_change());
    }
    Ok(Action::requeue(LOOK_AGAIN))
}

/// Removes the event topics, and then the finalizer. Whether that is done.
async fn topics_are_gone(run: &IngestRun, context: &Context, is_late: bool) -> Result<bool, Error> {
    let mut left = Vec::new();
    let topics = topics(run, context);
    let all: BTreeSet<String> = topics.iter().map(|(topic, _)| topic.clone()).collect();
    for (topic, observer) in &topics {
        let snapshot = observer.snapshot();
        if snapshot.is_fresh() && matches!(snapshot.topics.get(topic), Some(Topic::Missing)) {
            continue;
        }
        let actions = vec![TopicAction::Delete { topic: topic.clone(), id: None }];
        observer.want(owner(run), Wanting { interest: Interest { topics: all.clone(), ..Interest::default() }, actions });
        left.push(topic.as_str());
    }
    if !left.is_empty() && !is_late {
        return Ok(false);
    }
    if !left.is_empty() {
        let note = format!("these event topics could not be deleted and stay behind: {}", left.join(", "));
        context.shared.tell(run, EventType::Warning, "TopicsOrphaned", note);
    }
    finalizer::keep(context, run, false).await?;
    topics.iter().for_each(|(_, observer)| observer.forget(&owner(run)));
    Ok(true)
}

/// The run's event topics, each with who watches it. A pipeline that is gone took its connection's name along: nothing is known then.
fn topics(run: &IngestRun, context: &Context) -> Vec<(String, Arc<Observer>)> {
    let namespace = run.namespace().unwrap_or_default();
    let names: BTreeSet<&str> = run.spec.connectors.iter().map(|connector| connector.pipeline.as_str()).collect();
    let found = names.into_iter().filter_map(|name| {
        let pipeline = context::get(&context.stores.pipelines, &namespace, name)?;
        Some((event_topic_name(run, &pipeline, context)?, observer(&pipeline, context)?))
    });
    found.collect()
}

fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

fn wait(now: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default() + Duration::from_millis(100)
}
