//! The publisher of one connector: a Job that tries again what may pass, and gives up at once on what only a person can cure.

use super::{BuildError, RevisionContent, Settings, metadata, owner_reference, pod::Pod, secrets_of, stamped};
use crate::names;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use kube::ResourceExt;
use penstock_crds::{
    IngestRun,
    connectors::{Connector, RestartPolicy},
    pipeline::Mode,
};

/// Publishers that may be lost before the Job gives up.
const BACKOFF_LIMIT: i32 = 3;
/// Exit codes: the run failed, the arguments or the manifests make no sense. The next pod would come to the same.
const FINAL: [i32; 3] = [1, 2, 64];
/// Exit codes: interrupted, superseded by a newer publisher. Nothing is wrong.
const INTERRUPTED: [i32; 2] = [75, 76];

/// The Job of a connector's attempt. `content` is its pipeline as it was when the run began, `image` that of the run. In mode `Local`
/// the pod is connector, workers and indexer in one, else it publishes only. Its pool is `spec.workers` in any case: the sources of
/// connectors are brought to it by podPatches.
///
/// # Errors
/// There is no such connector, or the user's patches do not fit.
pub fn build(
    run: &IngestRun,
    index: usize,
    attempt: i32,
    content: &RevisionContent,
    image: &str,
    settings: &Settings,
) -> Result<Job, BuildError> {
    let name = run.name_any();
    let connector = connector(run, index)?;
    let job = names::job(&name, index, attempt);
    let is_local = content.pipeline.spec.effective_mode() == Mode::Local;
    let labels = names::publisher_labels(&name, &connector.name, &connector.pipeline);
    let template = Pod {
        labels: labels.clone(),
        annotations: Default::default(),
        command: if is_local { "run" } else { "publish" },
        arguments: arguments(run, connector, is_local),
        manifests: names::run_config_map(&name),
        // who publishes only never talks to the backend
        secrets: match is_local {
            true => secrets_of(&(connector, &content.pipeline.spec)),
            false => secrets_of(&(connector, content.connection.as_ref().map(|connection| &connection.spec))),
        },
        control: Some(job.clone()),
        pool: &content.pipeline.spec.workers,
        pool_path: "spec.workers",
        restart_policy: "Never",
        image,
    }
    .build(settings)?;
    stamped(Job {
        metadata: metadata(job, run.namespace(), labels, &owner_reference(run)),
        spec: Some(JobSpec {
            completions: Some(1),
            parallelism: Some(1),
            backoff_limit: Some(if connector.restart_policy == RestartPolicy::Never { 0 } else { BACKOFF_LIMIT }),
            // no second publisher while the first one still ends
            pod_replacement_policy: Some("Failed".into()),
            pod_failure_policy: Some(failure_policy()),
            template,
            ..JobSpec::default()
        }),
        status: None,
    })
}

/// A connector of a run, by its place.
pub(super) fn connector(run: &IngestRun, index: usize) -> Result<&Connector, BuildError> {
    run.spec.connectors.get(index).ok_or_else(|| BuildError::NoConnector { run: run.name_any(), index })
}

fn arguments(run: &IngestRun, connector: &Connector, is_local: bool) -> Vec<String> {
    let (name, run_id) = (run.name_any(), names::run_id(run));
    let common = ["--run", &name, "--connector", &connector.name, "--run-id", &run_id, "--result-file", names::RESULT_FILE];
    let of_local: &[&str] = if is_local { &["--summary", "json"] } else { &[] };
    common.iter().chain(of_local).map(|argument| (*argument).to_owned()).collect()
}

/// The first rule that fits decides; what none fits is counted.
fn failure_policy() -> PodFailurePolicy {
    let on_exit = |action: &str, codes: &[i32]| PodFailurePolicyRule {
        action: action.into(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(names::CONTAINER.into()),
            operator: "In".into(),
            values: codes.to_vec(),
        }),
        on_pod_conditions: None,
    };
    let disrupted = PodFailurePolicyOnPodConditionsPattern { type_: "DisruptionTarget".into(), status: Some("True".into()) };
    let on_disruption = PodFailurePolicyRule { action: "Ignore".into(), on_exit_codes: None, on_pod_conditions: Some(vec![disrupted]) };
    PodFailurePolicy { rules: vec![on_exit("FailJob", &FINAL), on_exit("Ignore", &INTERRUPTED), on_disruption] }
}
