//! `penstock`: arguments in, one call, an exit code out.

use clap::Parser;
use penstock::cli::{Cli, Exit};

// Documents are made by one thread and freed by another; the system's allocator is several times slower at that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Exit {
    Cli::parse().execute()
}
