//! The manifests that a command works on, and how their problems are shown.

use super::{
    Exit,
    style::{FIELD, LOCATION, has_colours, styled},
};
use crate::manifest::{self, LoadOptions, Manifests, Problem, Report};
use anyhow::Context;
use clap::Args;
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// Arguments of every command that reads manifests.
#[derive(Debug, Args)]
pub struct ManifestArgs {
    /// Files or directories with manifests (of a directory its *.yaml and *.yml), or - for standard input.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Where relative paths in manifests start, instead of the folder of each manifest.
    #[arg(long, value_name = "DIR")]
    pub base_dir: Option<PathBuf>,
}

impl ManifestArgs {
    /// Reads and checks the manifests.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn load(&self) -> Result<Manifests, Report> {
        let options = LoadOptions { base_dir: self.base_dir.as_deref(), ..LoadOptions::default() };
        manifest::load(&self.paths, &options)
    }
}

/// Prints problems, one a line, on standard output and their number on standard error.
pub fn print_problems(report: &Report) -> anyhow::Result<Exit> {
    match write_problems(report) {
        // The reader has seen enough, `head` for example; the verdict stays.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("failed to print the problems")?,
    }
    writeln!(io::stderr(), "{}", report.summary()).context("failed to print the summary")?;
    Ok(Exit::Invalid)
}

fn write_problems(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let coloured = has_colours(&out);
    for problem in &report.problems {
        writeln!(out, "{}", render(problem, coloured))?;
    }
    out.flush()
}

fn render(problem: &Problem, coloured: bool) -> String {
    let text = problem.to_string();
    if !coloured {
        return text;
    }
    let location = problem.location();
    let rest = text.strip_prefix(&location).unwrap_or_default();
    let rest = match rest.strip_prefix(&format!(": {}", problem.path)) {
        Some(rest) if !problem.path.is_empty() => format!(": {}{rest}", styled(&problem.path, FIELD, true)),
        _ => rest.to_owned(),
    };
    format!("{}{rest}", styled(&location, LOCATION, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Place;

    #[test]
    fn colours_change_nothing_but_colours() {
        let place = Some(Place { line: 1, column: 2 });
        let escapes = regex::Regex::new("\u{1b}\\[[0-9;]*m").expect("a pattern");
        for path in ["spec.x", ""] {
            let problem = Problem { file: "a.yaml".into(), place, path: path.into(), message: "wrong\nthere".into() };
            let coloured = render(&problem, true);
            assert!(coloured.contains("\u{1b}["), "{coloured:?}");
            assert_eq!(escapes.replace_all(&coloured, ""), render(&problem, false));
        }
    }
}
