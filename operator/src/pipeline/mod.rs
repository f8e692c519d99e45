//! Pipelines: topics, revisions and pods.
//!
//! A reconcile: read what is there ([`observed`]), check the spec ([`validate`]), decide ([`decide`]), write the status, then act.

mod decide;
mod deletion;
pub mod observed;
mod rollout;
pub mod trouble;
pub mod validate;

use crate::{
    apply::Child,
    context::{Context, write_status},
    error::Error,
    kafka::{Owner, OwnerKind},
    reconciler::Reconciler,
    resources::{self, Role, owner_reference},
};
use decide::Plan;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    ResourceExt,
    api::PartialObjectMeta,
    runtime::{
        controller::Action,
        reflector::{ObjectRef, Store},
    },
};
use penstock_crds::Pipeline;
use std::sync::Arc;

impl Reconciler for Pipeline {
    async fn reconcile(&self, context: &Context) -> Result<Action, Error> {
        if self.metadata.deletion_timestamp.is_some() {
            return deletion::reconcile(self, context).await;
        }
        deletion::keep_finalizer(self, context).await?;
        let observed = observed::read(self, context).await?;
        let problems = validate::problems(self, observed.connection.as_ref());
        let plan = decide::decide(self, &observed, &problems, &context.shared.settings, context.now())?;
        write_status(context, self, self.status.as_ref(), &plan.status).await?;
        if let Some(observer) = &observed.observer {
            observer.want(owner(self), plan.wanting.clone());
        }
        apply_pods(self, context, &observed, &plan).await?;
        Ok(Action::requeue(plan.again))
    }
}

/// Who it is to an observer of Kafka.
pub fn owner(pipeline: &Pipeline) -> Owner {
    Owner { kind: OwnerKind::Pipeline, namespace: pipeline.namespace().unwrap_or_default(), name: pipeline.name_any() }
}

async fn apply_pods(pipeline: &Pipeline, context: &Context, observed: &observed::Observed, plan: &Plan) -> Result<(), Error> {
    let Some(rollout) = &plan.rollout else { return Ok(()) };
    let (applier, settings) = (&context.shared.applier, &context.shared.settings);
    let owner = owner_reference(pipeline);
    if let Some(revision) = &plan.new_revision {
        applier.create_once(&revision.config_map).await?;
    }
    for (role, replicas) in &plan.pods {
        let existing: Option<&Deployment> = match role {
            Role::Indexer => observed.indexers.deployment.as_deref(),
            Role::Worker | Role::WorkerIndexer => observed.workers.deployment.as_deref(),
        };
        let wanted = resources::deployment::build(&rollout.content, *role, &rollout.revision, *replicas, settings, &owner)?;
        applier.apply(existing, &wanted).await?;
        let budget = resources::pod_disruption_budget::build(pipeline, *role, &owner)?;
        applier.apply_known(known(&context.stores.budgets, &budget).as_deref(), &budget).await?;
    }
    if plan.pods.is_empty() {
        return Ok(());
    }
    let service = resources::service::build(pipeline, &owner)?;
    applier.apply_known(known(&context.stores.services, &service).as_deref(), &service).await?;
    if let Some(policy) = resources::network_policy::build(pipeline, settings, &owner)? {
        applier.apply_known(known(&context.stores.policies, &policy).as_deref(), &policy).await?;
    }
    Ok(())
}

/// The metadata of a child, if it is there.
fn known<K: Child>(store: &Store<PartialObjectMeta<K>>, wanted: &K) -> Option<Arc<PartialObjectMeta<K>>> {
    store.get(&ObjectRef::new(&wanted.name_any()).within(&wanted.namespace().unwrap_or_default()))
}
