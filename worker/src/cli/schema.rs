//! `penstock schema`: what editors need to complete and check manifests.

use super::Exit;
use crate::{manifest::Kind, reference::json_schema, suggest::did_you_mean};
use anyhow::Context;
use clap::Args;
use std::io::{self, Write};

const EXAMPLES: &str = "\
Examples:
  penstock schema > penstock.schema.json
  penstock schema pipeline

For an editor with the YAML language server, write as the first line of a manifest:
  # yaml-language-server: $schema=penstock.schema.json";

/// Arguments of `penstock schema`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Schema {
    /// The kind; without it, a schema that fits all of them.
    #[arg(value_parser = parse_kind)]
    kind: Option<Kind>,
}

fn parse_kind(word: &str) -> Result<Kind, String> {
    let is_meant = |kind: &Kind| word.eq_ignore_ascii_case(kind.name()) || word.eq_ignore_ascii_case(kind.short_name());
    Kind::ALL.into_iter().find(is_meant).ok_or_else(|| {
        let names = Kind::ALL.map(Kind::name);
        format!("not one of {}{}", names.join(", "), did_you_mean(word, names))
    })
}

impl Schema {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let schema = self.kind.map_or_else(json_schema::of_all, json_schema::of_kind);
        writeln!(io::stdout(), "{schema:#}").context("failed to print the schema")?;
        Ok(Exit::Complete)
    }
}
