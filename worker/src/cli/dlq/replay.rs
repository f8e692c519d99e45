//! `penstock dlq replay`.

use super::{fail_dlq, filter::MeantArgs};
use crate::{
    cli::{Exit, topics::PATIENCE},
    kafka::dlq::{Replay, Replayed, replay},
    wording::counted,
};
use anyhow::Context;
use clap::Args;
use std::{
    fmt::Write as _,
    io::{self, Write},
};

const EXAMPLES: &str = "\
Examples:
  penstock dlq replay books.yaml --stage price --dry-run   what would be done
  penstock dlq replay books.yaml --all
  penstock dlq replay books.yaml --id p-11 --force         also if the id has come again since

What failed in a stage goes through all stages again, what failed at the indexer goes there at once.
A finished run is not amended. Letters stay: remove them with `penstock dlq purge`.";

/// Arguments of `penstock dlq replay`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayCommand {
    #[command(flatten)]
    meant: MeantArgs,
    /// Also where a newer operation on the same id has come since: the old one is applied behind it.
    #[arg(long)]
    force: bool,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

impl ReplayCommand {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let (filter, target) = match self.meant.target(false) {
            Ok(meant) => meant,
            Err(no_target) => return no_target.print(),
        };
        let wanted = Replay {
            letters: &target.names.fail,
            source: &target.names.source,
            filter: &filter,
            force: self.force,
            dry_run: self.dry_run,
            patience: PATIENCE,
        };
        match replay(&target.connection, &wanted) {
            Ok(done) => {
                let text = report(&done, &target.names.source, self.dry_run);
                io::stdout().write_all(text.as_bytes()).context("failed to print the result")?;
                Ok(Exit::Complete)
            }
            Err(error) => fail_dlq(&error),
        }
    }
}

fn report(done: &Replayed, source: &str, dry_run: bool) -> String {
    let verb = if dry_run { "would be sent" } else { "sent" };
    let (letters, documents) = (counted(done.letters, "letter"), counted(done.sent, "document"));
    let mut text = format!("{letters}, {documents} {verb} to {source}\n");
    for (reason, count) in &done.skipped {
        let cure = if reason.can_be_forced() { " (--force brings it in all the same)" } else { "" };
        let _ = writeln!(text, "{count} passed over: {}{cure}", reason.as_str());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::dlq::Skipped;

    #[test]
    fn what_was_passed_over_is_said_with_the_reason() {
        let done = Replayed { letters: 5, sent: 2, skipped: [(Skipped::Superseded, 2), (Skipped::Truncated, 1)].into() };
        let wanted = "5 letters, 2 documents would be sent to books_source\n\
            2 passed over: a newer operation on the id has come since (--force brings it in all the same)\n\
            1 passed over: it was too large to be kept as a whole\n";
        assert_eq!(report(&done, "books_source", true), wanted);
        let one = Replayed { letters: 1, sent: 1, ..Replayed::default() };
        assert_eq!(report(&one, "books_source", false), "1 letter, 1 document sent to books_source\n");
    }
}
