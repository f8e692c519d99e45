//! The threads of a step: one for the connector, one for each lane. They report by messages.

use super::{outcome::StepError, step::Step};
use crate::{
    connectors::{Connector, ConnectorError, ResumeFrom},
    event::EventBatch,
    health::LaneProgress,
    indexers::{Backend, BackendError, EventSink, IndexerLane, IndexerOutputs},
    messenger::{
        Dest, SourceReader, SourceWriter,
        local::{self, Abort},
    },
    pipeline::Plan,
    publisher::{Publisher, PublisherEnd, PublisherSettings},
    worker_lane::{LaneOutputs, WorkerLane},
};
use crossbeam_channel::{Receiver, Sender};
use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};
use tracing::Span;

/// Programs may nest values deeply, and dropping those takes stack. Only what is used of it takes memory.
const LANE_STACK: usize = 16 * 1024 * 1024;

/// What threads report.
pub(super) enum Message {
    /// Documents have ended.
    Events(EventBatch),
    /// The connector's thread is done.
    ConnectorEnded(ConnectorEnd),
    /// A lane is done.
    LaneEnded(Result<(), StepError>),
    /// The backend is lost.
    Fatal(BackendError),
}

/// How the connector's thread ended.
#[derive(Debug)]
pub(super) enum ConnectorEnd {
    /// The connector returned; if the publisher had stopped it, why.
    Returned(Option<PublisherEnd>),
    /// The connector failed.
    Failed(ConnectorError),
    /// The connector panicked.
    Panicked(String),
}

/// The running threads.
pub(super) struct Threads {
    pub(super) messages: Receiver<Message>,
    pub(super) abort: Abort,
    pub(super) lanes: usize,
}

/// Events go to the accounting by the same way as everything else, so that they keep their place before the end of their thread.
struct ToAccounting(Sender<Message>);

impl EventSink for ToAccounting {
    fn report(&self, events: EventBatch) {
        // after an abort nobody listens any more
        let _ = self.0.send(Message::Events(events));
    }
}

impl Threads {
    pub(super) fn start(
        step: &Step<'_>,
        plan: &Plan,
        backend: &Arc<dyn Backend>,
        connector: Box<dyn Connector>,
        settings: PublisherSettings,
    ) -> io::Result<Self> {
        let (sender, messages) = crossbeam_channel::unbounded();
        let events: Arc<dyn EventSink> = Arc::new(ToAccounting(sender.clone()));
        let epoch = settings.epoch;
        let lanes = lane_count(step);
        let (writer, readers, abort) = local::channel(lanes);
        let mut progress = Vec::new();
        for (index, reader) in readers.into_iter().enumerate() {
            let pipeline = plan.lane();
            let lane_progress = LaneProgress::new(pipeline.position());
            progress.push(Arc::clone(&lane_progress));
            let fatal = sender.clone();
            let indexer_outputs = IndexerOutputs {
                events: Arc::clone(&events),
                dead_letter: Arc::clone(&step.dead_letter),
                epoch,
                attempt: 1,
                stats: Arc::clone(&step.figures.indexer),
                stop: step.context.stop.clone(),
                fatal: Arc::new(move |error| {
                    let _ = fatal.send(Message::Fatal(error));
                }),
            };
            let dest = IndexerLane::start(Arc::clone(backend), &step.pipeline.indexer, indexer_outputs, &step.context.runtime);
            let outputs = LaneOutputs {
                events: Arc::clone(&events),
                dead_letter: Arc::clone(&step.dead_letter),
                figures: Arc::clone(&step.figures.stages),
                epoch,
                attempt: 1,
            };
            let lane = WorkerLane { reader, pipeline, dest, outputs, progress: lane_progress };
            let tell = sender.clone();
            spawn_lane(index, lane, move |ended| {
                let _ = tell.send(Message::LaneEnded(ended));
            })?;
        }
        step.health.watch(progress, step.pipeline.workers.max_processing.get());
        let publisher = Publisher::new(writer, Arc::clone(&step.state), events, Arc::clone(&step.dead_letter), settings);
        spawn_connector(connector, publisher, None, move |end| {
            let _ = sender.send(Message::ConnectorEnded(end));
        })?;
        Ok(Self { messages, abort, lanes })
    }
}

