//! The job of the speed figures over Kafka, as whole processes, in turn with a bare relay over the same topics.
//!
//! `KAFKA=host:port cargo bench --bench kafka` prints medians of wall time, and of CPU time and peak memory of each process. It
//! makes topics that begin with `penstock-bench` on that broker and removes them. `PENSTOCK_BENCH_ROWS` (1,000,000) and
//! `PENSTOCK_BENCH_RUNS` (3) change the size, `PENSTOCK_BENCH_PROGRAM` names another build, an argument selects cases
//! (`-- hybrid`). `-- outage` measures other things: memory while the backend hangs, the recovery of a publisher, the replay of
//! an event log.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../job/mod.rs"]
mod job;
mod outage;
mod processes;
mod relay;
mod topics;

use anyhow::{Context, Result};
use job::{Taken, median};
use processes::{Mode, Setting};
use std::{env, path::Path};

/// What is measured: the mode of the pipeline, and the processes by the arguments they are started with.
struct Case {
    name: &'static str,
    mode: Mode,
    /// Processes beside the publisher.
    roles: &'static [&'static str],
    /// The publisher's command.
    publisher: &'static str,
    /// The relay goes over the topics behind it.
    relay: bool,
}

const CASES: [Case; 3] = [
    Case {
        name: "distributed, three processes",
        mode: Mode::Distributed,
        roles: &["worker", "indexer"],
        publisher: "publish",
        relay: true,
    },
    Case { name: "hybrid, two processes", mode: Mode::WorkerIndexer, roles: &["worker-indexer"], publisher: "publish", relay: false },
    Case { name: "hybrid, one process", mode: Mode::WorkerIndexer, roles: &[], publisher: "run", relay: false },
];

/// Figures of one line of the table.
struct Line {
    name: String,
    rates: Vec<f64>,
    processes: Vec<(&'static str, Vec<f64>, Vec<f64>)>,
}

/// A case: its name, documents a second, and what each process took.
type Measured = (&'static str, f64, Vec<(&'static str, Taken)>);

fn main() -> Result<()> {
    let broker = env::var("KAFKA").context("KAFKA=host:port names the broker")?;
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [relay, from, to, rows] = &arguments[..]
        && relay == "--relay"
    {
        return relay::relay(&broker, from, to, rows.parse()?);
    }
    let filter = arguments.first().map_or("", String::as_str);
    let (rows, runs) = (job::size("PENSTOCK_BENCH_ROWS", 1_000_000), job::size("PENSTOCK_BENCH_RUNS", 3));
    let folder = tempfile::tempdir().context("failed to make a folder")?;
    job::write_rows(&folder.path().join("rows.csv"), rows)?;
    if filter == "outage" {
        return outage::measure(&broker, folder.path(), rows);
    }
    println!("{rows} rows, 4 partitions, {runs} runs of each in turn");
    let mut lines: Vec<Line> = Vec::new();
    // the first round only warms up
    for run in 0..=runs {
        for case in CASES.iter().filter(|case| case.name.contains(filter)) {
            for (name, rate, processes) in run_case(case, &broker, folder.path(), rows, run)? {
                if run > 0 {
                    enter(&mut lines, name, rate, &processes, rows);
                } else {
                    println!("warm-up: {name} {rate:.0}");
                }
            }
        }
    }
    lines.iter_mut().for_each(print);
    Ok(())
}

/// Runs a case once: its figures, and those of the relay behind it.
fn run_case(case: &Case, broker: &str, folder: &Path, rows: u64, run: u64) -> Result<Vec<Measured>> {
    let setting = Setting::new(broker, folder, &format!("penstock-bench-{}-{run}", std::process::id()), case.mode)?;
    let taken = processes::run(&setting, case.roles, case.publisher)?;
    let mut figures = vec![(case.name, rows as f64 / taken[0].1.wall, taken)];
    if case.relay {
        let relayed = processes::relay(&setting, rows)?;
        figures.push(("bare relay, source to dest", rows as f64 / relayed.wall, vec![("relay", relayed)]));
    }
    setting.remove()?;
    Ok(figures)
}

fn enter(lines: &mut Vec<Line>, name: &str, rate: f64, processes: &[(&'static str, Taken)], rows: u64) {
    let found = lines.iter().position(|line| line.name == name);
    let line = match found {
        Some(index) => &mut lines[index],
        None => {
            let processes = processes.iter().map(|(process, _)| (*process, Vec::new(), Vec::new())).collect();
            lines.push(Line { name: name.into(), rates: Vec::new(), processes });
            let last = lines.len() - 1;
            &mut lines[last]
        }
    };
    line.rates.push(rate);
    for ((_, cpu, peak), (_, taken)) in line.processes.iter_mut().zip(processes) {
        cpu.push(taken.cpu * 1e6 / rows as f64);
        peak.push(taken.peak / 1e6);
    }
}

fn print(line: &mut Line) {
    let rate = median(&mut line.rates);
    let (least, most) = (line.rates[0], line.rates[line.rates.len() - 1]);
    println!("{:<32} {rate:>9.0} docs/s ({least:.0}-{most:.0})", line.name);
    for (process, cpu, peak) in &mut line.processes {
        println!("    {process:<28} {:>9.2} CPU us/doc {:>6.0} MB at most", median(cpu), median(peak));
    }
}
