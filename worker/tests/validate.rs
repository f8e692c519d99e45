//! `penstock validate` as it is run: what it prints, how it ends, and that it leaves nothing behind.

use std::{
    path::Path,
    process::{Command, Output},
};

fn penstock(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_penstock")).current_dir(folder).args(arguments).output().expect("penstock starts")
}

fn contract() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/contract")
}

#[test]
fn all_ten_problems_are_printed_with_place_and_path_s1() {
    let output = penstock(&contract(), &["validate", "broken.yaml"]);
    assert_eq!(output.status.code(), Some(64));
    let text = String::from_utf8(output.stdout).expect("text");
    let problems: Vec<&str> = text.lines().filter(|line| line.starts_with("broken.yaml:")).collect();
    let expected = [
        "6:9: spec.mode: `Lokal` is not one of Local, WorkerIndexer, Distributed, did you mean `Local`?",
        "7:15: spec.partitions: must be at least 1, is 0",
        "9:7: spec.stages[0].renam: unknown field `renam`, did you mean `rename`?",
        "10:26: spec.stages[1].copy.fields.a: must be a list, is text (`b`); write [b]",
        "12:41: spec.stages[2].remap.source: ",
        "13:13: spec.stages[3].name: the name `one` is taken by stage 3",
        "14:18: spec.stages[3].when: ",
        "16:37: spec.stages[4].extract.pattern: ",
        "18:25: spec.indexer.opensearch.urls[0]: ",
        "27:17: spec.connectors[0].pipeline: there is no Pipeline `brokn`, did you mean `broken`?",
    ];
    assert_eq!(problems.len(), expected.len(), "{text}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(&format!("broken.yaml:{expected}")), "{problem}\nis not\n{expected}");
    }
    // What else is printed belongs to the line above it.
    assert!(text.lines().all(|line| line.starts_with("broken.yaml:") || line.starts_with("    ")), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "10 problems in 1 file\n");
}

#[test]
fn good_manifests_are_valid_and_leave_nothing_behind_x13() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = contract().join("quickstart.yaml");
    std::fs::copy(&source, folder.path().join("quickstart.yaml")).expect("a copy");
    let output = penstock(folder.path(), &["validate", "quickstart.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "2 pipelines and 1 run are valid\n");
    assert_eq!(folder.path().read_dir().expect("the folder").count(), 1, "validation made something");
}

#[test]
fn the_result_comes_as_json_as_well() {
    let output = penstock(&contract(), &["validate", "--output", "json", "broken.yaml"]);
    assert_eq!(output.status.code(), Some(64));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["valid"], false);
    assert_eq!(result["problems"].as_array().map(Vec::len), Some(10));
    assert_eq!(result["problems"][0]["line"], 6);
    assert_eq!(result["problems"][0]["path"], "spec.mode");
}

#[test]
fn standard_input_is_read_and_relative_paths_start_in_the_current_folder() {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .args(["validate", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("penstock starts");
    child.stdin.take().expect("standard input").write_all(b"kind: Pipeline\n").expect("written");
    let output = child.wait_with_output().expect("penstock ends");
    assert_eq!(output.status.code(), Some(64));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "<stdin>:1:1: apiVersion: is missing; write `apiVersion: penstock.io/v1alpha1`\n");
}

#[test]
fn wrong_usage_ends_with_two_s34() {
    for arguments in [&["validate"][..], &["nonsense"], &["explain", "renam"], &["schema", "Pipelin"]] {
        let output = penstock(&contract(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_verdict_stays_if_nobody_reads_the_problems() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .current_dir(contract())
        .args(["validate", "broken.yaml"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("penstock starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("penstock ends").code(), Some(64));
}
