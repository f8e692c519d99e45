//! The job of the speed figures: CSV rows, five stages, no-op indexer, as whole processes, in turn with the bare loop.
//!
//! `cargo bench --bench throughput` prints medians of wall time, CPU time and peak memory. `PENSTOCK_BENCH_ROWS` (1,000,000)
//! and `PENSTOCK_BENCH_RUNS` (5) change the size. These machines may be noisy: compare rows of one table.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod job;

use anyhow::{Context, Result};
use job::{FIVE_STAGES, Taken, median};
use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

/// The five stages as one program.
const PROGRAM: &str = r#"
    - remap:
        source: |
          .name = del(.title)
          .name_exact = .name
          .category_lc = downcase!(.category)
          .label = string!(.author) + " - " + string!(.sku)
          .sku_num = parse_regex!(.sku, r'SKU-(?P<n>\d+)-').n
"#;

struct Case {
    name: String,
    arguments: Vec<String>,
}

#[derive(Default)]
struct Figures {
    wall: Vec<f64>,
    cpu: Vec<f64>,
    peak: Vec<f64>,
}

fn main() -> Result<()> {
    let (rows, runs) = (job::size("PENSTOCK_BENCH_ROWS", 1_000_000), job::size("PENSTOCK_BENCH_RUNS", 5));
    if env::args().any(|argument| argument == "--bare") {
        return bare_loop(&env::var("ROWS").context("ROWS names the file")?);
    }
    let folder = tempfile::tempdir().context("failed to make a folder")?;
    let input = folder.path().join("rows.csv");
    job::write_rows(&input, rows)?;
    let bytes = fs::metadata(&input)?.len();
    println!("{rows} rows, {} bytes a row, {runs} runs of each in turn", bytes / rows.max(1));
    let cases = cases(folder.path())?;
    let mut figures: Vec<Figures> = cases.iter().map(|_| Figures::default()).collect();
    for run in 0..=runs {
        for (case, figures) in cases.iter().zip(&mut figures) {
            let Taken { wall, cpu, peak } = measure(case, &input, folder.path())?;
            // the first round only warms up
            if run > 0 {
                figures.wall.push(wall);
                figures.cpu.push(cpu);
                figures.peak.push(peak);
            }
        }
    }
    println!("{:<34} {:>12} {:>14} {:>14} {:>10}", "case", "docs/s", "CPU us/doc", "wall min-max s", "peak MB");
    for (case, figures) in cases.iter().zip(&mut figures) {
        let wall = median(&mut figures.wall);
        let range = format!("{:.2}-{:.2}", figures.wall[0], figures.wall[figures.wall.len() - 1]);
        let cpu = median(&mut figures.cpu) * 1e6 / rows as f64;
        println!("{:<34} {:>12.0} {:>14.2} {:>14} {:>10.0}", case.name, rows as f64 / wall, cpu, range, median(&mut figures.peak) / 1e6);
    }
    Ok(())
}

fn cases(folder: &Path) -> Result<Vec<Case>> {
    let program = env!("CARGO_BIN_EXE_penstock").to_owned();
    let me = env::current_exe()?.display().to_string();
    let mut cases = vec![Case { name: "bare loop: csv crate, serde_json".into(), arguments: vec![me, "--bare".into()] }];
    let nop = "{nop: {}}";
    let lines = "{jsonLines: {path: out.jsonl}}";
    for (name, threads, stages, indexer) in [
        ("five stages, nop", 2, FIVE_STAGES, nop),
        ("no stage, nop", 2, " []\n", nop),
        ("one VRL program, nop", 2, PROGRAM, nop),
        ("five stages, nop, 8 lanes", 8, FIVE_STAGES, nop),
        ("five stages, JSON lines", 2, FIVE_STAGES, lines),
    ] {
        let file = folder.join(format!("{}.yaml", cases.len()));
        fs::write(&file, manifest(threads, stages, indexer))?;
        let arguments = ["run", "--summary", "none", "--progress", "none"].map(String::from);
        let arguments = [program.clone()].into_iter().chain(arguments).chain([file.display().to_string()]).collect();
        cases.push(Case { name: name.into(), arguments });
    }
    Ok(cases)
}

fn manifest(threads: u32, stages: &str, indexer: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: bench}}\nspec:\n  mode: Local\n  workers: {{threads: {threads}}}\n  stages:{stages}  indexer: {indexer}\n---\n{}",
        job::run_manifest("bench")
    )
}

fn measure(case: &Case, input: &Path, folder: &Path) -> Result<Taken> {
    let begun = Instant::now();
    let mut child = Command::new(&case.arguments[0])
        .args(&case.arguments[1..])
        .env("ROWS", input)
        .env("PENSTOCK_LOG", "error")
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to start {}", case.arguments[0]))?;
    job::measure(&mut child, begun).with_context(|| case.name.clone())
}

/// What the libraries alone take: records of the csv crate as JSON objects into nothing.
fn bare_loop(path: &str) -> Result<()> {
    let mut reader = csv::Reader::from_path(path)?;
    let header = reader.headers()?.clone();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record)? {
        let object: serde_json::Map<String, serde_json::Value> =
            header.iter().zip(record.iter()).map(|(name, value)| (name.to_owned(), value.into())).collect();
        serde_json::to_writer(std::io::sink(), &object)?;
    }
    Ok(())
}
