//! Figures of the operator. All names stand here.

use crate::error::ErrorClass;
use parking_lot::Mutex;
use prometheus::{Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Buckets of durations, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// The figures.
pub struct Metrics {
    registry: Registry,
    reconciles: IntCounterVec,
    seconds: HistogramVec,
    errors: IntCounterVec,
    throttled: IntCounterVec,
    applied: IntCounterVec,
    kafka_calls: IntCounterVec,
    objects: IntGaugeVec,
    /// Reconciles at work, by object.
    running: Mutex<HashMap<String, Instant>>,
}

impl Metrics {
    /// All at zero.
    ///
    /// # Errors
    /// A name is used twice.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let reconciles = counter("penstock_operator_reconciles_total", "Reconciles that ended, by kind and outcome", &["kind", "outcome"])?;
        let errors =
            counter("penstock_operator_errors_total", "Reconciles that failed, by kind and class of the error", &["kind", "class"])?;
        let throttled = counter("penstock_operator_throttled_total", "Reconciles put off because an object woke too often", &["kind"])?;
        let applied = counter("penstock_operator_writes_total", "Objects written to the API server, by kind", &["kind"])?;
        let kafka_calls = counter("penstock_operator_kafka_calls_total", "Calls to Kafka, by call and outcome", &["call", "outcome"])?;
        let buckets =
            HistogramOpts::new("penstock_operator_reconcile_seconds", "Duration of reconciles, by kind").buckets(SECONDS.to_vec());
        let seconds = HistogramVec::new(buckets, &["kind"])?;
        registry.register(Box::new(seconds.clone()))?;
        let objects = IntGaugeVec::new(Opts::new("penstock_operator_objects", "Objects, by kind and state"), &["kind", "state"])?;
        registry.register(Box::new(objects.clone()))?;
        Ok(Self { registry, reconciles, seconds, errors, throttled, applied, kafka_calls, objects, running: Mutex::default() })
    }

    /// A reconcile begins. How it ended is said to the timer.
    pub fn reconcile<'a>(&'a self, kind: &str, object: &str) -> Timer<'a> {
        let begun = Instant::now();
        self.running.lock().insert(object.to_owned(), begun);
        Timer { metrics: self, kind: kind.to_owned(), object: object.to_owned(), begun }
    }

    /// A reconcile was put off.
    pub fn throttled(&self, kind: &str) {
        self.throttled.with_label_values(&[kind]).inc();
    }

    /// An object was written.
    pub fn applied(&self, kind: &str) {
        self.applied.with_label_values(&[kind]).inc();
    }

    /// Kafka was called.
    pub fn kafka_called(&self, call: &str, went_well: bool) {
        self.kafka_calls.with_label_values(&[call, if went_well { "ok" } else { "error" }]).inc();
    }

    /// So many objects of a kind are in a state.
    pub fn set_objects(&self, kind: &str, counts: &HashMap<String, i64>) {
        for (state, count) in counts {
            self.objects.with_label_values(&[kind, state]).set(*count);
        }
    }

    /// Forgets how many objects there were.
    pub fn forget_objects(&self) {
        self.objects.reset();
    }

    /// A reconcile that has taken longer than this.
    pub fn stuck(&self, longest: Duration) -> Option<String> {
        let running = self.running.lock();
        running.iter().find(|(_, begun)| begun.elapsed() > longest).map(|(object, _)| object.clone())
    }

    /// All figures as a scraper wants them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// A reconcile at work.
pub struct Timer<'a> {
    metrics: &'a Metrics,
    kind: String,
    object: String,
    begun: Instant,
}

impl Timer<'_> {
    /// It went well.
    pub fn succeeded(&self) {
        self.metrics.reconciles.with_label_values(&[self.kind.as_str(), "ok"]).inc();
    }

    /// It failed.
    pub fn failed(&self, class: ErrorClass) {
        self.metrics.reconciles.with_label_values(&[self.kind.as_str(), "error"]).inc();
        self.metrics.errors.with_label_values(&[self.kind.as_str(), class.as_str()]).inc();
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.metrics.seconds.with_label_values(&[self.kind.as_str()]).observe(self.begun.elapsed().as_secs_f64());
        self.metrics.running.lock().remove(&self.object);
    }
}
