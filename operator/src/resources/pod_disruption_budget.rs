//! A drained node takes a part of a pool's pods at a time.

use super::{BuildError, Role, metadata, stamped};
use crate::names;
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt;
use penstock_crds::Pipeline;

/// Of so many pods at a time, rounded up: never none, so that no drain is held up.
const MAX_UNAVAILABLE: &str = "25%";

/// The budget of a role's pods.
///
/// # Errors
/// It cannot be written as JSON.
pub fn build(pipeline: &Pipeline, role: Role, owner: &OwnerReference) -> Result<PodDisruptionBudget, BuildError> {
    let name = pipeline.name_any();
    stamped(PodDisruptionBudget {
        metadata: metadata(names::deployment(&name, role), pipeline.namespace(), names::pipeline_labels(&name, role.as_str()), owner),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::String(MAX_UNAVAILABLE.into())),
            selector: Some(LabelSelector { match_labels: Some(names::selector_labels(&name, role)), match_expressions: None }),
            // a pod that does not work is no reason to keep a node
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}
