//! `penstock explain`: the reference of every kind, component and field.

use super::{
    Exit,
    style::{HEADING, has_colours, styled},
};
use crate::reference::{
    lookup::{Found, find},
    markdown, text,
};
use anyhow::Context;
use clap::Args;
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  penstock explain                          everything there is
  penstock explain stages                   all stages, and what every stage may have
  penstock explain stage rename
  penstock explain connector file csv
  penstock explain indexer opensearch
  penstock explain pipeline.spec.workers
  penstock explain spec.stages[2].remap.source     a path as `penstock validate` prints it";

/// Arguments of `penstock explain`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Explain {
    /// What to explain: a kind, stages, connectors, indexers, one of them, or the path of a field.
    words: Vec<String>,
    /// Write the whole reference as Markdown pages into this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    markdown: Option<PathBuf>,
}

impl Explain {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        if let Some(directory) = &self.markdown {
            write_pages(directory)?;
            return Ok(Exit::Complete);
        }
        let coloured = has_colours(&io::stdout());
        let heading = |text: &str| styled(text, HEADING, coloured);
        let text = match find(&self.words) {
            _ if self.words.is_empty() => text::overview(heading),
            Ok(Found::Family(family)) => text::family(family, heading),
            Ok(Found::Topic(topic)) => text::topic(&topic, heading),
            Err(error) => {
                writeln!(io::stderr(), "error: {error}").context("failed to print the error")?;
                return Ok(Exit::Usage);
            }
        };
        io::stdout().write_all(text.as_bytes()).context("failed to print the reference")?;
        Ok(Exit::Complete)
    }
}

fn write_pages(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
    for page in markdown::pages() {
        let path = directory.join(&page.file);
        fs::write(&path, page.text).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}
