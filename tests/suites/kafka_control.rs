//! Publishers over Kafka that are told what to do while they work, or by the folder that they find when they start.

use anyhow::Result;
use nix::sys::signal::Signal;
use penstock_crds::{
    conditions::{ConnectorState, Reason},
    ingest_run::Counts,
    report::{StepReport, Wanted},
};
use penstock_tests::{
    control::{Remote, TOKEN},
    over_kafka::{Site, Versions},
    penstock::{Answer, Running},
    recorder::Recorder,
    services::kafka::Kafka,
};
use serde_json::json;

const RESULT: &str = "result";

/// A broker, a search engine, manifests and a control folder.
struct Stand<'k> {
    site: Site<'k>,
    recorder: Recorder,
    remote: Remote,
    versions: Versions,
    index: String,
}

impl Stand<'_> {
    fn new(prefix: &str) -> Result<Self> {
        // slow, and never far ahead of who works: there is time to tell it what to do, also on a busy machine
        let versions = Versions { mode: "WorkerIndexer", count: 1_200, rate: 100, ..Versions::default() };
        let recorder = Recorder::start()?;
        let site = Site::versions(Kafka::shared()?, &recorder, prefix, &versions)?;
        let url = recorder.url();
        let hook = |name: &str| format!("{name}: [{{http: {{method: POST, url: \"{url}/_hook/{name}\"}}}}]");
        site.change("      maxRate", &format!("      {}\n      {}\n      maxPending: 300\n      maxRate", hook("pre"), hook("post")))?;
        let remote = Remote::new(&site.workdir)?;
        Ok(Self { site, recorder, remote, versions, index: prefix.trim_end_matches('.').into() })
    }

    fn publish(&self) -> Result<Running> {
        let run_id = format!("{}-1", self.index);
        let arguments = ["--connector", "c", "--run-id", &run_id, "--create-topics", "--result-file", RESULT];
        self.site.start("publish", &[&arguments[..], &self.remote.arguments()].concat())
    }

    fn result(&self) -> Result<StepReport> {
        Ok(serde_json::from_str(&self.site.workdir.read(RESULT)?)?)
    }

    fn wait_until_some_are_finished(&self) -> Result<StepReport> {
        self.remote.wait_for("documents are finished", |report| report.counts.finished > 100)
    }

    /// Every document was indexed once, with exact counts.
    fn assert_complete(&self, answer: Answer) -> Result<()> {
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert!(!answer.out.contains(TOKEN) && !answer.err.contains(TOKEN), "{answer:?}");
        let result = self.result()?;
        assert_eq!(answer.summary()?, serde_json::to_value(&result)?, "printed and in the file");
        assert_eq!(result.state, ConnectorState::Succeeded);
        assert_eq!(result.counts, finished(self.versions.count));
        assert_eq!((self.recorder.hooks("pre"), self.recorder.hooks("post")), (1, 1));
        self.versions.check(&self.recorder, &self.index)
    }

    /// Exactly the published documents were indexed, and no last action was run.
    fn assert_cancelled(&self, answer: Answer) -> Result<()> {
        assert_eq!(answer.code, Some(1), "{answer:?}");
        let result = self.result()?;
        assert_eq!((result.state, result.reason), (ConnectorState::Cancelled, Some(Reason::Cancelled)), "{result:?}");
        assert!(result.counts.published < self.versions.count, "{result:?}");
        assert_eq!(result.counts, finished(result.counts.published));
        assert_eq!(self.site.records("p_source")? as u64, result.counts.published);
        assert_eq!((self.recorder.hooks("pre"), self.recorder.hooks("post")), (1, 0));
        let message = result.message.unwrap_or_default();
        assert!(message.starts_with("cancelled after") && message.contains("everything is accounted for"), "{message}");
        let published = Versions { count: result.counts.published, ..Versions::default() };
        published.check(&self.recorder, &self.index)
    }
}

fn finished(count: u64) -> Counts {
    Counts { published: count, finished: count, ..Counts::default() }
}

#[test]
fn a_suspended_publisher_publishes_nothing_while_what_it_published_is_indexed_and_then_goes_on_p17() -> Result<()> {
    let stand = Stand::new("paused.")?;
    let role = stand.site.role("worker-indexer")?;
    let publisher = stand.publish()?;
    stand.wait_until_some_are_finished()?;
    assert_eq!(stand.remote.send(Some("wrong"), &json!({"wanted": "Cancel"}))?.0, 401);
    // nobody works, so that documents are pending
    role.signal(Signal::SIGSTOP)?;
    stand.remote.wait_for("documents wait", |report| report.counts.pending > 50)?;
    assert!(stand.remote.want(Wanted::Suspend)?.suspended);
    stand.remote.wait_for("they grow old", |report| report.oldest_pending_seconds.is_some_and(|age| age > 0))?;
    role.signal(Signal::SIGCONT)?;
    stand.remote.wait_for("they are indexed", |report| report.counts.pending == 0)?;
    let still = stand.remote.stands_still(|report| report.suspended && report.counts.pending == 0)?;
    assert_eq!(still.state, ConnectorState::Publishing);
    assert_eq!((stand.site.records("p_source")? as u64, stand.recorder.hooks("post")), (still.counts.published, 0));
    assert!(still.counts.published < stand.versions.count);
    stand.remote.want(Wanted::Run)?;
    stand.assert_complete(publisher.wait()?)
}

