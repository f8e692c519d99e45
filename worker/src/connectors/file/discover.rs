//! Which files: paths, directories and patterns become a list of files, in order, each once.
//!
//! Plain file system calls: a listing must name what it may not look into and may leave nothing out. Files of other stores
//! become [`SourceFile`]s as well.

use crate::{connectors::ConnectorError, context, problem::Problems};
use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use penstock_crds::connectors as spec;
use reqwest::Url;
use std::{
    collections::{HashSet, VecDeque},
    fs, io,
    path::{Path, PathBuf},
};

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its path as people know it: relative where the manifest's path is.
    pub(super) name: String,
    /// Its size when it was listed.
    pub(super) size: u64,
    /// Reading may have to wait for whoever writes: a pipe or a device.
    pub(super) waits: bool,
}

/// What to look for.
pub(super) struct Discovery {
    base_dir: PathBuf,
    paths: Vec<String>,
    include: Filter,
    exclude: Filter,
    allow_empty: bool,
}

impl Discovery {
    /// What to look for, by the manifest in `base_dir`.
    ///
    /// # Errors
    /// What [`check`] reports.
    pub(super) fn new(spec: &spec::File, base_dir: &Path) -> Result<Self, String> {
        Ok(Self {
            base_dir: base_dir.to_owned(),
            paths: spec.paths.iter().map(|path| local_path(path)).collect::<Result<_, _>>()?,
            include: Filter::new(&spec.include).map_err(|error| error.to_string())?,
            exclude: Filter::new(&spec.exclude).map_err(|error| error.to_string())?,
            allow_empty: spec.allow_empty,
        })
    }

    /// All files: in the order of the paths, and below directories and patterns in the order of their own paths.
    pub(super) fn find(&self) -> Result<Vec<SourceFile>, ConnectorError> {
        let mut files = Vec::new();
        let mut seen = HashSet::new();
        for path in &self.paths {
            let found = self.find_one(path)?;
            if found.is_empty() && !self.allow_empty {
                return Err(ConnectorError::new(format!(
                    "`{path}` finds no file in {}; correct `paths`, or set `allowEmpty: true` if that may be",
                    self.base_dir.display()
                )));
            }
            // one file may be found by several names
            files.extend(found.into_iter().filter(|file| seen.insert(fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone()))));
        }
        Ok(files)
    }

    fn find_one(&self, path: &str) -> Result<Vec<SourceFile>, ConnectorError> {
        let resolved = context::resolve(&self.base_dir, path);
        match fs::metadata(&resolved) {
            Ok(metadata) if metadata.is_dir() => self.walk(Path::new(path), &Pattern::all()),
            Ok(metadata) => {
                let relative = Path::new(resolved.file_name().unwrap_or_default());
                let excluded = self.exclude.matches(relative) || self.exclude.matches(Path::new(path));
                let file = SourceFile { path: resolved, name: path.to_owned(), size: metadata.len(), waits: !metadata.is_file() };
                Ok(if excluded { Vec::new() } else { vec![file] })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => match Pattern::of(path) {
                Some((base, pattern)) => {
                    let pattern = pattern.map_err(|error| ConnectorError::with(format!("`{path}` is not a pattern"), error))?;
                    self.walk(&base, &pattern)
                }
                None => Ok(Vec::new()),
            },
            Err(error) => Err(ConnectorError::with(format!("failed to look at `{path}`"), error)),
        }
    }

    /// All files below a directory that fit. Breadth first, so that of several ways to a file the shortest counts.
    fn walk(&self, base: &Path, pattern: &Pattern) -> Result<Vec<SourceFile>, ConnectorError> {
        let root = self.base_dir.join(base);
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut directories = VecDeque::from([(PathBuf::new(), Vec::new())]);
        while let Some((relative, above)) = directories.pop_front() {
            let failed = |error| {
                let name = base.join(&relative);
                ConnectorError::with(format!("failed to list the directory `{}`; is it readable for this user?", name.display()), error)
            };
            let path = root.join(&relative);
            let real = match fs::canonicalize(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                real => real.map_err(failed)?,
            };
            // a link to a directory above would lead round and round
            if above.contains(&real) {
                continue;
            }
            let mut entries = fs::read_dir(&path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()).map_err(failed)?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let relative = relative.join(entry.file_name());
                let size = match fs::metadata(entry.path()) {
                    Ok(metadata) if metadata.is_dir() => {
                        if pattern.leads_through(&relative) {
                            directories.push_back((relative, above.iter().chain([&real]).cloned().collect()));
                        }
                        continue;
                    }
                    // pipes and sockets are no files
                    Ok(metadata) if !metadata.is_file() => continue,
                    Ok(metadata) => metadata.len(),
                    // whether that matters is seen when it is read
                    Err(_) => 0,
                };
                if pattern.matches(&relative)
                    && self.takes(&relative)
                    && seen.insert(fs::canonicalize(entry.path()).unwrap_or(entry.path()))
                {
                    found.push((base.join(&relative), SourceFile { path: entry.path(), name: String::new(), size, waits: false }));
                }
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found.into_iter().map(|(name, file)| SourceFile { name: name.to_string_lossy().into_owned(), ..file }).collect())
    }

    fn takes(&self, relative: &Path) -> bool {
        (self.include.is_empty() || self.include.matches(relative)) && !self.exclude.matches(relative)
    }
}

