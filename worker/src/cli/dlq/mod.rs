//! `penstock dlq`: the dead letter topic of a pipeline.

mod filter;
mod list;
mod purge;
mod render;
mod replay;

use super::{
    Exit,
    topics::{fail, fail_kafka},
};
use crate::kafka::dlq::DlqError;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  penstock dlq list books.yaml                             every letter with its reason
  penstock dlq show books.yaml --id p-11                   a document, and all that is known of it
  penstock dlq replay books.yaml --stage price --dry-run   what would be brought in again
  penstock dlq purge books.yaml --run nightly-4f2a91c0     remove the letters of a run

Letters stay until they are removed, also those that were brought in again.";

/// Arguments of `penstock dlq`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Dlq {
    #[command(subcommand)]
    action: Action,
}

/// What to do with letters.
#[derive(Debug, Subcommand)]
enum Action {
    /// Show letters, one a line.
    List(list::List),
    /// Show letters with their documents, as JSON.
    Show(list::Show),
    /// Bring documents in again: new operations that no run counts.
    Replay(replay::ReplayCommand),
    /// Remove letters. Those that are kept move to the end of the topic.
    Purge(purge::PurgeCommand),
}

impl Dlq {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        match self.action {
            Action::List(command) => command.execute(),
            Action::Show(command) => command.execute(),
            Action::Replay(command) => command.execute(),
            Action::Purge(command) => command.execute(),
        }
    }
}

fn fail_dlq(error: &DlqError) -> anyhow::Result<Exit> {
    match error {
        DlqError::Kafka(error) => fail_kafka(error),
        error => fail(&error.to_string(), Exit::Failed),
    }
}
