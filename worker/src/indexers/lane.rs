//! A lane of the indexer: takes the documents of one worker lane in their order, batches them and hands full batches to
//! its [sender](super::sender). Everything here runs on the lane's own thread.

use super::{
    Backend, BackendError, Content, DeadLetter, EventSink, Letter, Rejected,
    batch::{OpenBatch, Packet},
    schedule::Schedule,
    sender::{Ended, STAGE, Sender},
    stats::IndexerStats,
};
use crate::{
    document::{Document, LOG_TARGET},
    event::{Detail, EventBatch, Outcome, Tag},
};
use futures::FutureExt;
use parking_lot::Mutex;
use penstock_crds::indexers::Indexer;
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};
use tokio::{
    runtime::Handle,
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Full batches that may wait for their turn.
const QUEUE: usize = 1;

/// Where a lane reports to. Shared by all lanes of a step.
#[derive(Clone)]
pub struct IndexerOutputs {
    /// Terminal events.
    pub events: Arc<dyn EventSink>,
    /// Failed documents.
    pub dead_letter: Arc<dyn DeadLetter>,
    /// The publisher's epoch, for the events.
    pub epoch: u64,
    /// The passage through the pipeline, for the events.
    pub attempt: u64,
    /// Figures.
    pub stats: Arc<IndexerStats>,
    /// Cancelled when the step must end at once: what is in flight is given up and stays pending.
    pub stop: CancellationToken,
    /// Called when the run must end; the lane is closed by then. Several lanes may call it.
    pub fatal: Arc<dyn Fn(BackendError) + Send + Sync>,
}

impl IndexerOutputs {
    /// Keeps a failed document.
    pub(super) fn keep(&self, letter: Letter<'_>) -> Result<(), BackendError> {
        self.dead_letter.keep(letter).map_err(|source| BackendError {
            message: format!("failed to write document `{}` to the dead letter: {source}", letter.id),
            unreachable: false,
            source: Some(source.into()),
        })
    }
}

/// The lane takes no more documents: the step was stopped, or the backend is lost (then `fatal` has been called). What it was
/// given and has not reported stays pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the indexer takes no more documents")]
pub struct LaneClosed;

/// One lane. Used from a thread of its own, never from a task: `accept`, `flush` and `drain` block while the backend is slow.
pub struct IndexerLane {
    backend: Arc<dyn Backend>,
    outputs: IndexerOutputs,
    open: OpenBatch,
    queue: mpsc::Sender<Packet>,
    spare: Spare,
    drained: oneshot::Receiver<bool>,
}

impl IndexerLane {
    /// Starts the lane and its sender.
    pub fn start(backend: Arc<dyn Backend>, spec: &Indexer, outputs: IndexerOutputs, runtime: &Handle) -> Self {
        let needs = backend.needs();
        // without distinct ids nobody knows which requests share one, so they go one after the other
        let max_in_flight = if needs.distinct_ids { spec.batch.max_in_flight as usize } else { 1 };
        let (queue, batches) = mpsc::channel(QUEUE);
        let (tell, drained) = oneshot::channel();
        let spare = Spare::new(spec.batch.max_bytes.bytes());
        let mut sender = Sender {
            backend: backend.clone(),
            outputs: outputs.clone(),
            schedule: Schedule::new(spec.retry.clone(), max_in_flight),
            queue: batches,
            spare: spare.clone(),
        };
        let fatal = outputs.fatal.clone();
        let work = async move {
            let ended = AssertUnwindSafe(sender.run()).catch_unwind().await;
            let drained = matches!(ended, Ok(Ended::Drained));
            match ended {
                Ok(Ended::Drained | Ended::Stopped) => {}
                Ok(Ended::Failed(error)) => fatal(error),
                Err(_) => fatal(BackendError {
                    message: "the indexer panicked; this is a fault of the program".into(),
                    unreachable: false,
                    source: None,
                }),
            }
            // not before the cause is told: a lane that finds its queue closed only knows that there is one
            drop(sender);
            // nobody listens if the lane was dropped
            let _ = tell.send(drained);
        };
        runtime.spawn(work.in_current_span());
        Self { open: OpenBatch::new(&spec.batch, needs), backend, outputs, queue, spare, drained }
    }

    /// Takes a document. Blocks while the backend is slow; then the open batch and the requests in flight are all that waits.
    ///
    /// # Errors
    /// The lane has ended; the document stays pending.
    pub fn accept(&mut self, document: Document, tag: Tag) -> Result<(), LaneClosed> {
        let key = self.open.key(document.id());
        if self.open.has(key) {
            self.flush()?;
        }
        if let Err(rejected) = self.open.encode(&*self.backend, &document) {
            return self.reject(&document, tag, &rejected);
        }
        if self.open.overflows() {
            self.flush()?;
        }
        self.open.enter(document, tag, key);
        if self.open.is_full() {
            self.flush()?;
        }
        Ok(())
    }

    /// When the open batch must be flushed; `None` if it is empty.
    pub fn deadline(&self) -> Option<Instant> {
        self.open.due()
    }

    /// Hands over the open batch.
    ///
    /// # Errors
    /// The lane has ended; what was in the batch stays pending.
    pub fn flush(&mut self) -> Result<(), LaneClosed> {
        if self.open.is_empty() {
            return Ok(());
        }
        let packet = self.open.take(self.spare.take());
        match self.queue.try_send(packet) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(packet)) => self.queue.blocking_send(packet).map_err(|_| LaneClosed),
            Err(TrySendError::Closed(_)) => Err(LaneClosed),
        }
    }

    /// Flushes, and waits until everything is answered and reported.
    ///
    /// # Errors
    /// The lane ended before; what was not reported stays pending.
    pub fn drain(mut self) -> Result<(), LaneClosed> {
        self.flush()?;
        drop(self.queue);
        match self.drained.blocking_recv() {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(LaneClosed),
        }
    }

    /// The backend cannot take the document.
    fn reject(&self, document: &Document, tag: Tag, rejected: &Rejected) -> Result<(), LaneClosed> {
        let letter =
            Letter { tag, id: document.id(), stage: STAGE, reason: &rejected.0, attempts: 1, content: Content::Document(document) };
        if let Err(error) = self.outputs.keep(letter) {
            (self.outputs.fatal)(error);
            return Err(LaneClosed);
        }
        tracing::debug!(target: LOG_TARGET, doc_id = document.id(), stage = STAGE, reason = rejected.0, "failed");
        let mut events = EventBatch::new(self.outputs.epoch, self.outputs.attempt, Outcome::Failed);
        events.push_with(tag, Detail { seq: tag.seq, id: document.id().into(), stage: STAGE.into(), reason: rejected.0.clone() });
        self.outputs.stats.failed.fetch_add(1, Relaxed);
        self.outputs.events.report(events);
        Ok(())
    }
}

/// Packets that were answered, to be filled again.
#[derive(Clone)]
pub(super) struct Spare {
    packets: Arc<Mutex<Vec<Packet>>>,
    usual_bytes: usize,
}

impl Spare {
    pub fn new(max_bytes: u64) -> Self {
        Self { packets: Arc::default(), usual_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX) }
    }

    pub fn put(&self, mut packet: Packet) {
        packet.clear(self.usual_bytes);
        let mut packets = self.packets.lock();
        if packets.len() <= QUEUE {
            packets.push(packet);
        }
    }

    fn take(&self) -> Packet {
        self.packets.lock().pop().unwrap_or_default()
    }
}
