//! The lane and its sender together, against a backend that does what it is told.

use super::{
    Answer, Backend, BackendError, Content, DeadLetter, EventSink, IndexerLane, IndexerOutputs, ItemAnswer, LaneClosed, Letter, Needs,
    Refusal, Rejected, Request,
};
use crate::{
    document::{Document, Value},
    event::{EventBatch, Outcome, Tag},
};
use async_trait::async_trait;
use parking_lot::Mutex;
use penstock_crds::indexers::Indexer;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, sync::Semaphore};

type Script = Box<dyn Fn(&[&str]) -> Answer + Send>;

/// Keeps the last operation of each id; the script may answer otherwise.
struct Scripted {
    script: Mutex<VecDeque<Script>>,
    content: Mutex<BTreeMap<String, String>>,
    requests: Mutex<Vec<Vec<String>>>,
    needs: Needs,
    /// One permit lets one request through.
    gate: Option<Semaphore>,
}

impl Scripted {
    fn new(script: Vec<Script>) -> Self {
        let needs = Needs { distinct_ids: true, keep_documents: true };
        Self { script: Mutex::new(script.into()), content: Mutex::default(), requests: Mutex::default(), needs, gate: None }
    }
}

#[async_trait]
impl Backend for Scripted {
    fn needs(&self) -> Needs {
        self.needs
    }

    async fn check(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        if document.fields().contains("bad") {
            return Err(Rejected("it is bad".into()));
        }
        document.write_json(body);
        Ok(())
    }

    async fn send(&self, request: &Request, items: &[u32]) -> Answer {
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("gate").forget();
        }
        let ids: Vec<&str> = items.iter().map(|item| request.items[*item as usize].id.as_str()).collect();
        self.requests.lock().push(ids.iter().map(|id| (*id).to_owned()).collect());
        let script = self.script.lock().pop_front();
        let answer = script.map_or(Answer::Done, |script| script(&ids));
        for (position, item) in items.iter().enumerate() {
            let done = match &answer {
                Answer::Done => true,
                Answer::Items(answers) => answers[position] == ItemAnswer::Done,
                _ => false,
            };
            if done {
                let body = String::from_utf8_lossy(request.part(*item)).into_owned();
                self.content.lock().insert(request.items[*item as usize].id.to_string(), body);
            }
        }
        answer
    }
}

/// Notes what is reported, in order.
#[derive(Default)]
struct Book {
    lines: Mutex<Vec<String>>,
    full: AtomicBool,
}

impl EventSink for Book {
    fn report(&self, events: EventBatch) {
        for tag in events.tags() {
            self.lines.lock().push(format!("{} {}", events.outcome.as_str(), tag.seq));
        }
        assert_eq!(events.details.len(), if events.outcome == Outcome::Finished { 0 } else { events.len() });
    }
}

impl DeadLetter for Book {
    fn keep(&self, letter: Letter<'_>) -> std::io::Result<()> {
        if self.full.load(Relaxed) {
            return Err(std::io::Error::other("disk full"));
        }
        assert!(matches!(letter.content, Content::Document(document) if document.id() == letter.id));
        self.lines.lock().push(format!("letter {} {} {} ({})", letter.id, letter.stage, letter.reason, letter.attempts));
        Ok(())
    }
}

/// A lane over a scripted backend.
struct Stand {
    runtime: Runtime,
    backend: Arc<Scripted>,
    book: Arc<Book>,
    outputs: IndexerOutputs,
    fatal: Arc<Mutex<Vec<BackendError>>>,
}

