//! `penstock validate`: what every run checks first, alone.

use super::{
    Exit,
    manifests::{ManifestArgs, print_problems},
};
use crate::{
    dead_letter,
    manifest::{Manifests, Problem, Report},
    runner,
};
use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::{self, Write};

const EXAMPLES: &str = "\
Examples:
  penstock validate pipeline.yaml run.yaml
  penstock validate manifests/ --output json
  KAFKA=localhost:9092 penstock validate kafka.yaml

Each problem is one line FILE:LINE:COLUMN: FIELD: what is wrong and how to cure it. Further lines
are indented.
The exit code is 64 if there are problems, else 0.";

/// Arguments of `penstock validate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Validate {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// How the result is printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// A line for each problem.
    Text,
    /// One JSON object.
    Json,
}

impl Validate {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let result = self.manifests.load().and_then(check_files);
        match (self.output, result) {
            (Output::Text, Err(report)) => print_problems(&report),
            (Output::Text, Ok(manifests)) => {
                writeln!(io::stderr(), "{}", verdict(&manifests)).context("failed to print the summary")?;
                Ok(Exit::Complete)
            }
            (Output::Json, result) => {
                writeln!(io::stdout(), "{}", to_json(&result)).context("failed to print the result")?;
                Ok(if result.is_ok() { Exit::Complete } else { Exit::Invalid })
            }
        }
    }
}

/// What a run would refuse as well: files that it would use for two things at once.
fn check_files(manifests: Manifests) -> Result<Manifests, Report> {
    let of_run = |run| {
        let shared = runner::shared_files(&manifests, run, &dead_letter::default_path(&run.name));
        let problem = |message| Problem { file: run.file.clone(), place: Some(run.place), path: String::new(), message };
        shared.into_iter().map(problem).collect::<Vec<_>>()
    };
    let problems: Vec<Problem> = manifests.runs.iter().flat_map(of_run).collect();
    if problems.is_empty() { Ok(manifests) } else { Err(Report { problems }) }
}

fn verdict(manifests: &Manifests) -> String {
    let summary = manifests.summary();
    let count = manifests.pipelines.len() + manifests.runs.len() + manifests.schedules.len() + manifests.kafka_connections.len();
    let verb = if count == 1 { "is" } else { "are" };
    match manifests.foreign {
        0 => format!("{summary} {verb} valid"),
        1 => format!("{summary} {verb} valid; 1 object of another kind was passed over"),
        foreign => format!("{summary} {verb} valid; {foreign} objects of other kinds were passed over"),
    }
}

fn to_json(result: &Result<Manifests, Report>) -> Value {
    match result {
        Err(report) => json!({"valid": false, "problems": report.problems}),
        Ok(manifests) => json!({
            "valid": true,
            "problems": [],
            "pipelines": manifests.pipelines.len(),
            "runs": manifests.runs.len(),
            "schedules": manifests.schedules.len(),
            "kafkaConnections": manifests.kafka_connections.len(),
            "passedOver": manifests.foreign,
        }),
    }
}
