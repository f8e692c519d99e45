//! `penstock dlq purge`.

use super::{fail_dlq, filter::MeantArgs};
use crate::{
    cli::{Exit, topics::PATIENCE},
    kafka::dlq::purge,
    wording::counted,
};
use anyhow::Context;
use clap::Args;
use std::io::{self, Write};

const EXAMPLES: &str = "\
Examples:
  penstock dlq purge books.yaml --run nightly --until 30d --dry-run
  penstock dlq purge books.yaml --all

Kafka removes records from the front of a topic only. So letters that are not meant are copied to
the end first; when all of them are acknowledged, everything up to the old end is removed.
Interrupted in between, letters stand there twice, which does no harm: the other commands show each
once.";

/// Arguments of `penstock dlq purge`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PurgeCommand {
    #[command(flatten)]
    meant: MeantArgs,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

impl PurgeCommand {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let (filter, target) = match self.meant.target(true) {
            Ok(meant) => meant,
            Err(no_target) => return no_target.print(),
        };
        match purge(&target.connection, &target.names.fail, &filter, self.dry_run, PATIENCE) {
            Ok(purged) => {
                let verb = if self.dry_run { "would be removed" } else { "removed" };
                writeln!(io::stdout(), "{} {verb}, {} kept", counted(purged.removed, "letter"), purged.kept)
                    .context("failed to print the result")?;
                Ok(Exit::Complete)
            }
            Err(error) => fail_dlq(&error),
        }
    }
}
