//! What goes wrong in a run, and what then happens: the rules of errors, one test each.

use anyhow::Result;
use penstock_tests::penstock::Workdir;
use serde_json::{Value, json};

/// A pipeline and a run; `%` stands for what a test varies.
fn manifest(stages: &str, indexer: &str, connectors: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: p}}\nspec:\n  mode: Local\n  workers: {{threads: 2}}\n  stages: {stages}\n  indexer: {indexer}\n---\n\
         apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata: {{name: r}}\nspec:\n  connectors:\n{connectors}"
    )
}

const TWO: &str =
    "    - {name: first, pipeline: p, sequence: {count: 10, field: num}}\n    - {name: second, pipeline: p, sequence: {count: 5}}\n";
const NOP: &str = "{nop: {}}";

fn states(summary: &Value) -> Vec<&str> {
    summary["connectors"].as_array().into_iter().flatten().filter_map(|step| step["state"].as_str()).collect()
}

fn assert_invariant(summary: &Value) {
    let count = |name: &str| summary["totals"][name].as_u64().expect("a count");
    assert_eq!(
        count("published") + count("created"),
        count("finished") + count("failed") + count("dropped") + count("pending"),
        "{summary}"
    );
}

#[test]
fn an_invalid_configuration_starts_nothing_s1() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", manifest("[{renam: {}}]", "{jsonLines: {path: out.jsonl}}", TWO))?;
    let answer = workdir.penstock(["run", "m.yaml"])?;
    assert_eq!(answer.code, Some(64));
    assert!(answer.out.contains("did you mean `rename`"), "{answer:?}");
    assert!(!workdir.has("out.jsonl"));
    Ok(())
}

#[test]
fn a_failing_pre_action_stops_before_a_document_is_read_s2_s30() -> Result<()> {
    let workdir = Workdir::new()?;
    let connectors = "    - name: first\n      pipeline: p\n      pre: [{http: {url: \"http://127.0.0.1:9/x\", maxRetries: 0}}]\n      sequence: {count: 10}\n    - {name: second, pipeline: p, sequence: {count: 5}}\n";
    workdir.write("m.yaml", manifest("[]", NOP, connectors))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!(answer.code, Some(69), "{answer:?}");
    assert_eq!(states(&summary), ["Failed", "Skipped"]);
    assert_eq!(summary["totals"]["published"], 0);
    let message = summary["connectors"][0]["message"].as_str().expect("message");
    assert!(message.contains("pre[0]") && message.contains("127.0.0.1:9"), "{message}");
    Ok(())
}

#[test]
fn a_failing_connector_fails_the_step_and_what_it_gave_is_processed_p13_s3_s30() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("a.csv", "id\n1\n2\n3\n")?;
    workdir.write("b.csv", "id,id\n1,1\n")?;
    let connectors = "    - name: files\n      pipeline: p\n      file: {paths: [a.csv, b.csv], format: {csv: {id: [id]}}}\n    - {name: second, pipeline: p, sequence: {count: 5}}\n";
    workdir.write("m.yaml", manifest("[]", NOP, connectors))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert_eq!(states(&summary), ["Failed", "Skipped"]);
    assert_eq!(
        (&summary["totals"]["published"], &summary["totals"]["finished"], &summary["totals"]["pending"]),
        (&json!(3), &json!(3), &json!(0))
    );
    assert!(summary["connectors"][0]["message"].as_str().is_some_and(|message| message.contains("b.csv")), "{summary}");
    Ok(())
}

#[test]
fn a_missing_file_is_a_failure_and_not_an_empty_run_lucille_12_5() -> Result<()> {
    let workdir = Workdir::new()?;
    let connectors = |more: &str| {
        format!("    - name: files\n      pipeline: p\n      file: {{paths: [no/*.csv]{more}, format: {{csv: {{id: [id]}}}}}}\n")
    };
    workdir.write("m.yaml", manifest("[]", NOP, &connectors("")))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!((answer.code, states(&summary)), (Some(1), vec!["Failed"]));
    workdir.write("m.yaml", manifest("[]", NOP, &connectors(", allowEmpty: true")))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!((answer.code, states(&summary)), (Some(0), vec!["Succeeded"]));
    Ok(())
}

#[test]
fn a_failing_post_action_fails_the_step_after_its_documents_are_indexed_s5() -> Result<()> {
    let workdir = Workdir::new()?;
    let connectors = "    - name: first\n      pipeline: p\n      post: [{http: {url: \"http://127.0.0.1:9/x\", maxRetries: 0}}]\n      sequence: {count: 10}\n";
    workdir.write("m.yaml", manifest("[]", "{jsonLines: {path: out.jsonl}}", connectors))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!((answer.code, states(&summary)), (Some(69), vec!["Failed"]));
    assert_eq!(summary["totals"]["finished"], 10);
    assert_eq!(workdir.read_json_lines("out.jsonl")?.len(), 10);
    Ok(())
}

#[test]
fn a_stage_that_cannot_be_built_stops_before_a_document_is_read_s6() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("file", "")?;
    workdir.write("m.yaml", manifest("[{capture: {path: file/below.jsonl}}]", NOP, TWO))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!((answer.code, states(&summary)), (Some(1), vec!["Failed", "Skipped"]));
    assert_eq!(summary["totals"]["published"], 0);
    Ok(())
}

