//! A file that is there as a whole or not at all: written beside its place and moved there when the step succeeds.
//!
//! The file beside it is `.NAME.part` in the same folder. It is locked while it is written, so two runs cannot write the same
//! file, and what a killed run left behind is simply begun anew by the next. Who adds to a file begins with a copy of it: a
//! reader sees the old state or the new one, never half of an addition. What is no regular file (`/dev/stdout`, a pipe) cannot be
//! moved and is written directly.

use super::{Answer, BackendError, Request, blocking::blocking};
use crate::{context::StepContext, problem::Problems};
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The target of a step that writes a file.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    append: bool,
    /// Each request is durable when it is answered.
    is_continuous: bool,
    /// The first line of a new file.
    header: Vec<u8>,
    /// What earlier steps of the run have written.
    written: Arc<Mutex<HashSet<PathBuf>>>,
    open: Mutex<Option<OpenFile>>,
}

/// A file that is being written. Dropping it leaves everything as it was.
#[derive(Debug)]
struct OpenFile {
    file: File,
    target: PathBuf,
    /// The file beside the target; `None` if the target itself is written.
    beside: Option<PathBuf>,
    /// The target as it was when its content was copied; `None` if it was not there.
    copied: Option<Stamp>,
    adds: bool,
    /// Folders that were made for it, outermost first.
    made: Vec<PathBuf>,
}

/// By what a changed file is known.
type Stamp = (u64, u64, u64, i64, i64);

/// Reports a path that cannot be that of a file. Looks at the text only.
pub(super) fn check_path(path: &str, problems: &mut Problems<'_>) {
    let name = Path::new(path).file_name();
    if path.ends_with('/') || path.ends_with("/.") || name.is_none() {
        problems.add("path", format!("`{path}` is a folder; name a file in it"));
    }
}

impl OutputFile {
    /// Nothing is touched yet.
    pub fn new(path: &str, append: bool, header: Vec<u8>, step: &StepContext) -> Self {
        // one process writes here: it is instance 0
        let path = step.resolve(&path.replace("{instance}", "0"));
        let is_continuous = step.is_continuous;
        Self { path, append: append || is_continuous, is_continuous, header, written: Arc::clone(&step.written), open: Mutex::new(None) }
    }

    /// Opens the file beside the target, with what the target holds already if this step adds to it.
    pub fn open(&self) -> Result<(), BackendError> {
        let open = blocking(|| self.try_open())?;
        *self.open.lock() = Some(open);
        Ok(())
    }

    /// Writes the parts of the request in one go, so that lines of several lanes never mix.
    pub fn write(&self, request: &Request, items: &[u32]) -> Answer {
        let selected: Vec<u8>;
        let bytes = if items.len() == request.items.len() {
            request.body.as_slice()
        } else {
            selected = items.iter().flat_map(|item| request.part(*item)).copied().collect();
            &selected
        };
        let written = blocking(|| {
            let mut open = self.open.lock();
            let Some(file) = &mut *open else {
                return Err(self.error("is not open (anymore)", io::Error::other("an earlier write failed")));
            };
            let written = file.file.write_all(bytes);
            let durable = written.and_then(|()| if self.is_continuous { file.file.sync_data() } else { Ok(()) });
            durable.map_err(|error| {
                // what is half-written must not stay, and can never be committed
                *open = None;
                self.error("failed to write", error)
            })
        });
        match written {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Fatal(error),
        }
    }

    /// Makes what was written durable and moves it to its place.
    pub fn commit(&self) -> Result<(), BackendError> {
        let Some(open) = self.open.lock().take() else {
            return Err(self.error("cannot be completed", io::Error::other("it is not open: an earlier write failed")));
        };
        let target = blocking(|| open.finish()).map_err(|error| self.error("failed to complete", error))?;
        self.written.lock().insert(target);
        Ok(())
    }

    /// Removes what was written.
    pub fn abandon(&self) {
        let open = self.open.lock().take();
        blocking(|| drop(open));
    }

    fn try_open(&self) -> Result<OpenFile, BackendError> {
        let made = make_folders(&self.path).map_err(|error| self.error("failed to make its folder", error))?;
        let mut open = self.open_beside(made)?;
        if open.copied.is_some() {
            open.end_last_line().map_err(|error| self.error("failed to copy what it holds", error))?;
            self.check_header(&mut open.file)?;
        }
        let is_foreign = open.adds && open.beside.is_none() && !self.is_continuous;
        let begins = open.file.stream_position().unwrap_or(0) == 0 && !is_foreign;
        if begins {
            open.file.write_all(&self.header).map_err(|error| self.error("failed to write", error))?;
        }
        Ok(open)
    }

