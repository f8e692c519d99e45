//! Nobody needs to reach a pipeline's pods but by their one port. Where they go themselves is not known here, so that stays open.

use super::{BuildError, Settings, metadata, stamped};
use crate::names;
use k8s_openapi::{
    api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPort, NetworkPolicySpec},
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, OwnerReference},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt;
use penstock_crds::Pipeline;

/// The policy of a pipeline's pods, if such are wanted.
///
/// # Errors
/// It cannot be written as JSON.
pub fn build(pipeline: &Pipeline, settings: &Settings, owner: &OwnerReference) -> Result<Option<NetworkPolicy>, BuildError> {
    if !settings.network_policies {
        return Ok(None);
    }
    let name = pipeline.name_any();
    let of_pipeline = [(names::LABEL_PIPELINE.to_owned(), names::label_value(&name).into_owned())].into();
    let port = NetworkPolicyPort { port: Some(IntOrString::Int(i32::from(names::PORT))), protocol: Some("TCP".into()), end_port: None };
    stamped(NetworkPolicy {
        metadata: metadata(names::network_policy(&name), pipeline.namespace(), names::pipeline_labels(&name, "network"), owner),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector { match_labels: Some(of_pipeline), match_expressions: None }),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule { from: None, ports: Some(vec![port]) }]),
            egress: None,
        }),
    })
    .map(Some)
}
