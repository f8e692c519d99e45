//! What is built out of full and minimal manifests. The golden objects are looked at by people, and by a real API server in
//! `tests/suites/operator_resources.rs`. `PENSTOCK_RENEW=1 cargo test` writes them anew.

use super::{fixtures::*, *};
use clap::Parser;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use penstock::{
    cli::Cli,
    manifest::{self, LoadOptions, Manifests},
};
use penstock_crds::{IngestRun, report::Wanted};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

const TOKEN: &str = "token-for-tests";

/// The objects of a pipeline's roles.
fn of_pipeline(name: &str, roles: &[(Role, Option<i32>)]) -> Vec<Value> {
    let pipeline = pipeline(name);
    let connection = pipeline.spec.kafka_ref.as_ref().map(|_| connection());
    let revision = pipeline_revision(&pipeline, connection.as_ref(), Some(3_456_789), IMAGE).unwrap();
    let (settings, owner) = (settings(), owner_reference(&pipeline));
    let mut objects = vec![
        json!(revision.config_map),
        json!(service::build(&pipeline, &owner).unwrap()),
        json!(network_policy::build(&pipeline, &settings, &owner).unwrap()),
    ];
    for (role, replicas) in roles {
        objects.push(json!(deployment::build(&revision.content, *role, &revision.name, *replicas, &settings, &owner).unwrap()));
        objects.push(json!(pod_disruption_budget::build(&pipeline, *role, &owner).unwrap()));
    }
    objects
}

/// The objects of a run: its manifests, and Job and Secret of each connector.
fn of_run(name: &str) -> Vec<Value> {
    let run = run(name);
    let mut objects = vec![json!(run_manifests(&run, &contents(&run)).unwrap())];
    for (index, content) in contents(&run).iter().enumerate() {
        objects.push(json!(control_secret::build(&run, index, 1, TOKEN, Wanted::Suspend).unwrap()));
        objects.push(json!(job::build(&run, index, 1, content, IMAGE, &settings()).unwrap()));
    }
    objects
}

fn all() -> Vec<(&'static str, Vec<Value>)> {
    vec![
        ("full", of_pipeline("full", &[(Role::Worker, Some(6)), (Role::Indexer, None)])),
        ("paired", of_pipeline("paired", &[(Role::WorkerIndexer, Some(1))])),
        ("nightly", of_run("nightly")),
    ]
}

fn objects() -> Vec<Value> {
    all().into_iter().flat_map(|(_, objects)| objects).collect()
}

fn templates() -> Vec<(String, PodTemplateSpec)> {
    let with_pods = objects().into_iter().filter(|object| object["spec"]["template"].is_object());
    with_pods.map(|object| (name_of(&object), serde_json::from_value(object["spec"]["template"].clone()).unwrap())).collect()
}

fn name_of(object: &Value) -> String {
    format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
}

/// What `penstock` says of a file as pods read it.
fn load(text: &str) -> Result<Manifests, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manifests.yaml");
    fs::write(&file, text).unwrap();
    let variables = |name: &str| (name == "LANGUAGE").then(|| "de".to_owned());
    manifest::load(&[file], &LoadOptions { base_dir: None, variables: &variables }).map_err(|report| report.to_string())
}

fn text_of(config_map: &Value) -> &str {
    config_map["data"].as_object().unwrap().values().next().unwrap().as_str().unwrap()
}

#[test]
fn the_objects_are_the_golden_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/resources/golden");
    for (name, objects) in all() {
        let documents: Vec<String> = objects.iter().map(|object| serde_yaml_ng::to_string(object).unwrap()).collect();
        let text = documents.join("---\n");
        let file = folder.join(format!("{name}.yaml"));
        if std::env::var_os("PENSTOCK_RENEW").is_some() {
            fs::write(&file, &text).unwrap();
        }
        let golden = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(text, golden, "{} differs; if that is meant: PENSTOCK_RENEW=1 cargo test", file.display());
    }
}

#[test]
fn building_again_gives_the_same_objects() {
    assert_eq!(objects(), objects());
}

