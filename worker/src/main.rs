//! `penstock`: arguments in, one call, an exit code out.

use clap::Parser;
use penstock::cli::{Cli, Exit};

fn main() -> Exit {
    Cli::parse().execute()
}
