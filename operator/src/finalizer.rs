//! Our finalizer: only where something outside of the cluster has to be deleted with an object.

use crate::{apply, context::Context, error::Error};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;

/// Its name.
pub const FINALIZER: &str = "penstock.io/kafka-topics";

/// Whether an object has it.
pub fn is_there<K: Resource>(object: &K) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Adds or removes it, if it is not as wanted; those of others stay.
///
/// # Errors
/// The API server refuses it: somebody else changed the finalizers in between, or the object is gone.
pub async fn keep<K>(context: &Context, object: &K, wanted: bool) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    if is_there(object) == wanted {
        return Ok(());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if wanted {
        finalizers.push(FINALIZER.to_owned());
    }
    // the version makes it fail if somebody else was faster: it is tried again with what is there then
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    let api: Api<K> = Api::namespaced(context.shared.client.clone(), &object.namespace().unwrap_or_default());
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 && !wanted => Ok(()),
        Err(error) => Err(Error::api("change the finalizers of", apply::describe(object), error)),
    }
}