#[test]
fn every_object_has_labels_an_owner_and_a_hash_of_the_rest() {
    for mut object in objects() {
        let (name, metadata) = (name_of(&object), object["metadata"].clone());
        assert_eq!(metadata["namespace"], "shop", "{name}");
        for (label, value) in [(names::LABEL_NAME, "penstock"), (names::LABEL_MANAGED_BY, "penstock-operator")] {
            assert_eq!(metadata["labels"][label], value, "{name}");
        }
        for label in [names::LABEL_COMPONENT, names::LABEL_INSTANCE] {
            assert!(metadata["labels"][label].as_str().is_some_and(|value| !value.is_empty()), "{name} has no {label}");
        }
        let owner = &metadata["ownerReferences"][0];
        assert!(owner["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{name}");
        assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)), "{name}");
        if object["kind"] == "Secret" {
            assert_eq!(metadata["annotations"], Value::Null, "{name}");
            continue;
        }
        let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
        let hash = annotations.remove(names::HASH).unwrap();
        assert_eq!(hash.as_str().unwrap().len(), 64, "{name}");
    }
}

#[test]
fn the_hash_is_of_everything_but_itself() {
    let pipeline = pipeline("paired");
    let mut first = service::build(&pipeline, &owner_reference(&pipeline)).unwrap();
    let hash = |object: &k8s_openapi::api::core::v1::Service| object.annotations()[names::HASH].clone();
    let before = hash(&first);
    stamp(&mut first).unwrap();
    assert_eq!(hash(&first), before, "stamped twice");
    first.labels_mut().insert("a".into(), "b".into());
    stamp(&mut first).unwrap();
    assert_ne!(hash(&first), before);
}

#[test]
fn manifests_pass_the_validation_of_the_pods_that_read_them() {
    let config_maps: Vec<Value> = objects().into_iter().filter(|object| object["kind"] == "ConfigMap").collect();
    assert_eq!(config_maps.len(), 3);
    let counts: Vec<[usize; 3]> = config_maps
        .iter()
        .map(|config_map| {
            assert_eq!(config_map["immutable"], true);
            let manifests = load(text_of(config_map)).unwrap_or_else(|report| panic!("{}: {report}", name_of(config_map)));
            [manifests.pipelines.len(), manifests.kafka_connections.len(), manifests.runs.len()]
        })
        .collect();
    assert_eq!(counts, [[1, 1, 0], [1, 1, 0], [2, 1, 1]]);
}

#[test]
fn pods_learn_nothing_that_is_for_the_operator_or_for_others() {
    for config_map in objects().into_iter().filter(|object| object["kind"] == "ConfigMap") {
        let text = text_of(&config_map);
        for word in
            ["adminSasl", "kafka-admin", "status", "managedFields", "others", "uid", "retention.ms", "maxPartitions", "Lag", "Immediate"]
        {
            assert!(!text.contains(&format!("\"{word}\"")), "{} says {word}", name_of(&config_map));
        }
        assert!(!text.contains("\"suspend\": true"));
    }
}

#[test]
fn what_is_read_back_is_what_pods_act_on() {
    let content = content("full");
    let (spec, given) = (&content.pipeline.spec, pipeline("full").spec);
    assert_eq!(json!(spec.stages), json!(given.stages));
    assert_eq!(spec.indexer.version_generation, Some(3_456_789));
    assert_eq!(json!(spec.workers.pod_patches), json!(given.workers.pod_patches));
    assert_eq!((spec.workers.threads, spec.workers.replicas, spec.suspend), (Some(2), None, false));
    assert_eq!(spec.topics.source.as_ref().and_then(|topic| topic.name.as_deref()), Some("shop.products"));
    assert_eq!(content.connection.unwrap().spec.topics.name_prefix, "{namespace}.");
    assert_eq!(content.image, IMAGE);
}

#[test]
fn pipelines_of_a_run_are_read_back_each_with_its_connection() {
    let run = run("nightly");
    let config_map = run_manifests(&run, &contents(&run)).unwrap();
    let read = parse_run_manifests(&config_map, "pinned").unwrap();
    let names: Vec<_> =
        read.iter().map(|content| (content.pipeline.name_any(), content.connection.is_some(), content.image.as_str())).collect();
    assert_eq!(names, [("full".to_owned(), true, "pinned"), ("local".to_owned(), false, "pinned")]);
    assert_eq!(json!(read[0].pipeline.spec), json!(content("full").pipeline.spec));
}

