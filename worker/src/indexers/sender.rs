//! The task of a lane that sends: carries out what the [`Schedule`] decides, and reports what became of the documents.

use super::{
    Answer, Backend, BackendError, Content, Letter,
    batch::Packet,
    lane::{IndexerOutputs, Spare},
    retry,
    schedule::{Change, Schedule, Sending, Settled},
};
use crate::{
    document::LOG_TARGET,
    event::{Detail, EventBatch, Outcome},
};
use futures::{StreamExt, stream::FuturesUnordered};
use std::sync::{Arc, atomic::Ordering::Relaxed};
use tokio::{
    select,
    sync::mpsc::Receiver,
    time::{Instant, sleep_until},
};

/// The stage named in the dead letter for documents that failed here.
pub(super) const STAGE: &str = "indexer";

/// Sends the batches of one lane.
pub(super) struct Sender {
    pub backend: Arc<dyn Backend>,
    pub outputs: IndexerOutputs,
    pub schedule: Schedule,
    pub queue: Receiver<Packet>,
    pub spare: Spare,
}

/// How a sender ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The lane has closed its queue, and everything is answered and reported.
    Drained,
    /// It was stopped; what was in flight stays pending.
    Stopped,
    /// The run must end.
    Failed(BackendError),
}

struct Sent {
    sending: Sending,
    answer: Answer,
    began: Instant,
}

impl Sender {
    /// Sends until the queue is closed and empty, the stop token is cancelled, or the backend is lost.
    pub async fn run(&mut self) -> Ended {
        let ended = self.work().await;
        if self.schedule.is_waiting() {
            self.outputs.stats.waiting_lanes.fetch_sub(1, Relaxed);
        }
        ended
    }

    async fn work(&mut self) -> Ended {
        let stop = self.outputs.stop.clone();
        let mut in_flight = FuturesUnordered::new();
        let mut held_back: Option<Packet> = None;
        let mut open = true;
        loop {
            if let Some(packet) = held_back.take_if(|packet| self.schedule.admits(packet)) {
                self.schedule.admit(packet);
            }
            let now = Instant::now();
            while let Some(sending) = self.schedule.next(now.into_std()) {
                self.outputs.stats.in_flight.fetch_add(1, Relaxed);
                in_flight.push(send(self.backend.clone(), sending, now));
            }
            if !open && held_back.is_none() && self.schedule.is_empty() {
                return Ended::Drained;
            }
            let wake = self.schedule.wake();
            select! {
                biased;
                () = stop.cancelled() => {
                    self.outputs.stats.in_flight.fetch_sub(in_flight.len() as u64, Relaxed);
                    return Ended::Stopped;
                }
                Some(sent) = in_flight.next(), if !in_flight.is_empty() => {
                    if let Err(error) = self.settle(sent) {
                        self.outputs.stats.in_flight.fetch_sub(in_flight.len() as u64, Relaxed);
                        return Ended::Failed(error);
                    }
                }
                packet = self.queue.recv(), if open && held_back.is_none() && self.schedule.has_room() => match packet {
                    Some(packet) => held_back = Some(packet),
                    None => open = false,
                },
                () = sleep_until(wake.map_or(now, Instant::from_std)), if wake.is_some() => {}
            }
        }
    }

    fn settle(&mut self, sent: Sent) -> Result<(), BackendError> {
        let Sent { mut sending, answer, began } = sent;
        let now = Instant::now();
        self.outputs.stats.answered(now - began);
        let settled = self.schedule.answered(&mut sending, answer, now.into_std(), retry::chance());
        self.note(&settled);
        self.report(&sending.packet, &settled)?;
        if let Some(packet) = self.schedule.give_back(sending.number, sending.packet) {
            self.spare.put(packet);
        }
        settled.end.map_or(Ok(()), Err)
    }

    /// Counts, and says once when the backend ceases and begins to take documents.
    fn note(&self, settled: &Settled) {
        let stats = &self.outputs.stats;
        if settled.retried > 0 {
            stats.retries.fetch_add(settled.retried, Relaxed);
        }
        match &settled.change {
            Some(Change::Refuses(reason)) => {
                stats.outages.fetch_add(1, Relaxed);
                if stats.waiting_lanes.fetch_add(1, Relaxed) == 0 {
                    tracing::warn!(%reason, "the backend takes nothing, waiting for it");
                }
            }
            Some(Change::Takes(after)) if stats.waiting_lanes.fetch_sub(1, Relaxed) == 1 => {
                tracing::info!(seconds = after.as_secs(), "the backend takes documents again");
            }
            Some(Change::Takes(_)) | None => {}
        }
    }

    fn report(&self, packet: &Packet, settled: &Settled) -> Result<(), BackendError> {
        let outputs = &self.outputs;
        if !settled.finished.is_empty() {
            let mut events = EventBatch::new(outputs.epoch, outputs.attempt, Outcome::Finished);
            for item in settled.finished.iter().map(|item| &packet.request.items[*item as usize]) {
                tracing::debug!(target: LOG_TARGET, doc_id = item.id.as_str(), "finished");
                events.push(item.tag);
            }
            outputs.stats.finished.fetch_add(settled.finished.len() as u64, Relaxed);
            outputs.stats.stale.fetch_add(settled.stale, Relaxed);
            outputs.events.report(events);
        }
        if settled.failed.is_empty() {
            return Ok(());
        }
        let mut events = EventBatch::new(outputs.epoch, outputs.attempt, Outcome::Failed);
        let kept = self.keep_failed(packet, settled, &mut events);
        if !events.is_empty() {
            outputs.stats.failed.fetch_add(events.len() as u64, Relaxed);
            outputs.events.report(events);
        }
        kept
    }

    /// Writes the dead letters, and an event for each that is written.
    fn keep_failed(&self, packet: &Packet, settled: &Settled, events: &mut EventBatch) -> Result<(), BackendError> {
        for failure in &settled.failed {
            let item = &packet.request.items[failure.item as usize];
            let content = match packet.request.documents.get(failure.item as usize) {
                Some(document) => Content::Document(document),
                None => Content::Raw(packet.request.part(failure.item)),
            };
            let letter = Letter { tag: item.tag, id: &item.id, stage: STAGE, reason: &failure.reason, attempts: failure.attempts, content };
            self.outputs.keep(letter)?;
            tracing::debug!(target: LOG_TARGET, doc_id = item.id.as_str(), stage = STAGE, reason = failure.reason, "failed");
            let detail = Detail { seq: item.tag.seq, id: item.id.to_string(), stage: STAGE.into(), reason: failure.reason.clone() };
            events.push_with(item.tag, detail);
        }
        Ok(())
    }
}

async fn send(backend: Arc<dyn Backend>, sending: Sending, began: Instant) -> Sent {
    let answer = backend.send(&sending.packet.request, &sending.items).await;
    Sent { sending, answer, began }
}
