//! A run at work: order, signals, limits, what can be seen of it.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use penstock_tests::{
    penstock::{Running, Workdir},
    services::poll_until,
};
use serde_json::{Value, json};
use std::{collections::HashMap, time::Duration};

fn manifest(threads: usize, stages: &str, indexer: &str, connector: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: p}}\nspec:\n  mode: Local\n  workers: {{threads: {threads}}}\n  stages: {stages}\n  indexer: {indexer}\n---\n\
         apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata: {{name: r}}\nspec:\n  connectors:\n    - {{name: first, pipeline: p, {connector}}}\n    - {{name: second, pipeline: p, sequence: {{count: 1}}}}\n"
    )
}

/// A run that takes long, at 20 documents a second.
const SLOW: &str = "maxRate: 20, sequence: {count: 1000, field: num}";

fn start_slow(workdir: &Workdir, arguments: &[&str]) -> Result<Running> {
    workdir.write("m.yaml", manifest(2, "[]", "{jsonLines: {path: out.jsonl}}", SLOW))?;
    let running = workdir.start(["run", "m.yaml", "--summary", "json"].into_iter().chain(arguments.iter().copied()), &[])?;
    poll_until("the run begins", Duration::from_secs(60), || running.err().is_ok_and(|err| err.contains("step begins")))?;
    Ok(running)
}

#[test]
fn documents_of_one_id_keep_their_order_at_any_number_of_lanes_x11() -> Result<()> {
    let workdir = Workdir::new()?;
    let lines: String = (0..20_000).map(|n| format!("{{\"id\":\"id-{}\",\"num\":{n}}}\n", n * 7 % 50)).collect();
    workdir.write("in.jsonl", lines)?;
    let connector = "file: {paths: [in.jsonl], format: {jsonLines: {id: [id]}}}";
    workdir.write(
        "m.yaml",
        manifest(8, "[{copy: {fields: {num: [copy]}}}]", "{batch: {maxDocuments: 7}, jsonLines: {path: out.jsonl}}", connector),
    )?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(summary["totals"]["finished"], 20_001);
    let mut last: HashMap<String, i64> = HashMap::new();
    for line in workdir.read_json_lines("out.jsonl")?.iter().filter(|line| line["num"].is_i64()) {
        let (id, n) = (line["id"].as_str().context("id")?.to_owned(), line["num"].as_i64().context("num")?);
        assert!(last.insert(id, n).is_none_or(|before| before < n), "{line}");
    }
    Ok(())
}

#[test]
fn a_signal_drains_and_says_what_remains_s32_s33_x12() -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let workdir = Workdir::new()?;
        let running = start_slow(&workdir, &[])?;
        running.signal(signal)?;
        let answer = running.wait()?;
        assert_eq!(answer.code, Some(75), "{answer:?}");
        let summary = answer.summary()?;
        assert_eq!(summary["phase"], "Interrupted");
        assert_eq!((&summary["connectors"][0]["state"], &summary["connectors"][1]["state"]), (&json!("Interrupted"), &json!("Skipped")));
        let counts = &summary["totals"];
        assert_eq!((&counts["published"], &counts["pending"]), (&counts["finished"], &json!(0)), "what was accepted was finished");
        assert!(summary["connectors"][0]["message"].as_str().is_some_and(|message| message.contains("run it again")), "{summary}");
        assert!(!workdir.has("out.jsonl"), "nothing half-written is passed off as done");
    }
    Ok(())
}

#[test]
fn a_second_signal_ends_at_once() -> Result<()> {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let workdir = Workdir::new()?;
        // a server that does not answer keeps the drain waiting
        let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
        let connector = format!("post: [{{http: {{url: \"http://{}/\"}}}}], sequence: {{count: 1}}", silent.local_addr()?);
        workdir.write("m.yaml", manifest(1, "[{drop: {}}]", "{nop: {}}", &connector))?;
        let running = workdir.start(["run", "m.yaml"], &[("PENSTOCK_LOG", "debug")])?;
        poll_until("the last action runs", Duration::from_secs(60), || running.err().is_ok_and(|err| err.contains("running an action")))?;
        running.signal(signal)?;
        poll_until("it drains", Duration::from_secs(60), || running.err().is_ok_and(|err| err.contains("a second signal")))?;
        running.signal(signal)?;
        assert_eq!(running.wait()?.code, Some(code));
    }
    Ok(())
}

