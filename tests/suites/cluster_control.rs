//! What the harness promises of its control plane: controllers work on our kinds from the first second, and nothing is left of it
//! when the tests are killed.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_crds::Pipeline;
use penstock_tests::cluster::{Cluster, wait_for};
use std::{
    env, fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(120);
/// Garbage collection of a kind that it learnt of too late begins only after this.
const LATE_COLLECTION: Duration = Duration::from_secs(30);

#[test]
fn what_a_pipeline_owns_goes_with_it_at_once() -> Result<()> {
    let cluster = Cluster::control()?;
    let namespace = cluster.namespace("collected")?;
    namespace.apply(
        "apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {name: owner}
spec: {mode: Local, indexer: {nop: {}}}
",
    )?;
    let owner = namespace.get::<Pipeline>("owner")?.and_then(|pipeline| pipeline.metadata.uid).context("the pipeline has a uid")?;
    namespace.apply(&format!(
        "apiVersion: v1
kind: ConfigMap
metadata:
  name: owned
  ownerReferences: [{{apiVersion: penstock.io/v1alpha1, kind: Pipeline, name: owner, uid: {owner}}}]
"
    ))?;
    namespace.delete::<Pipeline>("owner")?;
    let begun = Instant::now();
    wait_for("the ConfigMap is gone", LIMIT, || Ok(namespace.get::<ConfigMap>("owned")?.is_none().then_some(())))?;
    ensure!(begun.elapsed() < LATE_COLLECTION, "it took {:?}", begun.elapsed());
    Ok(())
}

#[test]
fn jobs_get_pods_and_unknown_fields_are_refused() -> Result<()> {
    let cluster = Cluster::control()?;
    let namespace = cluster.namespace("jobs")?;
    let job = "apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: none}]
";
    let refused = namespace.apply(&job.replace("image:", "imgae: none, image:"));
    ensure!(refused.is_err_and(|error| format!("{error:#}").contains("imgae")), "a field that nobody knows");
    namespace.apply(job)?;
    let pod = wait_for("the job has a pod", LIMIT, || Ok(namespace.list::<Pod>()?.pop()))?;
    ensure!(pod.spec.is_some_and(|spec| spec.node_name.is_none()), "there is no node");
    let status = wait_for("the job knows of it", LIMIT, || {
        let status = namespace.get::<Job>("job")?.and_then(|job| job.status);
        Ok(status.filter(|status| status.active == Some(1)))
    })?;
    ensure!(status.failed.unwrap_or_default() == 0, "{status:?}");
    Ok(())
}

/// Not a test: what the next one kills.
#[test]
#[ignore = "it waits until it is killed"]
fn holds_a_cluster() -> Result<()> {
    let cluster = Cluster::api()?;
    let kubeconfig = cluster.kubeconfig();
    // on a line of its own, past what the test runner writes
    let state = kubeconfig.ancestors().nth(2).context("a kubeconfig lies in the state of its cluster")?;
    writeln!(io::stdout(), "\nstate {}", state.display())?;
    loop {
        std::thread::park();
    }
}

#[test]
fn a_cluster_goes_down_with_tests_that_are_killed() -> Result<()> {
    let mut tests = Command::new(env::current_exe().context("failed to find this test")?)
        .args(["cluster_control::holds_a_cluster", "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start tests")?;
    let lines = BufReader::new(tests.stdout.take().context("the tests have an output")?).lines();
    let said = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("state ").map(PathBuf::from));
    let state = said.context("the tests did not start a cluster")?;
    let pids = pids(&state)?;
    ensure!(pids.len() == 2 && pids.iter().all(|pid| kill(*pid, None).is_ok()), "{pids:?}");

    kill(Pid::from_raw(tests.id() as i32), Signal::SIGKILL).context("failed to kill the tests")?;
    tests.wait().context("failed to wait for the end of the tests")?;
    wait_for("the cluster is gone", LIMIT, || Ok((!state.exists() && pids.iter().all(|pid| kill(*pid, None).is_err())).then_some(())))
}

/// The numbers of the processes of a cluster.
fn pids(state: &Path) -> Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir(state.join("pids")).context("failed to list the processes of a cluster")? {
        let text = fs::read_to_string(entry?.path())?;
        let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
        pids.push(Pid::from_raw(number.with_context(|| format!("no process: {text}"))?));
    }
    Ok(pids)
}
