//! What stages cost: the five of the bench job natively and as one program, and a predicate. Times are for one document of
//! eight fields; what making and dropping the document costs is the line `none`.
#![allow(missing_docs)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use penstock::{
    document::{Document, Fields},
    event::Tag,
    pipeline::{Failure, Pipeline, Plan, Sink, SinkClosed},
};
use std::hint::black_box;

const BATCH: usize = 256;

const NATIVE: &str = r#"[
    {"rename": {"fields": {"title": "name"}}},
    {"copy": {"fields": {"name": ["name_exact"]}}},
    {"changeCase": {"fields": {"category": "category_lc"}, "to": "Lower"}},
    {"concatenate": {"target": "label", "template": "{author} - {sku}"}},
    {"extract": {"source": "sku", "pattern": "SKU-(?P<sku_num>\\d+)-"}}]"#;

const PROGRAM: &str = r#"
.name = del(.title)
.name_exact = .name
.category_lc = downcase!(.category)
.label = string!(.author) + " - " + string!(.sku)
.sku_num = parse_regex!(.sku, r'SKU-(?P<sku_num>\d+)-').sku_num
"#;

/// The end of all documents.
struct Nowhere;

impl Sink for Nowhere {
    fn forward(&mut self, document: Document, tag: Tag) -> Result<(), SinkClosed> {
        black_box((document, tag));
        Ok(())
    }

    fn dropped(&mut self, document: Document, tag: Tag, _: &str, _: String) -> Result<(), SinkClosed> {
        self.forward(document, tag)
    }

    fn failed(&mut self, failure: Failure<'_>) -> Result<(), SinkClosed> {
        unreachable!("{}: {}", failure.stage, failure.reason)
    }
}

fn documents() -> Vec<Document> {
    let document = |i: usize| {
        let fields = [
            ("id", format!("p-{i}")),
            ("title", format!("A title of usual length, number {i}")),
            ("author", format!("Author {}", i % 97)),
            ("category", "Books".to_owned()),
            ("price", format!("{}.90", i % 500)),
            ("sku", format!("SKU-{:06}-GO", i * 7919 % 1_000_000)),
            ("email", format!("author{}@example.org", i % 97)),
            ("summary", "What it is about, in a few words".to_owned()),
        ];
        // room as in the documents that a CSV reader makes
        let mut all = Fields::with_capacity(fields.len() + 6);
        fields.into_iter().for_each(|(key, value)| all.insert(key, value.into()));
        Document::with_fields(format!("p-{i}"), all)
    };
    (0..BATCH).map(document).collect()
}

fn lane(stages: &str) -> Pipeline {
    let stages: Vec<penstock_crds::stages::Stage> = serde_json::from_str(stages).expect("stages");
    Plan::preview(&stages).expect("plan").lane()
}

fn remap(source: &str) -> String {
    serde_json::json!([{ "remap": { "source": source } }]).to_string()
}

fn stages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stages");
    group.throughput(Throughput::Elements(BATCH as u64));
    let when = r#"[{"when": ".category == \"Music\"", "drop": {}}]"#;
    for (name, stages) in
        [("none", "[]".to_owned()), ("five native", NATIVE.to_owned()), ("five in VRL", remap(PROGRAM)), ("when", when.to_owned())]
    {
        let mut lane = lane(&stages);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                documents,
                |batch| batch.into_iter().try_for_each(|document| lane.process(document, 1, &mut Nowhere)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, stages);
criterion_main!(benches);
