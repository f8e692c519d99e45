//! What deleting a pipeline does to its topics: by default nothing. Bounded in time, and never in the way when Kafka is gone.

use super::owner;
use crate::{
    context::{self, Context},
    error::Error,
    finalizer,
    kafka::{Action as TopicAction, Interest, Topic, Wanting},
};
use k8s_openapi::jiff::SignedDuration;
use kube::{
    ResourceExt,
    runtime::{controller::Action, events::EventType},
};
use penstock_crds::{
    Pipeline,
    kafka_connection::TopicManagement,
    topics::{DeletionPolicy, TopicStatus},
};
use std::time::Duration;

/// How long a deletion tries to delete topics.
const LONGEST: SignedDuration = SignedDuration::from_secs(90);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A finalizer only where deletion of topics was asked for.
pub async fn keep_finalizer(pipeline: &Pipeline, context: &Context) -> Result<(), Error> {
    let wants = pipeline.spec.topics.deletion_policy == DeletionPolicy::Delete && pipeline.spec.kafka_ref.is_some();
    finalizer::keep(context, pipeline, wants).await
}

/// Deletes the topics that are ours, and lets the pipeline go.
pub async fn reconcile(pipeline: &Pipeline, context: &Context) -> Result<Action, Error> {
    let namespace = pipeline.namespace().unwrap_or_default();
    let reference = pipeline.spec.kafka_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
    let observer = context.observers.get(&namespace, reference);
    if !finalizer::is_there(pipeline) {
        if let Some(observer) = observer {
            observer.forget(&owner(pipeline));
        }
        return Ok(Action::await_change());
    }
    let may_delete = context::get(&context.stores.connections, &namespace, reference)
        .is_some_and(|connection| connection.spec.topics.management == TopicManagement::Create);
    let topics: Vec<&TopicStatus> = pipeline
        .status
        .iter()
        .flat_map(|status| &status.topics)
        .filter(|topic| !topic.adopted && topic.topic_id.is_some() && pipeline.spec.topics.deletion_policy == DeletionPolicy::Delete)
        .collect();
    let snapshot = observer.as_ref().map(|observer| observer.snapshot()).unwrap_or_default();
    let is_gone = |topic: &&&TopicStatus| {
        snapshot.is_fresh()
            && match snapshot.topics.get(&topic.name) {
                Some(Topic::Missing) => true,
                // somebody else's by now
                Some(Topic::There(facts)) => topic.topic_id.as_ref() != Some(&facts.id),
                _ => false,
            }
    };
    let left: Vec<&&TopicStatus> = topics.iter().filter(|topic| !is_gone(topic)).collect();
    let began = pipeline.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let is_late = began.is_some_and(|began| context.now().duration_since(began) > LONGEST);
    if left.is_empty() || !may_delete || is_late {
        if !left.is_empty() {
            let names: Vec<&str> = left.iter().map(|topic| topic.name.as_str()).collect();
            let note = format!("these topics could not be deleted and stay behind: {}", names.join(", "));
            context.shared.tell(pipeline, EventType::Warning, "TopicsOrphaned", note);
        }
        finalizer::keep(context, pipeline, false).await?;
        return Ok(Action::await_change());
    }
    if let Some(observer) = &observer {
        let actions = left.iter().map(|topic| TopicAction::Delete { topic: topic.name.clone(), id: topic.topic_id.clone() }).collect();
        let topics = topics.iter().map(|topic| topic.name.clone()).collect();
        observer.want(owner(pipeline), Wanting { interest: Interest { topics, ..Interest::default() }, actions });
    }
    Ok(Action::requeue(LOOK_AGAIN))
}
