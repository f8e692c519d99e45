//! `penstock dlq list` and `penstock dlq show`.

use super::{fail_dlq, filter::FilterArgs, render};
use crate::{
    cli::{
        Exit,
        topics::{PATIENCE, TopicArgs},
    },
    kafka::dlq::{DeadLetters, Letter, Met},
    wording::counted,
};
use anyhow::Context;
use clap::Args;
use std::{
    io::{self, BufWriter, Write},
    ops::ControlFlow,
};

/// Which letters are shown.
#[derive(Debug, Args)]
struct LetterArgs {
    #[command(flatten)]
    topics: TopicArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Stop after so many letters.
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<u64>,
}

/// Arguments of `penstock dlq list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    letters: LetterArgs,
    /// Print one JSON object a letter.
    #[arg(long, conflicts_with = "count")]
    json: bool,
    /// Print nothing but the number of letters.
    #[arg(long)]
    count: bool,
}

/// Arguments of `penstock dlq show`.
#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    letters: LetterArgs,
}

impl List {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let mut out = BufWriter::new(io::stdout().lock());
        let printed = self.letters.each(&mut |letter| match (self.count, self.json) {
            (true, _) => Ok(()),
            (_, true) => writeln!(out, "{}", render::json(letter, false)),
            _ => writeln!(out, "{}", render::line(letter)),
        });
        let met = match printed? {
            Ok(met) => met,
            Err(exit) => return Ok(exit),
        };
        if self.count {
            writeln!(out, "{}", met.letters).context("failed to print the number")?;
        }
        out.flush().context("failed to print the letters")?;
        if !self.count {
            writeln!(io::stderr(), "{}", summary(met)).context("failed to print the summary")?;
        }
        Ok(Exit::Complete)
    }
}

impl Show {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let mut out = BufWriter::new(io::stdout().lock());
        let printed = self.letters.each(&mut |letter| writeln!(out, "{:#}", render::json(letter, true)));
        if let Err(exit) = printed? {
            return Ok(exit);
        }
        out.flush().context("failed to print the letters")?;
        Ok(Exit::Complete)
    }
}

impl LetterArgs {
    /// Prints letters as they are read. The inner error is how the command ends, after the reason was printed.
    fn each(&self, print: &mut dyn FnMut(&Letter<'_>) -> io::Result<()>) -> anyhow::Result<Result<Met, Exit>> {
        let target = match self.topics.target(false) {
            Ok(target) => target,
            Err(no_target) => return no_target.print().map(Err),
        };
        let (mut left, mut printed) = (self.limit.unwrap_or(u64::MAX), Ok(()));
        let mut visit = |letter: &Letter<'_>| {
            printed = print(letter);
            left = left.saturating_sub(1);
            if printed.is_ok() && left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let letters = DeadLetters::open(&target.connection, &target.names.fail, PATIENCE);
        match letters.and_then(|letters| letters.for_each(&self.filter.filter(), &mut visit)) {
            Ok(met) => {
                printed.context("failed to print the letters")?;
                Ok(Ok(met))
            }
            Err(error) => fail_dlq(&error).map(Err),
        }
    }
}

fn summary(met: Met) -> String {
    let letters = counted(met.letters, "letter");
    match met.repeats {
        0 => letters,
        1 => format!("{letters}; 1 more is about the same document, written again after a crash"),
        repeats => format!("{letters}; {repeats} more are about the same documents, written again after a crash"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_letter_is_no_letters() {
        let told = |letters, repeats| summary(Met { letters, repeats, others: 0 });
        assert_eq!([told(0, 0), told(1, 0), told(2, 0)], ["0 letters", "1 letter", "2 letters"]);
        assert!(told(1, 1).starts_with("1 letter; 1 more is ") && told(1, 2).starts_with("1 letter; 2 more are "));
    }
}
