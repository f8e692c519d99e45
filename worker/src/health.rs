//! Alive means progressing: lanes tell where they are, a watcher finds the one that does not move.

use crate::messenger::SourceBatch;
use parking_lot::Mutex;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How often the watcher looks.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Where a lane is. The lane writes, the watcher reads; no lock and no clock for a document.
#[derive(Debug)]
pub struct LaneProgress {
    /// Grows with every document that is begun, and when the lane looks for work.
    steps: AtomicU64,
    /// The stage that runs, [`LaneProgress::OUTSIDE`] if none does.
    stage: Arc<AtomicU32>,
    /// The batch in work, so that the document in it can be named.
    batch: Mutex<Option<Arc<SourceBatch>>>,
    /// The document of the batch.
    index: AtomicU32,
}

impl LaneProgress {
    /// The value of the stage position while no stage runs.
    pub const OUTSIDE: u32 = u32::MAX;

    /// The progress of a lane whose pipeline stores its position there.
    pub fn new(stage: Arc<AtomicU32>) -> Arc<Self> {
        Arc::new(Self { steps: AtomicU64::new(0), stage, batch: Mutex::new(None), index: AtomicU32::new(0) })
    }

    /// The lane has taken a batch, or none (it looks for work).
    pub fn batch(&self, batch: Option<Arc<SourceBatch>>) {
        *self.batch.lock() = batch;
        self.steps.fetch_add(1, Relaxed);
    }

    /// The lane begins a document of its batch.
    pub fn document(&self, index: usize) {
        self.index.store(index as u32, Relaxed);
        // one writer: no read-modify-write needed
        self.steps.store(self.steps.load(Relaxed) + 1, Relaxed);
    }

    fn position(&self) -> (u64, u32) {
        (self.steps.load(Relaxed), self.stage.load(Relaxed))
    }

    /// The id and the number of the document in work.
    fn document_in_work(&self) -> Option<(String, u64)> {
        let batch = self.batch.lock().clone()?;
        let index = self.index.load(Relaxed) as usize;
        let number = *batch.seqs.get(index)?;
        let id = batch.document(index).map_or_else(|_| batch.raw(index).0.into_owned(), |document| document.id().to_owned());
        Some((id, number))
    }
}

/// A lane whose stage does not return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Which lane, from 0.
    pub lane: usize,
    /// The document.
    pub id: String,
    /// Its number in the lane's batches.
    pub number: u64,
    /// The position of the stage in the pipeline, from 0.
    pub stage: usize,
    /// For how long.
    pub since: Duration,
}

/// The health of a process: which lanes work now, and which are stuck.
#[derive(Debug, Default)]
pub struct Health {
    watchers: Mutex<Vec<Watcher>>,
    stuck: Mutex<Vec<(Arc<LaneProgress>, Stuck)>>,
    heartbeat: Option<PathBuf>,
    beat: Mutex<Option<Instant>>,
}

impl Health {
    /// Health that is told by this heartbeat file, if any.
    pub fn new(heartbeat: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { heartbeat, ..Self::default() })
    }

    /// These lanes work as well from now on.
    pub fn watch(&self, lanes: Vec<Arc<LaneProgress>>, max_processing: Duration) {
        self.watchers.lock().push(Watcher::new(lanes, max_processing));
    }

    /// No lane works any more.
    pub fn unwatch(&self) {
        self.watchers.lock().clear();
        self.stuck.lock().clear();
    }

    /// The lanes that were stuck at the last look.
    pub fn stuck(&self) -> Vec<Stuck> {
        self.stuck.lock().iter().map(|(_, stuck)| stuck.clone()).collect()
    }

    /// One of these lanes that was stuck at the last look.
    pub fn stuck_among(&self, lanes: &[Arc<LaneProgress>]) -> Option<Stuck> {
        let stuck = self.stuck.lock();
        stuck.iter().find(|(lane, _)| lanes.iter().any(|of| Arc::ptr_eq(of, lane))).map(|(_, stuck)| stuck.clone())
    }

    /// Seconds since the last look that found nothing stuck.
    pub fn heartbeat_age(&self) -> Option<Duration> {
        self.beat.lock().map(|beat| beat.elapsed())
    }

    /// One look. Writes the heartbeat file if no lane is stuck.
    ///
    /// # Errors
    /// The heartbeat file cannot be written.
    pub fn look(&self, now: Instant) -> std::io::Result<()> {
        let stuck: Vec<(Arc<LaneProgress>, Stuck)> = self.watchers.lock().iter_mut().flat_map(|watcher| watcher.look(now)).collect();
        let known = std::mem::replace(&mut *self.stuck.lock(), stuck.clone());
        let is_known = |lane: &Stuck| known.iter().any(|(_, before)| before.lane == lane.lane && before.id == lane.id);
        for (_, lane) in stuck.iter().filter(|(_, lane)| !is_known(lane)) {
            tracing::error!(doc_id = lane.id, stage = lane.stage, seconds = lane.since.as_secs(), "a stage does not return");
        }
        if stuck.is_empty() {
            *self.beat.lock() = Some(now);
            if let Some(path) = &self.heartbeat {
                std::fs::write(path, format!("{}\n", jiff::Timestamp::now()))?;
            }
        }
        Ok(())
    }
}

