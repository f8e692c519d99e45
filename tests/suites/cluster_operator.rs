//! What the harness promises of the operator's process: it starts, speaks to the cluster that it shall, and ends as it is told to.

use anyhow::{Result, ensure};
use penstock_crds::Pipeline;
use penstock_tests::{
    api_proxy::ApiProxy,
    cluster::{Cluster, Namespace, wait_for},
    operator::{Operator, Options},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(60);
const PIPELINE: &str = "apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {name: p}
spec: {mode: Local, indexer: {nop: {}}}
";

fn options(namespace: &Namespace, proxy: &ApiProxy) -> Options {
    Options { namespaces: vec![namespace.name().into()], kubeconfig: Some(proxy.kubeconfig()), ..Options::default() }
}

fn is_observed(namespace: &Namespace) -> Result<bool> {
    let status = namespace.get::<Pipeline>("p")?.and_then(|pipeline| pipeline.status);
    Ok(status.is_some_and(|status| status.observed_generation.is_some()))
}

#[test]
fn it_works_through_the_proxy_is_frozen_and_ends_when_told() -> Result<()> {
    let cluster = Cluster::control()?;
    let (namespace, proxy) = (cluster.namespace("operator")?, ApiProxy::start(&cluster)?);
    let mut operator = Operator::start(&cluster, &options(&namespace, &proxy))?;
    wait_for("the operator is ready", LIMIT, || Ok(operator.is_ready().then_some(())))?;

    operator.pause()?;
    namespace.apply(PIPELINE)?;
    ensure!(!is_observed(&namespace)?, "a frozen operator does nothing");
    operator.resume()?;
    wait_for("the pipeline is observed", LIMIT, || Ok(is_observed(&namespace)?.then_some(())))?;
    ensure!(operator.metrics()?.contains("penstock_operator_"), "{}", operator.metrics()?);
    ensure!(proxy.count("PATCH", "/pipelines/p/status") > 0, "{:#?}", proxy.writes());

    ensure!(operator.stop()? == 0, "{}", operator.log()?);
    ensure!(!operator.runs());
    Ok(())
}

#[test]
fn it_is_killed_after_a_write_and_another_goes_on() -> Result<()> {
    let cluster = Cluster::control()?;
    let (namespace, proxy) = (cluster.namespace("killed")?, ApiProxy::start(&cluster)?);
    let options = options(&namespace, &proxy);
    let operator = Arc::new(Mutex::new(Operator::start(&cluster, &options)?));
    let victim = Arc::clone(&operator);
    proxy.after_write(1, move || victim.lock().unwrap_or_else(PoisonError::into_inner).kill());
    namespace.apply(PIPELINE)?;
    wait_for("the operator is dead", LIMIT, || Ok((!operator.lock().unwrap_or_else(PoisonError::into_inner).runs()).then_some(())))?;
    let carried_out = proxy.writes().iter().filter(|write| write.is_carried_out()).count();
    ensure!(carried_out >= 1, "{:#?}", proxy.writes());

    let _second = Operator::start(&cluster, &options)?;
    wait_for("the pipeline is observed", LIMIT, || Ok(is_observed(&namespace)?.then_some(())))
}

#[test]
fn one_that_cannot_start_says_why() -> Result<()> {
    let cluster = Cluster::control()?;
    let options = Options { arguments: vec!["--no-such-argument".into()], ..Options::default() };
    let failure = Operator::start(&cluster, &options).err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(failure.contains("--no-such-argument"), "{failure}");
    Ok(())
}
