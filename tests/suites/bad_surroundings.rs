//! Bad surroundings: files that serve two purposes, pipes that never end, folders that are not there.

use anyhow::{Context, Result};
use nix::{sys::signal::Signal, sys::stat::Mode, unistd::mkfifo};
use penstock_tests::penstock::Workdir;
use std::{
    io::Write,
    time::{Duration, Instant},
};

fn manifest(stages: &str, indexer: &str, file: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: p}}\nspec:\n  mode: Local\n  stages: {stages}\n  indexer: {indexer}\n---\n\
         apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata: {{name: r}}\nspec:\n  connectors:\n    - {{name: c, pipeline: p, file: {{paths: [{file}], format: {{jsonLines: {{id: [id]}}}}}}}}\n"
    )
}

#[test]
fn a_file_serves_one_purpose_only() -> Result<()> {
    const INPUT: &str = "x\n{\"id\":\"2\"}\n";
    let output = "{jsonLines: {path: out.jsonl}}";
    let cases = [
        // the dead letter would be replaced by the output
        ("[]", output, "in", vec!["--dead-letter", "out.jsonl"], "the dead letter (--dead-letter) is written to as well"),
        ("[]", output, "in", vec!["--dead-letter", "sub/../in"], "connector `c` reads the file"),
        ("[{capture: {path: out.jsonl}}]", output, "in", vec![], "stage `capture-1` of pipeline `p` writes the file"),
        ("[{capture: {path: ./in}}]", output, "in", vec![], "connector `c` reads the file"),
        ("[]", "{jsonLines: {path: link}}", "in", vec![], "the indexer of pipeline `p` writes as well"),
    ];
    for (stages, indexer, file, arguments, said) in cases {
        let workdir = Workdir::new()?;
        workdir.write("in", INPUT)?.write("sub/x", "")?.write("m.yaml", manifest(stages, indexer, file))?;
        std::os::unix::fs::symlink("in", workdir.path().join("link"))?;
        let answer = workdir.penstock(["run", "m.yaml"].into_iter().chain(arguments))?;
        assert_eq!(answer.code, Some(64), "{said}: {answer:?}");
        assert!(answer.err.contains(said) && answer.err.contains("give each a file of its own"), "{said}: {answer:?}");
        assert_eq!((workdir.read("in")?.as_str(), workdir.has("out.jsonl")), (INPUT, false), "{said}");
        if !answer.err.contains("--dead-letter") {
            let validated = workdir.penstock(["validate", "m.yaml"])?;
            assert_eq!(validated.code, Some(64), "{said}: {validated:?}");
            let message = answer.err.lines().find_map(|line| line.strip_prefix("error: ")).context("a message")?;
            assert!(validated.out.starts_with("m.yaml:") && validated.out.contains(message), "{validated:?}");
        }
    }
    Ok(())
}

#[test]
fn a_later_step_may_read_what_an_earlier_one_wrote() -> Result<()> {
    let workdir = Workdir::new()?;
    let second = "    - {name: d, pipeline: q, file: {paths: [mid.jsonl], format: {jsonLines: {id: [id]}}}}\n---\n\
        apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: q}\nspec: {mode: Local, indexer: {jsonLines: {path: out.jsonl}}}\n";
    workdir.write("in", "{\"id\":\"1\"}\n")?;
    workdir.write("m.yaml", manifest("[]", "{jsonLines: {path: mid.jsonl}}", "in") + second)?;
    let (summary, answer) = workdir.run(["m.yaml", "--dead-letter", "/dev/null"])?;
    assert_eq!((answer.code, summary["totals"]["finished"].as_u64()), (Some(0), Some(2)), "{answer:?}");
    assert_eq!(workdir.read_json_lines("out.jsonl")?.len(), 1);
    Ok(())
}

#[test]
fn a_pipe_that_never_closes_ends_by_sigterm_as_interrupted() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("m.yaml", manifest("[]", "{jsonLines: {path: out.jsonl}}", "in"))?;
    mkfifo(&workdir.path().join("in"), Mode::S_IRWXU).context("failed to make a pipe")?;
    let running = workdir.start(["run", "m.yaml", "--summary", "json", "--metrics-addr", "127.0.0.1:0"], &[])?;
    // opening waits for the reader
    let mut pipe = std::fs::OpenOptions::new().write(true).open(workdir.path().join("in"))?;
    pipe.write_all(b"{\"id\":\"1\"}\n")?;
    running.signal(Signal::SIGTERM)?;
    let begun = Instant::now();
    let answer = running.wait()?;
    // far below the grace period of 30 s and what follows it
    assert!(begun.elapsed() < Duration::from_secs(20), "{answer:?}");
    let summary = answer.summary()?;
    assert_eq!((answer.code, summary["phase"].as_str()), (Some(75), Some("Interrupted")), "{answer:?}");
    assert_eq!(summary["totals"]["pending"], 0);
    assert!(!workdir.has("out.jsonl"), "what is not done is not shown");
    Ok(())
}

#[test]
fn what_cannot_be_written_is_named_before_anything_is_read() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("in", "{\"id\":\"1\"}\n")?;
    for (indexer, arguments, said) in [
        ("{nop: {}}", vec!["--heartbeat-file", "no/such/file"], "the heartbeat file no/such/file cannot be written"),
        ("{nop: {}}", vec!["--dead-letter", "."], "dead letter .: failed documents cannot be kept"),
        ("{nop: {}}", vec!["--dead-letter", "in/x"], "dead letter in/x: failed documents cannot be kept"),
        ("{jsonLines: {path: in/out}}", vec![], "in/out"),
        ("{embedded: {path: in/x}}", vec![], "in/x: its directory cannot be made"),
        ("{embedded: {path: .}}", vec![], "the directory is no index"),
        ("{csv: {path: /proc/none/out, columns: [id]}}", vec![], "failed to make its folder"),
    ] {
        workdir.write("m.yaml", manifest("[]", indexer, "in"))?;
        let answer = workdir.penstock(["run", "m.yaml"].into_iter().chain(arguments))?;
        assert_eq!(answer.code, Some(1), "{said}: {answer:?}");
        assert!(answer.err.contains(said), "{said}: {answer:?}");
    }
    Ok(())
}