/// Patterns for the name of a file, or, if they have a slash, for its path.
struct Filter {
    names: GlobSet,
    paths: GlobSet,
}

impl Filter {
    fn new(patterns: &[String]) -> Result<Self, globset::Error> {
        let set = |with_slash: bool| {
            let mut set = GlobSetBuilder::new();
            for pattern in patterns.iter().filter(|pattern| pattern.contains('/') == with_slash) {
                set.add(glob(pattern)?);
            }
            set.build()
        };
        Ok(Self { names: set(false)?, paths: set(true)? })
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    fn matches(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.names.is_match(name)) || self.paths.is_match(path)
    }
}

/// A pattern below the directory where it begins to be one.
struct Pattern {
    /// Absent: everything.
    whole: Option<GlobMatcher>,
    /// What each directory on the way must be called; behind their end any name will do.
    steps: Vec<GlobMatcher>,
    /// Whether files lie at the end of the steps, and not anywhere below.
    exact_depth: bool,
}

impl Pattern {
    fn all() -> Self {
        Self { whole: None, steps: Vec::new(), exact_depth: false }
    }

    /// The directory and the pattern below it; nothing if the path has no wildcard.
    fn of(path: &str) -> Option<(PathBuf, Result<Self, globset::Error>)> {
        let wildcard = path.find(['*', '?', '[', '{'])?;
        let (base, rest) = path[..wildcard].rfind('/').map_or(("", path), |slash| path.split_at(slash + 1));
        Some((PathBuf::from(base), Self::new(rest)))
    }

    fn new(pattern: &str) -> Result<Self, globset::Error> {
        let whole = glob(pattern)?.compile_matcher();
        let mut parts: Vec<&str> = pattern.split('/').collect();
        // alternatives may hold slashes: `{a/b,c}`
        let one_level = |part: &str| part != "**" && part.matches('{').count() == part.matches('}').count();
        let file_name = parts.pop().unwrap_or_default();
        let before_any_depth = parts.iter().take_while(|part| one_level(part)).count();
        let exact_depth = before_any_depth == parts.len() && one_level(file_name);
        let steps = parts[..before_any_depth].iter().map(|part| glob(part).map(|glob| glob.compile_matcher()));
        Ok(Self { whole: Some(whole), steps: steps.collect::<Result<_, _>>()?, exact_depth })
    }

    /// Whether files that fit can lie below this directory.
    fn leads_through(&self, directory: &Path) -> bool {
        let depth = directory.components().count();
        match self.steps.get(depth - 1) {
            Some(step) => directory.file_name().is_some_and(|name| step.is_match(name)),
            None => !self.exact_depth,
        }
    }

    fn matches(&self, file: &Path) -> bool {
        self.whole.as_ref().is_none_or(|whole| whole.is_match(file))
    }
}

/// `*` stays within a name, `**` goes through directories.
fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(true).build()
}