#[test]
fn a_cancelled_publisher_counts_what_it_published_and_runs_no_last_action() -> Result<()> {
    let stand = Stand::new("cancelled.")?;
    let role = stand.site.role("worker-indexer")?;
    let publisher = stand.publish()?;
    stand.wait_until_some_are_finished()?;
    role.signal(Signal::SIGSTOP)?;
    stand.remote.wait_for("documents wait", |report| report.counts.pending > 50)?;
    stand.remote.want(Wanted::Cancel)?;
    let ending = stand.remote.stands_still(|report| report.counts.pending > 0)?;
    assert!(ending.message.is_some_and(|message| message.contains("publishing has been ended")));
    assert_eq!(stand.remote.send(Some(TOKEN), &json!({"wanted": "Run"}))?.0, 409);
    role.signal(Signal::SIGCONT)?;
    stand.assert_cancelled(publisher.wait()?)
}

#[test]
fn a_cancelled_publisher_waits_no_longer_than_the_cancel_grace_period() -> Result<()> {
    let stand = Stand::new("impatient.")?;
    stand.site.change(
        "kind: IngestRun\nmetadata: {name: r}\nspec:\n",
        "kind: IngestRun\nmetadata: {name: r}\nspec:\n  cancelGracePeriod: 1s\n",
    )?;
    let publisher = stand.publish()?;
    stand.remote.wait_for("documents are published", |report| report.counts.published > 100)?;
    stand.remote.want(Wanted::Cancel)?;
    let answer = publisher.wait()?;
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let result = stand.result()?;
    assert_eq!((result.state, result.counts.pending), (ConnectorState::Cancelled, result.counts.published), "nobody works: {result:?}");
    assert!(result.message.is_some_and(|message| message.contains(&format!("with {} documents pending", result.counts.pending))));
    Ok(())
}

#[test]
fn a_replaced_publisher_reads_that_it_is_suspended_before_it_publishes_anything() -> Result<()> {
    let stand = Stand::new("replaced.")?;
    let _role = stand.site.role("worker-indexer")?;
    let publisher = stand.publish()?;
    stand.wait_until_some_are_finished()?;
    drop(publisher);
    stand.remote.write_state(&stand.site.workdir, Wanted::Suspend)?;
    let records = stand.site.records("p_source")?;
    assert!(records < stand.versions.count as usize, "too late: all is published");
    let publisher = stand.publish()?;
    stand.remote.wait_for("what counts is indexed", |report| report.state == ConnectorState::Publishing && report.counts.pending == 0)?;
    stand.remote.stands_still(|report| report.suspended && report.counts.pending == 0)?;
    assert_eq!(stand.site.records("p_source")?, records, "nothing is published");
    stand.remote.want(Wanted::Run)?;
    stand.assert_complete(publisher.wait()?)
}

#[test]
fn a_replaced_publisher_that_reads_that_it_is_cancelled_counts_what_was_published() -> Result<()> {
    let stand = Stand::new("abandoned.")?;
    let role = stand.site.role("worker-indexer")?;
    let publisher = stand.publish()?;
    stand.wait_until_some_are_finished()?;
    stand.remote.want(Wanted::Suspend)?;
    stand.remote.wait_for("they are indexed", |report| report.counts.pending == 0)?;
    role.signal(Signal::SIGSTOP)?;
    stand.remote.want(Wanted::Run)?;
    stand.remote.wait_for("documents wait", |report| report.counts.pending > 50)?;
    // interrupted, it leaves them to its successor
    stand.remote.want(Wanted::Suspend)?;
    publisher.signal(Signal::SIGTERM)?;
    let answer = publisher.wait()?;
    assert_eq!((answer.code, stand.result()?.state), (Some(75), ConnectorState::Publishing), "{answer:?}");
    stand.remote.write_state(&stand.site.workdir, Wanted::Cancel)?;
    let publisher = stand.publish()?;
    stand.remote.wait_for("it waits for them", |report| report.counts.pending > 50)?;
    role.signal(Signal::SIGCONT)?;
    stand.assert_cancelled(publisher.wait()?)
}
