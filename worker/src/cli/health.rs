//! `penstock health`: is the heartbeat fresh? For exec probes: an image without a shell has no other means.

use super::Exit;
use anyhow::Context;
use clap::Args;
use penstock_crds::values::Duration;
use std::{
    io::{self, Write},
    path::PathBuf,
    time::SystemTime,
};

const EXAMPLES: &str = "\
Examples:
  penstock run nightly.yaml --heartbeat-file /tmp/heartbeat
  penstock health --file /tmp/heartbeat --max-age 30s

Exit code 0 if the file was written within that time, else 1.";

/// Arguments of `penstock health`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HealthCommand {
    /// The heartbeat file.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// How old it may be.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = super::process::parse_duration)]
    max_age: Duration,
}

impl HealthCommand {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let path = self.file.display();
        let modified = self.file.metadata().and_then(|metadata| metadata.modified());
        let (exit, text) = match modified {
            Err(error) => (Exit::Failed, format!("no heartbeat: failed to read {path}: {error}")),
            // a clock that was set back makes no heartbeat stale
            Ok(modified) => match SystemTime::now().duration_since(modified).unwrap_or_default() {
                age if age > self.max_age.get() => (Exit::Failed, format!("stale: the heartbeat is {} s old", age.as_secs())),
                age => (Exit::Complete, format!("alive: the heartbeat is {} s old", age.as_secs())),
            },
        };
        writeln!(io::stdout(), "{text}").context("failed to print the result")?;
        Ok(exit)
    }
}