/// A path of the manifest as a path of the file system.
fn local_path(text: &str) -> Result<String, String> {
    let Some((scheme, _)) = text.split_once("://") else { return Ok(text.to_owned()) };
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(format!("`{scheme}://` cannot be read; only paths and file:// URLs can"));
    }
    let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
    let path = path.and_then(|path| path.to_str().map(str::to_owned));
    path.ok_or_else(|| format!("`{text}` is not a file URL; write for example file:///data/products.csv"))
}

/// The paths without a pattern.
pub(super) fn named_paths(spec: &spec::File) -> Vec<String> {
    let paths = spec.paths.iter().filter_map(|path| local_path(path).ok());
    paths.filter(|path| Pattern::of(path).is_none()).collect()
}

/// Reports what is wrong with paths and patterns.
pub(super) fn check(spec: &spec::File, problems: &mut Problems<'_>) {
    for (index, path) in spec.paths.iter().enumerate() {
        let fault = match local_path(path) {
            Err(fault) => Some(fault),
            Ok(path) if path.is_empty() => Some("a path is empty".to_owned()),
            Ok(path) => Pattern::of(&path).and_then(|(_, pattern)| pattern.err()).map(|error| pattern_fault(&error)),
        };
        if let Some(fault) = fault {
            problems.add(&format!("paths[{index}]"), fault);
        }
    }
    for (field, patterns) in [("include", &spec.include), ("exclude", &spec.exclude)] {
        for (index, pattern) in patterns.iter().enumerate() {
            if let Err(error) = glob(pattern) {
                problems.add(&format!("{field}[{index}]"), pattern_fault(&error));
            }
        }
    }
}