#[test]
fn a_failed_document_leaves_the_exit_code_at_0_and_is_kept_s7_x4() -> Result<()> {
    let workdir = Workdir::new()?;
    let stages = "[{name: odd, remap: {source: 'assert!(mod!(.num, 2) == 0, \"odd\")'}}]";
    workdir.write("m.yaml", manifest(stages, NOP, TWO))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_invariant(&summary);
    assert_eq!(summary["connectors"][0]["counts"]["failed"], 5);
    let dead = workdir.read_json_lines("r_fail.jsonl")?;
    assert!(
        dead.iter().all(|letter| letter["stage"] == "odd" && letter["reason"].as_str().is_some_and(|reason| reason.contains("odd"))),
        "{dead:?}"
    );
    Ok(())
}

#[test]
fn more_failures_than_allowed_fail_the_run_lucille_12_14() -> Result<()> {
    let stages = "[{name: odd, remap: {source: 'assert!(mod!(.num, 2) == 0, \"odd\")'}}]";
    for (policy, arguments, code) in [
        ("", vec!["m.yaml", "--max-failed", "5"], 0),
        ("", vec!["m.yaml", "--max-failed", "4"], 1),
        ("  failurePolicy: {maxFailed: 4}\n", vec!["m.yaml"], 1),
        ("  failurePolicy: {maxFailed: 4}\n", vec!["m.yaml", "--max-failed", "9"], 0),
        ("  failurePolicy: {maxFailedPercent: 50}\n", vec!["m.yaml"], 0),
        ("  failurePolicy: {maxFailedPercent: 49}\n", vec!["m.yaml"], 1),
    ] {
        let workdir = Workdir::new()?;
        let first = "    - {name: first, pipeline: p, sequence: {count: 10, field: num}}\n";
        workdir.write("m.yaml", manifest(stages, NOP, first) + policy)?;
        let (summary, answer) = workdir.run(arguments.iter().copied())?;
        assert_eq!(answer.code, Some(code), "{policy} {arguments:?}: {answer:?}");
        assert_eq!(states(&summary), [if code == 0 { "Succeeded" } else { "Failed" }]);
        assert_invariant(&summary);
    }
    Ok(())
}

#[test]
fn a_backend_that_cannot_be_reached_stops_before_a_document_is_read_s14_lucille_12_8() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", manifest("[]", "{opensearch: {urls: [\"http://127.0.0.1:9\"], index: i}}", TWO))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!((answer.code, states(&summary)), (Some(69), vec!["Failed", "Skipped"]));
    assert_eq!(summary["totals"]["published"], 0);
    Ok(())
}

#[test]
fn a_step_that_takes_too_long_fails_with_the_number_of_pending_documents_s28() -> Result<()> {
    let workdir = Workdir::new()?;
    let connectors = "    - {name: first, pipeline: p, timeout: 500ms, maxRate: 10, sequence: {count: 1000}}\n";
    workdir.write("m.yaml", manifest("[]", NOP, connectors))?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    assert_eq!((answer.code, states(&summary)), (Some(1), vec!["Failed"]));
    assert!(summary["connectors"][0]["message"].as_str().is_some_and(|message| message.contains("timeout of 500ms")), "{summary}");
    assert_invariant(&summary);
    Ok(())
}

#[test]
fn a_wrong_command_line_is_usage_and_runs_nothing_s34() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", manifest("[]", "{jsonLines: {path: out.jsonl}}", TWO))?;
    for arguments in [vec!["run", "m.yaml", "--sumary", "json"], vec!["run"], vec!["rum", "m.yaml"]] {
        assert_eq!(workdir.penstock(arguments)?.code, Some(2));
    }
    assert!(!workdir.has("out.jsonl"));
    Ok(())
}

#[test]
fn names_that_stand_twice_are_refused_s35() -> Result<()> {
    let workdir = Workdir::new()?;
    let connectors = "    - {name: one, pipeline: p, sequence: {count: 1}}\n    - {name: one, pipeline: p, sequence: {count: 1}}\n";
    workdir.write("m.yaml", manifest("[]", NOP, connectors))?;
    let answer = workdir.penstock(["run", "m.yaml"])?;
    assert_eq!(answer.code, Some(64));
    assert!(answer.out.contains("is taken"), "{answer:?}");
    Ok(())
}

#[test]
fn dropped_documents_are_counted_and_are_no_failure_s36_x15() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", manifest("[{drop: {}}]", NOP, TWO))?;
    let (summary, answer) = workdir.run(["m.yaml", "--max-failed", "0"])?;
    assert_eq!(answer.code, Some(0));
    assert_eq!((&summary["totals"]["dropped"], &summary["totals"]["failed"]), (&json!(15), &json!(0)));
    Ok(())
}

#[test]
fn several_runs_need_a_choice_and_none_a_hint() -> Result<()> {
    let workdir = Workdir::new()?;
    let run = manifest("[]", NOP, TWO);
    workdir.write("m.yaml", format!("{run}---\n{}", run.split("---\n").last().unwrap_or_default().replace("name: r}", "name: s}")))?;
    let answer = workdir.penstock(["run", "m.yaml"])?;
    assert_eq!(answer.code, Some(64));
    assert!(answer.err.contains("--run: r, s"), "{answer:?}");
    assert_eq!(workdir.penstock(["run", "m.yaml", "--run", "s"])?.code, Some(0));
    assert_eq!(workdir.penstock(["run", "m.yaml", "--run", "t"])?.code, Some(64));
    Ok(())
}
