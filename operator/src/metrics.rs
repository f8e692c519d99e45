//! Figures of the operator. All names stand here, with what they count and by what.

use crate::error::ErrorClass;
use parking_lot::RwLock;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::{collections::BTreeMap, time::Instant};

/// A figure: its name, what it says, its labels. Labels take few values: never a name of an object or the text of an error.
struct Name(&'static str, &'static str, &'static [&'static str]);

const RECONCILES: Name = Name("penstock_operator_reconciles_total", "Reconciles that ended, by kind and outcome", &["kind", "outcome"]);
const RECONCILE_SECONDS: Name = Name("penstock_operator_reconcile_seconds", "Duration of reconciles, by kind", &["kind"]);
const ERRORS: Name = Name("penstock_operator_errors_total", "Reconciles that failed, by kind and class of the error", &["kind", "class"]);
const THROTTLED: Name =
    Name("penstock_operator_throttled_total", "Reconciles put off because an object woke too often, by kind", &["kind"]);
const APPLIED: Name = Name("penstock_operator_applied_total", "Objects written to the API server, by kind", &["kind"]);
const KAFKA_CALLS: Name = Name("penstock_operator_kafka_calls_total", "Calls to Kafka, by call and outcome", &["call", "outcome"]);
const OBJECTS: Name =
    Name("penstock_operator_objects", "Objects, by kind and state: the phase of runs, else ready or not", &["kind", "state"]);
const LEADS: Name = Name("penstock_operator_leads", "1 for the process that writes, 0 for those that wait", &[]);

/// Buckets of durations, in seconds.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

/// Objects by kind and state.
pub type ObjectCounts = BTreeMap<(&'static str, String), i64>;

/// The figures.
pub struct Metrics {
    registry: Registry,
    reconciles: IntCounterVec,
    seconds: HistogramVec,
    errors: IntCounterVec,
    throttled: IntCounterVec,
    applied: IntCounterVec,
    kafka_calls: IntCounterVec,
}

impl Metrics {
    /// All at zero.
    ///
    /// # Errors
    /// A name is used twice.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counter = |Name(name, help, labels): Name| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let (reconciles, errors, throttled) = (counter(RECONCILES)?, counter(ERRORS)?, counter(THROTTLED)?);
        let (applied, kafka_calls) = (counter(APPLIED)?, counter(KAFKA_CALLS)?);
        let Name(name, help, labels) = RECONCILE_SECONDS;
        let seconds = HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels)?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(Self { registry, reconciles, seconds, errors, throttled, applied, kafka_calls })
    }

    /// From now on what stands in the caches is counted whenever somebody looks.
    ///
    /// # Errors
    /// It was said before.
    pub fn watch(
        &self,
        objects: impl Fn() -> ObjectCounts + Send + Sync + 'static,
        leads: impl Fn() -> bool + Send + Sync + 'static,
    ) -> prometheus::Result<()> {
        self.registry.register(Box::new(Looked::new(OBJECTS, move |gauge| {
            for ((kind, state), count) in objects() {
                gauge.with_label_values(&[kind, &state]).set(count);
            }
        })?))?;
        self.registry.register(Box::new(Looked::new(LEADS, move |gauge| gauge.with_label_values::<&str>(&[]).set(leads().into()))?))
    }

    /// A reconcile begins. How it ended is said to the timer; that it ended is seen by its drop.
    pub fn reconcile<'a>(&'a self, kind: &'a str) -> Timer<'a> {
        Timer { metrics: self, kind, begun: Instant::now(), outcome: "aborted" }
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
    kind: &'a str,
    begun: Instant,
    outcome: &'static str,
}

impl Timer<'_> {
    /// It went well.
    pub fn succeeded(mut self) {
        self.outcome = "ok";
    }

    /// It failed.
    pub fn failed(mut self, class: ErrorClass) {
        self.outcome = "error";
        self.metrics.errors.with_label_values(&[self.kind, class.as_str()]).inc();
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.metrics.seconds.with_label_values(&[self.kind]).observe(self.begun.elapsed().as_secs_f64());
        self.metrics.reconciles.with_label_values(&[self.kind, self.outcome]).inc();
    }
}

/// A gauge that is set when somebody looks. What is not there any more is not shown any more.
struct Looked {
    gauge: IntGaugeVec,
    set: Box<dyn Fn(&IntGaugeVec) + Send + Sync>,
    /// Two who look at once do not see half of it.
    looking: RwLock<()>,
}

impl Looked {
    fn new(Name(name, help, labels): Name, set: impl Fn(&IntGaugeVec) + Send + Sync + 'static) -> prometheus::Result<Self> {
        Ok(Self { gauge: IntGaugeVec::new(Opts::new(name, help), labels)?, set: Box::new(set), looking: RwLock::default() })
    }
}

impl Collector for Looked {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _alone = self.looking.write();
        self.gauge.reset();
        (self.set)(&self.gauge);
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };

    fn text(metrics: &Metrics) -> String {
        metrics.text().expect("figures")
    }

    #[test]
    fn every_end_of_a_reconcile_is_counted_and_timed() {
        let metrics = Metrics::new().expect("metrics");
        metrics.reconcile("Pipeline").succeeded();
        metrics.reconcile("Pipeline").failed(ErrorClass::Conflict);
        drop(metrics.reconcile("Pipeline"));
        let text = text(&metrics);
        for line in [
            "penstock_operator_reconciles_total{kind=\"Pipeline\",outcome=\"ok\"} 1",
            "penstock_operator_reconciles_total{kind=\"Pipeline\",outcome=\"error\"} 1",
            "penstock_operator_reconciles_total{kind=\"Pipeline\",outcome=\"aborted\"} 1",
            "penstock_operator_errors_total{class=\"conflict\",kind=\"Pipeline\"} 1",
            "penstock_operator_reconcile_seconds_count{kind=\"Pipeline\"} 3",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn objects_are_counted_when_somebody_looks_and_states_that_are_empty_are_gone() {
        let metrics = Metrics::new().expect("metrics");
        let running = Arc::new(AtomicI64::new(2));
        let shown = Arc::clone(&running);
        let objects = move || match shown.load(Ordering::Relaxed) {
            0 => ObjectCounts::new(),
            count => ObjectCounts::from([(("IngestRun", "Running".to_owned()), count)]),
        };
        metrics.watch(objects, || true).expect("new names");
        assert!(text(&metrics).contains("penstock_operator_objects{kind=\"IngestRun\",state=\"Running\"} 2"));
        assert!(text(&metrics).contains("penstock_operator_leads 1"));
        running.store(0, Ordering::Relaxed);
        assert!(!text(&metrics).contains("IngestRun"));
    }
}
