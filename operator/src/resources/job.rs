//! The publisher of one connector: a Job that tries again what may pass, and gives up at once on what only a person can cure.

use super::{
    BuildError, RevisionContent, Settings, metadata, owner_reference,
    pod::{Pod, RESULT},
    stamp,
};
use crate::names;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use kube::ResourceExt;
use penstock_crds::{IngestRun, connectors::RestartPolicy, pipeline::Mode, pool::Pool};

/// Publishers that may be lost before the Job gives up.
const BACKOFF_LIMIT: i32 = 3;
/// The run failed, makes no sense, or its manifests are invalid.
const FINAL: [i32; 3] = [1, 2, 64];
/// Interrupted, or superseded: nothing is wrong.
const IGNORED: [i32; 2] = [75, 76];

/// The Job of a connector's attempt.
///
/// # Errors
/// The user's patches do not fit, or there is no such connector.
pub fn build(
    run: &IngestRun,
    index: usize,
    attempt: i32,
    content: &RevisionContent,
    image: &str,
    settings: &Settings,
) -> Result<Job, BuildError> {
    let name = run.name_any();
    let job_name = names::job(&name, index, attempt);
    let connector = run
        .spec
        .connectors
        .get(index)
        .ok_or_else(|| BuildError::Unreadable { name: name.clone(), reason: format!("it has no connector {index}") })?;
    let mode = content.pipeline.spec.effective_mode();
    let command = if mode == Mode::Local { "run" } else { "publish" };
    let mut arguments: Vec<String> = [
        command,
        "--run",
        &name,
        "--connector",
        &connector.name,
        "--run-id",
        &names::run_id(run),
        "--result-file",
        RESULT,
        "--progress",
        "none",
    ]
    .map(str::to_owned)
    .to_vec();
    if mode == Mode::Local {
        arguments.extend(["--summary", "none", "--dead-letter", "dead-letter.jsonl"].map(str::to_owned));
    }
    let texts = [
        serde_json::to_string(connector),
        serde_json::to_string(&content.connection.as_ref().map(|connection| &connection.spec)),
        serde_json::to_string(&content.pipeline.spec),
    ];
    let texts =
        texts.into_iter().collect::<Result<Vec<String>, _>>().map_err(|source| BuildError::Render { name: name.clone(), source })?;
    // a publisher needs what its pipeline has only where it runs the pipeline itself
    let read = if mode == Mode::Local { 3 } else { 2 };
    let own = Pool::default();
    let labels = names::run_labels(&name);
    let mut of_pod = labels.clone();
    of_pod.insert(names::LABEL_PIPELINE.to_owned(), connector.pipeline.clone());
    let template = Pod {
        labels: of_pod,
        annotations: [(names::CONNECTOR.to_owned(), connector.name.clone())].into(),
        arguments,
        manifests: names::run_config_map(&name),
        texts: texts.iter().take(read).map(String::as_str).collect(),
        control: Some(job_name.clone()),
        pool: if mode == Mode::Local { &content.pipeline.spec.workers } else { &own },
        path: "spec.workers",
        restart: false,
        image,
    }
    .build(settings)?;
    stamp(Job {
        metadata: metadata(job_name, run.namespace(), labels, &owner_reference(run)),
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
    let disruption = PodFailurePolicyRule {
        action: "Ignore".into(),
        on_exit_codes: None,
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: "DisruptionTarget".into(),
            status: Some("True".into()),
        }]),
    };
    PodFailurePolicy { rules: vec![on_exit("FailJob", &FINAL), on_exit("Ignore", &IGNORED), disruption] }
}
