//! What all of our pods have in common: one container that cannot do more than it must, the manifests and secrets that it reads,
//! probes by heartbeat.

use super::{BuildError, Settings, patches};
use crate::names;
use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, ExecAction, HTTPGetAction, KeyToPath,
        LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
        SecretVolumeSource, SecurityContext, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use penstock_crds::{
    pool::Pool,
    values::{Quantity as Size, Resources, SecretKeyRef},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

const MANIFESTS: &str = "/etc/penstock/manifests";
const SECRETS: &str = "/etc/penstock/secrets";
const CONTROL: &str = "/etc/penstock/control";
const HEARTBEAT: &str = "/run/penstock/heartbeat";
/// Where relative paths start.
const WORK: &str = "/work";
/// Where the result of a publisher goes: Kubernetes keeps it beyond the pod's end.
pub const RESULT: &str = "/dev/termination-log";
/// A user of nobody's.
const USER: i64 = 65_532;
/// How old a heartbeat may be.
const MAX_AGE: &str = "30s";
/// How much longer than its own grace period a process may take to end.
const MARGIN: Duration = Duration::from_secs(15);

/// What a pod is made of.
pub struct Pod<'a> {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Command and arguments, but for those that all have.
    pub arguments: Vec<String>,
    /// The ConfigMap with its manifests.
    pub manifests: String,
    /// The manifests themselves: what they name is mounted.
    pub texts: Vec<&'a str>,
    /// The Secret with its orders.
    pub control: Option<String>,
    /// What the user says of it.
    pub pool: &'a Pool,
    /// Where that stands.
    pub path: &'a str,
    /// Whether it is started again when it ends.
    pub restart: bool,
    /// The image.
    pub image: &'a str,
}

impl Pod<'_> {
    /// The template, with the user's patches.
    pub fn build(self, settings: &Settings) -> Result<PodTemplateSpec, BuildError> {
        let mut volumes = vec![
            Volume {
                name: "manifests".into(),
                config_map: Some(ConfigMapVolumeSource { name: self.manifests.clone(), ..ConfigMapVolumeSource::default() }),
                ..Volume::default()
            },
            empty("run"),
            empty("tmp"),
            empty("work"),
        ];
        let mut mounts = vec![read_only("manifests", MANIFESTS), mount("run", "/run/penstock"), mount("tmp", "/tmp"), mount("work", WORK)];
        for (index, (name, keys)) in secrets(&self.texts).into_iter().enumerate() {
            let volume = format!("secret-{index}");
            mounts.push(read_only(&volume, &format!("{SECRETS}/{name}")));
            let items = keys.into_iter().map(|key| KeyToPath { path: key.clone(), key, ..KeyToPath::default() }).collect();
            volumes.push(secret(volume, name, Some(items)));
        }
        if let Some(control) = &self.control {
            mounts.push(read_only("control", CONTROL));
            volumes.push(secret("control".into(), control.clone(), None));
        }
        let pull_secrets = settings.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect::<Vec<_>>();
        let grace = self.pool.termination_grace_period.get();
        let spec = PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            restart_policy: Some(if self.restart { "Always" } else { "Never" }.into()),
            termination_grace_period_seconds: i64::try_from((grace + MARGIN).as_secs()).ok(),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                fs_group: Some(USER),
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
                ..PodSecurityContext::default()
            }),
            image_pull_secrets: (!pull_secrets.is_empty()).then_some(pull_secrets),
            containers: vec![self.container(settings, mounts)],
            volumes: Some(volumes),
            ..PodSpec::default()
        };
        let metadata =
            ObjectMeta { labels: Some(self.labels.clone()), annotations: Some(self.annotations.clone()), ..ObjectMeta::default() };
        patches::apply(PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }, &self.pool.pod_patches, self.path)
    }

    fn container(&self, settings: &Settings, mounts: Vec<VolumeMount>) -> Container {
        let grace = format!("{}s", self.pool.termination_grace_period.get().as_secs());
        let common = [
            MANIFESTS,
            "--base-dir",
            WORK,
            "--secrets-dir",
            SECRETS,
            "--metrics-addr",
            &format!("0.0.0.0:{}", names::PORT),
            "--heartbeat-file",
            HEARTBEAT,
            "--log-format",
            "json",
            "--grace-period",
            &grace,
        ];
        let mut arguments = self.arguments.clone();
        arguments.splice(1..1, common.map(str::to_owned));
        if self.control.is_some() {
            arguments.extend(["--control-dir".to_owned(), CONTROL.to_owned()]);
        }
        if self.pool.exit_on_stuck {
            arguments.push("--exit-on-stuck".into());
        }
        Container {
            name: names::CONTAINER.into(),
            image: Some(self.image.to_owned()),
            image_pull_policy: settings.image_pull_policy.clone(),
            args: Some(arguments),
            working_dir: Some(WORK.into()),
            ports: Some(vec![ContainerPort {
                name: Some(names::PORT_NAME.into()),
                container_port: i32::from(names::PORT),
                ..ContainerPort::default()
            }]),
            resources: self.pool.resources.as_ref().map(requirements),
            volume_mounts: Some(mounts),
            // a process that is still starting, one that does not move, one that cannot take work
            startup_probe: Some(Probe { period_seconds: Some(1), failure_threshold: Some(120), ..heartbeat() }),
            liveness_probe: Some(Probe { period_seconds: Some(10), failure_threshold: Some(3), ..heartbeat() }),
            readiness_probe: Some(Probe {
                http_get: Some(HTTPGetAction {
                    path: Some("/readyz".into()),
                    port: IntOrString::String(names::PORT_NAME.into()),
                    ..HTTPGetAction::default()
                }),
                period_seconds: Some(2),
                timeout_seconds: Some(5),
                ..Probe::default()
            }),
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
                read_only_root_filesystem: Some(true),
                run_as_non_root: Some(true),
                ..SecurityContext::default()
            }),
            ..Container::default()
        }
    }
}