impl Stand {
    fn new(backend: Scripted) -> Self {
        let book = Arc::<Book>::default();
        let fatal = Arc::<Mutex<Vec<BackendError>>>::default();
        let keep = fatal.clone();
        let outputs = IndexerOutputs {
            events: book.clone(),
            dead_letter: book.clone(),
            epoch: 1,
            attempt: 1,
            stats: Arc::default(),
            stop: Default::default(),
            fatal: Arc::new(move |error| keep.lock().push(error)),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime");
        Self { runtime, backend: Arc::new(backend), book, outputs, fatal }
    }

    fn lane(&self, settings: &str) -> IndexerLane {
        let json = format!(r#"{{"nop":{{}},"retry":{{"initialBackoff":"1ms","maxBackoff":"2ms","maxElapsed":"50ms"}}{settings}}}"#);
        let spec: Indexer = serde_json::from_str(&json).expect(settings);
        IndexerLane::start(self.backend.clone(), &spec, self.outputs.clone(), self.runtime.handle())
    }

    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.book.lines.lock())
    }
}

fn document(id: &str, field: &str, value: i64) -> Document {
    let mut document = Document::new(id);
    document.fields_mut().insert(field, Value::Int(value));
    document
}

fn busy() -> ItemAnswer {
    ItemAnswer::Busy(Refusal { reason: "429".into(), retry_after: None })
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < limit, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn of_two_documents_of_one_id_the_second_stands_though_the_first_was_refused_x10() {
    let first_is_busy: Script =
        Box::new(|ids| Answer::Items(ids.iter().map(|id| if *id == "a" { busy() } else { ItemAnswer::Done }).collect()));
    let stand = Stand::new(Scripted::new(vec![first_is_busy]));
    let mut lane = stand.lane(r#","batch":{"maxInFlight":4}"#);
    for (seq, (id, value)) in [("a", 1), ("b", 1), ("a", 2), ("c", 1)].into_iter().enumerate() {
        lane.accept(document(id, "v", value), Tag::source(seq as u64)).expect("accepted");
    }
    lane.drain().expect("drained");
    assert_eq!(stand.backend.content.lock()["a"], r#"{"v":2}"#);
    assert_eq!(*stand.backend.requests.lock(), [vec!["a", "b"], vec!["a"], vec!["a", "c"]]);
    let finished: Vec<String> = stand.lines();
    assert_eq!(finished, ["finished 1", "finished 0", "finished 2", "finished 3"]);
}

#[test]
fn a_document_that_fails_is_in_the_dead_letter_before_its_event_x4() {
    let script: Script = Box::new(|_| Answer::Items(vec![ItemAnswer::Done, ItemAnswer::Failed("400: no number".into())]));
    let stand = Stand::new(Scripted::new(vec![script]));
    let mut lane = stand.lane("");
    lane.accept(document("a", "v", 1), Tag::source(1)).expect("accepted");
    lane.accept(document("b", "bad", 1), Tag::source(2)).expect("accepted, and failed at once");
    lane.accept(document("c", "v", 1), Tag::source(3)).expect("accepted");
    lane.drain().expect("drained");
    assert_eq!(
        stand.lines(),
        ["letter b indexer it is bad (1)", "failed 2", "finished 1", "letter c indexer 400: no number (1)", "failed 3"]
    );
    assert_eq!(stand.outputs.stats.failed.load(Relaxed), 2);
}

#[test]
fn documents_that_failed_are_not_counted_as_indexed_m3() {
    let script: Script = Box::new(|_| Answer::Items(vec![ItemAnswer::Done, ItemAnswer::Failed("400".into()), ItemAnswer::Stale]));
    let stand = Stand::new(Scripted::new(vec![script]));
    let mut lane = stand.lane("");
    for (seq, id) in (1..).zip(["a", "b", "c"]) {
        lane.accept(document(id, "v", 1), Tag::source(seq)).expect("accepted");
    }
    lane.drain().expect("drained");
    let stats = &stand.outputs.stats;
    assert_eq!([&stats.finished, &stats.failed, &stats.stale, &stats.batches].map(|count| count.load(Relaxed)), [2, 1, 1, 1]);
}

#[test]
fn a_dead_letter_that_cannot_be_written_ends_the_run_without_the_event() {
    for bad in [true, false] {
        let script: Script = Box::new(|_| Answer::Items(vec![ItemAnswer::Failed("no".into())]));
        let stand = Stand::new(Scripted::new(vec![script]));
        stand.book.full.store(true, Relaxed);
        let mut lane = stand.lane("");
        let accepted = lane.accept(document("a", if bad { "bad" } else { "v" }, 1), Tag::source(1));
        assert_eq!(accepted, if bad { Err(LaneClosed) } else { Ok(()) });
        if !bad {
            assert_eq!(lane.drain(), Err(LaneClosed));
        }
        assert!(stand.lines().is_empty());
        assert!(stand.fatal.lock()[0].message.contains("disk full"));
    }
}

#[test]
fn batches_end_by_count_and_by_bytes_and_a_large_document_travels_alone() {
    let stand = Stand::new(Scripted::new(vec![]));
    let mut lane = stand.lane(r#","batch":{"maxDocuments":2,"maxBytes":"40"}"#);
    let long = |id: &str| {
        let mut document = Document::new(id);
        document.fields_mut().insert("v", Value::from("x".repeat(100)));
        document
    };
    for (seq, document) in
        [document("a", "v", 1), document("b", "v", 1), document("c", "v", 1), long("d"), document("e", "v", 1)].into_iter().enumerate()
    {
        lane.accept(document, Tag::source(seq as u64)).expect("accepted");
    }
    lane.drain().expect("drained");
    assert_eq!(*stand.backend.requests.lock(), [vec!["a", "b"], vec!["c"], vec!["d"], vec!["e"]]);
    assert_eq!(stand.backend.content.lock()["e"], r#"{"v":1}"#);
}

#[test]
fn a_batch_is_due_by_its_first_document_x16() {
    let stand = Stand::new(Scripted::new(vec![]));
    let mut lane = stand.lane(r#","batch":{"maxAge":"1h"}"#);
    assert_eq!(lane.deadline(), None);
    lane.accept(document("a", "v", 1), Tag::source(1)).expect("accepted");
    let due = lane.deadline().expect("a deadline");
    for seq in 2..10 {
        lane.accept(document("b", "v", 1), Tag::source(seq)).expect("accepted");
        // the same id again: batches of one, each with a deadline of its own
        assert!(lane.deadline().expect("a deadline") >= due);
    }
    let due = lane.deadline();
    lane.accept(document("c", "v", 1), Tag::source(10)).expect("accepted");
    assert_eq!(lane.deadline(), due, "later documents do not move it");
    lane.flush().expect("flushed");
    assert_eq!(lane.deadline(), None);
    lane.drain().expect("drained");
    assert_eq!(stand.lines().len(), 10);
}

#[test]
fn a_slow_backend_holds_up_the_lane_and_memory_stays_bounded() {
    let stand = Stand::new(Scripted { gate: Some(Semaphore::new(0)), ..Scripted::new(vec![]) });
    let mut lane = stand.lane(r#","batch":{"maxDocuments":1,"maxInFlight":2}"#);
    let accepted = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = accepted.clone();
    let thread = std::thread::spawn(move || {
        for seq in 0..50 {
            lane.accept(document(&seq.to_string(), "v", 1), Tag::source(seq))?;
            count.fetch_add(1, Relaxed);
        }
        lane.drain()
    });
    until("backpressure", || stand.outputs.stats.in_flight.load(Relaxed) == 2 && accepted.load(Relaxed) >= 3);
    std::thread::sleep(Duration::from_millis(50));
    assert!(accepted.load(Relaxed) <= 4, "two in flight, one waiting, one open");
    stand.backend.gate.as_ref().expect("gate").add_permits(1000);
    thread.join().expect("thread").expect("drained");
    assert_eq!(stand.lines().len(), 50);
}

#[test]
fn a_stopped_lane_gives_up_and_leaves_its_documents_pending() {
    let stand = Stand::new(Scripted { gate: Some(Semaphore::new(0)), ..Scripted::new(vec![]) });
    let mut lane = stand.lane("");
    lane.accept(document("a", "v", 1), Tag::source(1)).expect("accepted");
    lane.flush().expect("flushed");
    until("a request in flight", || stand.outputs.stats.in_flight.load(Relaxed) == 1);
    stand.outputs.stop.cancel();
    assert_eq!(lane.drain(), Err(LaneClosed));
    assert!(stand.lines().is_empty() && stand.fatal.lock().is_empty());
    assert_eq!(stand.outputs.stats.in_flight.load(Relaxed), 0);
}

#[test]
fn a_lost_backend_ends_the_run_with_documents_pending_lucille_12_8() {
    let refuse = || -> Script { Box::new(|_| Answer::Outage(Refusal { reason: "connection refused".into(), retry_after: None })) };
    let stand = Stand::new(Scripted::new((0..10_000).map(|_| refuse()).collect()));
    let mut lane = stand.lane("");
    lane.accept(document("a", "v", 1), Tag::source(1)).expect("accepted");
    assert_eq!(lane.drain(), Err(LaneClosed));
    assert!(stand.lines().is_empty(), "neither finished nor failed");
    let fatal = stand.fatal.lock();
    assert!(fatal[0].unreachable && fatal[0].message.contains("connection refused"), "{:?}", fatal[0]);
    assert_eq!(stand.outputs.stats.outages.load(Relaxed), 1);
    assert_eq!(stand.outputs.stats.waiting_lanes.load(Relaxed), 0);
}

#[test]
fn a_lane_is_open_until_the_cause_of_its_end_is_told() {
    let script: Script = Box::new(|_| Answer::Fatal(BackendError { message: "disk full".into(), unreachable: false, source: None }));
    let mut stand = Stand::new(Scripted::new(vec![script]));
    let (entered, told) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    stand.outputs.fatal = Arc::new(move |error| {
        entered.send(error.message).expect("the test listens");
        let _ = released.lock().recv();
    });
    let mut lane = stand.lane(r#","batch":{"maxDocuments":1}"#);
    lane.accept(document("a", "v", 1), Tag::source(1)).expect("accepted");
    assert_eq!(told.recv().expect("told"), "disk full");
    assert_eq!(lane.accept(document("b", "v", 1), Tag::source(2)), Ok(()), "whoever finds it closed can rely on a cause");
    drop(release);
    assert_eq!(lane.drain(), Err(LaneClosed));
}

#[test]
fn an_error_inside_the_backend_ends_the_run_instead_of_hanging_s19() {
    let script: Script = Box::new(|_| panic!("a fault of the backend"));
    let stand = Stand::new(Scripted::new(vec![script]));
    let mut lane = stand.lane("");
    lane.accept(document("a", "v", 1), Tag::source(1)).expect("accepted");
    assert_eq!(lane.drain(), Err(LaneClosed));
    assert!(stand.fatal.lock()[0].message.contains("panicked") && stand.lines().is_empty());
}

#[test]
fn a_backend_that_does_not_mind_gets_an_id_twice_in_one_request_and_one_request_at_a_time() {
    let scripted = Scripted::new(vec![]);
    let stand = Stand::new(Scripted { needs: Needs::default(), gate: Some(Semaphore::new(0)), ..scripted });
    let mut lane = stand.lane(r#","batch":{"maxDocuments":2,"maxInFlight":8}"#);
    for seq in 0..4 {
        lane.accept(document("a", "v", seq), Tag::source(seq as u64)).expect("accepted");
    }
    until("a request in flight", || stand.outputs.stats.in_flight.load(Relaxed) == 1);
    stand.backend.gate.as_ref().expect("gate").add_permits(1000);
    lane.drain().expect("drained");
    assert_eq!(*stand.backend.requests.lock(), [["a", "a"], ["a", "a"]]);
    assert_eq!(stand.backend.content.lock()["a"], r#"{"v":3}"#);
}
