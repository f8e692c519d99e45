//! A worker lane: poll → stages → hand on. One thread, one id in one lane, so the order of each id is kept.

use crate::{
    document::{Document, LOG_TARGET},
    event::{Detail, EventBatch, Outcome, Tag},
    health::LaneProgress,
    indexers::{Content, DeadLetter, EventSink, Letter},
    messenger::{Closed, Dest, Polled, SourceBatch, SourceReader},
    metrics::StageFigures,
    pipeline::{Failure, Pipeline, Sink, SinkClosed},
};
use std::{sync::Arc, time::Instant};

/// What a lane works with.
pub struct WorkerLane<R, D> {
    /// Where documents come from.
    pub reader: R,
    /// The stages.
    pub pipeline: Pipeline,
    /// Where results go.
    pub dest: D,
    /// Where events, failed documents and figures go.
    pub outputs: LaneOutputs,
    /// For the watcher.
    pub progress: Arc<LaneProgress>,
}

/// Where a lane reports to.
#[derive(Clone)]
pub struct LaneOutputs {
    /// Terminal events.
    pub events: Arc<dyn EventSink>,
    /// Failed documents.
    pub dead_letter: Arc<dyn DeadLetter>,
    /// Figures of the stages.
    pub figures: Arc<StageFigures>,
    /// The publisher's epoch, for the events.
    pub epoch: u64,
    /// The passage through the pipeline, for the events.
    pub attempt: u64,
}

/// Why a lane ended before its source did.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The indexer or the run ended; whoever ended it knows why.
    #[error("the run ended")]
    Closed,
    /// A failed document could not be kept.
    #[error("failed to keep document `{id}` in the dead letter; make room or name another file with --dead-letter")]
    DeadLetter {
        /// Its id.
        id: String,
        /// Why.
        source: std::io::Error,
    },
}

impl From<Closed> for LaneError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl<R: SourceReader, D: Dest> WorkerLane<R, D> {
    /// Works until the source ends and everything is accounted for.
    ///
    /// # Errors
    /// The run ended before, or failed documents cannot be kept; what was in work stays pending.
    pub fn run(mut self) -> Result<(), LaneError> {
        loop {
            self.progress.batch(None);
            match self.reader.poll(self.dest.deadline()) {
                Polled::Batch(batch) => {
                    let is_urgent = batch.is_urgent;
                    self.process(Arc::new(batch))?;
                    if is_urgent {
                        self.dest.flush()?;
                    }
                }
                Polled::Nothing => {}
                Polled::End => return Ok(self.dest.drain()?),
            }
            if self.dest.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
                self.dest.flush()?;
            }
        }
    }

    fn process(&mut self, batch: Arc<SourceBatch>) -> Result<(), LaneError> {
        self.progress.batch(Some(Arc::clone(&batch)));
        let mut sink = LaneSink {
            dest: &mut self.dest,
            outputs: &self.outputs,
            batch: &batch,
            index: 0,
            failed: EventBatch::new(self.outputs.epoch, self.outputs.attempt, Outcome::Failed),
            dropped: EventBatch::new(self.outputs.epoch, self.outputs.attempt, Outcome::Dropped),
            error: None,
        };
        for index in 0..batch.len() {
            self.progress.document(index);
            sink.index = index;
            let passed = match batch.document(index) {
                Ok(document) if batch.skips_stages(index) => sink.forward(document, Tag::source(batch.seqs[index])),
                Ok(document) => self.pipeline.process(document, batch.seqs[index], &mut sink),
                Err(unreadable) => sink.unreadable(&unreadable.0),
            };
            if passed.is_err() {
                break;
            }
        }
        let LaneSink { failed, dropped, error, .. } = sink;
        for events in [failed, dropped] {
            if !events.is_empty() {
                self.outputs.events.report(events);
            }
        }
        self.outputs.figures.add(self.pipeline.take_stats().map(|(_, stats)| stats));
        error.map_or(Ok(()), Err)
    }
}

/// Takes what comes out of the stages for one batch.
struct LaneSink<'a, D> {
    dest: &'a mut D,
    outputs: &'a LaneOutputs,
    batch: &'a SourceBatch,
    index: usize,
    failed: EventBatch,
    dropped: EventBatch,
    error: Option<LaneError>,
}

impl<D> LaneSink<'_, D> {
    fn end(&mut self, error: LaneError) -> SinkClosed {
        self.error = Some(error);
        SinkClosed
    }

    /// The record in work is no document: it fails as it is.
    fn unreadable(&mut self, reason: &str) -> Result<(), SinkClosed> {
        let batch = self.batch;
        let (id, raw) = batch.raw(self.index);
        tracing::debug!(target: LOG_TARGET, doc_id = &*id, reason, "unreadable");
        let tag = Tag::source(batch.seqs[self.index]);
        self.keep(Letter { tag, id: &id, stage: "", reason, attempts: 1, content: Content::Raw(raw) })
    }

    /// Keeps a failed document, and says so afterwards: an event tells that the document is kept.
    fn keep(&mut self, letter: Letter<'_>) -> Result<(), SinkClosed> {
        let Letter { tag, id, stage, reason, .. } = letter;
        if let Err(source) = self.outputs.dead_letter.keep(letter) {
            return Err(self.end(LaneError::DeadLetter { id: id.into(), source }));
        }
        self.failed.push_with(tag, Detail { seq: tag.seq, id: id.into(), stage: stage.into(), reason: reason.into() });
        Ok(())
    }
}