fn pattern_fault(error: &globset::Error) -> String {
    format!("not a pattern: {}; write for example data/**/*.csv", error.kind())
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::*, *};
    use serde_json::json;

    /// The files that a spec finds in a folder, or why it fails.
    fn find(folder: &Folder, spec: serde_json::Value) -> Result<Vec<String>, String> {
        let mut full = json!({"format": {"csv": {}}});
        full.as_object_mut().expect("object").extend(spec.as_object().expect("object").clone());
        let spec = serde_json::from_value(full).expect("a file connector");
        let found = Discovery::new(&spec, &folder.path("")).expect("no problems").find();
        found.map(|files| files.into_iter().map(|file| file.name).collect()).map_err(|error| failure(Err(error)))
    }

    fn folder() -> Folder {
        Folder::new(&["b.csv", "a.csv", "d/2.csv", "d/1.csv.gz", "d/e/3.csv", "d/e/note.txt", "d-f/4.csv"].map(|name| (name, &b"x"[..])))
    }

    #[test]
    fn paths_directories_and_patterns_find_files_in_order() {
        let folder = folder();
        let cases: [(&[&str], &[&str]); 10] = [
            (&["b.csv", "a.csv"], &["b.csv", "a.csv"]),
            (&["d"], &["d/1.csv.gz", "d/2.csv", "d/e/3.csv", "d/e/note.txt"]),
            (&["*.csv"], &["a.csv", "b.csv"]),
            (&["**/*.csv"], &["a.csv", "b.csv", "d/2.csv", "d/e/3.csv", "d-f/4.csv"]),
            (&["d/*.csv"], &["d/2.csv"]),
            (&["d/**"], &["d/1.csv.gz", "d/2.csv", "d/e/3.csv", "d/e/note.txt"]),
            (&["d*/*.{csv,gz}"], &["d/1.csv.gz", "d/2.csv", "d-f/4.csv"]),
            (&["{d/e,d-f}/*.csv"], &["d/e/3.csv", "d-f/4.csv"]),
            (&["d/?.csv", "d/e/[0-9].csv"], &["d/2.csv", "d/e/3.csv"]),
            (&["d/2.csv", "d", "./d/e/3.csv"], &["d/2.csv", "d/1.csv.gz", "d/e/3.csv", "d/e/note.txt"]),
        ];
        for (paths, wanted) in cases {
            assert_eq!(find(&folder, json!({"paths": paths})).expect("found"), wanted, "{paths:?}");
        }
    }

    #[test]
    fn includes_and_excludes_look_at_the_name_or_the_path() {
        let folder = folder();
        let found = |spec| find(&folder, spec).expect("found");
        assert_eq!(found(json!({"paths": ["d"], "include": ["*.csv"]})), ["d/2.csv", "d/e/3.csv"]);
        assert_eq!(found(json!({"paths": ["d"], "include": ["e/*"]})), ["d/e/3.csv", "d/e/note.txt"]);
        assert_eq!(found(json!({"paths": ["d", "a.csv"], "include": ["note*"]})), ["d/e/note.txt", "a.csv"]);
        assert_eq!(found(json!({"paths": ["**/*.csv"], "exclude": ["d/**", "b.*"]})), ["a.csv", "d-f/4.csv"]);
    }

    #[test]
    fn urls_and_odd_names_are_paths_as_well() {
        let folder = Folder::new(&[("a b [1].csv", b"x"), ("#1", b"x"), ("ü%20.csv", b"x")]);
        let url = Url::from_file_path(folder.path("a b [1].csv")).expect("absolute").to_string();
        assert_eq!(find(&folder, json!({"paths": [url]})).expect("found"), [folder.path("a b [1].csv").to_str().expect("utf-8")]);
        assert_eq!(find(&folder, json!({"paths": ["a b [1].csv"]})).expect("found"), ["a b [1].csv"]);
        let all = find(&folder, json!({"paths": ["."]})).expect("found");
        assert_eq!(all, ["./#1", "./a b [1].csv", "./ü%20.csv"]);
    }

    #[test]
    fn what_finds_nothing_is_an_error_unless_allowed_lucille_12_5() {
        let folder = folder();
        for path in ["missing.csv", "*.tsv", "missing/*.csv", "d/e/*/x"] {
            let error = find(&folder, json!({"paths": ["a.csv", path]})).expect_err("nothing there");
            assert!(error.contains(&format!("`{path}` finds no file")) && error.contains("allowEmpty"), "{error}");
            assert_eq!(find(&folder, json!({"paths": ["a.csv", path], "allowEmpty": true})), Ok(vec!["a.csv".to_owned()]));
        }
        assert!(find(&folder, json!({"paths": ["d"], "include": ["*.tsv"]})).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_but_not_round_and_round() {
        let folder = folder();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.path(name)).expect("link");
        link("..", "d/up");
        link("e", "d/again");
        link("../a.csv", "d/a-link.csv");
        link("self", "d/self");
        assert_eq!(
            find(&folder, json!({"paths": ["d"], "exclude": ["up/**"]})).expect("found"),
            ["d/1.csv.gz", "d/2.csv", "d/a-link.csv", "d/again/3.csv", "d/again/note.txt", "d/self"]
        );
        assert_eq!(find(&folder, json!({"paths": ["d/**/3.csv"]})).expect("found"), ["d/again/3.csv"]);
        assert!(find(&folder, json!({"paths": ["d/self"]})).expect_err("a loop").contains("failed to look at `d/self`"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_without_permission_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o755)).expect("permissions");
        fs::set_permissions(folder.path("d/e"), fs::Permissions::from_mode(0o000)).expect("permissions");
        let error = std::thread::scope(|scope| {
            let as_nobody = scope.spawn(|| {
                if nix::unistd::geteuid().is_root() {
                    // holds for this thread only
                    nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
                }
                assert_eq!(find(&folder, json!({"paths": ["d/*.csv"]})).expect("not needed"), ["d/2.csv"]);
                find(&folder, json!({"paths": ["d"]})).expect_err("not readable")
            });
            as_nobody.join().expect("thread")
        });
        fs::set_permissions(folder.path("d/e"), fs::Permissions::from_mode(0o755)).expect("permissions");
        assert!(error.contains("failed to list the directory `d/e`") && error.contains("ermission denied"), "{error}");
    }

    #[test]
    fn problems_of_paths_are_all_found() {
        let spec = json!({"paths": ["ok/*.csv", "", "s3://bucket/x", "a[.csv", "file://host/x"], "include": ["{a"], "exclude": ["x", "[z-a]"], "format": {"csv": {}}});
        let mut found = Vec::new();
        check(&serde_json::from_value(spec).expect("spec"), &mut Problems::new("file", &mut found));
        let paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["file.paths[1]", "file.paths[2]", "file.paths[3]", "file.paths[4]", "file.include[0]", "file.exclude[1]"]);
    }
}