#[test]
fn a_revision_is_new_only_if_pods_are_to_be_others() {
    let base = pipeline_revision(&pipeline("full"), Some(&connection()), Some(7), IMAGE).unwrap().name;
    let after = |change: &dyn Fn(&mut Value), connection_change: &dyn Fn(&mut Value), generation, image: &str| {
        let (mut pipeline, mut connection) = (json!(pipeline("full")), json!(connection()));
        change(&mut pipeline);
        connection_change(&mut connection);
        let (pipeline, connection) = (serde_json::from_value(pipeline).unwrap(), serde_json::from_value(connection).unwrap());
        pipeline_revision(&pipeline, Some(&connection), generation, image).unwrap().name
    };
    let set = |pointer: &'static str, value: Value| move |object: &mut Value| *object.pointer_mut(pointer).unwrap() = value.clone();
    let same = |_: &mut Value| {};
    for (pointer, value) in [
        ("/metadata/labels", json!({"other": "label"})),
        ("/spec/suspend", json!(false)),
        ("/spec/partitions", json!(24)),
        ("/spec/workers/replicas", json!(7)),
        ("/spec/workers/scaling", json!({"minReplicas": 1})),
        ("/spec/indexers/scaling/lag/perPod", json!(5)),
        ("/spec/rollout/policy", json!("WhenIdle")),
        ("/spec/topics/deletionPolicy", json!("Retain")),
        ("/spec/topics/source/config", json!({})),
    ] {
        assert_eq!(after(&set(pointer, value), &same, Some(7), IMAGE), base, "{pointer}");
    }
    assert_eq!(after(&same, &set("/spec/adminSasl", Value::Null), Some(7), IMAGE), base);
    for (pointer, value) in [
        ("/spec/stages", json!([])),
        ("/spec/indexer/opensearch/index", json!("other")),
        ("/spec/topics/source/name", json!("other")),
        ("/spec/workers/threads", json!(3)),
        ("/spec/workers/podPatches", json!([])),
        ("/spec/indexers/terminationGracePeriod", json!("5s")),
    ] {
        assert_ne!(after(&set(pointer, value), &same, Some(7), IMAGE), base, "{pointer}");
    }
    assert_ne!(after(&same, &set("/spec/bootstrapServers", json!("k:9092")), Some(7), IMAGE), base);
    assert_ne!(after(&same, &same, Some(8), IMAGE), base);
    assert_ne!(after(&same, &same, Some(7), "other"), base);
}

