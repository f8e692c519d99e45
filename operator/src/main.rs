//! The program `penstock-operator`.

use clap::Parser;
use penstock_operator::{Args, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    penstock::telemetry::start(args.log_format);
    let ended = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(anyhow::Error::from);
    match ended.and_then(|runtime| runtime.block_on(run(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
