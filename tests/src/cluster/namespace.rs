//! A namespace of a test's own, and what tests do in one.

use super::{Answer, Cluster, Mode, block_on, wait_for};
use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Event, Namespace as Object, ServiceAccount},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, ValidationDirective},
    discovery,
};
use serde::{Deserialize as _, de::DeserializeOwned};
use std::{
    fmt::Debug,
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const ACCOUNT_LIMIT: Duration = Duration::from_secs(60);

/// A namespace. It is deleted when this is dropped; nobody waits until it is gone.
pub struct Namespace {
    cluster: Arc<Cluster>,
    name: String,
}

impl Namespace {
    pub(super) fn create(cluster: &Arc<Cluster>, prefix: &str) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let object = Object { metadata: kube::api::ObjectMeta { name: Some(name.clone()), ..Default::default() }, ..Default::default() };
        let created = block_on(Api::all(cluster.client()).create(&PostParams::default(), &object));
        created.with_context(|| format!("failed to create the namespace {name}"))?;
        let namespace = Self { cluster: Arc::clone(cluster), name };
        if cluster.mode != Mode::Api {
            wait_for("pods may be created", ACCOUNT_LIMIT, || namespace.get::<ServiceAccount>("default"))?;
        }
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its cluster.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The objects of a kind, for what has no method here.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client(), &self.name)
    }

    /// Applies objects, several with `---` between them, as a user would. Fields that nobody knows are refused.
    pub fn apply(&self, yaml: &str) -> Result<()> {
        for document in serde_yaml_ng::Deserializer::from_str(yaml) {
            let object = DynamicObject::deserialize(document).context("an object that is applied is no object")?;
            self.apply_object(&object)?;
        }
        Ok(())
    }

    fn apply_object(&self, object: &DynamicObject) -> Result<()> {
        let name = object.metadata.name.as_deref().context("an object that is applied has no name")?;
        let types = object.types.as_ref().with_context(|| format!("{name} has no kind"))?;
        let kind = types.try_into().with_context(|| format!("{name} has no usable kind"))?;
        let applied = block_on(async {
            let (resource, _) = discovery::pinned_kind(&self.cluster.client, &kind).await?;
            let api: Api<DynamicObject> = Api::namespaced_with(self.cluster.client(), &self.name, &resource);
            let user = PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("tests").force() };
            api.patch(name, &user, &Patch::Apply(object)).await
        });
        applied.map(drop).with_context(|| format!("failed to apply {} {name}", types.kind))
    }

    /// An object, if it is there.
    pub fn get<K>(&self, name: &str) -> Result<Option<K>>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        block_on(self.api::<K>().get_opt(name)).with_context(|| format!("failed to get {name}"))
    }

    /// All objects of a kind.
    pub fn list<K>(&self) -> Result<Vec<K>>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let listed = block_on(self.api::<K>().list(&ListParams::default()));
        Ok(listed.with_context(|| format!("failed to list objects in {}", self.name))?.items)
    }

    /// Deletes an object, as `kubectl delete --wait=false` does.
    pub fn delete<K>(&self, name: &str) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let deleted = block_on(self.api::<K>().delete(name, &DeleteParams::default()));
        deleted.map(drop).with_context(|| format!("failed to delete {name}"))
    }

    /// What was reported about its objects.
    pub fn events(&self) -> Result<Vec<Event>> {
        self.list()
    }

    /// Runs kubectl as administrator in this namespace.
    pub fn kubectl<'a>(&'a self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Answer> {
        self.cluster.kubectl(["--namespace", &self.name].into_iter().chain(arguments))
    }

    /// What a pod has written.
    pub fn logs(&self, pod: &str) -> Result<String> {
        self.said(["logs", pod])
    }

    /// What a command in a pod writes.
    pub fn exec<'a>(&'a self, pod: &'a str, command: impl IntoIterator<Item = &'a str>) -> Result<String> {
        self.said(["exec", pod, "--"].into_iter().chain(command))
    }

    fn said<'a>(&'a self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let answer = self.kubectl(arguments)?;
        ensure!(answer.success, "{answer:#?}");
        Ok(answer.stdout)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // shown where a test fails
        for event in self.events().into_iter().flatten().filter(|event| event.type_.as_deref() == Some("Warning")) {
            let (about, reason) = (event.involved_object.name.unwrap_or_default(), event.reason.unwrap_or_default());
            eprintln!("{}/{about}: {reason}: {}", self.name, event.message.unwrap_or_default());
        }
        let api: Api<Object> = Api::all(self.cluster.client());
        if let Err(error) = block_on(api.delete(&self.name, &DeleteParams::default())) {
            eprintln!("failed to delete the namespace {}: {error}", self.name);
        }
    }
}
