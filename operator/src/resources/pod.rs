//! What all of our pods have in common: one container that cannot do more than it must, the manifests and Secrets that it reads,
//! probes by heartbeat.

use super::{BuildError, SecretKeys, Settings, patches};
use crate::names;
use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, ExecAction, HTTPGetAction, KeyToPath,
        LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ProjectedVolumeSource, ResourceRequirements,
        SeccompProfile, SecretProjection, SecretVolumeSource, SecurityContext, Volume, VolumeMount, VolumeProjection,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use penstock_crds::{
    pool::Pool,
    values::{Quantity as Size, Resources},
};
use std::{collections::BTreeMap, time::Duration};

/// A user that nobody is. Its group owns the volumes.
const USER: i64 = 65_532;
/// Files of Secrets are read by that group and nobody else.
const SECRET_MODE: i32 = 0o440;
/// How old a heartbeat may be; it is written twice a second.
const MAX_AGE: &str = "30s";
/// Time to leave groups and write the result after the process's own grace period.
const MARGIN: Duration = Duration::from_secs(15);

/// What a pod is made of.
pub struct Pod<'a> {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The command of `penstock`.
    pub command: &'static str,
    /// The arguments of that command, but for those that all have.
    pub arguments: Vec<String>,
    /// The ConfigMap with its manifests.
    pub manifests: String,
    /// The Secrets that it reads.
    pub secrets: SecretKeys,
    /// The Secret with what it is wanted to do.
    pub control: Option<String>,
    /// What the user says of it.
    pub pool: &'a Pool,
    /// Where that stands, for example `spec.workers`.
    pub pool_path: &'static str,
    /// Whether Kubernetes starts it again.
    pub restart_policy: &'static str,
    /// Its image.
    pub image: &'a str,
}

impl Pod<'_> {
    /// The template, with the user's patches.
    pub fn build(self, settings: &Settings) -> Result<PodTemplateSpec, BuildError> {
        let (volumes, mounts) = self.volumes();
        let pull_secrets: Vec<_> = settings.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect();
        let spec = PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            restart_policy: Some(self.restart_policy.into()),
            termination_grace_period_seconds: Some(whole_seconds(self.pool.termination_grace_period.get() + MARGIN)),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                fs_group: Some(USER),
                // a large volume is not walked through at each start
                fs_group_change_policy: Some("OnRootMismatch".into()),
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
                ..PodSecurityContext::default()
            }),
            image_pull_secrets: (!pull_secrets.is_empty()).then_some(pull_secrets),
            containers: vec![self.container(settings, mounts)],
            volumes: Some(volumes),
            ..PodSpec::default()
        };
        let annotations = (!self.annotations.is_empty()).then_some(self.annotations);
        let metadata = ObjectMeta { labels: Some(self.labels), annotations, ..ObjectMeta::default() };
        let template = PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) };
        patches::apply(template, &self.pool.pod_patches, &format!("{}.podPatches", self.pool_path))
    }

    fn volumes(&self) -> (Vec<Volume>, Vec<VolumeMount>) {
        let manifests = ConfigMapVolumeSource { name: self.manifests.clone(), ..ConfigMapVolumeSource::default() };
        let mut volumes = vec![
            Volume { name: "manifests".into(), config_map: Some(manifests), ..Volume::default() },
            empty("work"),
            empty("run"),
            empty("tmp"),
        ];
        let mut mounts = vec![
            read_only("manifests", names::MANIFESTS_DIR),
            mount("work", names::WORK_DIR),
            mount("run", names::RUN_DIR),
            mount("tmp", "/tmp"),
        ];
        if !self.secrets.is_empty() {
            let sources = self.secrets.iter().map(|(name, keys)| projection(name, keys.iter())).collect();
            let projected =
                ProjectedVolumeSource { default_mode: Some(SECRET_MODE), sources: Some(sources), ..ProjectedVolumeSource::default() };
            volumes.push(Volume { name: "secrets".into(), projected: Some(projected), ..Volume::default() });
            mounts.push(read_only("secrets", names::SECRETS_DIR));
        }
        if let Some(control) = &self.control {
            let secret =
                SecretVolumeSource { secret_name: Some(control.clone()), default_mode: Some(SECRET_MODE), ..SecretVolumeSource::default() };
            volumes.push(Volume { name: "control".into(), secret: Some(secret), ..Volume::default() });
            mounts.push(read_only("control", names::CONTROL_DIR));
        }
        (volumes, mounts)
    }

    fn container(&self, settings: &Settings, mounts: Vec<VolumeMount>) -> Container {
        Container {
            name: names::CONTAINER.into(),
            image: Some(self.image.to_owned()),
            image_pull_policy: settings.image_pull_policy.clone(),
            command: Some(vec!["penstock".into()]),
            args: Some(self.all_arguments()),
            // the dead letter of a local run goes to the current folder
            working_dir: Some(names::WORK_DIR.into()),
            ports: Some(vec![ContainerPort {
                name: Some(names::PORT_NAME.into()),
                container_port: i32::from(names::PORT),
                protocol: Some("TCP".into()),
                ..ContainerPort::default()
            }]),
            resources: self.pool.resources.as_ref().map(requirements),
            volume_mounts: Some(mounts),
            // one that does not begin, one that does not move, one that takes no work yet
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

    fn all_arguments(&self) -> Vec<String> {
        let mut arguments = vec![self.command.to_owned(), names::MANIFESTS_DIR.to_owned()];
        arguments.extend(self.arguments.iter().cloned());
        let mut flag = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
        flag("--base-dir", names::WORK_DIR);
        flag("--secrets-dir", names::SECRETS_DIR);
        if self.control.is_some() {
            flag("--control-dir", names::CONTROL_DIR);
        }
        flag("--metrics-addr", &format!("0.0.0.0:{}", names::PORT));
        flag("--heartbeat-file", names::HEARTBEAT_FILE);
        flag("--log-format", "json");
        flag("--grace-period", &self.pool.termination_grace_period.to_string());
        if self.pool.exit_on_stuck {
            arguments.push("--exit-on-stuck".into());
        }
        arguments
    }
}

/// The image has no shell: the program itself looks at the heartbeat.
fn heartbeat() -> Probe {
    let command = ["penstock", "health", "--file", names::HEARTBEAT_FILE, "--max-age", MAX_AGE].map(str::to_owned).to_vec();
    Probe { exec: Some(ExecAction { command: Some(command) }), timeout_seconds: Some(5), ..Probe::default() }
}

/// The keys of a Secret as files `NAME/KEY`, and no other keys of it.
fn projection<'a>(name: &str, keys: impl Iterator<Item = &'a String>) -> VolumeProjection {
    let items = keys.map(|key| KeyToPath { key: key.clone(), path: format!("{name}/{key}"), ..KeyToPath::default() }).collect();
    let secret = SecretProjection { name: name.to_owned(), items: Some(items), optional: None };
    VolumeProjection { secret: Some(secret), ..VolumeProjection::default() }
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

/// Rounded up.
fn whole_seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn empty(name: &str) -> Volume {
    Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
}

fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(name, path) }
}
