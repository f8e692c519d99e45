//! The Prometheus form of the figures. Labels are bounded: run, pipeline, connector, stage, outcome; never an id or an error text.

use super::{RunFigures, StepFigures};
use crate::{
    courier::CourierFigures,
    health::Health,
    pipeline::{DURATION_BOUNDS, Durations},
};
use prometheus::{
    Encoder, TextEncoder,
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};
use std::sync::atomic::Ordering::Relaxed;

/// The names of all metrics: what dashboards rely on.
pub mod names {
    /// Documents that the connector gave.
    pub const PUBLISHED: &str = "penstock_published_documents_total";
    /// Children that stages made.
    pub const CREATED: &str = "penstock_created_documents_total";
    /// Documents that have ended, by outcome.
    pub const ENDED: &str = "penstock_ended_documents_total";
    /// Documents that are not accounted for yet.
    pub const PENDING: &str = "penstock_pending_documents";
    /// Documents that a stage was run for.
    pub const STAGE_PROCESSED: &str = "penstock_stage_processed_documents_total";
    /// Documents that failed in a stage.
    pub const STAGE_FAILED: &str = "penstock_stage_failed_documents_total";
    /// Documents that a stage dropped.
    pub const STAGE_DROPPED: &str = "penstock_stage_dropped_documents_total";
    /// Errors after which the document went on.
    pub const STAGE_CONTINUED: &str = "penstock_stage_continued_errors_total";
    /// Children that a stage made.
    pub const STAGE_CHILDREN: &str = "penstock_stage_children_total";
    /// How long a stage takes for a document; fast stages are sampled.
    pub const STAGE_SECONDS: &str = "penstock_stage_duration_seconds";
    /// Documents that the backend has.
    pub const INDEXER_DOCUMENTS: &str = "penstock_indexer_documents_total";
    /// Documents that the backend refused.
    pub const INDEXER_FAILED: &str = "penstock_indexer_failed_documents_total";
    /// Documents of which the backend had a newer version.
    pub const INDEXER_STALE: &str = "penstock_indexer_stale_total";
    /// Requests that were answered.
    pub const INDEXER_BATCHES: &str = "penstock_indexer_batches_total";
    /// Seconds that these requests took.
    pub const INDEXER_SECONDS: &str = "penstock_indexer_batch_seconds_total";
    /// Documents that were sent again.
    pub const INDEXER_RETRIES: &str = "penstock_indexer_retries_total";
    /// How often the backend took nothing at all.
    pub const INDEXER_OUTAGES: &str = "penstock_indexer_outages_total";
    /// Requests in flight.
    pub const INDEXER_IN_FLIGHT: &str = "penstock_indexer_in_flight_requests";
    /// Partitions that the process owns.
    pub const ASSIGNED: &str = "penstock_assigned_partitions";
    /// Records that were read from Kafka and are not done.
    pub const IN_FLIGHT: &str = "penstock_in_flight_records";
    /// Records of a partition that are not done.
    pub const LAG: &str = "penstock_partition_lag_records";
    /// Records that were read from Kafka.
    pub const READ: &str = "penstock_read_records_total";
    /// Records of superseded processes that were passed over.
    pub const STALE: &str = "penstock_stale_records_total";
    /// Events of runs whose log was gone.
    pub const DISCARDED: &str = "penstock_discarded_events_total";
    /// Seconds since the process was last found healthy.
    pub const HEARTBEAT_AGE: &str = "penstock_heartbeat_age_seconds";
}

