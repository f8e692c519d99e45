//! A full-text index in a directory: nothing else is needed to search what was ingested. Kept by Tantivy.
//!
//! Nothing of a step is visible before its commit, which is atomic and durable: after a crash, whenever it was, the index is in the
//! state of the last commit, and the next run opens it as it is (the lock of a killed process falls with it).

mod document;
mod layout;
mod query;
mod range;
mod search;
mod seen;
#[cfg(test)]
mod tests;

pub use layout::OpenError;
pub use query::QueryError;
pub use search::{Found, Hit, Search, SearchError};

use super::{
    Answer, Backend, BackendError, Needs, Projection, Rejected, Request,
    blocking::blocking,
    output_file::{make_folders, remove_folders},
};
use crate::{
    context::StepContext,
    document::{Document, Key, Value},
};
use async_trait::async_trait;
use document::Queued;
use layout::Layout;
use parking_lot::RwLock;
use penstock_crds::indexers::Embedded as Spec;
use seen::SeenIds;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tantivy::{
    IndexWriter, Searcher, TantivyError, Term,
    indexer::{IndexWriterOptions, UserOperation},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory of all indexing threads; when one has used up its part, it writes a segment to the disk.
const MEMORY: usize = 48_000_000;
/// What the library asks for at least, for each thread.
const MEMORY_OF_A_THREAD: usize = 15_000_000;
/// Kibibytes of JSON that may wait for an indexing thread.
const ROOM: usize = 4 * 1024;
/// How long room is waited for before the indexing threads are looked after.
const PATIENCE: Duration = Duration::from_millis(500);
/// Documents that are handed over at once.
const CHUNK: usize = 64;
/// The longest id, in bytes: the index has no longer words.
const LONGEST_ID: usize = 32_768;

/// The index as one step writes it.
pub struct Embedded {
    path: PathBuf,
    projection: Projection,
    room: Arc<Semaphore>,
    open: RwLock<Option<Writing>>,
}

/// An index that is open for writing. Dropping it without a commit leaves the index as it was.
struct Writing {
    path: PathBuf,
    layout: Layout,
    /// `None` once it is committed.
    writer: Option<IndexWriter<Queued>>,
    /// The index as the step found it.
    before: Searcher,
    seen: SeenIds,
    /// Whether this step has made the index, and which folders for it.
    created: bool,
    made: Vec<PathBuf>,
}

impl Embedded {
    /// For one step. Nothing is opened before [`Backend::check`].
    pub fn new(spec: &Spec, projection: Projection, step: &StepContext) -> Self {
        let room = Arc::new(Semaphore::new(ROOM));
        Self { path: step.resolve(&spec.path), projection, room, open: RwLock::new(None) }
    }

    /// Waits until the indexing threads have kept up. So memory stays bounded, whatever they are given.
    async fn make_room(&self, bytes: usize) -> Result<Arc<OwnedSemaphorePermit>, BackendError> {
        let kibibytes = (bytes / 1024 + 1).min(ROOM) as u32;
        loop {
            let room = Arc::clone(&self.room).acquire_many_owned(kibibytes);
            if let Ok(Ok(room)) = tokio::time::timeout(PATIENCE, room).await {
                return Ok(Arc::new(room));
            }
            // threads that have ended (a full disk) make no room: what they were given stays in their queue
            self.open.read().as_ref().ok_or_else(|| self.not_open())?.probe()?;
        }
    }

    fn add(&self, request: &Request, items: &[u32], room: &Arc<OwnedSemaphorePermit>) -> Result<(), BackendError> {
        let open = self.open.read();
        let Some(open) = &*open else { return Err(self.not_open()) };
        let mut operations = Vec::with_capacity(2 * items.len());
        for item in items {
            open.push_operations(&self.projection, &request.documents[*item as usize], request.part(*item), room, &mut operations)?;
        }
        open.run(operations)
    }

    /// Ends the writing for good: what is half-written must never be committed.
    fn give_up(&self, error: BackendError) -> Answer {
        let broken = self.open.write().take();
        Answer::Fatal(blocking(|| broken.and_then(Writing::fault)).unwrap_or(error))
    }

    fn not_open(&self) -> BackendError {
        let message = format!("index {}: it is not open (anymore): an earlier write failed", self.path.display());
        BackendError { message, unreachable: false, source: None }
    }
}

#[async_trait]
impl Backend for Embedded {
    fn needs(&self) -> Needs {
        Needs { distinct_ids: false, keep_documents: true }
    }

    async fn check(&self) -> Result<(), BackendError> {
        let writing = blocking(|| Writing::begin(&self.path))?;
        *self.open.write() = Some(writing);
        Ok(())
    }

    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        let id = self.projection.id(document)?;
        if id.len() > LONGEST_ID {
            return Err(Rejected(format!("the id has {} bytes; the index takes {LONGEST_ID} at most", id.len())));
        }
        if !self.projection.deletes(document) {
            self.projection.write_json(document, None, body);
        }
        Ok(())
    }

    async fn send(&self, request: &Request, items: &[u32]) -> Answer {
        for chunk in items.chunks(CHUNK) {
            let bytes = chunk.iter().map(|item| request.part(*item).len()).sum();
            let added = match self.make_room(bytes).await {
                Ok(room) => blocking(|| self.add(request, chunk, &room)),
                Err(error) => Err(error),
            };
            if let Err(error) = added {
                return self.give_up(error);
            }
        }
        Answer::Done
    }

    async fn commit(&self) -> Result<(), BackendError> {
        let open = self.open.write().take();
        let Some(open) = open else { return Err(self.not_open()) };
        blocking(|| open.commit())
    }

    async fn abandon(&self) {
        let open = self.open.write().take();
        blocking(|| drop(open));
    }
}

