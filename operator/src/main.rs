//! The program `penstock-operator`.

use clap::Parser;
use penstock_operator::{Args, run};

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    penstock::telemetry::start(args.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(args))
}