#[test]
fn a_generation_is_filled_in_only_where_versions_are_places() {
    let generation = |change: Value, generation| {
        let mut object = json!(pipeline("full"));
        object["spec"]["indexer"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let pipeline = serde_json::from_value(object).unwrap();
        pipeline_revision(&pipeline, Some(&connection()), generation, IMAGE).unwrap().content.pipeline.spec.indexer.version_generation
    };
    assert_eq!(generation(json!({}), Some(9)), Some(9));
    assert_eq!(generation(json!({"versionGeneration": 5}), Some(9)), Some(5));
    assert_eq!(generation(json!({"versionField": "v"}), Some(9)), None);
    assert_eq!(generation(json!({"versioning": null}), Some(9)), None);
    assert_eq!(generation(json!({}), Some(1 << 27)), None, "the schema does not take it");
    assert_eq!(generation(json!({}), None), None);
}

#[test]
fn what_does_not_fit_into_a_config_map_is_said() {
    let mut large = pipeline("paired");
    large.spec.stages = serde_json::from_value(json!([{"set": {"values": {"x": "y".repeat(1 << 20)}}}])).unwrap();
    let error = pipeline_revision(&large, Some(&connection()), None, IMAGE).unwrap_err().to_string();
    assert!(
        error.starts_with("the manifests of Pipeline paired have 10") && error.contains("a ConfigMap takes 1048576; shorten"),
        "{error}"
    );
}

#[test]
fn what_nobody_of_ours_wrote_is_not_understood() {
    let config_map = pipeline_revision(&pipeline("full"), Some(&connection()), None, IMAGE).unwrap().config_map;
    let text = config_map.data.as_ref().unwrap()["pipeline.yaml"].clone();
    let (pipeline, _) = text.split_once("\n---\n").unwrap();
    for (data, says) in [
        (json!({"other": ""}), "it has no pipeline.yaml"),
        (json!({"pipeline.yaml": "a: b"}), "pipeline.yaml: expected value"),
        (json!({"pipeline.yaml": "{}"}), "it does not hold exactly one Pipeline"),
        (json!({"pipeline.yaml": pipeline}), "it does not hold KafkaConnection kafka"),
    ] {
        let other = k8s_openapi::api::core::v1::ConfigMap { data: serde_json::from_value(data).unwrap(), ..config_map.clone() };
        let error = RevisionContent::parse(&other).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// Each `secretKeyRef` of the manifests but those of the administrator, who is no pod, and of patches, which Kubernetes resolves.
fn named_secrets() -> BTreeSet<(String, String)> {
    let mut connection = connection().spec;
    connection.admin_sasl = None;
    let specs = (pipeline("full").spec, pipeline("local").spec, connection, run("nightly").spec);
    secrets_of(&specs).into_iter().flat_map(|(name, keys)| keys.into_iter().map(move |key| (name.clone(), key))).collect()
}

/// Name and key of each Secret that a pod finds below the folder of Secrets.
fn mounted_secrets(spec: &PodSpec) -> BTreeSet<(String, String)> {
    let projected = spec.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
    let secrets = projected.flat_map(|projected| projected.sources.iter().flatten()).filter_map(|source| source.secret.as_ref());
    secrets
        .flat_map(|secret| secret.items.iter().flatten().map(|item| (secret.name.clone(), item)))
        .map(|(name, item)| {
            assert_eq!(item.path, format!("{name}/{}", item.key));
            (name, item.key.clone())
        })
        .collect()
}

#[test]
fn every_secret_that_the_manifests_name_is_mounted_and_no_other() {
    let named = named_secrets();
    assert_eq!(named.len(), 9, "{named:?}");
    let mut mounted = BTreeSet::new();
    for (name, template) in templates() {
        let spec = template.spec.unwrap();
        let of_pod = mounted_secrets(&spec);
        let mount = spec.containers[0].volume_mounts.iter().flatten().find(|mount| mount.name == "secrets");
        assert_eq!(mount.map(|mount| mount.mount_path.as_str()), (!of_pod.is_empty()).then_some(names::SECRETS_DIR), "{name}");
        mounted.extend(of_pod);
    }
    assert_eq!(mounted, named);
}

#[test]
fn a_publisher_over_kafka_does_not_get_the_secrets_of_the_backend() {
    let of = |index: usize| {
        let run = run("nightly");
        let built = job::build(&run, index, 1, &contents(&run)[index], IMAGE, &settings()).unwrap();
        mounted_secrets(&built.spec.unwrap().template.spec.unwrap()).into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>()
    };
    assert_eq!(of(0), ["kafka", "kafka-user.data", "search-admin"].map(str::to_owned).into());
    assert_eq!(of(1), ["kafka", "kafka-user.data"].map(str::to_owned).into());
    assert_eq!(of(2), ["search"].map(str::to_owned).into());
}

#[test]
fn no_value_of_a_secret_is_in_any_object_but_the_token_in_its_own() {
    let encoded = "dG9rZW4tZm9yLXRlc3Rz";
    for object in objects() {
        let text = object.to_string();
        let is_its_own = object["kind"] == "Secret";
        assert_eq!((text.contains(TOKEN), text.contains(encoded)), (false, is_its_own), "{}", name_of(&object));
        let env = object.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = env.filter_map(|variable| variable["name"].as_str()).collect();
        assert!(names.is_empty() || names == ["LANGUAGE", "PROXY_LOGIN"], "only patches set variables: {names:?}");
    }
}

#[test]
fn pods_are_as_restricted_as_kubernetes_knows() {
    let templates = templates();
    assert_eq!(templates.len(), 6);
    for (name, template) in templates {
        let spec = template.spec.unwrap();
        let pod = spec.security_context.clone().unwrap();
        let container = spec.containers[0].security_context.clone().unwrap();
        assert_eq!(spec.automount_service_account_token, Some(false), "{name}");
        assert_eq!(
            (pod.run_as_non_root, pod.run_as_user, pod.run_as_group, pod.fs_group),
            (Some(true), Some(65_532), Some(65_532), Some(65_532))
        );
        assert_eq!(pod.seccomp_profile.map(|profile| profile.type_).as_deref(), Some("RuntimeDefault"), "{name}");
        assert_eq!((container.run_as_non_root, container.allow_privilege_escalation), (Some(true), Some(false)), "{name}");
        assert_eq!((container.read_only_root_filesystem, container.privileged), (Some(true), None), "{name}");
        let capabilities = container.capabilities.unwrap();
        assert_eq!((capabilities.drop, capabilities.add), (Some(vec!["ALL".into()]), None), "{name}");
        assert_eq!((spec.host_network, spec.host_pid, spec.host_ipc), (None, None, None), "{name}");
        for volume in spec.volumes.iter().flatten() {
            assert!(volume.host_path.is_none(), "{name}");
            let modes =
                [volume.secret.as_ref().and_then(|secret| secret.default_mode), volume.projected.as_ref().and_then(|p| p.default_mode)];
            assert!(modes.into_iter().flatten().all(|mode| mode == 0o440), "{name}");
            assert_eq!(volume.secret.is_some() || volume.projected.is_some(), modes.iter().any(Option::is_some), "{name}");
        }
        let writable: Vec<_> = spec.containers[0].volume_mounts.iter().flatten().filter(|mount| mount.read_only != Some(true)).collect();
        assert_eq!(
            writable.iter().map(|mount| mount.mount_path.as_str()).collect::<Vec<_>>(),
            ["/work", "/run/penstock", "/tmp"],
            "{name}"
        );
    }
}

#[test]
fn penstock_understands_what_pods_and_probes_tell_it() {
    for (name, template) in templates() {
        let container = template.spec.unwrap().containers.swap_remove(0);
        let probe = container.liveness_probe.and_then(|probe| probe.exec).and_then(|exec| exec.command).unwrap();
        let command: Vec<String> = container.command.into_iter().chain(container.args).flatten().collect();
        for command in [command, probe] {
            Cli::try_parse_from(&command).unwrap_or_else(|error| panic!("{name}: {command:?}: {error}"));
        }
    }
}

#[test]
fn pods_end_later_than_their_process() {
    for (role, seconds, argument) in [(Role::Worker, 135, "2m"), (Role::Indexer, 106, "90500ms")] {
        let pipeline = pipeline("full");
        let built = deployment::build(&content("full"), role, "r", None, &settings(), &owner_reference(&pipeline)).unwrap();
        let spec = built.spec.template.spec.unwrap();
        assert_eq!(spec.termination_grace_period_seconds, Some(seconds));
        let arguments = spec.containers[0].args.clone().unwrap();
        let at = arguments.iter().position(|argument| argument == "--grace-period").unwrap();
        assert_eq!(arguments[at + 1], argument);
        assert_eq!(arguments.contains(&"--exit-on-stuck".to_owned()), role == Role::Worker);
    }
}

#[test]
fn a_rollout_never_doubles_the_pods_and_a_single_one_leaves_no_gap() {
    let pipeline = pipeline("paired");
    for (replicas, surge, unavailable) in [
        (Some(0), json!(1), json!(0)),
        (Some(1), json!(1), json!(0)),
        (Some(2), json!(0), json!("25%")),
        (Some(12), json!(0), json!("25%")),
        (None, json!(0), json!("25%")),
    ] {
        let built =
            deployment::build(&content("paired"), Role::WorkerIndexer, "r", replicas, &settings(), &owner_reference(&pipeline)).unwrap();
        let built = json!(built);
        assert_eq!(built["spec"]["strategy"]["rollingUpdate"], json!({"maxSurge": surge, "maxUnavailable": unavailable}));
        assert_eq!(built["spec"].get("replicas"), replicas.map(|count| json!(count)).as_ref());
    }
}

#[test]
fn indexers_without_a_word_of_their_own_are_like_the_workers() {
    let mut content = content("full");
    content.pipeline.spec.indexers = None;
    let owner = owner_reference(&pipeline("full"));
    let built = deployment::build(&content, Role::Indexer, "r", Some(2), &settings(), &owner).unwrap();
    let template = built.spec.template.clone();
    assert_eq!(template.spec.as_ref().unwrap().containers.len(), 2, "the patch of the workers");
    assert_eq!(template.metadata.unwrap().labels.unwrap()[names::LABEL_COMPONENT], "indexer");

    content.pipeline.spec.workers.pod_patches = serde_json::from_value(json!([{"spec": {"x": 1}}])).unwrap();
    let error = deployment::build(&content, Role::Indexer, "r", Some(2), &settings(), &owner).unwrap_err();
    assert_eq!(error.to_string(), "spec.workers.podPatches[0].spec.x: is no field of a pod template; correct or remove it");
}

#[test]
fn a_job_gives_up_on_what_only_a_person_can_cure() {
    let run = run("nightly");
    let jobs: Vec<Value> = contents(&run)
        .iter()
        .enumerate()
        .map(|(index, content)| json!(job::build(&run, index, 2, content, "pinned", &settings()).unwrap()))
        .collect();
    for job in &jobs {
        let spec = &job["spec"];
        let rules = spec["podFailurePolicy"]["rules"].as_array().unwrap();
        let rules: Vec<_> = rules.iter().map(|rule| (rule["action"].as_str().unwrap(), &rule["onExitCodes"]["values"])).collect();
        assert_eq!(rules, [("FailJob", &json!([1, 2, 64])), ("Ignore", &json!([75, 76])), ("Ignore", &Value::Null)]);
        assert_eq!((&spec["completions"], &spec["parallelism"], &spec["podReplacementPolicy"]), (&json!(1), &json!(1), &json!("Failed")));
        assert_eq!((&spec["activeDeadlineSeconds"], &spec["ttlSecondsAfterFinished"]), (&Value::Null, &Value::Null));
        assert_eq!(spec["template"]["spec"]["restartPolicy"], "Never");
        assert_eq!(spec["template"]["spec"]["containers"][0]["image"], "pinned");
    }
    let limits: Vec<&Value> = jobs.iter().map(|job| &job["spec"]["backoffLimit"]).collect();
    assert_eq!(limits, [3, 0, 3], "the second one has restartPolicy Never");
    let commands: Vec<&Value> = jobs.iter().map(|job| &job["spec"]["template"]["spec"]["containers"][0]["args"][0]).collect();
    assert_eq!(commands, ["publish", "publish", "run"]);
    let error = job::build(&run, 3, 1, &content("full"), IMAGE, &settings()).unwrap_err();
    assert_eq!(error.to_string(), "run nightly has no connector 3");
}

#[test]
fn job_and_secret_of_an_attempt_have_one_name_and_belong_to_the_run() {
    let run: IngestRun = run("nightly");
    let job = job::build(&run, 1, 4, &content("full"), IMAGE, &settings()).unwrap();
    let secret = control_secret::build(&run, 1, 4, TOKEN, Wanted::Cancel).unwrap();
    assert_eq!(job.name_any(), "nightly-1-4");
    assert_eq!((secret.name_any(), secret.namespace()), (job.name_any(), run.namespace()));
    assert_eq!(secret.owner_references(), job.owner_references());
    let data = secret.data.unwrap();
    assert_eq!((&*data["state"].0, &*data["token"].0), (&b"Cancel"[..], TOKEN.as_bytes()));
    let volumes = json!(job.spec.unwrap().template.spec.unwrap().volumes);
    let control = volumes.as_array().unwrap().iter().find(|volume| volume["name"] == "control").unwrap();
    assert_eq!(control["secret"]["secretName"], "nightly-1-4");
}

#[test]
fn without_settings_there_is_no_policy_and_no_login() {
    let pipeline = pipeline("paired");
    let (settings, owner) = (Settings { image: IMAGE.into(), ..Settings::default() }, owner_reference(&pipeline));
    assert!(network_policy::build(&pipeline, &settings, &owner).unwrap().is_none());
    let built = json!(deployment::build(&content("paired"), Role::WorkerIndexer, "r", None, &settings, &owner).unwrap());
    let spec = &built["spec"]["template"]["spec"];
    assert_eq!((&spec["imagePullSecrets"], &spec["containers"][0]["imagePullPolicy"]), (&Value::Null, &Value::Null));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any text, also with what JSON allows and YAML does not, with escapes and with what looks like a variable or a separator.
    #[test]
    fn any_text_reaches_the_pod_and_comes_back_as_it_was(text in "(\\PC|[\\x00-\\x1f\u{7f}-\u{9f}\u{2028}\u{feff}]|\n---\n|\\$\\{|\\$|yes|: |#){0,12}") {
        let mut pipeline = pipeline("paired");
        pipeline.spec.stages = serde_json::from_value(json!([{"set": {"values": {"x": text}}}])).unwrap();
        pipeline.spec.workers.pod_patches = serde_json::from_value(json!([{"metadata": {"annotations": {"a": text}}}])).unwrap();
        let revision = pipeline_revision(&pipeline, Some(&connection()), None, IMAGE).unwrap();
        let back = &revision.content.pipeline.spec;
        prop_assert_eq!(json!(back.stages), json!(pipeline.spec.stages));
        prop_assert_eq!(&json!(back.workers.pod_patches)[0]["metadata"]["annotations"]["a"], &json!(text.replace("$${", "${")));

        let read = load(&revision.config_map.data.unwrap()["pipeline.yaml"]);
        let read = read.map_err(TestCaseError::fail)?;
        if !text.contains("${") {
            prop_assert_eq!(json!(read.pipelines[0].spec.stages), json!(pipeline.spec.stages));
        }
    }
}