#[test]
fn a_signal_before_the_first_document_ends_the_run_at_once() -> Result<()> {
    let workdir = Workdir::new()?;
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let connector = format!("pre: [{{http: {{url: \"http://{}/\"}}}}], sequence: {{count: 1}}", silent.local_addr()?);
    workdir.write("m.yaml", manifest(1, "[]", "{nop: {}}", &connector))?;
    let running = workdir.start(["run", "m.yaml", "--summary", "json"], &[])?;
    poll_until("the run begins", Duration::from_secs(60), || running.err().is_ok_and(|err| err.contains("step begins")))?;
    running.signal(Signal::SIGTERM)?;
    let answer = running.wait()?;
    assert_eq!((answer.code, &answer.summary()?["totals"]["published"]), (Some(75), &json!(0)), "{answer:?}");
    Ok(())
}

#[test]
fn a_run_that_was_killed_leaves_no_result_and_can_be_run_again_s22() -> Result<()> {
    let workdir = Workdir::new()?;
    let running = start_slow(&workdir, &[])?;
    running.signal(Signal::SIGKILL)?;
    assert_eq!(running.wait()?.code, None);
    assert!(!workdir.has("out.jsonl"));
    workdir.write("m.yaml", manifest(2, "[]", "{jsonLines: {path: out.jsonl}}", "sequence: {count: 10}"))?;
    let (_, answer) = workdir.run(["m.yaml"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(workdir.read_json_lines("out.jsonl")?.len(), 11);
    Ok(())
}

#[test]
fn a_limit_ends_each_connector_early_and_successfully() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", manifest(2, "[]", "{nop: {}}", "sequence: {count: 1000}"))?;
    let (summary, answer) = workdir.run(["m.yaml", "--limit", "3"])?;
    assert_eq!((answer.code, &summary["totals"]["finished"]), (Some(0), &json!(4)));
    Ok(())
}

#[test]
fn a_preview_shows_each_change_and_writes_nothing() -> Result<()> {
    let workdir = Workdir::with_fixture("contract")?;
    let answer = workdir.penstock(["run", "quickstart.yaml", "--limit", "2", "--preview"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.out.contains("rename-1") && answer.out.contains("`p-2#sharp`"), "{}", answer.out);
    assert!(!answer.out.contains("p-3"), "{}", answer.out);
    assert!(!workdir.has("out") && !workdir.has("quickstart_fail.jsonl"));
    Ok(())
}

#[test]
fn a_bound_of_one_pending_document_slows_but_loses_nothing_p16() -> Result<()> {
    let workdir = Workdir::new()?;
    let connector = "maxPending: 1, sequence: {count: 50}";
    workdir.write("m.yaml", manifest(2, "[]", "{batch: {maxAge: 1ms}, nop: {}}", connector))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!((answer.code, &summary["totals"]["finished"]), (Some(0), &json!(51)));
    Ok(())
}

#[test]
fn collapsed_records_become_one_document_p18() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("in.csv", "id,tag\na,1\na,2\nb,3\na,4\n")?;
    let connector = "collapse: true, file: {paths: [in.csv], format: {csv: {id: [id]}}}";
    workdir.write("m.yaml", manifest(1, "[{keep: {fields: [tag]}}]", "{jsonLines: {path: out.jsonl}}", connector))?;
    let (summary, _) = workdir.run(["m.yaml"])?;
    assert_eq!(summary["connectors"][0]["counts"]["published"], 3);
    let documents = workdir.read_json_lines("out.jsonl")?;
    assert_eq!(documents[..3], [json!({"id": "a", "tag": ["1", "2"]}), json!({"id": "b", "tag": "3"}), json!({"id": "a", "tag": "4"})]);
    Ok(())
}

#[test]
fn dead_letters_can_be_read_again() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir
        .write("m.yaml", manifest(1, "[{remap: {source: '.num = parse_int!(.num)'}}]", "{nop: {}}", "sequence: {count: 3, field: num}"))?;
    let (summary, _) = workdir.run(["m.yaml", "--dead-letter", "dead.jsonl"])?;
    assert_eq!(summary["totals"]["failed"], 4);
    let connector = "file: {paths: [dead.jsonl], format: {jsonLines: {id: [id]}}}";
    workdir.write("m.yaml", manifest(1, "[]", "{jsonLines: {path: out.jsonl}}", connector))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(summary["connectors"][0]["counts"]["finished"], 4);
    Ok(())
}

