//! Steps with parts that fail in ways that no part of ours should, and the failure policy.

use super::{
    step::{Built, Limits, Step},
    *,
};
use crate::{
    connectors::{self, ConnectorError, Cursor, Publish, RecordFault},
    document::Document,
    indexers::{Answer, Backend, BackendError, DeadLetter, Letter, Needs, Rejected, Request},
    pipeline::Plan,
    stages::testing::context_in,
};
use async_trait::async_trait;
use penstock_crds::conditions::{ConnectorState, Reason};
use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

/// What a step needs around its parts.
pub(super) struct Stand {
    runtime: tokio::runtime::Runtime,
    connector: Connector,
    pipeline: PipelineSpec,
    figures: Arc<StepFigures>,
    dead_letter: Arc<Letters>,
    max_failed: Option<u64>,
}

/// Takes letters, or none.
#[derive(Default)]
struct Letters {
    is_full: AtomicBool,
}

impl DeadLetter for Letters {
    fn keep(&self, _: Letter<'_>) -> io::Result<()> {
        if self.is_full.load(SeqCst) { Err(io::Error::other("disk full")) } else { Ok(()) }
    }
}

impl Stand {
    /// For a connector with these settings.
    pub(super) fn new(settings: &str) -> Self {
        let mut connector: serde_json::Value = serde_json::from_str(settings).expect(settings);
        connector["name"] = "c".into();
        connector["pipeline"] = "p".into();
        let pipeline = serde_json::json!({"workers": {"threads": 2}, "stages": [], "indexer": {"batch": {"maxAge": "1ms"}, "nop": {}}});
        Self {
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime"),
            connector: serde_json::from_value(connector).expect(settings),
            pipeline: serde_json::from_value(pipeline).expect("pipeline"),
            figures: Arc::new(StepFigures {
                connector: "c".into(),
                pipeline: "p".into(),
                state: StepState::new(),
                indexer: Arc::default(),
                stages: Arc::new(StageFigures::new(&[])),
            }),
            dead_letter: Arc::default(),
            max_failed: None,
        }
    }

    pub(super) fn step(&self) -> Step<'_> {
        let mut context = context_in(Path::new("/nonexistent"));
        context.runtime = self.runtime.handle().clone();
        Step {
            connector: &self.connector,
            pipeline: &self.pipeline,
            dead_letter: self.dead_letter.clone(),
            context,
            control: Control::new(Duration::from_secs(30)),
            health: Health::new(None),
            state: Arc::clone(&self.figures.state),
            figures: Arc::clone(&self.figures),
            couriers: Vec::new(),
            limits: Limits {
                max_failed: self.max_failed,
                documents: None,
                progress_deadline: Duration::from_secs(600),
                cancel_grace: Duration::from_secs(300),
                exit_on_stuck: false,
            },
        }
    }

    /// So many documents were published.
    pub(super) fn published(&self, published: u64) {
        self.figures.state.set_counts(Counts { published, pending: published, ..Counts::default() });
        self.figures.state.set_published(published);
    }

    fn run(&self, connector: impl connectors::Connector + 'static, backend: Faulty) -> StepEnd {
        self.step().run_with(|step| {
            let plan = Plan::compile(&step.pipeline.stages, &step.context)?;
            Ok(Built { plan, backend: Arc::new(backend), connector: Box::new(connector) })
        })
    }
}

/// A connector that does what a test says.
struct Scripted<E> {
    execute: E,
    closes: bool,
    was_closed: Arc<AtomicBool>,
}

impl<E> Scripted<E>
where
    E: FnMut(&mut dyn Publish) -> Result<(), ConnectorError> + Send,
{
    fn new(execute: E) -> Self {
        Self { execute, closes: true, was_closed: Arc::default() }
    }
}

impl<E> connectors::Connector for Scripted<E>
where
    E: FnMut(&mut dyn Publish) -> Result<(), ConnectorError> + Send,
{
    fn has_cursor(&self) -> bool {
        false
    }

    fn execute(&mut self, publish: &mut dyn Publish, _: Option<&connectors::ResumeFrom>) -> Result<(), ConnectorError> {
        (self.execute)(publish)
    }

    fn close(&mut self) -> Result<(), ConnectorError> {
        self.was_closed.store(true, SeqCst);
        if self.closes { Ok(()) } else { Err(ConnectorError::new("the session is gone")) }
    }
}

/// How a backend behaves.
#[derive(Clone, Copy, PartialEq)]
enum Faulty {
    /// It takes everything.
    No,
    /// It panics on the lane's own thread.
    Panics,
    /// It never answers.
    Silent,
}

