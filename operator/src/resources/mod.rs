//! Everything that the operator writes into a cluster, one kind a file. Pure: no client, no clock.

pub mod control_secret;
pub mod deployment;
pub mod job;
pub mod manifests;
pub mod network_policy;
pub mod patches;
mod pod;
pub mod pod_disruption_budget;
pub mod service;

pub use manifests::{Revision, RevisionContent, pipeline_revision, run_manifests};

use crate::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What the operator was told at its start about the pods it makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of all pods.
    pub image: String,
    /// When it is pulled; without it as Kubernetes does.
    pub image_pull_policy: Option<String>,
    /// Secrets to pull it with.
    pub image_pull_secrets: Vec<String>,
    /// Whether pods are shut off from everybody but who reads their metrics.
    pub network_policies: bool,
}

/// What a pod of a pipeline does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Stages.
    Worker,
    /// The backend.
    Indexer,
    /// Both.
    WorkerIndexer,
}

impl Role {
    /// The command of `penstock`, also the component in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Indexer => "indexer",
            Self::WorkerIndexer => "worker-indexer",
        }
    }
}

/// An object cannot be built out of what the user gave.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A patch does not fit.
    #[error("{path}: {reason}")]
    Patch {
        /// Where it stands, for example `spec.workers.podPatches[1].spec.containers[0]`.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The manifests do not fit into a ConfigMap.
    #[error("the manifests of {name} have {bytes} bytes, a ConfigMap takes 1,000,000; move long texts out of the stages")]
    TooLarge {
        /// Whose.
        name: String,
        /// How many.
        bytes: usize,
    },
    /// Something that we made cannot be read back.
    #[error("ConfigMap {name} cannot be read: {reason}")]
    Unreadable {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Something cannot be written as JSON.
    #[error("failed to render {name}")]
    Render {
        /// What.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// The Secrets that a spec names anywhere, each with the keys that are used.
pub fn secrets_of<S: Serialize>(spec: &S) -> BTreeMap<String, BTreeSet<String>> {
    serde_json::to_string(spec).map(|text| pod::secrets(&[&text])).unwrap_or_default()
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

/// The metadata of a child.
fn metadata(name: String, namespace: Option<String>, labels: BTreeMap<String, String>, owner: &OwnerReference) -> ObjectMeta {
    ObjectMeta { name: Some(name), namespace, labels: Some(labels), owner_references: Some(vec![owner.clone()]), ..ObjectMeta::default() }
}

/// Notes what an object was rendered to.
fn stamp<K: Resource + Serialize>(mut object: K) -> Result<K, BuildError> {
    let name = object.name_any();
    let rendered = serde_json::to_vec(&object).map_err(|source| BuildError::Render { name, source })?;
    object.annotations_mut().insert(names::HASH.to_owned(), names::hash(&rendered));
    Ok(object)
}
