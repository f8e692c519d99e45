//! What reading CSV costs: the bare loop of the csv crate, and our reader into a publisher that counts.
//!
//! `cargo bench -p penstock --bench csv`; rows and columns as those of the figures in `docs/performance.md`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use penstock::{
    connectors::{self, Cursor, Publish, RecordFault, Stopped},
    context::StepContext,
    document::{Document, Row, Rows},
};
use std::{fmt::Write as _, hint::black_box, path::Path};

const ROWS: u64 = 200_000;

/// Keeps rows as lanes get them, in batches that are thrown away.
#[derive(Default)]
struct Counting {
    documents: u64,
    rows: Option<Rows>,
}

impl Publish for Counting {
    fn split(&mut self, _: serde_json::Value) -> u32 {
        0
    }
    fn publish(&mut self, document: Document, _: Cursor) -> Result<(), Stopped> {
        self.documents += 1;
        black_box(document);
        Ok(())
    }
    fn publish_row(&mut self, row: Row<'_>, _: Cursor) -> Result<(), Stopped> {
        self.documents += 1;
        let rows = self.rows.get_or_insert_with(|| Rows::new(row.columns.clone()));
        rows.push(row);
        if rows.len() == 256 {
            black_box(self.rows.take());
        }
        Ok(())
    }
    fn fail(&mut self, fault: RecordFault, _: Cursor) -> Result<(), Stopped> {
        unreachable!("the rows have no fault: {}", fault.reason)
    }
    fn flush(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
    fn progress(&mut self, _: u64, _: Option<u64>) {}
}

/// Rows of 8 columns and about 147 bytes.
fn csv_text(quoted: bool) -> String {
    let mut text = String::from("id,title,author,category,price,sku,email,summary\n");
    let quote = if quoted { "\"" } else { "" };
    for row in 0..ROWS {
        let written = writeln!(
            text,
            "{row},{quote}The {row} ways of water{quote},Author {},Books,{}.{:02},SKU-{:06}-GO,author{}@example.com,{quote}A summary of some forty characters or so it is{quote}",
            row % 977,
            row % 90 + 5,
            row % 100,
            row % 1_000_000,
            row % 977
        );
        assert!(written.is_ok());
    }
    text
}

fn json_text() -> String {
    let mut text = String::new();
    for row in 0..ROWS {
        let written = writeln!(
            text,
            r#"{{"id":"{row}","title":"The {row} ways of water","author":"Author {}","category":"Books","price":"{}.{:02}","sku":"SKU-{:06}-GO","email":"author{}@example.com","summary":"A summary of some forty characters or so it is, and more"}}"#,
            row % 977,
            row % 90 + 5,
            row % 100,
            row % 1_000_000,
            row % 977
        );
        assert!(written.is_ok());
    }
    text
}

fn read(spec: &serde_json::Value, folder: &Path, runtime: &tokio::runtime::Runtime) -> u64 {
    let spec = serde_json::from_value(serde_json::json!({"name": "c", "pipeline": "p", "file": spec})).expect("a connector");
    let context = StepContext {
        run: "run".into(),
        run_id: "run-1".into(),
        connector: "c".into(),
        pipeline: "p".into(),
        base_dir: folder.into(),
        run_base_dir: folder.into(),
        secrets: Default::default(),
        runtime: runtime.handle().clone(),
        stop: Default::default(),
        is_continuous: false,
        written: Default::default(),
    };
    let mut publish = Counting::default();
    connectors::build(&spec, &context).and_then(|mut connector| connector.execute(&mut publish, None)).expect("readable");
    assert_eq!(publish.documents, ROWS);
    publish.documents
}

fn reading(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("directory");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let mut group = criterion.benchmark_group("csv");
    group.sample_size(10).throughput(Throughput::Elements(ROWS));
    for (name, quoted) in [("plain", false), ("quoted", true)] {
        let path = folder.path().join(format!("{name}.csv"));
        std::fs::write(&path, csv_text(quoted)).expect("file");
        group.bench_function(format!("{name}/bare csv crate"), |bencher| {
            bencher.iter(|| {
                let mut reader = csv::ReaderBuilder::new().buffer_capacity(256 * 1024).from_path(&path).expect("file");
                let mut record = csv::StringRecord::new();
                let mut bytes = 0;
                while reader.read_record(&mut record).expect("record") {
                    bytes += record.as_slice().len();
                }
                black_box(bytes)
            });
        });
        let spec = serde_json::json!({"paths": [format!("{name}.csv")], "format": {"csv": {"id": ["id"]}}});
        group.bench_function(format!("{name}/penstock"), |bencher| bencher.iter(|| read(&spec, folder.path(), &runtime)));
    }
    std::fs::write(folder.path().join("x.jsonl"), json_text()).expect("file");
    let spec = serde_json::json!({"paths": ["x.jsonl"], "format": {"jsonLines": {}}});
    group.bench_function("json lines/penstock", |bencher| bencher.iter(|| read(&spec, folder.path(), &runtime)));
    group.finish();
}

criterion_group!(benches, reading);
criterion_main!(benches);