#[test]
fn figures_health_and_progress_are_served_m9_m14() -> Result<()> {
    let workdir = Workdir::new()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    let running = start_slow(&workdir, &["--metrics-addr", &address, "--heartbeat-file", "beat"])?;
    let get = |path: &str| -> Result<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { Ok(reqwest::get(format!("http://{address}{path}")).await?.error_for_status()?.text().await?) })
    };
    poll_until("a document is finished", Duration::from_secs(60), || {
        get("/metrics").is_ok_and(|text| text.contains("penstock_ended_documents_total") && !text.contains("outcome=\"finished\"} 0\n"))
    })?;
    assert_eq!(get("/healthz")?, "ok\n");
    assert_eq!(get("/readyz")?, "ok\n");
    let progress: Value = serde_json::from_str(&get("/progress")?)?;
    assert_eq!((&progress["run"], &progress["connectors"][0]["state"]), (&json!("r"), &json!("Publishing")));
    let fresh = workdir.penstock(["health", "--file", "beat", "--max-age", "60s"])?;
    assert_eq!(fresh.code, Some(0), "{fresh:?}");
    running.signal(Signal::SIGTERM)?;
    running.wait()?;
    poll_until("the heartbeat is stale", Duration::from_secs(60), || {
        workdir.penstock(["health", "--file", "beat", "--max-age", "1s"]).is_ok_and(|answer| answer.code == Some(1))
    })
}

#[test]
fn progress_lines_tell_of_publisher_workers_and_indexer_m5() -> Result<()> {
    let workdir = Workdir::new()?;
    let running = start_slow(&workdir, &["--log-interval", "200ms"])?;
    poll_until("three lines", Duration::from_secs(60), || {
        running.err().is_ok_and(|err| ["publisher", "workers", "indexer"].iter().all(|word| err.contains(&format!("INFO {word} "))))
    })?;
    running.signal(Signal::SIGTERM)?;
    running.wait()?;
    Ok(())
}

#[test]
fn the_log_tells_the_first_document_and_each_stage_with_run_and_pipeline_m8_m10_m11() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", manifest(1, "[{name: mark, set: {values: {a: 1}}}]", "{nop: {}}", "sequence: {count: 70}"))?;
    let answer = workdir.penstock(["run", "m.yaml", "--log-format", "json", "--run-id", "r-1"])?;
    let lines: Vec<Value> = answer.err.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let find = |message: &str| {
        lines.iter().find(|line| line["message"] == message).with_context(|| format!("no line `{message}` in {}", answer.err))
    };
    let first = find("first document")?;
    assert!(first["after_ms"].is_u64(), "{first}");
    assert_eq!(
        (&first["span"]["run_id"], &first["span"]["pipeline"], &first["span"]["connector"]),
        (&json!("r-1"), &json!("p"), &json!("first"))
    );
    let stage = find("stage")?;
    assert_eq!((&stage["stage"], &stage["processed"], &stage["failed"]), (&json!("mark"), &json!(70), &json!(0)));
    Ok(())
}

#[test]
fn each_change_of_a_document_is_a_line_with_its_id_and_run_m11_m12() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("in.csv", "id,n\na,1\nb,2\nc,3\nbroken\n")?;
    let stages = "[{when: '.n == \"2\"', drop: {}}, {when: '.n == \"3\"', remap: {source: 'assert!(false)'}}]";
    workdir.write("m.yaml", manifest(1, stages, "{nop: {}}", "file: {paths: [in.csv], format: {csv: {id: [id]}}}"))?;
    let arguments = ["run", "m.yaml", "--log-format", "json", "--run-id", "r-1"];
    let answer = workdir.start(arguments, &[("PENSTOCK_LOG", "info,penstock::document=debug")])?.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let lines: Vec<Value> = answer.err.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for (id, story) in [
        ("a", vec!["published", "processed", "finished"]),
        ("b", vec!["published", "dropped"]),
        ("c", vec!["published", "failed"]),
        ("", vec!["unreadable"]),
    ] {
        let told = lines.iter().filter(|line| line["target"] == "penstock::document" && line["doc_id"] == id);
        assert_eq!(told.clone().filter_map(|line| line["message"].as_str()).collect::<Vec<_>>(), story, "{}", answer.err);
        assert!(told.clone().all(|line| line["span"]["run_id"] == "r-1"), "{}", answer.err);
    }
    Ok(())
}
