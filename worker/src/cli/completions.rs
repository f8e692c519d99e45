//! `penstock completions`: scripts for shells.

use super::{Cli, Exit};
use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::{self, Write};

const EXAMPLES: &str = "\
Examples:
  penstock completions bash > ~/.local/share/bash-completion/completions/penstock
  penstock completions zsh > \"${fpath[1]}/_penstock\"
  penstock completions fish > ~/.config/fish/completions/penstock.fish";

/// Arguments of `penstock completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "penstock", &mut script);
        io::stdout().write_all(&script).context("failed to print the script")?;
        Ok(Exit::Complete)
    }
}
