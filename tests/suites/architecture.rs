//! The shape of the code, as `docs/architecture.md` describes it: who may know whom, and how large a file may be.

use anyhow::{Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The modules of the worker, and which others each of them may know. What is not listed is forbidden.
const MAY_KNOW: [(&str, &[&str]); 27] = [
    ("actions", &["context", "http", "problem", "secrets"]),
    ("cli", &["*"]),
    ("connectors", &["actions", "context", "document", "problem"]),
    ("context", &["secrets"]),
    ("courier", &["document", "event", "indexers", "kafka", "messenger", "publisher"]),
    ("dead_letter", &["context", "document", "indexers"]),
    ("document", &[]),
    ("event", &[]),
    ("health", &["messenger"]),
    ("http", &["secrets"]),
    ("indexers", &["context", "document", "event", "http", "problem", "secrets", "wording"]),
    ("kafka", &["http", "problem", "secrets", "suggest"]),
    ("manifest", &["connectors", "indexers", "kafka", "problem", "stages", "suggest", "wording"]),
    ("memory", &[]),
    ("messenger", &["document", "event", "indexers", "kafka"]),
    ("metrics", &["courier", "health", "indexers", "pipeline", "publisher"]),
    ("pipeline", &["context", "document", "event", "memory", "problem", "stages", "wording"]),
    ("problem", &[]),
    ("publisher", &["connectors", "document", "event", "indexers", "kafka", "messenger", "wording"]),
    ("reference", &["manifest", "suggest"]),
    ("runner", &["*"]),
    ("secrets", &[]),
    ("stages", &["context", "document", "memory", "problem", "wording"]),
    ("suggest", &[]),
    ("telemetry", &["cli"]),
    ("wording", &[]),
    ("worker_lane", &["document", "event", "health", "indexers", "messenger", "metrics", "pipeline"]),
];

/// The same of the operator.
const OPERATOR_MAY_KNOW: [(&str, &[&str]); 23] = [
    ("apply", &["error", "names"]),
    ("args", &[]),
    (
        "context",
        &["apply", "error", "ingest_run", "kafka", "leadership", "metrics", "names", "reconciler", "resources", "status", "vitals"],
    ),
    ("error", &["resources"]),
    ("finalizer", &["apply", "context", "error"]),
    ("ingest_run", &["context", "error", "finalizer", "kafka", "names", "pipeline", "reconciler", "resources", "status"]),
    ("ingest_schedule", &["context", "error", "names", "pipeline", "reconciler", "resources", "status"]),
    ("installed", &["server"]),
    ("kafka", &[]),
    ("kafka_connection", &["context", "error", "kafka", "pipeline", "reconciler", "resources", "status"]),
    ("leadership", &[]),
    ("metrics", &["error"]),
    ("names", &[]),
    ("pipeline", &["apply", "context", "error", "finalizer", "kafka", "names", "reconciler", "resources", "scale", "status"]),
    ("reconciler", &["context", "error"]),
    ("resources", &["names"]),
    (
        "run",
        &[
            "apply",
            "args",
            "context",
            "installed",
            "leadership",
            "metrics",
            "names",
            "reconciler",
            "resources",
            "scope",
            "server",
            "vitals",
        ],
    ),
    ("scale", &[]),
    ("scope", &["context", "ingest_run", "kafka", "names", "reconciler", "wake"]),
    ("server", &["metrics", "vitals"]),
    ("status", &[]),
    ("vitals", &[]),
    ("wake", &[]),
];

/// Lines that a file may have.
const LONGEST_FILE: usize = 600;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The files that git knows or would add, with one of these endings.
fn files(endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(repository());
    let output = list.output().context("failed to run git")?;
    let listed = String::from_utf8(output.stdout).context("names of files are UTF-8")?;
    let wanted = |name: &&str| endings.iter().any(|ending| name.ends_with(ending));
    let files: Vec<PathBuf> = listed.lines().filter(wanted).map(PathBuf::from).filter(|file| repository().join(file).is_file()).collect();
    assert!(!files.is_empty(), "git lists no file with {endings:?}");
    Ok(files)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(repository().join(file)).with_context(|| format!("failed to read {}", file.display()))
}

/// A crate that is made of modules that may know each other or not.
struct Layers {
    sources: &'static str,
    may_know: &'static [(&'static str, &'static [&'static str])],
    list: &'static str,
}

const LAYERS: [Layers; 2] = [
    Layers { sources: "worker/src", may_know: &MAY_KNOW, list: "MAY_KNOW" },
    Layers { sources: "operator/src", may_know: &OPERATOR_MAY_KNOW, list: "OPERATOR_MAY_KNOW" },
];