    fn open_beside(&self, made: Vec<PathBuf>) -> Result<OpenFile, BackendError> {
        let present = match std::fs::metadata(&self.path) {
            Ok(present) => Some(present),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(self.error("cannot be used", error)),
        };
        let target = match &present {
            Some(present) if present.is_dir() => return Err(self.error("cannot be used", io::ErrorKind::IsADirectory.into())),
            Some(_) => self.path.canonicalize(),
            None => in_canonical_folder(&self.path),
        };
        // `/dev/stdout` may lead to a pipe, which has no canonical path
        let target = target.unwrap_or_else(|_| self.path.clone());
        let adds = self.append || self.written.lock().contains(&target);
        if present.as_ref().is_some_and(|present| !present.is_file()) {
            let file = OpenOptions::new().write(true).open(&self.path).map_err(|error| self.error("cannot be opened", error))?;
            return Ok(OpenFile { file, target, beside: None, copied: None, adds, made });
        }
        if self.is_continuous {
            return self.open_in_place(target, made);
        }
        let beside = beside(&target);
        let file = claim(&beside).map_err(|error| self.error("cannot be written", error))?;
        let mut open = OpenFile { file, target, beside: Some(beside), copied: None, adds, made };
        if let Some(present) = present {
            open.take_over(&present).map_err(|error| self.error("failed to copy what it holds", error))?;
        }
        Ok(open)
    }

    /// Opens the target itself, behind its last whole line: what stands there is durable, and what a crash left half-written was
    /// never answered, so it comes again.
    fn open_in_place(&self, target: PathBuf, made: Vec<PathBuf>) -> Result<OpenFile, BackendError> {
        let opened = OpenOptions::new().read(true).append(true).create(true).open(&target);
        let mut file = opened.map_err(|error| self.error("cannot be opened", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(self.error("is written by another process", io::ErrorKind::ResourceBusy.into())),
            Err(TryLockError::Error(error)) => return Err(self.error("cannot be locked", error)),
        }
        cut_torn_line(&mut file).map_err(|error| self.error("failed to look at its end", error))?;
        self.check_header(&mut file)?;
        Ok(OpenFile { file, target, beside: None, copied: None, adds: true, made })
    }

    /// Whether what is there has the columns that this step writes. Leaves the file at its end.
    fn check_header(&self, file: &mut File) -> Result<(), BackendError> {
        let fail = |error| self.error("failed to read its first line", error);
        let length = file.seek(SeekFrom::End(0)).map_err(fail)?;
        if self.header.is_empty() || length == 0 {
            return Ok(());
        }
        let mut begin = Vec::new();
        file.rewind().map_err(fail)?;
        (&mut *file).take(self.header.len() as u64).read_to_end(&mut begin).map_err(fail)?;
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        if begin == self.header {
            return Ok(());
        }
        let message = format!(
            "file {}: it has other columns in its first line: set append: false, other columns, or another path",
            self.path.display()
        );
        Err(BackendError { message, unreachable: false, source: None })
    }

    fn error(&self, what: &str, error: io::Error) -> BackendError {
        use io::ErrorKind::*;
        let cure = match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => "free space there or choose another path",
            PermissionDenied | ReadOnlyFilesystem => "allow writing there or choose another path",
            NotADirectory | AlreadyExists => "a part of the path is a file: choose another path",
            IsADirectory => "it is a folder: name a file in it",
            ResourceBusy => "wait for the other run or choose another path",
            _ => "see to the cause or choose another path",
        };
        BackendError {
            message: format!("file {}: {what}: {error}; {cure}", self.path.display()),
            unreachable: false,
            source: Some(error.into()),
        }
    }
}

impl OpenFile {
    /// Gives the new file the permissions of the one that it replaces and, if the step adds, its content.
    fn take_over(&mut self, present: &Metadata) -> io::Result<()> {
        self.file.set_permissions(present.permissions())?;
        if self.adds {
            // within a file system that can, this shares the blocks instead of copying them
            io::copy(&mut File::open(&self.target)?, &mut self.file)?;
            self.copied = Some(stamp(present));
        }
        Ok(())
    }

    fn end_last_line(&mut self) -> io::Result<()> {
        if self.file.seek(SeekFrom::End(0))? == 0 {
            return Ok(());
        }
        let mut last = [0];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        if last == *b"\n" { Ok(()) } else { self.file.write_all(b"\n") }
    }