impl Writing {
    fn begin(path: &Path) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder { path: path.into(), what: "its directory cannot be made", source };
        // the directory itself is the last of the folders above a name in it
        let made = make_folders(&path.join("meta.json")).map_err(folder)?;
        Self::begin_in(path, &made).inspect_err(|_| remove_folders(&made))
    }

    fn begin_in(path: &Path, made: &[PathBuf]) -> Result<Self, OpenError> {
        let failed = |error| OpenError::failed(path, "it cannot be opened for writing", error);
        let opened = layout::open_or_create(path)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MEMORY / MEMORY_OF_A_THREAD);
        let options = IndexWriterOptions::builder()
            .num_worker_threads(threads)
            .memory_budget_per_thread(MEMORY / threads)
            .num_merge_threads(1)
            .build();
        let writer = opened.index.writer_with_options(options).map_err(failed)?;
        let before = opened.index.reader().map_err(failed)?.searcher();
        Ok(Self {
            path: path.into(),
            layout: opened.layout,
            writer: Some(writer),
            before,
            seen: SeenIds::new(),
            created: opened.created,
            made: made.to_vec(),
        })
    }

    /// Appends what has to be done for a document. Without a source it is deleted.
    fn push_operations(
        &self,
        projection: &Projection,
        document: &Document,
        source: &[u8],
        room: &Arc<OwnedSemaphorePermit>,
        operations: &mut Vec<UserOperation<Queued>>,
    ) -> Result<(), BackendError> {
        let id = projection.id(document).unwrap_or_else(|_| document.id().into());
        let term = Term::from_field_text(self.layout.id, &id);
        let known = self.seen.enter(&id) || self.before.doc_freq(&term).map_err(|error| self.error("it cannot be read", error))? > 0;
        if known {
            operations.push(UserOperation::Delete(term));
        }
        if source.is_empty() {
            return Ok(());
        }
        let run_id = projection.run_id(document).map(|(field, id)| (Key::from(field), Value::from(id)));
        let mut fields: Vec<(&Key, &Value)> = projection.fields(document).collect();
        fields.extend(run_id.as_ref().map(|(field, id)| (field, id)));
        operations.push(UserOperation::Add(Queued::new(document::build(&self.layout, &id, source, &fields), Arc::clone(room))));
        Ok(())
    }

    fn run(&self, operations: Vec<UserOperation<Queued>>) -> Result<(), BackendError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        writer.run(operations).map_err(|error| self.error("failed to write", error))?;
        Ok(())
    }

    /// Finds out whether the indexing threads live, by deleting a document that cannot exist.
    fn probe(&self) -> Result<(), BackendError> {
        self.run(vec![UserOperation::Delete(Term::from_field_text(self.layout.id, ""))])
    }

    fn commit(mut self) -> Result<(), BackendError> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        if let Err(error) = writer.commit() {
            self.writer = Some(writer);
            return Err(self.error("failed to commit", error));
        }
        self.created = false;
        self.made.clear();
        // merges that the commit has begun; given up, they would begin again with every run and the index would fray
        writer.wait_merging_threads().map_err(|error| self.error("what was written is there, but its segments could not be merged", error))
    }

    /// Why the indexing threads ended: they keep the cause until a commit asks them.
    fn fault(mut self) -> Option<BackendError> {
        let cause = self.writer.as_mut()?.prepare_commit().err()?;
        Some(self.error("failed to write", cause))
    }

    fn error(&self, what: &'static str, error: TantivyError) -> BackendError {
        OpenError::failed(&self.path, what, error).into()
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        // nobody is left to tell; files that stay are removed by the next commit
        let _ = writer.rollback();
        let _ = writer.garbage_collect_files().wait();
        drop(writer);
        if self.created {
            layout::remove_files(&self.path);
            remove_folders(&self.made);
        }
    }
}

impl From<OpenError> for BackendError {
    fn from(error: OpenError) -> Self {
        let message = match std::error::Error::source(&error) {
            Some(cause) => format!("{error} ({cause})"),
            None => error.to_string(),
        };
        Self { message, unreachable: false, source: None }
    }
}
