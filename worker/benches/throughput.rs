//! The job of the speed figures: CSV rows, five stages, no-op indexer, as whole processes, in turn with the bare loop.
//!
//! `cargo bench --bench throughput` prints medians of wall time, CPU time and peak memory. `PENSTOCK_BENCH_ROWS` (1,000,000)
//! and `PENSTOCK_BENCH_RUNS` (5) change the size. These machines may be noisy: compare rows of one table.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use std::{
    env, fs,
    io::{BufWriter, Write},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The five stages, as native stages and as one program.
const NATIVE: &str = r#"
    - rename: {fields: {title: name}}
    - copy: {fields: {name: [name_exact]}}
    - changeCase: {fields: {category: category_lc}, to: Lower}
    - concatenate: {target: label, template: "{author} - {sku}"}
    - extract: {source: sku, pattern: 'SKU-(?P<sku_num>\d+)-'}
"#;
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
    let number = |name: &str, default: u64| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (rows, runs) = (number("PENSTOCK_BENCH_ROWS", 1_000_000), number("PENSTOCK_BENCH_RUNS", 5));
    if env::args().any(|argument| argument == "--bare") {
        return bare_loop(&env::var("ROWS").context("ROWS names the file")?);
    }
    let folder = tempfile::tempdir().context("failed to make a folder")?;
    let input = folder.path().join("rows.csv");
    write_rows(&input, rows)?;
    let bytes = fs::metadata(&input)?.len();
    println!("{rows} rows, {} bytes a row, {runs} runs of each in turn", bytes / rows.max(1));
    let cases = cases(folder.path())?;
    let mut figures: Vec<Figures> = cases.iter().map(|_| Figures::default()).collect();
    for run in 0..=runs {
        for (case, figures) in cases.iter().zip(&mut figures) {
            let (wall, cpu, peak) = measure(case, &input, folder.path())?;
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
        ("five stages, nop", 2, NATIVE, nop),
        ("no stage, nop", 2, " []\n", nop),
        ("one VRL program, nop", 2, PROGRAM, nop),
        ("five stages, nop, 8 lanes", 8, NATIVE, nop),
        ("five stages, JSON lines", 2, NATIVE, lines),
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
        "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: bench}}\nspec:\n  mode: Local\n  workers: {{threads: {threads}}}\n  stages:{stages}  indexer: {indexer}\n---\n\
         apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata: {{name: bench}}\nspec:\n  connectors:\n    - name: rows\n      pipeline: bench\n      file: {{paths: [\"${{ROWS}}\"], format: {{csv: {{id: [id]}}}}}}\n"
    )
}

/// Wall seconds, CPU seconds and peak memory of one run.
fn measure(case: &Case, input: &Path, folder: &Path) -> Result<(f64, f64, f64)> {
    let cpu_before = children_cpu()?;
    let begun = Instant::now();
    let mut child = Command::new(&case.arguments[0])
        .args(&case.arguments[1..])
        .env("ROWS", input)
        .env("PENSTOCK_LOG", "error")
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to start {}", case.arguments[0]))?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0.0;
    let status = loop {
        // the kernel keeps the high water mark, so a late look is enough
        peak = peak_memory(&status_file).unwrap_or(peak);
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let wall = begun.elapsed().as_secs_f64();
    ensure!(status.success(), "{} failed: {status}", case.name);
    Ok((wall, children_cpu()? - cpu_before, peak))
}

fn children_cpu() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn peak_memory(status_file: &str) -> Option<f64> {
    let status = fs::read_to_string(status_file).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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

fn write_rows(path: &Path, rows: u64) -> Result<()> {
    let mut out = BufWriter::new(fs::File::create(path)?);
    writeln!(out, "id,title,author,category,price,sku,email,summary")?;
    for id in 0..rows {
        let (a, b) = (id % 977, id * 31 % 613);
        writeln!(
            out,
            "{id},The long title of book {a},Author {b},Books,{}.{:02},SKU-{:06}-GO,author{b}@example.org,A summary of about fifty characters which says it all",
            id % 90,
            id % 100,
            id % 1_000_000
        )?;
    }
    out.flush()?;
    Ok(())
}