    fn finish(mut self) -> io::Result<PathBuf> {
        let Some(beside) = &self.beside else { return Ok(self.target.clone()) };
        self.file.sync_all()?;
        let now = std::fs::metadata(&self.target).ok().map(|present| stamp(&present));
        if self.adds && now != self.copied {
            return Err(io::Error::other("somebody else has changed it meanwhile"));
        }
        std::fs::rename(beside, &self.target)?;
        self.beside = None;
        self.made.clear();
        // the name is durable only once its folder is
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        File::open(folder)?.sync_all()?;
        Ok(self.target.clone())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // nobody is left to tell, and what stays is begun anew by the next run
        if let Some(beside) = &self.beside {
            let _ = std::fs::remove_file(beside);
            remove_folders(&self.made);
        }
    }
}

/// Cuts a file behind its last line break, and leaves it at its end.
fn cut_torn_line(file: &mut File) -> io::Result<()> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = [0; 4096];
    while end > 0 {
        let begin = end.saturating_sub(block.len() as u64);
        let block = &mut block[..(end - begin) as usize];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            end = begin + at as u64 + 1;
            break;
        }
        end = begin;
    }
    file.set_len(end)?;
    file.seek(SeekFrom::End(0)).map(|_| ())
}

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.part"))
}

/// The folder of a path; the current one for a mere name.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn in_canonical_folder(path: &Path) -> io::Result<PathBuf> {
    Ok(folder_of(path).canonicalize()?.join(path.file_name().unwrap_or_default()))
}

/// Makes the folders that are missing above a path; the answer names them, outermost first.
pub(super) fn make_folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = folder_of(path);
    let mut missing: Vec<PathBuf> = folder.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    missing.retain(|folder| !folder.as_os_str().is_empty());
    missing.reverse();
    if let Err(error) = std::fs::create_dir_all(folder) {
        remove_folders(&missing);
        return Err(error);
    }
    Ok(missing)
}

/// Removes folders that were made, unless somebody has put something into them.
pub(super) fn remove_folders(made: &[PathBuf]) {
    for folder in made.iter().rev() {
        let _ = std::fs::remove_dir(folder);
    }
}

