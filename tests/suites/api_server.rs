//! The CRDs on a real API server: it accepts them, and answers as local validation does.

use anyhow::{Context, Result, anyhow, ensure};
use penstock::manifest::{self, LoadOptions};
use penstock_crds::schema;
use penstock_tests::cluster::{Answer, Cluster};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// What no schema and no rule can see: programs, expressions, URLs, references, and what YAML itself hides.
const ONLY_LOCAL_VALIDATION_SEES: [&str; 6] =
    ["pipeline-key-twice", "pipeline-predicate", "pipeline-program", "pipeline-regex", "pipeline-url", "run-no-such-pipeline"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/manifests")
}

/// The manifests of a folder, by name.
fn manifests(folder: &str) -> Result<Vec<(String, PathBuf)>> {
    let folder = fixtures().join(folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        found.push((name, path));
    }
    found.sort();
    ensure!(!found.is_empty(), "{} is empty", folder.display());
    Ok(found)
}

/// What local validation says: nothing, or all that is wrong. A manifest is read together with the pipeline and the
/// Kafka connection that it may name.
fn local_verdict(path: &Path) -> Result<(), String> {
    let files = [path.to_owned(), fixtures().join("around.yaml")];
    manifest::load(&files, &LoadOptions::default()).map(|_| ()).map_err(|report| report.to_string())
}

fn expect(answer: Answer, text: &str) -> Result<()> {
    ensure!(answer.success && answer.stdout.contains(text), "wanted {text}, got {answer:#?}");
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of the repository are UTF-8")
}

/// Tries again until it works: what the server has just learnt it does a little later.
fn eventually(mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt() {
            Err(error) if Instant::now() > limit => return Err(error.context("tried in vain for 60 s")),
            Err(_) => thread::sleep(Duration::from_millis(100)),
            Ok(()) => return Ok(()),
        }
    }
}

#[test]
fn crds_are_accepted_and_a_second_apply_writes_nothing() -> Result<()> {
    let server = Cluster::api()?;
    let generated = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/generated");
    for crd in schema::all() {
        let name = crd.metadata.name.context("a CRD has a name")?;
        let get = || -> Result<Value> { Ok(serde_json::from_str(&server.kubectl(["get", "crd", &name, "-o", "json"])?.stdout)?) };
        let before = get()?;
        let conditions = before["status"]["conditions"].as_array().context("a CRD has conditions")?;
        let holds = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True");
        ensure!(holds("Established") && holds("NamesAccepted") && !holds("NonStructuralSchema"), "{name}: {conditions:#?}");

        let file = generated.join(format!("{}.yaml", crd.spec.names.plural));
        expect(server.kubectl(["apply", "--server-side", "-f", text(&file)])?, "serverside-applied")?;
        ensure!(before["metadata"]["resourceVersion"] == get()?["metadata"]["resourceVersion"], "{name} was written again");
    }
    Ok(())
}

#[test]
fn good_manifests_pass_on_the_server_and_locally() -> Result<()> {
    let server = Cluster::api()?;
    let answer = server.kubectl(["apply", "--dry-run=server", "-f", text(&fixtures().join("good"))])?;
    ensure!(answer.success, "{answer:#?}");
    for (name, path) in manifests("good")? {
        ensure!(answer.stdout.contains(&format!("/{name} created")), "{name} is missing in {}", answer.stdout);
        local_verdict(&path).map_err(|report| anyhow!("{name}: {report}"))?;
    }
    Ok(())
}

#[test]
fn bad_manifests_get_the_same_verdict_from_the_server_and_locally() -> Result<()> {
    let server = Cluster::api()?;
    let answer = server.kubectl(["apply", "--dry-run=server", "-f", text(&fixtures().join("bad"))])?;
    let (mut accepted, mut disagreements) = (BTreeSet::new(), Vec::new());
    for (name, path) in manifests("bad")? {
        if local_verdict(&path).is_ok() {
            disagreements.push(format!("{name}: local validation finds nothing"));
        }
        let content = fs::read_to_string(&path)?;
        let first = content.lines().next().unwrap_or_default();
        let refusal = answer.stderr.lines().find(|line| line.contains(&format!("/{name}.yaml\":")));
        match (refusal, first.split_once(": ")) {
            (None, _) => drop(accepted.insert(name)),
            (Some(refusal), Some((_, message))) if refusal.contains(message) => {}
            (Some(refusal), _) => disagreements.push(format!("{name}: `{first}` is not what the server says: {refusal}")),
        }
    }
    ensure!(disagreements.is_empty(), "{disagreements:#?}");
    ensure!(accepted == ONLY_LOCAL_VALIDATION_SEES.map(str::to_owned).into(), "the server accepts {accepted:?}");
    Ok(())
}