#[async_trait]
impl Backend for Faulty {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    async fn check(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        assert!(*self != Self::Panics, "cannot encode {}", document.id());
        body.push(b'.');
        Ok(())
    }

    async fn send(&self, _: &Request, _: &[u32]) -> Answer {
        if *self == Self::Silent {
            std::future::pending::<()>().await;
        }
        Answer::Done
    }
}

fn publish(publish: &mut dyn Publish, documents: u64) -> Result<(), connectors::Stopped> {
    (0..documents).try_for_each(|n| publish.publish(Document::new(n.to_string()), Cursor::default()))
}

/// A connector that gives so many documents, fewer if it is stopped.
fn giving(documents: u64) -> Scripted<impl FnMut(&mut dyn Publish) -> Result<(), ConnectorError> + Send> {
    Scripted::new(move |to| {
        let _ = publish(to, documents);
        Ok(())
    })
}

fn fault() -> RecordFault {
    RecordFault { id: String::new(), reason: "x.csv:2: a field too many".into(), raw: b"a,b".to_vec() }
}

const SEQUENCE: &str = r#"{"sequence": {"count": 1}}"#;

#[test]
fn a_panic_of_the_connector_fails_the_step_and_what_it_gave_is_processed_s4_x7_p13() {
    let stand = Stand::new(SEQUENCE);
    let connector = Scripted::new(|to| {
        publish(to, 3).expect("open");
        panic!("out of luck");
    });
    let was_closed = Arc::clone(&connector.was_closed);
    let end = stand.run(connector, Faulty::No);
    assert_eq!((end.state, end.failure), (State::Failed, Some(FailureClass::Internal)));
    assert_eq!(end.report.counts, Counts { published: 3, finished: 3, ..Counts::default() });
    let message = end.report.message.expect("message");
    assert!(message.starts_with("the connector panicked: out of luck"), "{message}");
    assert!(was_closed.load(SeqCst), "it is closed all the same");
}

#[test]
fn a_panic_in_a_lane_ends_the_run_instead_of_hanging_s9() {
    let stand = Stand::new(SEQUENCE);
    let end = stand.run(giving(1), Faulty::Panics);
    assert_eq!((end.state, end.failure), (State::Failed, Some(FailureClass::Internal)));
    assert_eq!(end.report.counts, Counts { published: 1, pending: 1, ..Counts::default() });
    assert!(end.report.message.expect("message").starts_with("a worker panicked: cannot encode 0"));
}

#[test]
fn a_connector_that_cannot_be_closed_leaves_its_step_successful_s26() {
    let stand = Stand::new(SEQUENCE);
    let end = stand.run(Scripted { closes: false, ..giving(3) }, Faulty::No);
    assert_eq!((end.state, end.failure, end.report.message), (State::Succeeded, None, None));
    assert_eq!(end.report.counts, Counts { published: 3, finished: 3, ..Counts::default() });
}

#[test]
fn a_timeout_stops_the_connector_and_tells_what_is_pending_p14_s28() {
    let stand = Stand::new(r#"{"timeout": "100ms", "maxPending": 5, "sequence": {"count": 1}}"#);
    let was_stopped = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&was_stopped);
    let connector = Scripted::new(move |to| {
        tell.store(publish(to, u64::MAX).is_err(), SeqCst);
        Ok(())
    });
    let was_closed = Arc::clone(&connector.was_closed);
    let end = stand.run(connector, Faulty::Silent);
    assert_eq!((end.state, end.failure), (State::Failed, Some(FailureClass::Failed)));
    assert_eq!(end.report.counts, Counts { published: 5, pending: 5, ..Counts::default() });
    assert_eq!(end.report.message.as_deref(), Some("not done within its timeout of 100ms, with 5 documents pending"));
    assert!(was_stopped.load(SeqCst) && was_closed.load(SeqCst), "the connector's thread has ended");
}

