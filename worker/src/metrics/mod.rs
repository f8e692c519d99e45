//! Figures of the steps of a run. [`prometheus`] is their form for scrapers, with the list of all names.

mod prometheus;

pub use self::prometheus::prometheus_text;

use crate::{
    courier::{CourierFigures, Role},
    indexers::IndexerStats,
    pipeline::{StageLabel, StageStats},
    publisher::StepState,
};
use parking_lot::Mutex;
use penstock_crds::{
    report::{ProgressReport, StepReport},
    stages::Stage,
};
use std::sync::Arc;

/// Figures of a run: its steps up to now.
#[derive(Default)]
pub struct RunFigures {
    /// Name of the run.
    pub run: String,
    /// How many steps there will be.
    pub steps: usize,
    state: Mutex<RunState>,
}

#[derive(Default)]
struct RunState {
    begun: Vec<Arc<StepFigures>>,
    couriers: Vec<Arc<CourierFigures>>,
    ended: Vec<StepReport>,
}

impl RunFigures {
    /// Nothing yet, for a run of so many steps.
    pub fn new(run: &str, steps: usize) -> Self {
        Self { run: run.into(), steps, state: Mutex::default() }
    }

    /// A step begins.
    pub fn begin(&self, step: Arc<StepFigures>) {
        self.state.lock().begun.push(step);
    }

    /// The figures of whoever works for a pipeline in a role: the same ones for each step.
    pub fn courier(&self, role: Role, pipeline: &str) -> Arc<CourierFigures> {
        let couriers = &mut self.state.lock().couriers;
        if let Some(known) = couriers.iter().find(|known| known.role == role && known.pipeline == pipeline) {
            return Arc::clone(known);
        }
        let courier = Arc::new(CourierFigures::new(role, pipeline));
        couriers.push(Arc::clone(&courier));
        courier
    }

    /// The couriers of the process.
    pub fn couriers(&self) -> Vec<Arc<CourierFigures>> {
        self.state.lock().couriers.clone()
    }

    /// The running step has ended.
    pub fn end(&self, report: StepReport) {
        self.state.lock().ended.push(report);
    }

    /// The steps that have begun, in order.
    pub fn begun(&self) -> Vec<Arc<StepFigures>> {
        self.state.lock().begun.clone()
    }

    /// The steps that have ended, in order.
    pub fn ended(&self) -> Vec<StepReport> {
        self.state.lock().ended.clone()
    }

    /// What the run is doing.
    pub fn report(&self) -> ProgressReport {
        let state = self.state.lock();
        let at_work = state.begun.iter().skip(state.ended.len()).map(|step| step.state.report(&step.connector));
        ProgressReport { run: self.run.clone(), connectors: state.ended.iter().cloned().chain(at_work).collect() }
    }
}

/// Figures of one step.
pub struct StepFigures {
    /// Name of the connector.
    pub connector: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Published documents and their fate.
    pub state: Arc<StepState>,
    /// The indexer's.
    pub indexer: Arc<IndexerStats>,
    /// The stages'.
    pub stages: Arc<StageFigures>,
}

/// Figures of the stages of one step, of all lanes.
#[derive(Debug, Default)]
pub struct StageFigures {
    labels: Vec<StageLabel>,
    totals: Mutex<Vec<StageStats>>,
}

impl StageFigures {
    /// Nothing yet, for these stages.
    pub fn new(stages: &[Stage]) -> Self {
        let label = |(index, stage): (usize, &Stage)| StageLabel { name: stage.display_name(index), kind: stage.kind.key() };
        let labels: Vec<_> = stages.iter().enumerate().map(label).collect();
        let totals = Mutex::new(vec![StageStats::default(); labels.len()]);
        Self { labels, totals }
    }

    /// Adds what a lane has counted for each stage since it last did.
    pub fn add(&self, stats: impl Iterator<Item = StageStats>) {
        let mut totals = self.totals.lock();
        for (total, more) in totals.iter_mut().zip(stats) {
            total.add(&more);
        }
    }

    /// The stages with their figures, in order.
    pub fn totals(&self) -> Vec<(StageLabel, StageStats)> {
        self.labels.iter().cloned().zip(self.totals.lock().iter().cloned()).collect()
    }
}