/// The source of a crate without what is for tests only, by file.
fn sources(folder: &str) -> Result<BTreeMap<PathBuf, String>> {
    let mut sources = BTreeMap::new();
    for file in files(&[".rs"])?.into_iter().filter(|file| file.starts_with(folder)) {
        sources.insert(file.clone(), read(&file)?);
    }
    let tests: Vec<PathBuf> = sources.iter().flat_map(|(file, source)| test_modules(file, source)).collect();
    sources.retain(|file, _| !tests.iter().any(|module| file.with_extension("") == *module || file.starts_with(module)));
    Ok(sources.into_iter().map(|(file, source)| (file, without_tests(&source))).collect())
}

/// The modules that a file declares for tests only, as paths without ending.
fn test_modules(file: &Path, source: &str) -> Vec<PathBuf> {
    let folder = match file.file_name() {
        Some(name) if name == "mod.rs" || name == "lib.rs" => file.parent().map(Path::to_owned).unwrap_or_default(),
        _ => file.with_extension(""),
    };
    let declared = source.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let (_, rest) = after.split_once("mod ")?;
        let name = rest.split([';', ' ']).next()?;
        Some(folder.join(name))
    });
    declared.collect()
}

/// The source up to its own tests, without comments.
fn without_tests(source: &str) -> String {
    let code = source.split_once("#[cfg(test)]\nmod tests {").map_or(source, |(before, _)| before);
    code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// The modules of this crate that a source names: after `crate::`, or first in the groups of `use crate::{...}`.
fn known(source: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for after in source.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            Some(group) => names.extend(first_words(group)),
            None => names.extend(word(after)),
        }
    }
    names
}

/// The first word of each entry of a group.
fn first_words(group: &str) -> Vec<&str> {
    let (mut depth, mut begins, mut words) = (0, true, Vec::new());
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && char.is_alphabetic() => {
                begins = false;
                words.extend(word(&group[at..]));
            }
            _ => {}
        }
    }
    words
}

fn word(text: &str) -> Option<&str> {
    text.split(|char: char| !char.is_alphanumeric() && char != '_').next().filter(|word| !word.is_empty())
}

/// The module of a file: the first part of its path below the sources of its crate.
fn module(folder: &str, file: &Path) -> Option<String> {
    let first = file.strip_prefix(folder).ok()?.components().next()?;
    Some(Path::new(first.as_os_str()).file_stem()?.to_string_lossy().into_owned())
}

