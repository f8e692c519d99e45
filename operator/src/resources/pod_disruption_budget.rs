//! A drained node takes the pods of a pool one by one.

use super::{BuildError, Role, metadata, stamp};
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

/// The budget of a pool.
///
/// # Errors
/// It cannot be rendered.
pub fn build(pipeline: &Pipeline, role: Role, owner: &OwnerReference) -> Result<PodDisruptionBudget, BuildError> {
    let name = pipeline.name_any();
    stamp(PodDisruptionBudget {
        metadata: metadata(names::deployment(&name, role), pipeline.namespace(), names::pipeline_labels(&name, role.as_str()), owner),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector { match_labels: Some(names::selector_labels(&name, role)), match_expressions: None }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}
