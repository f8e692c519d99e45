//! Why pods are not available, from what Kubernetes says of them. Pure.

use super::observed::Pods;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use penstock_crds::{conditions::Reason, pool::PoolStatus};

/// Restarts of one pod from which on it counts as crashing again and again.
const MANY_RESTARTS: i32 = 3;

/// Whether as many pods work as are wanted, why not, and what to do.
pub fn availability(pods: &Pods, pool: &PoolStatus) -> (bool, Reason, String) {
    if pool.desired == 0 {
        return (true, Reason::Idle, pool.last_scale_reason.clone().unwrap_or_default());
    }
    if let Some((reason, message)) = pods.pods.iter().find_map(|pod| of_pod(pod)) {
        return (false, reason, message);
    }
    if let Some(message) = quota(pods) {
        return (false, Reason::QuotaExceeded, message);
    }
    if pool.ready >= pool.desired && pool.updated >= pool.desired {
        return (true, Reason::AsSpecified, String::new());
    }
    let message =
        format!("{} of {} pods are ready, {} have the current revision", pool.ready, pool.desired, pool.updated.min(pool.desired));
    (false, Reason::ChangePending, message)
}

/// What is wrong with a pod, if a person has to look.
pub fn of_pod(pod: &Pod) -> Option<(Reason, String)> {
    let name = pod.name_any();
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find_map(|container| of_container(&name, container))
}

fn of_container(pod: &str, container: &ContainerStatus) -> Option<(Reason, String)> {
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref())?;
    let says = waiting.message.clone().unwrap_or_default();
    let reason = waiting.reason.as_deref().unwrap_or_default();
    match reason {
        "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" | "ErrImageNeverPull" => {
            Some((Reason::ImagePullFailed, format!("pod {pod}: image {} cannot be pulled: {says}", container.image)))
        }
        "CreateContainerConfigError" => Some((Reason::SecretMissing, format!("pod {pod}: {says}"))),
        "CrashLoopBackOff" | "RunContainerError" => {
            Some((Reason::CrashLoop, format!("pod {pod} {}; see kubectl logs {pod} --previous", ended(container))))
        }
        _ if container.restart_count >= MANY_RESTARTS => Some((
            Reason::CrashLoop,
            format!(
                "pod {pod} was restarted {} times, it {}; see kubectl logs {pod} --previous",
                container.restart_count,
                ended(container)
            ),
        )),
        _ => None,
    }
}

/// How a container last ended.
fn ended(container: &ContainerStatus) -> String {
    match container.last_state.as_ref().and_then(|state| state.terminated.as_ref()) {
        Some(end) => {
            let why = end.reason.as_deref().filter(|reason| *reason != "Error").map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("ended with exit code {}{why}", end.exit_code)
        }
        None => "cannot be started".to_owned(),
    }
}

fn quota(pods: &Pods) -> Option<String> {
    let conditions = pods.deployment.as_ref()?.status.as_ref()?.conditions.as_ref()?;
    let failure = conditions
        .iter()
        .find(|condition| condition.type_.as_deref() == Some("ReplicaFailure") && condition.status.as_deref() == Some("True"))?;
    failure.message.clone()
}
