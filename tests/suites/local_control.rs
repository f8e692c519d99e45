//! Runs in memory that are told what to do while they work, and what they leave as their result.

use anyhow::Result;
use nix::sys::signal::Signal;
use penstock_crds::{
    conditions::{ConnectorState, Reason},
    ingest_run::Counts,
    report::{LARGEST_RESULT, StepReport, Wanted},
};
use penstock_tests::{
    control::{Remote, TOKEN},
    penstock::{Answer, Running, Workdir},
    recorder::Recorder,
    services::poll_until,
};
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A run of two connectors; the first gives so many documents at 400 a second. Each request to the index is for one document.
fn manifest(recorder: &Recorder, run: &str, count: u64) -> String {
    let url = recorder.url();
    format!(
        "apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {{name: p}}
spec:
  mode: Local
  workers: {{threads: 2}}
  indexer:
    batch: {{maxDocuments: 1, maxAge: 1ms}}
    opensearch: {{urls: [\"{url}\"], index: i}}
---
apiVersion: penstock.io/v1alpha1
kind: IngestRun
metadata: {{name: r}}
spec:
  {run}
  connectors:
    - name: first
      pipeline: p
      maxRate: 400
      pre: [{{http: {{method: POST, url: \"{url}/_hook/pre\"}}}}]
      post: [{{http: {{method: POST, url: \"{url}/_hook/post\"}}}}]
      sequence: {{count: {count}}}
    - {{name: second, pipeline: p, sequence: {{count: 1, start: 1000000}}}}
"
    )
}

/// A folder with manifests and control folder, and the search engine that they name.
struct Site {
    workdir: Workdir,
    recorder: Recorder,
    remote: Remote,
}

impl Site {
    fn new(run: &str, count: u64) -> Result<Self> {
        let (workdir, recorder) = (Workdir::new()?, Recorder::start()?);
        workdir.write("m.yaml", manifest(&recorder, run, count))?;
        let remote = Remote::new(&workdir)?;
        Ok(Self { workdir, recorder, remote })
    }

    fn start(&self, arguments: &[&str]) -> Result<Running> {
        let control = self.remote.arguments();
        let all = ["run", "m.yaml", "--summary", "json", "--connector", "first", "--result-file", "result"].into_iter();
        self.workdir.start(all.chain(control).chain(arguments.iter().copied()), &[])
    }

    fn result(&self) -> Result<StepReport> {
        Ok(serde_json::from_str(&self.workdir.read("result")?)?)
    }

    fn wait_until_some_are_finished(&self) -> Result<StepReport> {
        self.remote.wait_for("documents are finished", |report| report.counts.finished > 20)
    }
}

/// All documents that were published are finished.
fn all_finished(counts: &Counts) -> Counts {
    Counts { published: counts.published, finished: counts.published, ..Counts::default() }
}

fn assert_silent(answer: &Answer) {
    assert!(!answer.out.contains(TOKEN) && !answer.err.contains(TOKEN), "{answer:?}");
}

#[test]
fn a_suspended_run_publishes_nothing_while_what_was_published_is_finished_and_then_goes_on_p17() -> Result<()> {
    let site = Site::new("", 2_000)?;
    let run = site.start(&[])?;
    let before = site.wait_until_some_are_finished()?;
    assert_eq!((before.state, before.suspended), (ConnectorState::Publishing, false));
    let held = before.counts.published + 100;
    site.recorder.hold("i", &held.to_string());
    poll_until("a request waits", LIMIT, || site.recorder.waiting("i") > 0)?;
    assert!(site.remote.want(Wanted::Suspend)?.suspended);
    let waiting =
        site.remote.wait_for("all but the held ones are finished", |report| report.oldest_pending_seconds.is_some_and(|age| age > 0))?;
    assert!(waiting.counts.pending > 0 && waiting.suspended, "{waiting:?}");
    site.recorder.release("i", &held.to_string());
    let finished = site.remote.wait_for("all of them are finished", |report| report.counts.pending == 0)?;
    assert!(finished.counts.finished > waiting.counts.finished);
    let still = site.remote.stands_still(|report| report.suspended && report.counts.pending == 0)?;
    assert_eq!((still.state, still.message.as_deref()), (ConnectorState::Publishing, Some("publishing is paused")));
    assert!(still.counts.published < 2_000);

    site.remote.want(Wanted::Run)?;
    let answer = run.wait()?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let result = site.result()?;
    assert_eq!((result.state, result.suspended, result.reason), (ConnectorState::Succeeded, false, None));
    assert_eq!(result.counts, all_finished(&Counts { published: 2_000, ..Counts::default() }));
    assert!(result.published_seconds.is_some_and(|published| published > 1.0 && published <= result.seconds), "{result:?}");
    assert_eq!((site.recorder.operations("i"), site.recorder.hooks("post")), (2_000, 1));
    assert_silent(&answer);
    Ok(())
}

#[test]
fn a_cancelled_run_finishes_what_was_published_without_its_last_actions() -> Result<()> {
    let site = Site::new("", 1_000_000)?;
    let run = site.workdir.start(["run", "m.yaml", "--summary", "json"].into_iter().chain(site.remote.arguments()), &[])?;
    let before = site.wait_until_some_are_finished()?;
    let held = (before.counts.published + 100).to_string();
    site.recorder.hold("i", &held);
    poll_until("a request waits", LIMIT, || site.recorder.waiting("i") > 0)?;
    site.remote.want(Wanted::Cancel)?;
    let ending =
        site.remote.wait_for("the rest is finished", |report| report.message.as_deref().is_some_and(|m| m.contains("has been ended")))?;
    assert!(ending.counts.pending > 0, "{ending:?}");
    for wanted in [Wanted::Run, Wanted::Suspend] {
        let (status, answer) = site.remote.send(Some(TOKEN), &json!({"wanted": wanted}))?;
        assert_eq!(status, 409, "{answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains("cannot be taken back")), "{answer}");
    }
    site.recorder.release("i", &held);
    let answer = run.wait()?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let summary = answer.summary()?;
    let states: Vec<&Value> = summary["connectors"].as_array().into_iter().flatten().map(|step| &step["state"]).collect();
    assert_eq!((&summary["phase"], states), (&json!("Cancelled"), vec![&json!("Cancelled"), &json!("Skipped")]));
    let counts: Counts = serde_json::from_value(summary["totals"].clone())?;
    assert!(counts.published < 100_000, "{counts:?}");
    assert_eq!(counts, all_finished(&counts));
    assert_eq!(site.recorder.operations("i") as u64, counts.published);
    assert_eq!((site.recorder.hooks("pre"), site.recorder.hooks("post")), (1, 0));
    let message = summary["connectors"][0]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("cancelled after") && message.contains("everything is accounted for"), "{message}");
    assert_silent(&answer);
    Ok(())
}

#[test]
fn a_cancelled_run_waits_no_longer_than_its_cancel_grace_period() -> Result<()> {
    let site = Site::new("cancelGracePeriod: 1s", 1_000_000)?;
    let run = site.start(&[])?;
    let before = site.wait_until_some_are_finished()?;
    site.recorder.hold("i", &(before.counts.published + 100).to_string());
    poll_until("a request waits", LIMIT, || site.recorder.waiting("i") > 0)?;
    site.remote.want(Wanted::Cancel)?;
    let answer = run.wait()?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let result = site.result()?;
    assert_eq!((result.state, result.reason), (ConnectorState::Cancelled, Some(Reason::Cancelled)));
    let Counts { published, finished, pending, .. } = result.counts;
    assert!(pending > 0 && published == finished + pending, "{result:?}");
    assert!(result.message.is_some_and(|message| message.contains(&format!("with {pending} document"))));
    assert_eq!(site.recorder.hooks("post"), 0);
    Ok(())
}

#[test]
fn only_who_has_the_token_may_tell_a_run_what_to_do() -> Result<()> {
    let site = Site::new("", 1_000_000)?;
    let run = site.start(&[])?;
    site.wait_until_some_are_finished()?;
    for token in [None, Some("wrong"), Some(""), Some(&TOKEN[1..])] {
        let (status, answer) = site.remote.send(token, &json!({"wanted": "Cancel"}))?;
        assert_eq!(status, 401, "{token:?}: {answer}");
    }
    for body in [json!({"wanted": "Stop"}), json!({}), json!("Cancel"), json!({"wanted": "Cancel", "padding": "x".repeat(2_000)})] {
        let (status, answer) = match site.remote.send(Some(TOKEN), &body) {
            Ok(answer) => answer,
            // what is too long is refused in words, not in JSON
            Err(error) => (413, error.to_string().into()),
        };
        assert!(
            status == 413 || status == 400 && answer["error"].as_str().is_some_and(|error| error.contains("Run, Suspend, Cancel")),
            "{answer}"
        );
    }
    let after = site.remote.report()?;
    assert_eq!((after.state, after.suspended, after.message), (ConnectorState::Publishing, false, None));
    site.remote.wait_for("it goes on", |report| report.counts.finished > after.counts.finished)?;
    run.signal(Signal::SIGTERM)?;
    assert_silent(&run.wait()?);

    let bare = site.workdir.start(["run", "m.yaml", "--metrics-addr", site.remote.arguments()[3]], &[])?;
    site.wait_until_some_are_finished()?;
    assert_eq!(site.remote.send(Some(TOKEN), &json!({"wanted": "Cancel"}))?.0, 404, "nobody may without --control-dir");
    drop(bare);
    Ok(())
}

#[test]
fn a_run_does_from_the_start_what_the_folder_or_the_manifest_says() -> Result<()> {
    for (field, state) in [("", Some(Wanted::Suspend)), ("suspend: true", None)] {
        let site = Site::new(field, 30)?;
        state.map_or(Ok(()), |state| site.remote.write_state(&site.workdir, state))?;
        let run = site.start(&[])?;
        site.remote.wait_for("it waits", |report| report.state == ConnectorState::Publishing)?;
        site.remote.stands_still(|report| report.suspended && report.counts == Counts::default())?;
        site.remote.want(Wanted::Run)?;
        let answer = run.wait()?;
        assert_eq!((answer.code, site.recorder.operations("i")), (Some(0), 30), "{answer:?}");
    }
    for (field, state) in [("", Some(Wanted::Cancel)), ("cancel: true", Some(Wanted::Run))] {
        let site = Site::new(field, 30)?;
        state.map_or(Ok(()), |state| site.remote.write_state(&site.workdir, state))?;
        let answer = site.start(&[])?.wait()?;
        assert_eq!((answer.code, site.result()?.state), (Some(1), ConnectorState::Cancelled), "{answer:?}");
        assert_eq!((site.recorder.hooks("pre"), site.recorder.requests("i")), (0, 0));
    }
    let site = Site::new("suspend: true", 30)?;
    site.remote.write_state(&site.workdir, Wanted::Run)?;
    let answer = site.start(&[])?.wait()?;
    assert_eq!(answer.code, Some(0), "the folder is newer than the manifest: {answer:?}");
    Ok(())
}

#[test]
fn a_control_folder_that_makes_no_sense_is_said_before_anything_begins() -> Result<()> {
    let site = Site::new("", 30)?;
    for (file, text, said) in [("state", "Pause", "must be one of Run, Suspend, Cancel"), ("token", "", "is empty")] {
        site.workdir.write("control/state", "Run")?.write(&format!("control/{file}"), text)?;
        let answer = site.start(&[])?.wait()?;
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(answer.err.contains(said), "{answer:?}");
        let result = site.result()?;
        assert_eq!((result.state, result.reason), (ConnectorState::Failed, Some(Reason::ProcessingFailed)));
        assert!(result.message.is_some_and(|message| message.contains(said)));
    }
    assert_eq!(site.recorder.hooks("pre"), 0);
    Ok(())
}

#[test]
fn one_connector_of_a_run_is_executed_alone() -> Result<()> {
    let site = Site::new("", 30)?;
    let (summary, answer) = site.workdir.run(["m.yaml", "--connector", "second"])?;
    assert_eq!((answer.code, site.recorder.operations("i"), site.recorder.hooks("pre")), (Some(0), 1, 0), "{answer:?}");
    assert_eq!(summary["connectors"].as_array().map(Vec::len), Some(1));
    let answer = site.workdir.penstock(["run", "m.yaml", "--connector", "third"])?;
    assert_eq!(answer.code, Some(64), "{answer:?}");
    assert!(answer.err.contains("run `r` has no connector `third`; it has: first, second"), "{answer:?}");
    Ok(())
}

#[test]
fn every_end_leaves_a_result_of_a_size_that_kubernetes_keeps() -> Result<()> {
    let site = Site::new("", 1_000_000)?;
    let run = site.start(&[])?;
    site.wait_until_some_are_finished()?;
    run.signal(Signal::SIGTERM)?;
    assert_eq!(run.wait()?.code, Some(75));
    let interrupted = site.result()?;
    assert_eq!((interrupted.state, interrupted.reason), (ConnectorState::Publishing, None));
    assert!(interrupted.message.is_some_and(|message| message.starts_with("interrupted after")));
    assert_eq!((interrupted.docs_per_second, interrupted.published_seconds), (None, None));

    site.recorder.hold("i", "300");
    let run = site.start(&[])?;
    poll_until("a request waits", LIMIT, || site.recorder.waiting("i") > 0)?;
    run.signal(Signal::SIGTERM)?;
    poll_until("it drains", LIMIT, || run.err().is_ok_and(|err| err.contains("a second signal")))?;
    run.signal(Signal::SIGTERM)?;
    assert_eq!(run.wait()?.code, Some(143));
    let at_once = site.result()?;
    assert_eq!((at_once.state, at_once.counts.pending > 0), (ConnectorState::Publishing, true), "{at_once:?}");
    assert!(at_once.message.is_some_and(|message| message.starts_with("ended at once, with ")));
    site.recorder.release("i", "300");

    let text = site.workdir.read("m.yaml")?;
    site.workdir.write("m.yaml", text.replace("sequence: {count: 1000000}", "sequence: {count: many, unknown: \"é\"}"))?;
    assert_eq!(site.start(&[])?.wait()?.code, Some(64));
    let invalid = site.result()?;
    assert_eq!((invalid.name.as_str(), invalid.state, invalid.reason), ("first", ConnectorState::Failed, Some(Reason::InvalidSpec)));
    let message = invalid.message.unwrap_or_default();
    assert!(message.contains("m.yaml:") && message.contains("sequence.count: must be a whole number"), "{message}");

    let stage = "set: {values: {a: 1}}";
    let wrong: String = (0..200).map(|n| format!("    - {{name: \"{}{n}\", {stage}, when: \".é =\"}}\n", "x".repeat(60))).collect();
    site.workdir.write("m.yaml", text.replace("  indexer:\n", &format!("  stages:\n{wrong}  indexer:\n")))?;
    assert_eq!(site.start(&[])?.wait()?.code, Some(64));
    let size = site.workdir.read("result")?.len();
    assert!((LARGEST_RESULT - 10..=LARGEST_RESULT).contains(&size), "{size}");
    assert!(site.result()?.message.is_some_and(|message| message.ends_with('…')));

    let failing = format!(
        "  stages:\n    - {{name: broken, remap: {{source: \"assert!(false, message: s'{}')\"}}}}\n  indexer:\n",
        "\\\\".repeat(300)
    );
    site.workdir.write("m.yaml", text.replace("  indexer:\n", &failing).replace("count: 1000000", "count: 40"))?;
    let answer = site.start(&["--max-failed", "1"])?.wait()?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let failed = site.result()?;
    assert!(site.workdir.read("result")?.len() <= LARGEST_RESULT);
    assert_eq!((failed.state, failed.reason), (ConnectorState::Failed, Some(Reason::TooManyFailures)));
    assert!(
        (1..=10).contains(&failed.failures.len()) && failed.message.is_some_and(|message| message.contains("more than the 1")),
        "{answer:?}"
    );
    Ok(())
}
