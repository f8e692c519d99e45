//! `docs/parity.md`: every rule has a row, and every row a test that is there, unless what it tells of comes later.
//! The guides: every test that they name is there. They name tests in columns called `test` and in sections `The tests behind …`.

use anyhow::{Context, Result};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The rules, by letter: how many there are.
const RULES: [(char, usize); 4] = [('P', 25), ('S', 40), ('X', 20), ('M', 15)];

/// A row of the page.
struct Row {
    rule: String,
    here: String,
    /// What stands below `test`: the name of one in backticks, a few words, or `—`.
    test: String,
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn rows() -> Result<Vec<Row>> {
    let page = fs::read_to_string(repository().join("docs/parity.md")).context("failed to read docs/parity.md")?;
    let row = |line: &str| match line.split('|').map(str::trim).collect::<Vec<_>>()[..] {
        ["", rule, _, here, test, ""] if rule.ends_with(|char: char| char.is_ascii_digit()) => {
            Some(Row { rule: rule.into(), here: here.into(), test: test.into() })
        }
        _ => None,
    };
    Ok(page.lines().filter_map(row).collect())
}

/// The names of all tests of the repository, also of those that a macro makes of a list.
fn tests() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut folders: Vec<PathBuf> = ["worker", "crds", "tests"].map(|folder| repository().join(folder)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let source = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
                for after in ["#[test]", "#[tokio::test"].iter().flat_map(|mark| source.split(mark).skip(1)) {
                    names.extend(after.split("fn ").nth(1).and_then(|after| Some(after.split_once('(')?.0.to_owned())));
                }
                if source.contains("fn $name()") {
                    names.extend(source.lines().filter_map(|line| Some(line.trim().split_once(": ")?.0.to_owned())));
                }
            }
        }
    }
    Ok(names)
}

#[test]
fn every_rule_has_its_row_in_order() -> Result<()> {
    let expected: Vec<String> = RULES.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}"))).collect();
    assert_eq!(rows()?.into_iter().map(|row| row.rule).collect::<Vec<_>>(), expected);
    Ok(())
}

#[test]
fn every_test_that_is_named_is_there_and_carries_the_number_of_its_rule() -> Result<()> {
    let tests = tests()?;
    let mut faults = Vec::new();
    for Row { rule, test, .. } in rows()? {
        let Some(name) = test.strip_prefix('`').and_then(|test| test.strip_suffix('`')) else { continue };
        if !tests.contains(name) {
            faults.push(format!("{rule}: there is no `{name}`"));
        } else if !name.split('_').any(|part| part == rule.to_lowercase()) {
            faults.push(format!("{rule}: `{name}` does not say that it is about this rule"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

#[test]
fn only_what_comes_later_has_no_test() -> Result<()> {
    let untested: Vec<_> = rows()?.into_iter().filter(|row| row.test == "—" && !row.here.starts_with("later")).collect();
    assert!(untested.is_empty(), "{:?}", untested.iter().map(|row| &row.rule).collect::<Vec<_>>());
    Ok(())
}

/// The names of tests on a page, each with its line.
fn named(page: &str) -> Vec<(usize, &str)> {
    let (mut is_section, mut is_column, mut named) = (false, false, Vec::new());
    for (index, line) in page.lines().enumerate() {
        if line.starts_with('#') {
            is_section = line.starts_with("## The tests behind");
        }
        let last_cell = line.trim_end_matches('|').rsplit('|').next().filter(|_| line.starts_with('|')).map(str::trim);
        is_column = last_cell == Some("test") || is_column && last_cell.is_some();
        let part = if is_section { line } else { last_cell.filter(|_| is_column).unwrap_or_default() };
        let quoted = part.split('`').skip(1).step_by(2).filter(|name| name.contains('_') && !name.contains('/'));
        named.extend(quoted.map(|name| (index + 1, name)));
    }
    named
}

#[test]
fn every_test_that_a_guide_names_is_there() -> Result<()> {
    let (tests, mut found, mut faults) = (tests()?, 0, Vec::new());
    for entry in fs::read_dir(repository().join("docs/guides")).context("failed to list docs/guides")? {
        let path = entry?.path();
        let page = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        for (line, name) in named(&page) {
            found += 1;
            if !tests.contains(name) {
                faults.push(format!("{}:{line}: there is no test `{name}`", path.display()));
            }
        }
    }
    assert!(found > 40 && faults.is_empty(), "{found} named, {faults:#?}");
    Ok(())
}
