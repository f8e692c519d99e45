//! What the harness promises of its node: pods of images of this build run, are watched, limited, found and reached.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use penstock_crds::{conditions::ConnectorState, report::StepReport};
use penstock_tests::{
    cluster::{Cluster, Namespace, block_on, wait_for},
    services::kafka::Kafka,
};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A pod with one container. `more` goes to its container, in one line.
fn pod(name: &str, image: &str, arguments: &[&str], more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: OnFailure
  volumes: [{{name: manifests, configMap: {{name: manifests, optional: true}}}}]
  containers:
    - {{name: c, image: \"{image}\", imagePullPolicy: Never, args: {arguments:?}, volumeMounts: [{{name: manifests, mountPath: /manifests}}]{more}}}
"
    )
}

fn manifests(content: &str) -> String {
    let indented: String = content.lines().map(|line| format!("    {line}\n")).collect();
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: manifests}}\ndata:\n  all.yaml: |\n{indented}")
}

fn pipeline(count: u64, mode: &str, kafka: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {{name: p}}
spec:
  mode: {mode}
  {kafka}
  indexer:
    nop: {{}}
---
apiVersion: penstock.io/v1alpha1
kind: IngestRun
metadata: {{name: r}}
spec:
  connectors: [{{name: first, pipeline: p, sequence: {{count: {count}}}}}]
"
    )
}

/// How the container of a pod has ended, this time or the time before.
fn ended(namespace: &Namespace, name: &str) -> Result<Option<ContainerStateTerminated>> {
    let Some(status) = namespace.get::<Pod>(name)?.and_then(|pod| pod.status) else { return Ok(None) };
    let states = status.container_statuses.into_iter().flatten().flat_map(|container| [container.state, container.last_state]);
    Ok(states.flatten().find_map(|state| state.terminated))
}

/// The address of a pod that is ready.
fn address(namespace: &Namespace, name: &str) -> Result<String> {
    wait_for(&format!("{name} is ready"), LIMIT, || {
        let status = namespace.get::<Pod>(name)?.and_then(|pod| pod.status).unwrap_or_default();
        let is_ready = status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        Ok(status.pod_ip.filter(|_| is_ready))
    })
}

#[test]
fn a_run_in_a_pod_leaves_its_result_as_the_termination_message() -> Result<()> {
    let cluster = Cluster::node()?;
    let image = cluster.penstock_image()?;
    let namespace = cluster.namespace("run")?;
    namespace.apply(&manifests(&pipeline(1000, "Local", "")))?;
    namespace.apply(&pod("version", image, &["--version"], ""))?;
    let arguments = ["run", "/manifests", "--base-dir", "/tmp", "--connector", "first", "--result-file", "/dev/termination-log"];
    namespace.apply(&pod("run", image, &arguments, ""))?;

    let version = wait_for("penstock says its version", LIMIT, || ended(&namespace, "version"))?;
    ensure!(version.exit_code == 0 && namespace.logs("version")?.starts_with("penstock "), "{version:?}");
    let run = wait_for("the run ends", LIMIT, || ended(&namespace, "run"))?;
    ensure!(run.exit_code == 0, "{run:?}: {}", namespace.logs("run")?);
    let report: StepReport = serde_json::from_str(run.message.as_deref().unwrap_or_default()).with_context(|| format!("{run:?}"))?;
    ensure!(report.state == ConnectorState::Succeeded && report.counts.published == 1000, "{report:?}");
    Ok(())
}

#[test]
fn pods_log_answer_and_find_services_by_name() -> Result<()> {
    let cluster = Cluster::node()?;
    let image = cluster.tools_image()?;
    let namespace = cluster.namespace("names")?;
    namespace.apply(&pod("ticking", image, &["-c", "while :; do echo tick; sleep 1; done"], ""))?;
    namespace.apply(
        "apiVersion: v1
kind: Service
metadata: {name: ticking}
spec: {clusterIP: None, selector: {app: ticking}, ports: [{port: 80}]}
",
    )?;
    let address = address(&namespace, "ticking")?;
    wait_for("the pod has logged", LIMIT, || Ok(namespace.logs("ticking")?.contains("tick").then_some(())))?;
    ensure!(namespace.exec("ticking", ["cat", "/etc/hostname"])? == "ticking\n");
    let found = || Ok(namespace.exec("ticking", ["getent", "hosts", "ticking"])?.starts_with(&address).then_some(()));
    wait_for("the service has its address by name", LIMIT, found)
}