#[test]
fn a_step_with_too_many_failures_stops_reading_and_finishes_what_it_took() {
    let stand = Stand { max_failed: Some(1), ..Stand::new(r#"{"maxPending": 1, "sequence": {"count": 1}}"#) };
    let endless = |to: &mut dyn Publish| {
        while publish(to, 1).is_ok() && to.fail(fault(), Cursor::default()).is_ok() {}
        Ok(())
    };
    let end = stand.run(Scripted::new(endless), Faulty::No);
    assert_eq!((end.state, end.failure), (State::Failed, Some(FailureClass::Failed)));
    let counts = end.report.counts;
    assert!(counts.failed >= 2 && counts.pending == 0 && counts.published == counts.finished + counts.failed, "{counts:?}");
    assert_eq!(end.report.message.as_deref(), Some("2 documents failed, more than the 1 that are allowed"));
}

#[test]
fn a_step_that_has_failed_must_still_end_in_time_s28() {
    let stand = Stand { max_failed: Some(0), ..Stand::new(r#"{"timeout": "100ms", "sequence": {"count": 1}}"#) };
    let connector = Scripted::new(|to| {
        // stopped or not, the backend never answers
        let _ = publish(to, 1).and_then(|()| to.fail(fault(), Cursor::default()));
        Ok(())
    });
    let end = stand.run(connector, Faulty::Silent);
    assert_eq!(end.report.counts, Counts { published: 2, failed: 1, pending: 1, ..Counts::default() });
    assert_eq!(end.report.message.as_deref(), Some("1 document failed, more than the 0 that are allowed"), "the first error is the cause");
}

#[test]
fn an_unreadable_record_that_cannot_be_kept_fails_the_step_s39() {
    let stand = Stand::new(SEQUENCE);
    stand.dead_letter.is_full.store(true, SeqCst);
    let connector = Scripted::new(|to| {
        publish(to, 2).expect("open");
        assert!(to.fail(fault(), Cursor::default()).is_err());
        Ok(())
    });
    let end = stand.run(connector, Faulty::No);
    assert_eq!((end.state, end.failure), (State::Failed, Some(FailureClass::Failed)));
    assert_eq!(end.report.counts, Counts { published: 3, finished: 2, pending: 1, ..Counts::default() }, "not reported as failed");
    let message = end.report.message.expect("message");
    assert!(message.contains("--dead-letter") && message.ends_with("disk full"), "{message}");
}

#[test]
fn a_share_of_failed_documents_is_counted_of_all_with_children() {
    let cases = [
        (None, 10, 0, 10, true),
        (Some(0), 10, 0, 0, true),
        (Some(0), 10, 0, 1, false),
        (Some(10), 10, 0, 1, true),
        (Some(10), 10, 0, 2, false),
        (Some(10), 10, 10, 2, true),
        (Some(33), 3, 0, 1, false),
        (Some(34), 3, 0, 1, true),
        (Some(100), 3, 0, 3, true),
        (Some(0), 0, 0, 0, true),
    ];
    for (percent, published, created, failed, is_allowed) in cases {
        let policy = percent.map(|percent| FailurePolicy { max_failed_percent: Some(percent), ..FailurePolicy::default() });
        let counts = Counts { published, created, failed, ..Counts::default() };
        assert_eq!(check_failure_policy(policy.as_ref(), &counts).is_ok(), is_allowed, "{percent:?} of {counts:?}");
    }
}

#[test]
fn a_step_that_the_policy_fails_is_never_shown_as_succeeded() {
    let folder = tempfile::tempdir().expect("folder");
    let text = "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  mode: Local\n  indexer: {nop: {}}\n  \
        stages: [{remap: {source: 'assert!(%id != \"2\", \"no\")'}}]\n---\n\
        apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata: {name: r}\nspec:\n  failurePolicy: {maxFailedPercent: 10}\n  \
        connectors: [{name: c, pipeline: p, sequence: {count: 4}}, {name: d, pipeline: p, sequence: {count: 1}}]\n";
    let file = folder.path().join("m.yaml");
    std::fs::write(&file, text).expect("file");
    let manifests = crate::manifest::load(&[file], &crate::manifest::LoadOptions::default()).expect("valid");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime");
    let options = RunOptions {
        run_id: "r-1".into(),
        secrets: Secrets::default(),
        limit: None,
        max_failed: None,
        exit_on_stuck: false,
        dead_letter: Arc::new(DeadLetterFile::new(folder.path().join("failed.jsonl"))),
        control: Control::new(Duration::from_secs(1)),
        health: Health::new(None),
        over_memory: false,
        kafka: Default::default(),
        only: None,
        runtime: runtime.handle().clone(),
    };
    let figures = RunFigures::new("r", 2);
    let end = Run::new(&manifests, &manifests.runs[0], options).execute(&figures);
    let states: Vec<_> = end.summary.connectors.iter().map(|step| step.state).collect();
    assert_eq!((end.summary.phase, states), (State::Failed, vec![State::Failed, State::Skipped]));
    let shown: Vec<_> = figures.ended().into_iter().map(|step| (step.state, step.reason, step.message)).collect();
    let (state, reason) = (ConnectorState::Failed, Some(Reason::TooManyFailures));
    assert_eq!(shown, [(state, reason, Some("1 document failed, more than the 10 % of 4 that are allowed".into()))]);
}
