//! Where the metrics of a pipeline's pods are scraped, publishers included: a headless Service.

use super::{BuildError, metadata, stamped};
use crate::names;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::{apis::meta::v1::OwnerReference, util::intstr::IntOrString},
};
use kube::ResourceExt;
use penstock_crds::Pipeline;

/// The Service of a pipeline.
///
/// # Errors
/// It cannot be written as JSON.
pub fn build(pipeline: &Pipeline, owner: &OwnerReference) -> Result<Service, BuildError> {
    let name = pipeline.name_any();
    stamped(Service {
        metadata: metadata(names::service(&name), pipeline.namespace(), names::pipeline_labels(&name, names::PORT_NAME), owner),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            // pods that are not ready have metrics as well, and they are the more interesting ones
            publish_not_ready_addresses: Some(true),
            selector: Some([(names::LABEL_PIPELINE.to_owned(), names::label_value(&name).into_owned())].into()),
            ports: Some(vec![ServicePort {
                name: Some(names::PORT_NAME.into()),
                port: i32::from(names::PORT),
                target_port: Some(IntOrString::String(names::PORT_NAME.into())),
                protocol: Some("TCP".into()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}
