//! Workers and indexers.

use super::{BuildError, RevisionContent, Role, Settings, metadata, pod::Pod, stamp};
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

/// The Deployment of a role. Without a number somebody else says how many pods there are.
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
    let (pool, path) = pool(content, role);
    let mut labels = names::pipeline_labels(&pipeline, role.as_str());
    labels.extend(names::selector_labels(&pipeline, role));
    let texts = [
        serde_json::to_string(&content.pipeline.spec),
        serde_json::to_string(&content.connection.as_ref().map(|connection| &connection.spec)),
    ];
    let texts =
        texts.into_iter().collect::<Result<Vec<String>, _>>().map_err(|source| BuildError::Render { name: pipeline.clone(), source })?;
    let template = Pod {
        labels: labels.clone(),
        annotations: [(names::REVISION.to_owned(), revision.to_owned())].into(),
        arguments: [role.as_str(), "--pipeline", &pipeline].map(str::to_owned).to_vec(),
        manifests: names::revision_config_map(&pipeline, revision),
        texts: texts.iter().map(String::as_str).collect(),
        control: None,
        pool,
        path,
        restart: true,
        image: &content.image,
    }
    .build(settings)?;
    stamp(Deployment {
        metadata: metadata(names::deployment(&pipeline, role), content.pipeline.namespace(), labels, owner),
        spec: DeploymentSpec {
            replicas,
            revision_history_limit: Some(2),
            selector: LabelSelector { match_labels: Some(names::selector_labels(&pipeline, role)), match_expressions: None },
            // partitions move to the new pods as old ones leave; more members than wanted would move them twice
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(0)),
                    max_unavailable: Some(IntOrString::String("25%".into())),
                }),
            }),
            template,
            ..DeploymentSpec::default()
        },
        status: None,
    })
}

/// What the user says of the pods of a role, and where.
fn pool(content: &RevisionContent, role: Role) -> (&Pool, &'static str) {
    match (role, &content.pipeline.spec.indexers) {
        (Role::Indexer, Some(indexers)) => (indexers, "spec.indexers"),
        _ => (&content.pipeline.spec.workers, "spec.workers"),
    }
}
