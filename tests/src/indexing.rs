//! Drives an indexer the way a worker does: lanes on threads of their own, documents by the hash of their id.

use penstock::{
    context::StepContext,
    document::{Document, Fields},
    event::{EventBatch, Outcome, Tag},
    indexers::{self, Backend, BackendError, DeadLetter, EventSink, IndexerLane, IndexerOutputs, IndexerStats, Letter},
    secrets::Secrets,
};
use penstock_crds::indexers::Indexer;
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::runtime::{Builder, Runtime};

/// An indexer of one step.
pub struct Indexing {
    runtime: Runtime,
    spec: Indexer,
    context: StepContext,
    outputs: IndexerOutputs,
    book: Arc<Book>,
    lanes: usize,
}

/// What has become of the documents so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Numbers of the documents that the backend has.
    pub finished: BTreeSet<u64>,
    /// Ids of the failed documents, with the reason.
    pub failed: BTreeMap<String, String>,
    /// Why the run must end.
    pub fatal: Vec<(String, bool)>,
}

#[derive(Default)]
struct Book(Mutex<Report>);

impl Book {
    fn with<T>(&self, change: impl FnOnce(&mut Report) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventSink for Book {
    fn report(&self, events: EventBatch) {
        self.with(|report| {
            if events.outcome == Outcome::Finished {
                for tag in events.tags() {
                    assert!(report.finished.insert(tag.seq), "document {} finished twice", tag.seq);
                }
            }
            for detail in &events.details {
                assert_eq!(report.failed.get(&detail.id), Some(&detail.reason), "the dead letter comes before the event");
            }
        });
    }
}

impl DeadLetter for Book {
    fn keep(&self, letter: Letter<'_>) -> std::io::Result<()> {
        self.with(|report| report.failed.insert(letter.id.to_owned(), letter.reason.to_owned()));
        Ok(())
    }
}

impl Indexing {
    /// An indexer with these settings (YAML); its secrets are in that folder.
    pub fn new(settings: &str, secrets: Option<PathBuf>, lanes: usize) -> Self {
        let spec: Indexer = serde_yaml_ng::from_str(settings).expect(settings);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
        let context = StepContext {
            run: "run".into(),
            run_id: "run-1".into(),
            connector: "connector".into(),
            pipeline: "pipeline".into(),
            base_dir: PathBuf::new(),
            run_base_dir: PathBuf::new(),
            secrets: Secrets::new(secrets),
            runtime: runtime.handle().clone(),
            stop: Default::default(),
            is_continuous: false,
            written: Default::default(),
        };
        let book = Arc::<Book>::default();
        let fatal = book.clone();
        let outputs = IndexerOutputs {
            events: book.clone(),
            dead_letter: book.clone(),
            epoch: 1,
            attempt: 1,
            stats: Arc::default(),
            stop: context.stop.clone(),
            fatal: Arc::new(move |error| fatal.with(|report| report.fatal.push((error.to_string(), error.unreachable)))),
        };
        Self { runtime, spec, context, outputs, book, lanes }
    }

    /// Its figures.
    pub fn stats(&self) -> &IndexerStats {
        &self.outputs.stats
    }

    /// What has become of the documents so far.
    pub fn report(&self) -> Report {
        self.book.with(|report| report.clone())
    }

    /// Asks the backend whether it can be used.
    pub fn check(&self) -> Result<(), BackendError> {
        self.runtime.block_on(self.backend()?.check())
    }

    /// Indexes documents numbered from 1, and waits until each lane has drained or closed.
    pub fn index(&self, documents: Vec<Document>) -> Report {
        let backend = self.backend().expect("backend");
        let mut lanes: Vec<Vec<(Document, Tag)>> = (0..self.lanes).map(|_| Vec::new()).collect();
        for (position, document) in documents.into_iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            document.id().hash(&mut hasher);
            lanes[hasher.finish() as usize % self.lanes].push((document, Tag::source(position as u64 + 1)));
        }
        std::thread::scope(|scope| {
            for documents in lanes {
                let lane = IndexerLane::start(backend.clone(), &self.spec, self.outputs.clone(), self.runtime.handle());
                scope.spawn(move || drive(lane, documents));
            }
        });
        self.report()
    }

    fn backend(&self) -> Result<Arc<dyn Backend>, BackendError> {
        indexers::build(&self.spec, &self.context)
    }
}

/// A closed lane is no error here: the report says why it closed.
fn drive(mut lane: IndexerLane, documents: Vec<(Document, Tag)>) {
    for (document, tag) in documents {
        let is_due = lane.deadline().is_some_and(|due| due <= Instant::now());
        if (is_due && lane.flush().is_err()) || lane.accept(document, tag).is_err() {
            return;
        }
    }
    let _ = lane.drain();
}

/// A document with these fields (JSON).
pub fn document(id: &str, fields: &str) -> Document {
    Document::with_fields(id, Fields::from_json(fields.as_bytes()).expect(fields))
}