/// All figures of a run as Prometheus text.
///
/// # Errors
/// The encoder does not take them.
pub fn prometheus_text(run: &RunFigures, health: &Health) -> prometheus::Result<String> {
    let mut families = Families::default();
    for step in run.begun() {
        let labels = [("run", run.run.as_str()), ("pipeline", step.pipeline.as_str()), ("connector", step.connector.as_str())];
        add_documents(&mut families, &step, &labels);
        add_stages(&mut families, &step, &labels);
        add_indexer(&mut families, &step, &labels);
    }
    for courier in run.couriers() {
        add_courier(&mut families, &courier);
    }
    if let Some(age) = health.heartbeat_age() {
        families.gauge(names::HEARTBEAT_AGE, "Seconds since the process was last found healthy", &[], age.as_secs_f64());
    }
    let mut text = Vec::new();
    TextEncoder::new().encode(&families.0, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

type Labels<'a> = [(&'a str, &'a str)];

fn add_documents(families: &mut Families, step: &StepFigures, labels: &Labels<'_>) {
    let counts = step.state.counts();
    families.counter(names::PUBLISHED, "Documents that the connector gave", labels, counts.published as f64);
    families.counter(names::CREATED, "Children that stages made", labels, counts.created as f64);
    for (outcome, count) in [("finished", counts.finished), ("failed", counts.failed), ("dropped", counts.dropped)] {
        families.counter(names::ENDED, "Documents that have ended", &[labels, &[("outcome", outcome)]].concat(), count as f64);
    }
    families.gauge(names::PENDING, "Documents that are not accounted for yet", labels, counts.pending as f64);
}

fn add_stages(families: &mut Families, step: &StepFigures, labels: &Labels<'_>) {
    for (label, stats) in step.stages.totals() {
        let labels = [labels, &[("stage", label.name.as_str()), ("kind", label.kind)]].concat();
        families.counter(names::STAGE_PROCESSED, "Documents that the stage was run for", &labels, stats.processed as f64);
        families.counter(names::STAGE_FAILED, "Documents that failed in the stage", &labels, stats.failed as f64);
        families.counter(names::STAGE_DROPPED, "Documents that the stage dropped", &labels, stats.dropped as f64);
        families.counter(names::STAGE_CONTINUED, "Errors after which the document went on", &labels, stats.continued as f64);
        families.counter(names::STAGE_CHILDREN, "Children that the stage made", &labels, stats.children as f64);
        families.histogram(names::STAGE_SECONDS, "Time of the stage for a document; fast stages are sampled", &labels, &stats.durations);
    }
}

fn add_indexer(families: &mut Families, step: &StepFigures, labels: &Labels<'_>) {
    let stats = &step.indexer;
    let counters = [
        (names::INDEXER_DOCUMENTS, "Documents that the backend has", stats.finished.load(Relaxed) as f64),
        (names::INDEXER_FAILED, "Documents that the backend refused", stats.failed.load(Relaxed) as f64),
        (names::INDEXER_STALE, "Documents of which the backend had a newer version", stats.stale.load(Relaxed) as f64),
        (names::INDEXER_BATCHES, "Requests that were answered", stats.batches.load(Relaxed) as f64),
        (names::INDEXER_SECONDS, "Seconds that requests took", stats.batch_nanos.load(Relaxed) as f64 / 1e9),
        (names::INDEXER_RETRIES, "Documents that were sent again", stats.retries.load(Relaxed) as f64),
        (names::INDEXER_OUTAGES, "How often the backend took nothing at all", stats.outages.load(Relaxed) as f64),
    ];
    for (name, help, value) in counters {
        families.counter(name, help, labels, value);
    }
    families.gauge(names::INDEXER_IN_FLIGHT, "Requests in flight", labels, stats.in_flight.load(Relaxed) as f64);
}

fn add_courier(families: &mut Families, courier: &CourierFigures) {
    let labels = [("pipeline", courier.pipeline.as_str()), ("role", courier.role.as_str())];
    let figures = courier.now();
    families.gauge(names::ASSIGNED, "Partitions that the process owns", &labels, figures.assigned as f64);
    families.gauge(names::IN_FLIGHT, "Records that were read and are not done", &labels, figures.in_work as f64);
    for (partition, lag) in courier.lags() {
        let partition = partition.to_string();
        let labels = [&labels[..], &[("partition", partition.as_str())]].concat();
        families.gauge(names::LAG, "Records of the partition that are not done", &labels, lag as f64);
    }
    families.counter(names::READ, "Records that were read", &labels, figures.read as f64);
    families.counter(names::STALE, "Records of superseded processes that were passed over", &labels, figures.stale as f64);
    families.counter(names::DISCARDED, "Events of runs whose log was gone", &labels, figures.discarded as f64);
}

/// Metric families by name, in the order in which they first came.
#[derive(Default)]
struct Families(Vec<MetricFamily>);

impl Families {
    fn counter(&mut self, name: &str, help: &str, labels: &Labels<'_>, value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = Metric::from_label(pairs(labels));
        metric.set_counter(counter);
        self.add(name, help, MetricType::COUNTER, metric);
    }

    fn gauge(&mut self, name: &str, help: &str, labels: &Labels<'_>, value: f64) {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = Metric::from_label(pairs(labels));
        metric.set_gauge(gauge);
        self.add(name, help, MetricType::GAUGE, metric);
    }

    fn histogram(&mut self, name: &str, help: &str, labels: &Labels<'_>, durations: &Durations) {
        let mut histogram = Histogram::default();
        let mut below = 0;
        let buckets = DURATION_BOUNDS.iter().zip(durations.buckets).map(|(bound, count)| {
            below += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(below);
            bucket
        });
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(durations.count());
        histogram.set_sample_sum(durations.sum_seconds);
        let mut metric = Metric::from_label(pairs(labels));
        metric.set_histogram(histogram);
        self.add(name, help, MetricType::HISTOGRAM, metric);
    }

    fn add(&mut self, name: &str, help: &str, kind: MetricType, metric: Metric) {
        if let Some(family) = self.0.iter_mut().find(|family| family.name() == name) {
            family.mut_metric().push(metric);
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(vec![metric]);
        self.0.push(family);
    }
}

fn pairs(labels: &Labels<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{courier::Role, indexers::IndexerStats, metrics::StageFigures, pipeline::StageStats, publisher::StepState};
    use penstock_crds::{ingest_run::Counts, stages::Stage};
    use std::{collections::BTreeSet, sync::Arc, time::Instant};

    /// The figures of a run with a stage, with something in each of them.
    fn text() -> String {
        let stages: Vec<Stage> = serde_json::from_value(serde_json::json!([{"drop": {}}])).expect("stages");
        let stages = StageFigures::new(&stages);
        let mut stats = StageStats { processed: 4, ..StageStats::default() };
        stats.durations.buckets[2] = 3;
        stats.durations.buckets[4] = 1;
        stages.add([stats].into_iter());
        let state = StepState::new();
        state.set_counts(Counts { published: 5, finished: 3, failed: 1, pending: 1, ..Counts::default() });
        let run = RunFigures::new("r", 1);
        let indexer = Arc::new(IndexerStats::default());
        run.begin(Arc::new(StepFigures { connector: "c".into(), pipeline: "p".into(), state, indexer, stages: Arc::new(stages) }));
        let courier = run.courier(Role::Worker, "p");
        courier.set_positions([(2, 7), (3, 750)].into());
        courier.set_ends([(3, 1_000), (4, 9)].into());
        let health = Health::default();
        health.look(Instant::now()).expect("no heartbeat file");
        prometheus_text(&run, &health).expect("text")
    }

    fn assert_lines(expected: &[&str]) {
        let text = text();
        for line in expected {
            assert!(text.lines().any(|present| present == *line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn run_pipeline_and_connector_are_labels_of_fixed_names_m1() {
        assert_lines(&[
            r#"penstock_published_documents_total{run="r",pipeline="p",connector="c"} 5"#,
            r#"penstock_ended_documents_total{run="r",pipeline="p",connector="c",outcome="failed"} 1"#,
            r#"penstock_partition_lag_records{pipeline="p",role="worker",partition="3"} 250"#,
            r#"penstock_stage_processed_documents_total{run="r",pipeline="p",connector="c",stage="drop-1",kind="drop"} 4"#,
        ]);
    }

    #[test]
    fn the_names_are_those_of_the_list_and_no_others_m2() {
        let source = include_str!("prometheus.rs");
        let listed: BTreeSet<&str> = source.split(": &str = \"").skip(1).filter_map(|after| after.split('"').next()).collect();
        let text = text();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let shown: BTreeSet<&str> = types.clone().map(|(name, _)| name).collect();
        assert_eq!(shown, listed.into_iter().filter(|name| name.starts_with("penstock_")).collect());
        for (name, kind) in types {
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        }
    }

    #[test]
    fn each_stage_has_a_histogram_m15() {
        let labels = r#"run="r",pipeline="p",connector="c",stage="drop-1",kind="drop""#;
        assert_lines(&[
            "# TYPE penstock_stage_duration_seconds histogram",
            &format!(r#"penstock_stage_duration_seconds_bucket{{{labels},le="0.0000005"}} 0"#),
            &format!(r#"penstock_stage_duration_seconds_bucket{{{labels},le="0.000001"}} 3"#),
            &format!(r#"penstock_stage_duration_seconds_bucket{{{labels},le="10"}} 4"#),
            &format!(r#"penstock_stage_duration_seconds_bucket{{{labels},le="+Inf"}} 4"#),
            &format!("penstock_stage_duration_seconds_count{{{labels}}} 4"),
        ]);
    }
}
