//! The job of the speed figures, and how a process is measured: shared by the benches that run whole processes.

#![allow(dead_code, reason = "each bench uses a part of it")]

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use std::{
    env, fs,
    io::{BufWriter, Write},
    path::Path,
    process::Child,
    time::{Duration, Instant},
};

/// The five stages, native.
pub const FIVE_STAGES: &str = r#"
    - rename: {fields: {title: name}}
    - copy: {fields: {name: [name_exact]}}
    - changeCase: {fields: {category: category_lc}, to: Lower}
    - concatenate: {target: label, template: "{author} - {sku}"}
    - extract: {source: sku, pattern: 'SKU-(?P<sku_num>\d+)-'}
"#;

/// The step of the job, for the pipeline `name`.
pub fn run_manifest(name: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata: {{name: {name}}}\nspec:\n  connectors:\n    - name: rows\n      pipeline: {name}\n      file: {{paths: [\"${{ROWS}}\"], format: {{csv: {{id: [id]}}}}}}\n"
    )
}

/// A size from the environment.
pub fn size(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What a process took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Wall time, seconds.
    pub wall: f64,
    /// CPU time, seconds.
    pub cpu: f64,
    /// Its peak memory, bytes.
    pub peak: f64,
}

/// Waits for a child to end well. No other child may end meanwhile.
pub fn measure(child: &mut Child, begun: Instant) -> Result<Taken> {
    let cpu_before = children_cpu()?;
    let mut peak = 0.0;
    let status = loop {
        // the kernel keeps the high water mark, so a late look is enough
        peak = memory(child.id(), "VmHWM:").unwrap_or(peak);
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let wall = begun.elapsed().as_secs_f64();
    anyhow::ensure!(status.success(), "a process failed: {status}");
    Ok(Taken { wall, cpu: children_cpu()? - cpu_before, peak })
}

/// A figure of a process's memory, in bytes: `VmHWM:` (the peak) or `VmRSS:`.
pub fn memory(process: u32, figure: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(figure))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}

/// The middle one; sorts.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Writes the rows of the job.
pub fn write_rows(path: &Path, rows: u64) -> Result<()> {
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

fn children_cpu() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