#[test]
fn updates_are_judged_as_their_first_line_says() -> Result<()> {
    let server = Cluster::api()?;
    expect(server.kubectl(["create", "namespace", "updates"])?, "created")?;
    let folder = tempfile::tempdir()?;
    let (old_file, new_file) = (folder.path().join("old.yaml"), folder.path().join("new.yaml"));
    for (name, path) in manifests("updates")? {
        let content = fs::read_to_string(&path)?;
        let (old, new) = content.split_once("\n---\n").with_context(|| format!("{name} holds two objects"))?;
        fs::write(&old_file, old)?;
        fs::write(&new_file, new)?;
        expect(server.kubectl(["apply", "-n", "updates", "-f", text(&old_file)])?, "created")?;
        let answer = server.kubectl(["apply", "-n", "updates", "--dry-run=server", "-f", text(&new_file)])?;
        let first = old.lines().next().unwrap_or_default();
        match first.split_once(": ") {
            Some((_, message)) => ensure!(!answer.success && answer.stderr.contains(message), "{name}: `{first}`, but {answer:#?}"),
            None => ensure!(answer.success && answer.stdout.contains("configured"), "{name}: {answer:#?}"),
        }
    }
    Ok(())
}

#[test]
fn a_second_apply_of_the_same_manifest_changes_nothing() -> Result<()> {
    let server = Cluster::api()?;
    expect(server.kubectl(["create", "namespace", "twice"])?, "created")?;
    let good = fixtures().join("good");
    let apply = || server.kubectl(["apply", "-n", "twice", "-f", text(&good)]);
    let first = apply()?;
    ensure!(first.success, "{first:#?}");
    let second = apply()?;
    for line in second.stdout.lines() {
        // kubectl sends a written null again and again; the server drops it each time.
        let drifts = line.contains("/pipeline-nulls-are-absent ");
        ensure!(drifts || line.ends_with(" unchanged"), "{line}");
    }
    ensure!(second.stdout.lines().count() == manifests("good")?.len(), "{second:#?}");
    Ok(())
}

#[test]
fn explain_is_the_reference_of_every_field() -> Result<()> {
    let server = Cluster::api()?;
    for (field, told) in [
        ("ppl.spec.stages.rename", "Gives fields another name; their place among the fields stays."),
        ("ppl.spec.stages.rename", "enum: Overwrite, Append, Skip"),
        ("ppl.spec.stages.rename", "Default: `Overwrite`."),
        ("ppl.spec.workers.maxProcessing", "Default: `10m`."),
        ("ppl.spec.mode", "`WorkerIndexer`: Worker and indexer paired in one process"),
        ("irun.spec.connectors.file.format.csv", "delimiter"),
        ("irun.status.phase", "`Cancelled`: It ended because somebody wanted it to."),
        ("isch.spec.runTemplate.spec.connectors.sequence", "How many documents."),
        ("kconn.spec.sasl", "mechanism"),
    ] {
        expect(server.kubectl(["explain", field])?, told).with_context(|| field.to_owned())?;
    }
    Ok(())
}

#[test]
fn kubectl_get_answers_by_itself() -> Result<()> {
    let server = Cluster::api()?;
    expect(server.kubectl(["create", "namespace", "columns"])?, "created")?;
    let file = fixtures().join("good/run-full.yaml");
    expect(server.kubectl(["apply", "-n", "columns", "-f", text(&file)])?, "created")?;
    let status = json!({"status": {
        "observedGeneration": 1, "phase": "Succeeded", "progress": "2/2 products", "docsPerSecond": 3120,
        "totals": {"published": 16, "created": 3, "finished": 15, "failed": 2, "dropped": 2, "pending": 0},
        "connectors": [{"name": "products", "state": "Succeeded", "failures": [{"id": "p-11", "stage": "price", "reason": "not a number"}]}],
        "conditions": [{"type": "Complete", "status": "True", "reason": "CompletedWithFailures", "message": "2 documents failed",
            "lastTransitionTime": "2026-11-30T02:15:00Z", "observedGeneration": 1}],
    }})
    .to_string();
    let patch = ["patch", "irun", "run-full", "-n", "columns", "--subresource=status", "--type=merge", "-p", &status];
    expect(server.kubectl(patch)?, "patched")?;
    let table = server.kubectl(["get", "irun", "-n", "columns"])?.stdout;
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(words.len() == 2, "{table}");
    ensure!(words[0] == ["NAME", "PHASE", "CONNECTOR", "PUBLISHED", "PENDING", "INDEXED", "FAILED", "AGE"], "{table}");
    ensure!(words[1][..8] == ["run-full", "Succeeded", "2/2", "products", "16", "0", "15", "2"], "{table}");
    expect(server.kubectl(["wait", "--for=condition=Complete", "irun/run-full", "-n", "columns", "--timeout=10s"])?, "condition met")
}

