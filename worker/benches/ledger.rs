//! What accounting costs: 10 million events, shuffled within windows of 1,024 as lanes and partitions do it, in batches of 256.
//! `cargo bench -p penstock --bench ledger`; throughput is in events.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use penstock::{
    event::{EventBatch, Outcome, Tag},
    publisher::ledger::Ledger,
};
use std::hint::black_box;

const EVENTS: u64 = 10_000_000;
const WINDOW: usize = 1_024;
const BATCH: usize = 256;

fn shuffled(mut tags: Vec<Tag>) -> Vec<EventBatch> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for window in tags.chunks_mut(WINDOW) {
        for at in (1..window.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            window.swap(at, (random >> 33) as usize % (at + 1));
        }
    }
    in_batches(&tags)
}

fn in_batches(tags: &[Tag]) -> Vec<EventBatch> {
    let batch = |tags: &[Tag]| {
        let mut batch = EventBatch::new(1, 1, Outcome::Finished);
        tags.iter().for_each(|tag| batch.push(*tag));
        batch
    };
    tags.chunks(BATCH).map(batch).collect()
}

/// Families of a document and three children, children first.
fn families() -> Vec<Tag> {
    let family = |seq| (1..=3).map(move |ordinal| Tag { seq, ordinal, children: 0 }).chain([Tag { seq, ordinal: 0, children: 3 }]);
    (1..=EVENTS / 4).flat_map(family).collect()
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(EVENTS)).sample_size(10);
    let cases = [
        ("plain in windows of 1,024", EVENTS, shuffled((1..=EVENTS).map(Tag::source).collect())),
        ("families of 4, side by side", EVENTS / 4, in_batches(&families())),
        ("families of 4 in windows of 1,024", EVENTS / 4, shuffled(families())),
    ];
    for (name, documents, batches) in cases {
        group.bench_function(name, |bencher| {
            let ledger = || {
                let mut ledger = Ledger::new(1);
                ledger.published_to(documents);
                ledger
            };
            let apply = |mut ledger: Ledger| {
                for batch in &batches {
                    black_box(ledger.apply(batch, &mut |_| {}));
                }
                assert!(ledger.is_settled());
                ledger
            };
            bencher.iter_batched(ledger, apply, BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