/// Opens the file for this process alone, empty.
fn claim(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another run is writing it")),
            // a file system without locks
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // whoever had the lock may have moved the file to its place meanwhile
        let (opened, present) = (file.metadata()?, std::fs::metadata(path));
        if present.is_ok_and(|present| (present.dev(), present.ino()) == (opened.dev(), opened.ino())) {
            file.set_len(0)?;
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::Tag,
        indexers::{Item, compliance::step_context},
    };

    fn request(lines: &[&str]) -> Request {
        let mut request = Request::default();
        for line in lines {
            request.body.extend_from_slice(line.as_bytes());
            request.items.push(Item { tag: Tag::default(), id: "id".into(), end: request.body.len() });
        }
        request
    }

    fn write(file: &OutputFile, lines: &[&str]) -> Answer {
        let items: Vec<u32> = (0..lines.len() as u32).collect();
        file.write(&request(lines), &items)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .expect("folder")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).expect("file")
    }

    #[test]
    fn a_file_appears_as_a_whole_and_only_when_the_step_succeeds() {
        let folder = tempfile::tempdir().expect("folder");
        let file = OutputFile::new("a/b/out.txt", false, b"head\n".to_vec(), &step_context(folder.path()));
        assert!(names(folder.path()).is_empty(), "nothing before check");
        file.open().expect("open");
        assert!(matches!(write(&file, &["1\n", "2\n"]), Answer::Done));
        assert!(matches!(file.write(&request(&["3\n", "4\n", "5\n"]), &[0, 2]), Answer::Done));
        assert_eq!(names(&folder.path().join("a/b")), [".out.txt.part"]);
        file.commit().expect("commit");
        assert_eq!(names(&folder.path().join("a/b")), ["out.txt"]);
        assert_eq!(text(&folder.path().join("a/b/out.txt")), "head\n1\n2\n3\n5\n");
    }

    #[test]
    fn an_abandoned_step_leaves_no_trace_and_the_former_file() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join("old.txt"), "old\n").expect("file");
        for (path, append) in [("new/deep/out.txt", false), ("old.txt", false), ("old.txt", true)] {
            let file = OutputFile::new(path, append, Vec::new(), &step_context(folder.path()));
            file.open().expect("open");
            write(&file, &["new\n"]);
            file.abandon();
            assert_eq!(names(folder.path()), ["old.txt"], "{path}");
            assert_eq!(text(&folder.path().join("old.txt")), "old\n");
            let dropped = OutputFile::new(path, append, Vec::new(), &step_context(folder.path()));
            dropped.open().expect("open");
            drop(dropped);
            assert_eq!(names(folder.path()), ["old.txt"], "{path}");
        }
    }

    #[test]
    fn a_later_step_of_the_run_adds_and_a_later_run_replaces() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("out.txt");
        let mut context = step_context(folder.path());
        // another spelling of the same path is the same file
        for (step, name) in [("1\n", "out.txt"), ("2\n", "./out.txt"), ("3\n", "sub/../out.txt")] {
            std::fs::create_dir_all(folder.path().join("sub")).expect("folder");
            let file = OutputFile::new(name, false, b"head\n".to_vec(), &context);
            file.open().expect("open");
            write(&file, &[step]);
            file.commit().expect("commit");
        }
        assert_eq!(text(&path), "head\n1\n2\n3\n");
        context = step_context(folder.path());
        for (append, expected) in [(true, "head\n1\n2\n3\n4\n"), (false, "head\n4\n")] {
            let file = OutputFile::new("out.txt", append, b"head\n".to_vec(), &context);
            file.open().expect("open");
            write(&file, &["4\n"]);
            file.commit().expect("commit");
            assert_eq!(text(&path), expected);
            context = step_context(folder.path());
        }
    }

    #[test]
    fn a_file_with_another_header_or_changed_meanwhile_is_not_added_to() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("out.txt");
        std::fs::write(&path, "a,b\n1,2").expect("file");
        let context = step_context(folder.path());
        let other = OutputFile::new("out.txt", true, b"a,c\n".to_vec(), &context);
        assert!(other.open().expect_err("other columns").message.contains("other columns"));
        let same = OutputFile::new("out.txt", true, b"a,b\n".to_vec(), &context);
        same.open().expect("open");
        write(&same, &["3,4\n"]);
        std::fs::write(&path, "somebody else").expect("file");
        let error = same.commit().expect_err("changed").to_string();
        assert!(error.contains("somebody else"), "{error}");
        assert_eq!((text(&path).as_str(), names(folder.path()).len()), ("somebody else", 1));
        std::fs::write(&path, "a,b\n1,2").expect("file");
        let again = OutputFile::new("out.txt", true, b"a,b\n".to_vec(), &context);
        again.open().expect("open");
        write(&again, &["3,4\n"]);
        again.commit().expect("commit");
        assert_eq!(text(&path), "a,b\n1,2\n3,4\n");
    }

    #[test]
    fn two_runs_cannot_write_one_file_and_leftovers_of_a_killed_one_do_no_harm() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join(".out.txt.part"), "left behind, quite long").expect("file");
        let context = step_context(folder.path());
        let first = OutputFile::new("out.txt", false, Vec::new(), &context);
        first.open().expect("open");
        let second = OutputFile::new("out.txt", false, Vec::new(), &context);
        let error = second.open().expect_err("busy").to_string();
        assert!(error.contains("another run"), "{error}");
        write(&first, &["1\n"]);
        first.commit().expect("commit");
        assert_eq!(text(&folder.path().join("out.txt")), "1\n");
        second.open().expect("free again");
    }

    #[test]
    fn links_and_permissions_are_kept() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().expect("folder");
        let real = folder.path().join("real.txt");
        std::fs::write(&real, "old\n").expect("file");
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).expect("permissions");
        symlink("real.txt", folder.path().join("link.txt")).expect("link");
        let file = OutputFile::new("link.txt", false, Vec::new(), &step_context(folder.path()));
        file.open().expect("open");
        write(&file, &["new\n"]);
        file.commit().expect("commit");
        assert!(folder.path().join("link.txt").is_symlink());
        assert_eq!((text(&real).as_str(), std::fs::metadata(&real).expect("file").permissions().mode() & 0o777), ("new\n", 0o640));
    }

    #[test]
    fn what_cannot_be_written_is_found_by_check_with_a_cure() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join("file"), "x").expect("file");
        std::fs::create_dir(folder.path().join("dir")).expect("folder");
        for (path, part) in
            [("dir", "name a file in it"), ("file/out.txt", "choose another path"), ("file/deep/out.txt", "choose another path")]
        {
            let error = OutputFile::new(path, false, Vec::new(), &step_context(folder.path())).open().expect_err(path).to_string();
            assert!(error.contains(part) && error.contains(path), "{error}");
        }
        assert_eq!(names(folder.path()), ["dir", "file"]);
    }

    #[test]
    fn a_full_disk_ends_the_run_and_is_never_passed_off_as_done() {
        let folder = tempfile::tempdir().expect("folder");
        let file = OutputFile::new("/dev/full", false, Vec::new(), &step_context(folder.path()));
        file.open().expect("open");
        let Answer::Fatal(error) = write(&file, &["1\n"]) else { panic!("not fatal") };
        assert!(error.message.contains("/dev/full") && error.message.contains("free space"), "{error}");
        assert!(matches!(write(&file, &["2\n"]), Answer::Fatal(_)));
        assert!(file.commit().is_err());
    }
}
