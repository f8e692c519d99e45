//! Kafka as a messenger: what every messenger must do, through a real broker.

use anyhow::Result;
use penstock::{
    courier::{Courier, CourierFigures, CourierSettings, KafkaReader, LetterTopic, Outlet, Role, lanes},
    event::{EventBatch, Outcome, Tag},
    indexers::EventSink,
    kafka::{Connection, PipelineNames},
    messenger::{
        Polled, SourceReader,
        compliance::{Way, every_document_arrives_once_and_in_order_of_its_id, what_is_held_back_arrives_after_a_flush},
        kafka::{Publication, SourceAcks, TopicWriter},
    },
    secrets::Secrets,
};
use penstock_crds::topics::Topics;
use penstock_tests::services::kafka::Kafka;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// A lane whose documents are all indexed at once: the next poll says so.
struct Settling {
    reader: KafkaReader,
    outlet: Outlet,
    open: Vec<u64>,
    /// Ends the courier with the last lane.
    _alive: Arc<DropGuard>,
}

struct DropGuard(CancellationToken);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl SourceReader for Settling {
    fn poll(&mut self, until: Option<Instant>) -> Polled {
        let mut finished = EventBatch::new(0, 0, Outcome::Finished);
        self.open.drain(..).for_each(|ticket| finished.push(Tag::source(ticket)));
        if !finished.is_empty() {
            self.outlet.report(finished);
        }
        let polled = self.reader.poll(until);
        if let Polled::Batch(batch) = &polled {
            self.open.extend(&batch.seqs);
        }
        polled
    }
}

/// The largest record of a topic.
const RECORD: usize = 1_048_588;

/// A way through topics of its own.
fn through(kafka: &Kafka, count: usize) -> Result<Way> {
    static PIPELINES: AtomicU64 = AtomicU64::new(0);
    let pipeline = format!("messenger-{}", PIPELINES.fetch_add(1, Relaxed));
    let spec = serde_json::from_value(serde_json::json!({"bootstrapServers": kafka.bootstrap()}))?;
    let connection = Arc::new(Connection::new(&spec, "default", &Secrets::default())?);
    let names = PipelineNames::new(&pipeline, &Topics::default(), "");
    for (topic, partitions) in [(names.source.clone(), 4), (names.fail.clone(), 1), (names.event("r-1")?, 1)] {
        kafka.create_topic(&topic, partitions)?;
    }
    let acks = SourceAcks::start(&connection, RECORD, 0, BTreeMap::new())?;
    let publication = Publication { run: "r-1".into(), step: "s".into(), epoch: 0, replaced: false };
    let abort = CancellationToken::new();
    let writer = TopicWriter::new(&names.source, publication, acks, abort.child_token());
    let (ends, readers, outlet, _) = lanes(count);
    let letters = LetterTopic { name: names.fail.clone(), largest_record: RECORD };
    let settings = CourierSettings {
        pipeline: pipeline.clone(),
        names,
        role: Role::WorkerIndexer,
        drain: CancellationToken::new(),
        abort: abort.clone(),
        max_attempts: 3,
        letters,
        largest_record: RECORD,
        blamed: crossbeam_channel::never(),
        figures: Arc::new(CourierFigures::new(Role::WorkerIndexer, &pipeline)),
    };
    thread::spawn(move || Courier::new(&connection, settings, ends).and_then(Courier::run));
    let alive = Arc::new(DropGuard(abort));
    let settling = |reader| {
        let (outlet, _alive) = (outlet.clone(), Arc::clone(&alive));
        Box::new(Settling { reader, outlet, open: Vec::new(), _alive }) as Box<dyn SourceReader>
    };
    Ok(Way { writer: Box::new(writer), readers: readers.into_iter().map(settling).collect() })
}

#[test]
fn every_document_arrives_once_and_in_order_of_its_id_through_kafka_x11() -> Result<()> {
    let kafka = Kafka::shared()?;
    every_document_arrives_once_and_in_order_of_its_id(|lanes| through(kafka, lanes).expect("a way through Kafka"));
    Ok(())
}

#[test]
fn what_is_held_back_arrives_after_a_flush_through_kafka() -> Result<()> {
    let kafka = Kafka::shared()?;
    what_is_held_back_arrives_after_a_flush(|lanes| through(kafka, lanes).expect("a way through Kafka"));
    Ok(())
}