#[test]
fn a_pod_is_reached_from_this_machine() -> Result<()> {
    let cluster = Cluster::node()?;
    let namespace = cluster.namespace("reach")?;
    namespace.apply(&manifests(&pipeline(2_000_000_000, "Local", "")))?;
    let arguments = ["run", "/manifests", "--base-dir", "/tmp", "--metrics-addr", "0.0.0.0:9090", "--progress", "none"];
    namespace.apply(&pod("busy", cluster.penstock_image()?, &arguments, ", resources: {limits: {cpu: 300m}}"))?;
    let url = format!("http://{}:9090/metrics", address(&namespace, "busy")?);
    let metrics = wait_for("the pod gives its figures", LIMIT, || {
        let fetched = block_on(async { reqwest::get(&url).await?.error_for_status()?.text().await });
        Ok(Some(fetched.with_context(|| url.clone())?))
    })?;
    ensure!(metrics.contains("penstock_"), "{metrics}");
    Ok(())
}

#[test]
fn a_stale_heartbeat_restarts_a_container_and_a_fresh_one_does_not() -> Result<()> {
    let cluster = Cluster::node()?;
    let image = cluster.tools_image()?;
    let namespace = cluster.namespace("probe")?;
    let check = "test $(( $(date +%s) - $(stat -c %Y /tmp/beat) )) -lt 6";
    let probe = format!(
        ", livenessProbe: {{exec: {{command: [bash, -c, \"{check}\"]}}, initialDelaySeconds: 1, periodSeconds: 2, failureThreshold: 2, timeoutSeconds: 5}}"
    );
    namespace.apply(&pod("beating", image, &["-c", "while :; do touch /tmp/beat; sleep 1; done"], &probe))?;
    namespace.apply(&pod("stalled", image, &["-c", "touch /tmp/beat; sleep 1000"], &probe))?;
    let restarts = |name: &str| -> Result<i32> {
        let status = namespace.get::<Pod>(name)?.and_then(|pod| pod.status).unwrap_or_default();
        Ok(status.container_statuses.iter().flatten().map(|container| container.restart_count).sum())
    };
    wait_for("the stalled one is restarted", LIMIT, || Ok((restarts("stalled")? > 0).then_some(())))?;
    let events = namespace.events()?;
    ensure!(events.iter().any(|event| event.reason.as_deref() == Some("Unhealthy")), "{events:#?}");
    ensure!(restarts("beating")? == 0, "{:#?}", namespace.get::<Pod>("beating")?);
    Ok(())
}

#[test]
fn a_container_that_takes_too_much_memory_is_killed_for_it() -> Result<()> {
    let cluster = Cluster::node()?;
    let namespace = cluster.namespace("memory")?;
    let limit = ", resources: {limits: {memory: 32Mi}}";
    namespace.apply(&pod("hog", cluster.tools_image()?, &["-c", "x=a; while :; do x=$x$x; done"], limit))?;
    let end = wait_for("the hog is killed", LIMIT, || ended(&namespace, "hog"))?;
    ensure!(end.reason.as_deref() == Some("OOMKilled") && end.exit_code == 137, "{end:?}");
    Ok(())
}

#[test]
fn a_pod_works_with_the_broker_of_this_machine() -> Result<()> {
    let cluster = Cluster::node()?;
    let kafka = cluster.kafka()?;
    let namespace = cluster.namespace("kafka")?;
    namespace.apply(&manifests(&over(&kafka, namespace.name())))?;
    let arguments = ["run", "/manifests", "--base-dir", "/tmp", "--connector", "first", "--result-file", "/dev/termination-log"];
    namespace.apply(&pod("run", cluster.penstock_image()?, &arguments, ""))?;
    let run = wait_for("the run ends", LIMIT, || ended(&namespace, "run"))?;
    ensure!(run.exit_code == 0, "{run:?}: {}", namespace.logs("run")?);
    let source = kafka.read(&format!("{}.p_source", namespace.name()))?;
    ensure!(source.len() >= 1000, "{} records", source.len());
    Ok(())
}

/// A run over this broker, with topics of its own.
fn over(kafka: &Kafka, prefix: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1
kind: KafkaConnection
metadata: {{name: kafka}}
spec: {{bootstrapServers: \"{}\", topics: {{namePrefix: \"{prefix}.\"}}}}
---
{}",
        kafka.bootstrap(),
        pipeline(1000, "Distributed", "kafkaRef: {name: kafka}\n  partitions: 2"),
    )
}