/// As many lanes as the manifest says, else as cores.
fn lane_count(step: &Step<'_>) -> usize {
    match step.pipeline.workers.threads {
        Some(threads) => threads as usize,
        None => thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Starts the thread of a lane, which says how it ended.
pub(super) fn spawn_lane<R, D>(
    index: usize,
    lane: WorkerLane<R, D>,
    tell: impl FnOnce(Result<(), StepError>) + Send + 'static,
) -> io::Result<()>
where
    R: SourceReader + 'static,
    D: Dest + Send + 'static,
{
    let span = Span::current();
    thread::Builder::new().name(format!("lane-{index}")).stack_size(LANE_STACK).spawn(move || {
        let _inside = span.entered();
        let ended = match catch_unwind(AssertUnwindSafe(|| lane.run())) {
            Ok(result) => result.map_err(StepError::Lane),
            Err(panic) => Err(StepError::LanePanic(panic_message(&*panic))),
        };
        tell(ended);
    })?;
    Ok(())
}

/// Starts the thread of a connector, which says how it ended.
pub(super) fn spawn_connector(
    mut connector: Box<dyn Connector>,
    publisher: Publisher<impl SourceWriter + 'static>,
    from: Option<ResumeFrom>,
    tell: impl FnOnce(ConnectorEnd) + Send + 'static,
) -> io::Result<()> {
    let span = Span::current();
    thread::Builder::new().name("connector".into()).spawn(move || {
        let _inside = span.entered();
        tell(run_connector(&mut *connector, publisher, from.as_ref()));
    })?;
    Ok(())
}

/// The work of the connector's thread. Whatever the connector does, what it gave is handed on and it is closed.
fn run_connector(connector: &mut dyn Connector, mut publisher: Publisher<impl SourceWriter>, from: Option<&ResumeFrom>) -> ConnectorEnd {
    let executed = catch_unwind(AssertUnwindSafe(|| connector.execute(&mut publisher, from)));
    let stopped = publisher.finish();
    match catch_unwind(AssertUnwindSafe(|| connector.close())) {
        Ok(Ok(())) => {}
        // everything was read: what is left open is no reason to fail the step
        Ok(Err(error)) => tracing::warn!(%error, "failed to close the connector"),
        Err(panic) => tracing::warn!(error = panic_message(&*panic), "the connector panicked while closing"),
    }
    match executed {
        Ok(Ok(())) => ConnectorEnd::Returned(stopped),
        Ok(Err(error)) => ConnectorEnd::Failed(error),
        Err(panic) => ConnectorEnd::Panicked(panic_message(&*panic)),
    }
}

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        connectors::Publish,
        indexers::{DeadLetter, Letter},
        messenger::recording::Recording,
        publisher::StepState,
        telemetry::testing::logged,
    };
    use tracing::Level;

    struct Nowhere;

    impl DeadLetter for Nowhere {
        fn keep(&self, _: Letter<'_>) -> io::Result<()> {
            Ok(())
        }
    }

    /// Reads nothing, and cannot be closed.
    struct Unclosable(fn() -> Result<(), ConnectorError>);

    impl Connector for Unclosable {
        fn has_cursor(&self) -> bool {
            false
        }

        fn execute(&mut self, _: &mut dyn Publish, _: Option<&ResumeFrom>) -> Result<(), ConnectorError> {
            Ok(())
        }

        fn close(&mut self) -> Result<(), ConnectorError> {
            (self.0)()
        }
    }

    #[test]
    fn a_connector_that_cannot_be_closed_is_a_warning_s26() {
        let cases: [(fn() -> _, &str); 2] = [
            (|| Err(ConnectorError::new("the session is gone")), "failed to close the connector error=the session is gone"),
            (|| panic!("out of luck"), "the connector panicked while closing error=\"out of luck\""),
        ];
        for (close, expected) in cases {
            let (writer, _readers, _) = local::channel(1);
            let settings =
                PublisherSettings { max_pending: 1, max_rate: None, collapse: false, limit: None, epoch: 1, after: 0, checkpoints: None };
            let publisher = Publisher::new(writer, StepState::new(), Arc::new(Recording::new()), Arc::new(Nowhere), settings);
            let (end, log) = logged(Level::INFO, || run_connector(&mut Unclosable(close), publisher, None));
            assert!(matches!(end, ConnectorEnd::Returned(None)), "{end:?}");
            assert!(log.contains("WARN") && log.contains(expected), "{log}");
        }
    }
}