#[test]
fn workers_are_scaled_within_bounds() -> Result<()> {
    let server = Cluster::api()?;
    expect(server.kubectl(["create", "namespace", "scale"])?, "created")?;
    let file = fixtures().join("good/pipeline-worker-indexer.yaml");
    expect(server.kubectl(["apply", "-n", "scale", "-f", text(&file)])?, "created")?;
    let scale = |replicas| server.kubectl(["scale", "ppl/pipeline-worker-indexer", "-n", "scale", replicas]);
    expect(scale("--replicas=4")?, "scaled")?;
    ensure!(!scale("--replicas=2000")?.success, "2000 replicas are too many");
    let path = "jsonpath={.spec.workers.replicas}";
    expect(server.kubectl(["get", "ppl", "pipeline-worker-indexer", "-n", "scale", "-o", path])?, "4")
}

/// A rule that comes with a later version must not hold up objects that were stored before it: they keep their labels,
/// statuses and, above all, their way out. Tried on a copy of the CRD in another group.
#[test]
fn objects_stored_before_a_rule_can_still_be_labelled_and_deleted() -> Result<()> {
    let server = Cluster::api()?;
    let kind = "pipelines.later.example";
    let folder = tempfile::tempdir()?;
    let file = |name| folder.path().join(name);
    let (crd, stored, new) = (file("crd.json"), file("stored.yaml"), file("new.yaml"));
    let manifest = fs::read_to_string(fixtures().join("good/pipeline-distributed.yaml"))?.replace("penstock.io/", "later.example/");
    let named = |lines: &str| manifest.replace("  name: pipeline-distributed\n", lines);
    fs::write(&stored, named("  name: stored\n  finalizers: [later.example/topics]\n"))?;
    fs::write(&new, named("  name: new\n"))?;
    let apply_crd = |later_rule| -> Result<()> {
        fs::write(&crd, copied_crd(later_rule)?.to_string())?;
        expect(server.kubectl(["apply", "--server-side", "-f", text(&crd)])?, "serverside-applied")
    };

    apply_crd(None)?;
    expect(server.kubectl(["create", "namespace", "later"])?, "created")?;
    eventually(|| expect(server.kubectl(["apply", "-n", "later", "-f", text(&stored)])?, "pipeline.later.example/stored"))?;
    apply_crd(Some("the later rule"))?;
    eventually(|| {
        let create = server.kubectl(["create", "-n", "later", "--dry-run=server", "-f", text(&new)])?;
        ensure!(!create.success && create.stderr.matches("the later rule").count() == 2, "{create:#?}");
        Ok(())
    })?;

    let patch = |how, content| server.kubectl(["patch", kind, "stored", "-n", "later", how, "--type=merge", "-p", content]);
    expect(server.kubectl(["label", kind, "stored", "-n", "later", "team=shop"])?, "labeled")?;
    expect(patch("--subresource=status", r#"{"status": {"observedGeneration": 1, "lag": 5}}"#)?, "patched")?;
    expect(server.kubectl(["delete", kind, "stored", "-n", "later", "--wait=false"])?, "deleted")?;
    expect(patch("--field-manager=tests", r#"{"metadata": {"finalizers": null}}"#)?, "patched")?;
    let gone = server.kubectl(["get", kind, "stored", "-n", "later"])?;
    ensure!(gone.stderr.contains("not found"), "{gone:#?}");
    Ok(())
}

/// The Pipeline's CRD in another group, with a rule at `spec` and one at `spec.workers` that `pipeline-distributed` breaks.
fn copied_crd(later_rule: Option<&str>) -> Result<Value> {
    let mut crd = serde_json::to_value(schema::crd::<penstock_crds::Pipeline>())?;
    crd["metadata"] = json!({"name": "pipelines.later.example"});
    crd["spec"]["group"] = json!("later.example");
    crd["spec"]["names"] = json!({"kind": "Pipeline", "plural": "pipelines", "singular": "pipeline"});
    let Some(message) = later_rule else { return Ok(crd) };
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    for (path, rule) in [("", "!self.suspend"), ("/properties/workers", "!has(self.threads) || self.threads > 2")] {
        let rules = spec.pointer_mut(path).and_then(|schema| schema["x-kubernetes-validations"].as_array_mut());
        rules.with_context(|| format!("spec{path} has rules"))?.push(json!({"rule": rule, "message": message}));
    }
    Ok(crd)
}
