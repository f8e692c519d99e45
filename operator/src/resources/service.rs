//! Where the metrics of a pipeline's pods are scraped: a headless Service for all of them.

use super::{BuildError, metadata, stamp};
use crate::names;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::{apis::meta::v1::OwnerReference, util::intstr::IntOrString},
};
use kube::ResourceExt;
use penstock_crds::Pipeline;

/// The Service.
///
/// # Errors
/// It cannot be rendered.
pub fn build(pipeline: &Pipeline, owner: &OwnerReference) -> Result<Service, BuildError> {
    let name = pipeline.name_any();
    stamp(Service {
        metadata: metadata(names::child(&name, "metrics"), pipeline.namespace(), names::pipeline_labels(&name, "metrics"), owner),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            selector: Some([(names::LABEL_PIPELINE.to_owned(), name)].into()),
            ports: Some(vec![ServicePort {
                name: Some(names::PORT_NAME.into()),
                port: i32::from(names::PORT),
                target_port: Some(IntOrString::String(names::PORT_NAME.into())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}
