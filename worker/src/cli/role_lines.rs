//! What workers and indexers say of themselves now and then: a line for each pipeline.

use super::progress::{Speed, View, batches, stages};
use crate::{
    courier::{CourierFigures, Role},
    metrics::{RunFigures, StepFigures},
};
use std::time::{Duration, Instant};

/// The rate is that of about so long.
const MINUTE: Duration = Duration::from_secs(60);

pub(super) struct RoleLines {
    next: Instant,
    interval: Duration,
    speeds: Vec<Speed>,
}

impl RoleLines {
    pub fn new(interval: Duration) -> Self {
        Self { next: Instant::now() + interval, interval, speeds: Vec::new() }
    }
}

impl View for RoleLines {
    fn show(&mut self, figures: &RunFigures, _: bool) {
        if Instant::now() < self.next {
            return;
        }
        let before = std::mem::replace(&mut self.next, Instant::now() + self.interval).checked_sub(self.interval);
        let steps = figures.begun();
        for (index, courier) in figures.couriers().iter().enumerate() {
            let Some(step) = steps.iter().find(|step| step.pipeline == courier.pipeline) else { continue };
            while self.speeds.len() <= index {
                self.speeds.push(Speed::since(before.unwrap_or_else(Instant::now)));
            }
            show(courier, step, &mut self.speeds[index]);
        }
    }
}

fn show(courier: &CourierFigures, step: &StepFigures, speed: &mut Speed) {
    let now = courier.now();
    let done = now.read.saturating_sub(now.in_work);
    let lag: u64 = courier.lags().values().sum();
    let (_, mean_latency_us) = stages(step);
    let (batches, mean_batch_us) = batches(step);
    tracing::info!(
        pipeline = courier.pipeline,
        partitions = now.assigned,
        done,
        in_work = now.in_work,
        lag,
        rate = speed.update(done, MINUTE).round(),
        mean_latency_us = (courier.role != Role::Indexer).then_some(mean_latency_us),
        batches = courier.role.has_backend().then_some(batches),
        mean_batch_us = courier.role.has_backend().then_some(mean_batch_us),
        "{}",
        courier.role.as_str()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{indexers::IndexerStats, metrics::StageFigures, pipeline::StageStats, publisher::StepState, telemetry::testing::logged};
    use std::sync::{Arc, atomic::Ordering::Relaxed};
    use tracing::Level;

    #[test]
    fn each_role_has_a_line_with_count_rate_and_latency_once_an_interval() {
        let figures = RunFigures::new("", 0);
        let kinds: Vec<penstock_crds::stages::Stage> = serde_json::from_value(serde_json::json!([{"drop": {}}])).expect("a stage");
        let (indexer, stages) = (Arc::new(IndexerStats::default()), Arc::new(StageFigures::new(&kinds)));
        let mut stats = StageStats { processed: 100, ..StageStats::default() };
        stats.durations.sum_seconds = 0.002;
        stages.add([stats].into_iter());
        indexer.batches.store(4, Relaxed);
        indexer.batch_nanos.store(2_000_000, Relaxed);
        let (connector, pipeline) = (String::new(), "p".into());
        figures.begin(Arc::new(StepFigures { connector, pipeline, state: StepState::new(), indexer, stages }));
        let worker = figures.courier(Role::Worker, "p");
        worker.round(6_100, 100, 0);
        worker.set_positions([(0, 10), (1, 20)].into());
        worker.set_ends([(0, 15), (1, 27)].into());
        figures.courier(Role::WorkerIndexer, "p");
        let interval = Duration::from_secs(60);
        let mut lines = RoleLines { next: Instant::now(), interval, speeds: Vec::new() };
        let ((), log) = logged(Level::INFO, || lines.show(&figures, false));
        let said: Vec<&str> = log.lines().collect();
        assert_eq!(said.len(), 2, "{log}");
        for part in ["worker ", "done=6000", "in_work=100", "lag=12", "rate=100", "mean_latency_us=20"] {
            assert!(said[0].contains(part), "{part} is missing: {log}");
        }
        assert!(!said[0].contains("batch"), "a worker has no backend: {log}");
        assert!(said[1].contains("batches=4") && said[1].contains("mean_batch_us=500"), "{log}");
        assert_eq!(logged(Level::INFO, || lines.show(&figures, false)).1, "", "not before the interval is over");
    }
}
