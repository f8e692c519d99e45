//! What the program is made of: licences that go with ours, and nothing from outside crates.io.
//!
//! `cargo deny check` says more; this needs nothing installed, so it is never left out.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use spdx::{Expression, ParseMode};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    license: Option<String>,
    source: Option<String>,
}

/// The part of `.deny.toml` that is read here.
#[derive(Deserialize)]
struct Rules {
    licenses: Licences,
}

#[derive(Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The packages of the workspace and all that they depend on.
fn packages() -> Result<Vec<Package>> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version", "1", "--locked", "--all-features"]).current_dir(repository());
    let output = metadata.output().context("failed to run cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice::<Metadata>(&output.stdout).context("failed to read the answer of cargo metadata")?.packages)
}

fn rules() -> Result<Licences> {
    let text = fs::read_to_string(repository().join(".deny.toml")).context("failed to read .deny.toml")?;
    Ok(toml::from_str::<Rules>(&text).context("failed to understand .deny.toml")?.licenses)
}

/// What is wrong with the licence of a package.
fn fault(package: &Package, rules: &Licences) -> Option<String> {
    let Some(text) = &package.license else { return Some("names no licence".into()) };
    let expression = match Expression::parse_mode(text, ParseMode::LAX) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("`{text}` is no licence: {}", error.reason)),
    };
    let excepted = rules.exceptions.iter().find(|exception| exception.name == package.name);
    let allowed = expression.evaluate(|requirement| {
        let name = requirement.to_string();
        rules.allow.contains(&name) || excepted.is_some_and(|exception| exception.allow.contains(&name))
    });
    (!allowed).then(|| format!("`{text}` is not allowed by .deny.toml"))
}

#[test]
fn every_licence_is_one_of_the_allowed() -> Result<()> {
    let (packages, rules) = (packages()?, rules()?);
    let faults: Vec<_> = packages.iter().filter_map(|package| Some(format!("{}: {}", package.name, fault(package, &rules)?))).collect();
    assert!(packages.len() > 100 && faults.is_empty(), "{faults:#?}");
    Ok(())
}

#[test]
fn an_exception_that_nobody_needs_is_removed() -> Result<()> {
    let (packages, mut rules) = (packages()?, rules()?);
    for exception in std::mem::take(&mut rules.exceptions) {
        let needed = packages.iter().any(|package| package.name == exception.name && fault(package, &rules).is_some());
        assert!(needed, "{} needs no exception in .deny.toml", exception.name);
    }
    Ok(())
}

#[test]
fn every_dependency_comes_from_crates_io() -> Result<()> {
    let strangers: Vec<_> = packages()?
        .into_iter()
        .filter_map(|package| Some((package.name, package.source?)))
        .filter(|(_, source)| source != CRATES_IO)
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    Ok(())
}