/// Looks at lanes from time to time.
#[derive(Debug)]
struct Watcher {
    lanes: Vec<(Arc<LaneProgress>, (u64, u32), Instant)>,
    max_processing: Duration,
}

impl Watcher {
    /// Watches these lanes; a stage may take that long.
    fn new(lanes: Vec<Arc<LaneProgress>>, max_processing: Duration) -> Self {
        let now = Instant::now();
        let lanes = lanes.into_iter().map(|lane| (lane, (u64::MAX, LaneProgress::OUTSIDE), now)).collect();
        Self { lanes, max_processing }
    }

    /// The lanes that are stuck.
    fn look(&mut self, now: Instant) -> Vec<(Arc<LaneProgress>, Stuck)> {
        let mut stuck = Vec::new();
        for (index, (lane, seen, since)) in self.lanes.iter_mut().enumerate() {
            let position = lane.position();
            // outside of a stage a lane waits for work or for a slow backend: that is not its fault
            if position != *seen || position.1 == LaneProgress::OUTSIDE {
                (*seen, *since) = (position, now);
                continue;
            }
            let since = now.saturating_duration_since(*since);
            if since > self.max_processing {
                let (id, number) = lane.document_in_work().unwrap_or_default();
                stuck.push((Arc::clone(lane), Stuck { lane: index, id, number, stage: position.1 as usize, since }));
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document::Document, messenger::Payload};

    fn lane_in(stage: u32) -> Arc<LaneProgress> {
        let lane = LaneProgress::new(Arc::new(AtomicU32::new(stage)));
        let documents = vec![Document::new("a"), Document::new("b")];
        lane.batch(Some(Arc::new(SourceBatch { seqs: vec![1, 2], payload: Payload::Documents(documents), is_urgent: false })));
        lane.document(1);
        lane
    }

    #[test]
    fn a_stage_that_does_not_return_is_named_and_stops_the_heartbeat_s29_x14_m13() {
        let directory = tempfile::tempdir().expect("directory");
        let heartbeat = directory.path().join("heartbeat");
        let lane = lane_in(3);
        let health = Health::new(Some(heartbeat.clone()));
        health.watch(vec![Arc::clone(&lane)], Duration::from_secs(10));
        let start = Instant::now();
        health.look(start).expect("written");
        assert_eq!(health.stuck(), []);
        std::fs::remove_file(&heartbeat).expect("the heartbeat was written");
        let later = start + Duration::from_secs(11);
        let expected = Stuck { lane: 0, id: "b".into(), number: 2, stage: 3, since: Duration::from_secs(11) };
        health.look(later).expect("looked");
        assert_eq!(health.stuck(), [expected]);
        assert!(!heartbeat.exists());
        lane.document(0);
        health.look(later).expect("looked");
        assert_eq!(health.stuck(), [], "it moves again");
        assert!(heartbeat.exists());
    }

    #[test]
    fn waiting_for_work_or_a_slow_backend_is_not_stuck_s29() {
        let mut watcher = Watcher::new(vec![lane_in(LaneProgress::OUTSIDE)], Duration::from_secs(1));
        let start = Instant::now();
        for seconds in [0, 10, 100] {
            assert!(watcher.look(start + Duration::from_secs(seconds)).is_empty());
        }
    }
}