/// The image has no shell: the program itself looks at the heartbeat.
fn heartbeat() -> Probe {
    let command = ["penstock", "health", "--file", HEARTBEAT, "--max-age", MAX_AGE].map(str::to_owned).to_vec();
    Probe { exec: Some(ExecAction { command: Some(command) }), timeout_seconds: Some(5), ..Probe::default() }
}

/// The Secrets that texts name anywhere, each with the keys that are used.
pub fn secrets(texts: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    fn walk(value: &Value, found: &mut BTreeMap<String, BTreeSet<String>>) {
        match value {
            Value::Object(object) => {
                if let Some(reference) = object.get("secretKeyRef")
                    && let Ok(SecretKeyRef { name, key }) = serde_json::from_value(reference.clone())
                {
                    found.entry(name).or_default().insert(key);
                }
                object.values().for_each(|value| walk(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    for text in texts {
        if let Ok(value) = serde_json::from_str(text) {
            walk(&value, &mut found);
        }
    }
    found
}

fn requirements(resources: &Resources) -> ResourceRequirements {
    let quantities = |sizes: &BTreeMap<String, Size>| -> Option<BTreeMap<String, Quantity>> {
        let text = |size: &Size| match &size.0 {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        };
        (!sizes.is_empty()).then(|| sizes.iter().map(|(name, size)| (name.clone(), Quantity(text(size)))).collect())
    };
    ResourceRequirements { requests: quantities(&resources.requests), limits: quantities(&resources.limits), claims: None }
}

fn empty(name: &str) -> Volume {
    Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

fn secret(volume: String, name: String, items: Option<Vec<KeyToPath>>) -> Volume {
    Volume {
        name: volume,
        secret: Some(SecretVolumeSource { secret_name: Some(name), items, ..SecretVolumeSource::default() }),
        ..Volume::default()
    }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
}

fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(name, path) }
}
