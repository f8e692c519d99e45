//! Files, directories and standard input → texts. Reads only.

use super::{problem::Problem, yaml::Place};
use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Larger files are no manifests.
const MAX_SIZE: u64 = 16 << 20;

/// The name of standard input among the paths.
const STANDARD_INPUT: &str = "-";

/// One text with manifests.
#[derive(Debug)]
pub struct Source {
    /// The file, as it was given.
    pub name: String,
    /// Where relative paths of its objects start.
    pub base_dir: PathBuf,
    /// The text.
    pub text: String,
}

/// Reads everything that the paths name, each file once.
pub fn read_all(paths: &[PathBuf], base_dir: Option<&Path>, problems: &mut Vec<Problem>) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut seen = HashSet::new();
    for path in paths {
        let files = match files_of(path) {
            Ok(files) => files,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for file in files {
            // A file that cannot be resolved cannot be read either, which is reported then.
            let identity = file.canonicalize().unwrap_or_else(|_| file.clone());
            if !seen.insert(identity) {
                continue;
            }
            match read(&file, base_dir) {
                Ok(source) => sources.push(source),
                Err(problem) => problems.push(problem),
            }
        }
    }
    sources
}

/// The file itself, or the manifests of a directory by name. Directories below are not looked into, as with kubectl.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let name = path.display().to_string();
    let entries = path.read_dir().and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = entries.map_err(|error| Problem::of_file(&name, format!("the directory cannot be read: {error}")))?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|path| is_manifest(path)).collect();
    if files.is_empty() {
        return Err(Problem::of_file(name, "holds no *.yaml or *.yml file; name the files, or another directory"));
    }
    files.sort();
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") && !path.is_dir()
}

fn read(path: &Path, base_dir: Option<&Path>) -> Result<Source, Problem> {
    let is_standard_input = path.as_os_str() == STANDARD_INPUT;
    let name = if is_standard_input { "<stdin>".to_owned() } else { path.display().to_string() };
    let bytes = if is_standard_input { read_bounded(io::stdin().lock()) } else { File::open(path).and_then(read_bounded) };
    let bytes = bytes.map_err(|error| Problem::of_file(&name, format!("cannot be read: {error}")))?;
    let text = decode(bytes, &name)?;
    let folder = if is_standard_input { Path::new("") } else { path.parent().unwrap_or(Path::new("")) };
    let base_dir = absolute(base_dir.unwrap_or(folder)).map_err(|error| Problem::of_file(&name, format!("has no folder: {error}")))?;
    Ok(Source { name, base_dir, text })
}

fn read_bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(io::Error::other("it is larger than 16 MiB, so it is no manifest"));
    }
    Ok(bytes)
}

fn absolute(folder: &Path) -> io::Result<PathBuf> {
    // An empty path is the current directory, which `absolute` does not know.
    std::path::absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

fn decode(bytes: Vec<u8>, name: &str) -> Result<String, Problem> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(Problem::of_file(name, "is UTF-16; save it as UTF-8"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let last = good.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let column = String::from_utf8_lossy(last).chars().count() + 1;
        let byte = error.as_bytes()[good.len()];
        let message = format!("the byte 0x{byte:02X} is not UTF-8; save the file as UTF-8");
        Problem { place: Some(Place { line, column }), ..Problem::of_file(name, message) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, content).expect(name);
        path
    }

    fn names(sources: &[Source]) -> Vec<String> {
        sources.iter().map(|source| Path::new(&source.name).file_name().expect("a file").to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_directory_gives_its_manifests_by_name_and_nothing_below() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.yml", "a.yaml", "c.json", ".hidden"] {
            write(folder.path(), name, b"x: 1");
        }
        std::fs::create_dir_all(folder.path().join("sub.yaml")).expect("a folder");
        let mut problems = Vec::new();
        let sources = read_all(&[folder.path().to_owned()], None, &mut problems);
        assert_eq!((names(&sources), problems), (vec!["a.yaml".to_owned(), "b.yml".to_owned()], vec![]));
        assert!(sources.iter().all(|source| source.base_dir == folder.path()));
    }

    #[test]
    fn a_file_given_twice_is_read_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = write(folder.path(), "a.yaml", b"x: 1");
        let again = folder.path().join(".").join("a.yaml");
        let mut problems = Vec::new();
        let sources = read_all(&[file, folder.path().to_owned(), again], None, &mut problems);
        assert_eq!((sources.len(), problems), (1, vec![]));
    }

    #[test]
    fn the_base_dir_given_stands_for_all_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = write(folder.path(), "a.yaml", b"x: 1");
        let sources = read_all(&[file], Some(Path::new("/work")), &mut Vec::new());
        assert_eq!(sources[0].base_dir, Path::new("/work"));
    }

    #[test]
    fn all_that_cannot_be_read_is_reported_beside_what_can() {
        let folder = tempfile::tempdir().expect("a folder");
        let empty = folder.path().join("empty");
        std::fs::create_dir(&empty).expect("a folder");
        let paths = [
            folder.path().join("none.yaml"),
            empty,
            write(folder.path(), "latin.yaml", b"a: 1\nb: caf\xE9\n"),
            write(folder.path(), "utf16.yaml", b"\xFF\xFEa\0"),
            write(folder.path(), "good.yaml", b"x: 1"),
            write(folder.path(), "large.yaml", &vec![b' '; 17 << 20]),
        ];
        let mut problems = Vec::new();
        let sources = read_all(&paths, None, &mut problems);
        assert_eq!(names(&sources), ["good.yaml"]);
        let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "cannot be read: No such file or directory (os error 2)",
                "holds no *.yaml or *.yml file; name the files, or another directory",
                "the byte 0xE9 is not UTF-8; save the file as UTF-8",
                "is UTF-16; save it as UTF-8",
                "cannot be read: it is larger than 16 MiB, so it is no manifest",
            ]
        );
        assert_eq!(problems[2].place, Some(Place { line: 2, column: 7 }));
    }
}