impl<D: Dest> Sink for LaneSink<'_, D> {
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), SinkClosed> {
        tracing::debug!(target: LOG_TARGET, doc_id = document.id(), "processed");
        self.dest.forward(document, tag).map_err(|closed| self.end(closed.into()))
    }

    fn dropped(&mut self, document: Document, tag: Tag, stage: &str, reason: String) -> Result<(), SinkClosed> {
        tracing::debug!(target: LOG_TARGET, doc_id = document.id(), stage, reason, "dropped");
        self.dropped.push_with(tag, Detail { seq: tag.seq, id: document.id().into(), stage: stage.into(), reason });
        Ok(())
    }

    fn failed(&mut self, failure: Failure<'_>) -> Result<(), SinkClosed> {
        let Failure { tag, id, stage, reason, child } = failure;
        tracing::debug!(target: LOG_TARGET, doc_id = id, stage, reason, "failed");
        let source;
        let content = match child {
            Some(child) => Content::Document(child),
            None => {
                source = self.batch.document(self.index);
                source.as_ref().map_or_else(|_| Content::Raw(self.batch.raw(self.index).1), Content::Document)
            }
        };
        self.keep(Letter { tag, id, stage, reason, attempts: 1, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        document::Fields,
        messenger::{SourceWriter, local, recording::Recording},
        stages::testing::{lane, stages},
        telemetry::testing::logged,
    };
    use tracing::Level;

    /// Takes letters, or none.
    struct Letters {
        is_full: bool,
    }

    impl DeadLetter for Letters {
        fn keep(&self, _: Letter<'_>) -> std::io::Result<()> {
            if self.is_full { Err(std::io::Error::other("disk full")) } else { Ok(()) }
        }
    }

    /// `d` is dropped, `f` fails, all others pass.
    const STAGES: &str = r#"[{"name": "drops", "when": ".id == \"d\"", "drop": {"reason": "not wanted"}},
        {"name": "fails", "when": ".id == \"f\"", "remap": {"source": "assert!(false, \"no luck\")"}}]"#;

    /// Passes documents through a lane.
    fn pass(ids: &[&str], letters: Letters) -> (Result<(), LaneError>, Recording) {
        let (mut writer, mut readers, _) = local::channel(1);
        for (seq, id) in (1..).zip(ids) {
            let fields: Fields = [("id".into(), (*id).into())].into_iter().collect();
            writer.send(seq, Document::with_fields(*id, fields)).expect("open");
        }
        writer.finish();
        let (pipeline, recording) = (lane(STAGES), Recording::new());
        let outputs = LaneOutputs {
            events: Arc::new(recording.clone()),
            dead_letter: Arc::new(letters),
            figures: Arc::new(StageFigures::new(&stages(STAGES))),
            epoch: 1,
            attempt: 1,
        };
        let progress = LaneProgress::new(pipeline.position());
        let lane = WorkerLane { reader: readers.remove(0), pipeline, dest: recording.clone(), outputs, progress };
        (lane.run(), recording)
    }

    #[test]
    fn every_document_is_handed_on_or_reported_with_its_reason() {
        let (ended, recording) = pass(&["a", "d", "f", "b"], Letters { is_full: false });
        ended.expect("ended");
        let history = recording.history();
        let ids: Vec<_> = history.documents.iter().map(|(document, tag)| (document.id(), tag.seq)).collect();
        assert_eq!(ids, [("a", 1), ("b", 4)]);
        assert_eq!(history.events, [(Outcome::Failed, Tag::source(3)), (Outcome::Dropped, Tag::source(2))]);
        let reasons: Vec<_> = history.details.iter().map(|detail| (detail.id.as_str(), detail.stage.as_str())).collect();
        assert_eq!(reasons, [("f", "fails"), ("d", "drops")]);
    }

    #[test]
    fn a_document_that_cannot_be_kept_ends_the_lane_without_its_event_s39() {
        let (ended, recording) = pass(&["a", "f", "b"], Letters { is_full: true });
        let error = ended.expect_err("the letter is not kept");
        assert!(matches!(&error, LaneError::DeadLetter { id, .. } if id == "f"), "{error}");
        assert_eq!((recording.history().events.len(), recording.history().documents.len()), (0, 1));
    }

    #[test]
    fn each_change_of_a_document_is_a_line_at_debug_level_m12() {
        let ((ended, _), log) = logged(Level::DEBUG, || pass(&["a", "d", "f"], Letters { is_full: false }));
        ended.expect("ended");
        let lines: Vec<_> = log.lines().filter(|line| line.contains("penstock::document: ")).collect();
        assert_eq!(lines.len(), 3, "{log}");
        assert!(lines[0].contains(r#"processed doc_id="a""#), "{log}");
        assert!(lines[1].contains(r#"dropped doc_id="d" stage="drops" reason="not wanted""#), "{log}");
        assert!(lines[2].contains(r#"failed doc_id="f" stage="fails""#) && lines[2].contains("no luck"), "{log}");
        let ((ended, _), log) = logged(Level::INFO, || pass(&["a", "d", "f"], Letters { is_full: false }));
        ended.expect("ended");
        assert_eq!(log, "");
    }
}