#[test]
fn modules_know_only_whom_they_may_know() -> Result<()> {
    let mut faults = Vec::new();
    for Layers { sources: folder, may_know, list } in LAYERS {
        let may_know: BTreeMap<_, _> = may_know.iter().copied().collect();
        let sources = sources(folder)?;
        let modules: BTreeSet<String> = sources.keys().filter_map(|file| module(folder, file)).collect();
        for (file, source) in &sources {
            let module = module(folder, file).context("a file of the crate")?;
            let Some(allowed) = may_know.get(module.as_str()) else {
                if !["main", "lib"].contains(&module.as_str()) {
                    faults.push(format!("{module} is new: say in {list} whom it may know, and in docs/architecture.md what it does"));
                }
                continue;
            };
            let strangers = known(source).into_iter().filter(|name| *name != module && modules.contains(*name) && !allowed.contains(name));
            if !allowed.contains(&"*") {
                faults.extend(strangers.map(|name| format!("{} may not know {name}", file.display())));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

#[test]
fn what_is_allowed_is_also_used() -> Result<()> {
    for Layers { sources: folder, may_know, list } in LAYERS {
        let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (file, source) in &sources(folder)? {
            let module = module(folder, file).context("a file of the crate")?;
            used.entry(module).or_default().extend(known(source).into_iter().map(str::to_owned));
        }
        let unused: Vec<_> = may_know
            .iter()
            .flat_map(|(module, allowed)| allowed.iter().map(move |name| (*module, *name)))
            .filter(|(module, name)| *name != "*" && !used.get(*module).is_some_and(|used| used.contains(*name)))
            .collect();
        assert!(unused.is_empty(), "no longer needed in {list}: {unused:?}");
    }
    Ok(())
}

/// What decides in the operator, and what it must not need: it is tested by tables and properties.
const PURE: [&str; 17] = [
    "ingest_run/advance.rs",
    "ingest_run/conditions.rs",
    "ingest_run/gate.rs",
    "ingest_schedule/cron.rs",
    "ingest_schedule/decide.rs",
    "ingest_schedule/due.rs",
    "ingest_schedule/history.rs",
    "ingest_schedule/validate.rs",
    "kafka/plan.rs",
    "kafka/snapshot.rs",
    "names.rs",
    "pipeline/decide.rs",
    "pipeline/rollout.rs",
    "pipeline/trouble.rs",
    "resources/",
    "scale.rs",
    "status.rs",
];

#[test]
fn what_decides_in_the_operator_asks_nobody_and_has_no_clock() -> Result<()> {
    let operator = Path::new("operator/src");
    let mut faults = Vec::new();
    for file in files(&[".rs"])? {
        let Ok(name) = file.strip_prefix(operator) else { continue };
        let source = read(&file)?;
        let says = |words: &[&str]| words.iter().find(|word| source.contains(**word)).map(|word| (*word).to_owned());
        if PURE.iter().any(|pure| name.starts_with(pure))
            && let Some(word) = says(&["async ", ".await", "Client", "rdkafka", "::now()", "tokio"])
        {
            faults.push(format!("{} is pure, but says `{word}`", file.display()));
        }
        if name.starts_with("kafka")
            && let Some(word) = says(&["kube::", "k8s_openapi"])
        {
            faults.push(format!("{} knows no Kubernetes, but says `{word}`", file.display()));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

#[test]
fn no_file_is_too_long_to_be_read() -> Result<()> {
    let mut long = Vec::new();
    for file in files(&[".rs"])? {
        let lines = read(&file)?.lines().count();
        if lines > LONGEST_FILE {
            long.push(format!("{}: {lines} lines", file.display()));
        }
    }
    assert!(long.is_empty(), "split these, {LONGEST_FILE} lines are the most: {long:#?}");
    Ok(())
}

#[test]
fn unsafe_code_is_in_one_place() -> Result<()> {
    let place = Path::new("worker/src/kafka/admin/native");
    let says = |source: &str| source.split(|char: char| !char.is_alphanumeric() && char != '_').any(|word| word == "unsafe");
    let mut elsewhere = Vec::new();
    for file in files(&[".rs"])? {
        let code: String = read(&file)?.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let this_test = file.ends_with("suites/architecture.rs");
        if !this_test && says(&code) != file.starts_with(place) {
            elsewhere.push(file);
        }
    }
    assert!(elsewhere.is_empty(), "only {} has unsafe code, and needs it: {elsewhere:?}", place.display());
    Ok(())
}

#[test]
fn every_module_says_what_lives_there() -> Result<()> {
    let mut silent = Vec::new();
    for file in files(&[".rs"])? {
        if !read(&file)?.starts_with("//!") {
            silent.push(file);
        }
    }
    assert!(silent.is_empty(), "these begin without //!: {silent:?}");
    Ok(())
}

#[test]
fn the_repository_speaks_of_no_machine() -> Result<()> {
    let mut faults = Vec::new();
    for file in files(&[".rs", ".md", ".yaml", ".toml", ".sh", "run", "setup"])? {
        let text = read(&file)?;
        for place in ["/home/", "/root/", "/work/", "/Users/"] {
            // `--base-dir /work` is the folder of pods, not of a machine
            let lines = text.lines().enumerate().filter(|(_, line)| line.contains(place) && !line.contains(r#"["/home/""#));
            faults.extend(lines.map(|(number, line)| format!("{}:{}: {}", file.display(), number + 1, line.trim())));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

#[test]
fn the_top_level_holds_only_what_belongs_there() -> Result<()> {
    let belongs = ["Cargo.toml", "Cargo.lock", "LICENSE", "README.md", "operator", "worker", "crds", "charts", "deploy", "tests", "docs"];
    let top: BTreeSet<_> =
        files(&[""])?.iter().filter_map(|file| file.components().next().map(|part| part.as_os_str().to_owned())).collect();
    let strangers: Vec<_> = top
        .iter()
        .filter(|name| !belongs.iter().any(|known| *known == name.as_os_str()) && !name.to_string_lossy().starts_with('.'))
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    Ok(())
}

#[test]
fn the_map_names_every_module() -> Result<()> {
    let map = read(Path::new("docs/architecture.md"))?;
    let modules = LAYERS.iter().flat_map(|layers| layers.may_know);
    let unnamed: Vec<_> = modules.filter(|(module, _)| !map.contains(&format!("`{module}"))).collect();
    assert!(unnamed.is_empty(), "docs/architecture.md says nothing of {unnamed:?}");
    Ok(())
}
