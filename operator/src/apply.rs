//! Writing children: server-side apply under our name, and only what differs.

use crate::{
    error::Error,
    names::{self, FIELD_MANAGER},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{collections::HashMap, fmt::Debug};

/// A kind that lives in a namespace and is written by us.
pub trait Child:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Child for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// Writes children.
pub struct Applier {
    client: Client,
    /// By uid: the generation that our last write led to. Another one means that somebody else wrote.
    generations: Mutex<HashMap<String, i64>>,
    count: Box<dyn Fn(&str) + Send + Sync>,
}

impl Applier {
    /// Writes through this client; `count` hears the kind of each object that was written.
    pub fn new(client: Client, count: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { client, generations: Mutex::default(), count: Box::new(count) }
    }

    /// Makes a child what it is meant to be. Whether anything was written.
    ///
    /// # Errors
    /// The API server refuses it, or does not answer.
    pub async fn apply<K: Child>(&self, existing: Option<&K>, wanted: &K) -> Result<bool, Error> {
        if existing.is_some_and(|existing| self.is_as_wanted(existing, wanted)) {
            return Ok(false);
        }
        let api = self.api::<K>(wanted);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(&wanted.name_any(), &parameters, &Patch::Apply(wanted)).await;
        let applied = applied.map_err(|error| Error::api("apply", describe(wanted), error))?;
        (self.count)(&K::kind(&()));
        if let (Some(uid), Some(generation)) = (applied.uid(), applied.meta().generation) {
            self.generations.lock().insert(uid, generation);
        }
        Ok(true)
    }

    fn is_as_wanted<K: Child>(&self, existing: &K, wanted: &K) -> bool {
        let hash = |object: &K| object.annotations().get(names::HASH).cloned();
        if hash(existing) != hash(wanted) || existing.meta().deletion_timestamp.is_some() {
            return false;
        }
        let (Some(uid), Some(generation)) = (existing.uid(), existing.meta().generation) else { return true };
        if let Some(written) = self.generations.lock().get(&uid) {
            return *written == generation;
        }
        // written by an earlier process: no write if all that we want stands there
        let contains = match (serde_json::to_value(existing), serde_json::to_value(wanted)) {
            (Ok(existing), Ok(wanted)) => contains(&existing["spec"], &wanted["spec"]),
            _ => false,
        };
        if contains {
            self.generations.lock().insert(uid, generation);
        }
        contains
    }

    /// The same for a child of which only metadata is kept.
    ///
    /// # Errors
    /// The API server refuses it, or does not answer.
    pub async fn apply_known<K: Child>(&self, existing: Option<&PartialObjectMeta<K>>, wanted: &K) -> Result<bool, Error> {
        let same = existing.is_some_and(|existing| existing.annotations().get(names::HASH) == wanted.annotations().get(names::HASH));
        if same { Ok(false) } else { self.apply(None, wanted).await }
    }

    /// Creates an object that never changes. One of that name with the same owner is the one that was created before.
    ///
    /// # Errors
    /// The API server refuses it, does not answer, or somebody else has the name.
    pub async fn create_once<K: Child>(&self, wanted: &K) -> Result<(), Error> {
        let api = self.api::<K>(wanted);
        match api.create(&PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }, wanted).await {
            Ok(_) => {
                (self.count)(&K::kind(&()));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => {
                let there = api.get_opt(&wanted.name_any()).await.map_err(|error| Error::api("read", describe(wanted), error))?;
                let owner = |object: &K| object.owner_references().first().map(|owner| owner.uid.clone());
                match there {
                    Some(there) if owner(&there) == owner(wanted) => Ok(()),
                    _ => Err(Error::api("create", describe(wanted), kube::Error::Api(status))),
                }
            }
            Err(error) => Err(Error::api("create", describe(wanted), error)),
        }
    }

    /// Deletes an object, if it is still the one that was seen.
    ///
    /// # Errors
    /// The API server refuses it, or does not answer.
    pub async fn delete<K: Child>(&self, object: &K) -> Result<(), Error> {
        let preconditions = Some(Preconditions { uid: object.uid(), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::background() };
        match self.api::<K>(object).delete(&object.name_any(), &parameters).await {
            Ok(_) => {
                (self.count)(&K::kind(&()));
                Ok(())
            }
            // gone, or another one by now
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(Error::api("delete", describe(object), error)),
        }
    }

    fn api<K: Child>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }
}

/// Kind, namespace and name.
pub fn describe<K: Resource<DynamicType = ()>>(object: &K) -> String {
    let meta = object.meta();
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    format!("{} {namespace}/{name}", K::kind(&()))
}

/// Whether all that is wanted stands there; the API server adds defaults.
fn contains(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| there.get(key).is_some_and(|there| contains(there, wanted)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(there, wanted)| contains(there, wanted))
        }
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_of_the_server_are_no_difference() {
        let there =
            json!({"replicas": 2, "strategy": {"type": "RollingUpdate"}, "containers": [{"name": "a", "image": "b", "pull": "Always"}]});
        assert!(contains(&there, &json!({"replicas": 2, "containers": [{"name": "a", "image": "b"}]})));
        for other in [
            json!({"replicas": 3}),
            json!({"paused": true}),
            json!({"containers": []}),
            json!({"containers": [{"name": "a", "image": "c"}]}),
        ] {
            assert!(!contains(&there, &other), "{other}");
        }
    }
}
