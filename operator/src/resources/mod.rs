//! Everything that the operator writes into a cluster, one kind a file. Pure: no client, no clock; the same arguments give the same
//! object.

pub mod control_secret;
pub mod deployment;
pub mod job;
mod manifests;
pub mod network_policy;
mod patches;
mod pod;
pub mod pod_disruption_budget;
mod secrets;
pub mod service;

pub use crate::names::Role;
pub use manifests::{Revision, RevisionContent, parse_run_manifests, pipeline_revision, run_manifests};
pub use secrets::{SecretKeys, secrets_of};

use crate::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the operator was told at its start about the pods that it makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of new revisions and runs.
    pub image: String,
    /// When it is pulled; without it as Kubernetes does.
    pub image_pull_policy: Option<String>,
    /// Secrets to pull it with, in the namespace of the pods.
    pub image_pull_secrets: Vec<String>,
    /// Whether pods are shut off from everybody but who reads their one port.
    pub network_policies: bool,
}

/// An object cannot be built out of what the user gave.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A patch does not fit.
    #[error("{path}: {reason}")]
    Patch {
        /// Where it stands, for example `spec.workers.podPatches[1].spec.containers[0].env`.
        path: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The manifests do not fit into a ConfigMap.
    #[error("the manifests of {name} have {bytes} bytes, a ConfigMap takes {limit}; shorten the longest stages", limit = manifests::LARGEST)]
    TooLarge {
        /// Whose: kind and name.
        name: String,
        /// How many.
        bytes: usize,
    },
    /// What the operator wrote earlier cannot be read back.
    #[error("ConfigMap {name} cannot be read: {reason}")]
    Unreadable {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A run has fewer connectors.
    #[error("run {run} has no connector {index}")]
    NoConnector {
        /// The run.
        run: String,
        /// The place in its list, from 0.
        index: usize,
    },
    /// Something cannot be written as JSON.
    #[error("failed to render {name}")]
    Render {
        /// What: kind and name.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// The reference that makes an object go with its owner.
pub fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Notes on an object what it was rendered to. Two objects with the same hash are the same.
///
/// # Errors
/// It cannot be written as JSON.
pub fn stamp<K: Resource<DynamicType = ()> + Serialize>(object: &mut K) -> Result<(), BuildError> {
    object.annotations_mut().remove(names::HASH);
    let name = || format!("{} {}", K::kind(&()), object.name_any());
    let rendered = serde_json::to_vec(&object).map_err(|source| BuildError::Render { name: name(), source })?;
    object.annotations_mut().insert(names::HASH.to_owned(), names::digest(&rendered));
    Ok(())
}

fn stamped<K: Resource<DynamicType = ()> + Serialize>(mut object: K) -> Result<K, BuildError> {
    stamp(&mut object)?;
    Ok(object)
}

/// The metadata of a child.
fn metadata(name: String, namespace: Option<String>, labels: BTreeMap<String, String>, owner: &OwnerReference) -> ObjectMeta {
    ObjectMeta { name: Some(name), namespace, labels: Some(labels), owner_references: Some(vec![owner.clone()]), ..ObjectMeta::default() }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
