//! The proxy before the API server: it counts, makes trouble where it shall, and is otherwise not noticed.

use anyhow::{Context, Result, ensure};
use axum::http::Method;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, Error,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use penstock_tests::{
    api_proxy::{ApiProxy, Fault},
    cluster::{Cluster, Namespace, block_on},
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A proxy, a namespace, and its ConfigMaps as they are seen through the proxy.
struct Scene {
    proxy: ApiProxy,
    namespace: Namespace,
    maps: Api<ConfigMap>,
}

impl Scene {
    fn new(name: &str) -> Result<Self> {
        let cluster = Cluster::api()?;
        let proxy = ApiProxy::start(&cluster)?;
        let namespace = cluster.namespace(name)?;
        let client = block_on(async {
            let file = Kubeconfig::read_from(proxy.kubeconfig())?;
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        let maps = Api::namespaced(client, namespace.name());
        Ok(Self { proxy, namespace, maps })
    }

    fn create(&self, name: &str) -> Result<ConfigMap, Error> {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).map_err(Error::SerdeError)?;
        block_on(self.maps.create(&PostParams::default(), &map))
    }

    fn patch(&self, name: &str, value: &str) -> Result<ConfigMap, Error> {
        block_on(self.maps.patch(name, &PatchParams::default(), &Patch::Merge(json!({"data": {"a": value}}))))
    }
}

/// The status and the reason of a refusal.
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> Result<(u16, String)> {
    match answer {
        Err(Error::Api(status)) => Ok((status.code, status.reason)),
        other => anyhow::bail!("not refused: {other:?}"),
    }
}

#[test]
fn writes_are_counted_and_reads_are_not() -> Result<()> {
    let scene = Scene::new("counted")?;
    scene.create("one")?;
    scene.patch("one", "2")?;
    ensure!(refused(scene.create("one"))?.0 == 409, "one is there");
    ensure!(block_on(scene.maps.list(&ListParams::default()))?.items.iter().any(|map| map.metadata.name.as_deref() == Some("one")));
    let folder = format!("/api/v1/namespaces/{}/configmaps", scene.namespace.name());
    let writes: Vec<_> = scene.proxy.writes().into_iter().map(|write| (write.method, write.path, write.status)).collect();
    let expected = [("POST", "", 201), ("PATCH", "/one", 200), ("POST", "", 409)];
    ensure!(writes == expected.map(|(method, name, status)| (method.to_owned(), format!("{folder}{name}"), status)), "{writes:?}");
    ensure!(scene.proxy.count("POST", "configmaps") == 1 && scene.proxy.count("PATCH", "configmaps/one") == 1);
    Ok(())
}

#[test]
fn requests_are_refused_as_often_as_it_was_said() -> Result<()> {
    let scene = Scene::new("refused")?;
    scene.create("one")?;
    scene.proxy.fault(Method::PATCH, "configmaps/one", 1, Fault::Answer(409));
    ensure!(refused(scene.patch("one", "2"))? == (409, "Conflict".into()));
    scene.patch("one", "2")?;
    scene.proxy.fault(Method::POST, "configmaps", 1, Fault::Answer(500));
    ensure!(refused(scene.create("two"))? == (500, "InternalError".into()));
    ensure!(scene.namespace.get::<ConfigMap>("two")?.is_none(), "what is refused is not carried out");

    scene.proxy.fault(Method::PATCH, "configmaps/one", 1000, Fault::Answer(409));
    ensure!(refused(scene.patch("one", "3"))?.0 == 409 && refused(scene.patch("one", "3"))?.0 == 409);
    scene.proxy.heal();
    scene.patch("one", "3")?;
    Ok(())
}

#[test]
fn too_many_requests_say_when_to_come_again() -> Result<()> {
    let scene = Scene::new("many")?;
    scene.proxy.fault(Method::GET, "/version", 1, Fault::Answer(429));
    let url = format!("{}/version", scene.proxy.url());
    let get = || block_on(async { reqwest::get(&url).await });
    let answer = get()?;
    ensure!(answer.status() == 429 && answer.headers()["retry-after"] == "1", "{answer:?}");
    ensure!(get()?.status() == 200);

    scene.proxy.fault(Method::POST, "configmaps", 1, Fault::Answer(429));
    scene.create("one").context("the client comes again by itself")?;
    Ok(())
}

#[test]
fn requests_are_delayed() -> Result<()> {
    let scene = Scene::new("delayed")?;
    scene.create("one")?;
    scene.proxy.fault(Method::GET, "configmaps/one", 1, Fault::Delay(Duration::from_millis(700)));
    let begun = Instant::now();
    block_on(scene.maps.get("one"))?;
    ensure!(begun.elapsed() >= Duration::from_millis(700), "after {:?}", begun.elapsed());
    Ok(())
}

#[test]
fn an_answer_is_lost_and_the_write_stays() -> Result<()> {
    let scene = Scene::new("lost")?;
    scene.proxy.fault(Method::POST, "configmaps", 1, Fault::LoseAnswer);
    let answer = scene.create("one");
    ensure!(!matches!(answer, Ok(_) | Err(Error::Api(_))), "{answer:?}");
    ensure!(scene.namespace.get::<ConfigMap>("one")?.is_some(), "it was carried out");
    Ok(())
}

#[test]
fn what_shall_happen_after_a_write_happens_before_its_answer() -> Result<()> {
    let scene = Scene::new("after")?;
    scene.create("zero")?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (notes, cluster, name) = (Arc::clone(&seen), Arc::clone(scene.namespace.cluster()), scene.namespace.name().to_owned());
    scene.proxy.after_write(2, move || {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &name);
        let found = block_on(maps.get_opt("two")).ok().flatten().is_some();
        notes.lock().unwrap_or_else(PoisonError::into_inner).push(found);
    });
    let seen = || seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    scene.create("one")?;
    ensure!(seen().is_empty(), "too early");
    scene.create("two")?;
    ensure!(seen() == [true], "once, when the write was carried out: {:?}", seen());
    scene.create("three")?;
    ensure!(seen() == [true], "{:?}", seen());
    Ok(())
}

#[test]
fn watches_work_until_they_are_cut() -> Result<()> {
    let scene = Scene::new("watched")?;
    let version = block_on(scene.maps.list(&ListParams::default()))?.metadata.resource_version.context("a list has a version")?;
    let mut watch = block_on(scene.maps.watch(&WatchParams::default().fields("metadata.name=one"), &version))?.boxed();
    scene.create("one")?;
    let event = block_on(async { tokio::time::timeout(Duration::from_secs(30), watch.next()).await })?;
    ensure!(matches!(event, Some(Ok(WatchEvent::Added(_)))), "{event:?}");
    scene.proxy.cut_watches();
    let end = block_on(async { tokio::time::timeout(Duration::from_secs(30), watch.next()).await }).context("the watch goes on")?;
    ensure!(!matches!(end, Some(Ok(_))), "{end:?}");
    let again = block_on(scene.maps.watch(&WatchParams::default().fields("metadata.name=one"), "0"))?;
    let event = block_on(async { tokio::time::timeout(Duration::from_secs(30), again.boxed().next()).await })?;
    ensure!(matches!(event, Some(Ok(WatchEvent::Added(_)))), "{event:?}");
    Ok(())
}
