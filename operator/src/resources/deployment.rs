//! Workers and indexers.

use super::{BuildError, RevisionContent, Role, Settings, metadata, pod::Pod, secrets_of, stamped};
use crate::names;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt;
use penstock_crds::pool::Pool;

/// Former ReplicaSets that stay for `kubectl rollout history`. A rollout is never undone by them, only by a change of the Pipeline.
const HISTORY: i32 = 2;

/// The Deployment of a role. Without `replicas` somebody else says how many pods there are.
///
/// # Errors
/// The user's patches do not fit.
pub fn build(
    content: &RevisionContent,
    role: Role,
    revision: &str,
    replicas: Option<i32>,
    settings: &Settings,
    owner: &OwnerReference,
) -> Result<Deployment, BuildError> {
    let pipeline = content.pipeline.name_any();
    let (pool, pool_path) = pool(content, role);
    let labels = names::pipeline_labels(&pipeline, role.as_str());
    let template = Pod {
        labels: labels.clone(),
        annotations: [(names::REVISION.to_owned(), revision.to_owned())].into(),
        command: role.as_str(),
        arguments: ["--pipeline", &pipeline].map(str::to_owned).into(),
        manifests: names::revision_config_map(&pipeline, revision),
        secrets: secrets_of(&(&content.pipeline.spec, content.connection.as_ref().map(|connection| &connection.spec))),
        control: None,
        pool,
        pool_path,
        restart_policy: "Always",
        image: &content.image,
    }
    .build(settings)?;
    stamped(Deployment {
        metadata: metadata(names::deployment(&pipeline, role), content.pipeline.namespace(), labels, owner),
        spec: DeploymentSpec {
            replicas,
            revision_history_limit: Some(HISTORY),
            selector: LabelSelector { match_labels: Some(names::selector_labels(&pipeline, role)), match_expressions: None },
            strategy: Some(DeploymentStrategy { type_: Some("RollingUpdate".into()), rolling_update: Some(rolling_update(replicas)) }),
            template,
            ..DeploymentSpec::default()
        },
        status: None,
    })
}

/// What the user says of the pods of a role, and where: indexers without a word of their own are like the workers.
fn pool(content: &RevisionContent, role: Role) -> (&Pool, &'static str) {
    match (role, &content.pipeline.spec.indexers) {
        (Role::Indexer, Some(indexers)) => (indexers, "spec.indexers"),
        _ => (&content.pipeline.spec.workers, "spec.workers"),
    }
}

/// Partitions move from pods that leave to those that stay, and to the new ones: more members than wanted would move them once more,
/// for no gain. A single pod is replaced after the new one is ready.
fn rolling_update(replicas: Option<i32>) -> RollingUpdateDeployment {
    let (max_surge, max_unavailable) = match replicas {
        Some(..=1) => (IntOrString::Int(1), IntOrString::Int(0)),
        _ => (IntOrString::Int(0), IntOrString::String("25%".into())),
    };
    RollingUpdateDeployment { max_surge: Some(max_surge), max_unavailable: Some(max_unavailable) }
}
