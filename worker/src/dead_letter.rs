//! The local dead letter: every failed document as one line of JSON, with the reason, so that it can be read, searched and
//! brought in again (`file` with `format: {jsonLines: {id: [id]}}`).
//!
//! The file is made at the first failure. A file that is there already is added to, never replaced: it holds the letters of
//! earlier runs, and each line names its run. A line has been handed to the operating system when [`DeadLetter::keep`]
//! returns, so it outlives a crash of this process; [`DeadLetterFile::sync`] at the end of a step makes it outlive one of the
//! machine. More often would be no gain: without the machine the local run is gone too, and is run again as a whole.

use crate::{
    context::StepContext,
    document::Fields,
    indexers::{Content, DeadLetter, Letter},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use serde::Serialize;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Where the failed documents of a run are kept if nothing else is said: in the folder where the run is started.
pub fn default_path(run: &str) -> PathBuf {
    PathBuf::from(format!("{run}_fail.jsonl"))
}

/// The dead letter file of a run, shared by its steps.
#[derive(Debug)]
pub struct DeadLetterFile {
    path: PathBuf,
    /// Open since the first failure.
    file: Mutex<Option<File>>,
    kept: AtomicU64,
}

/// The dead letter file as one step uses it: each line names the step.
#[derive(Clone, Debug)]
pub struct StepDeadLetter {
    file: Arc<DeadLetterFile>,
    run: String,
    run_id: String,
    connector: String,
    pipeline: String,
}

/// One line of the file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: String,
    run: &'a str,
    run_id: &'a str,
    connector: &'a str,
    pipeline: &'a str,
    stage: &'a str,
    id: &'a str,
    reason: &'a str,
    attempts: u32,
    #[serde(flatten)]
    content: Kept<'a>,
}

/// What is kept of the document, under the name that says how.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Kept<'a> {
    Document(&'a Fields),
    Raw(&'a str),
    RawBase64(String),
}

impl DeadLetterFile {
    /// The dead letter at this path. Nothing is opened or made before the first failure.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: Mutex::new(None), kept: AtomicU64::new(0) }
    }

    /// Whether failed documents could be kept here, found out without making anything.
    ///
    /// # Errors
    /// The path is a directory, or a file that may not be written, or lies below something that is no directory.
    pub fn check(&self) -> io::Result<()> {
        let found = match OpenOptions::new().append(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => opened.map(drop),
        };
        found.map_err(|error| self.explain(&error))
    }

    /// The dead letter for the documents of one step.
    pub fn for_step(self: &Arc<Self>, step: &StepContext) -> StepDeadLetter {
        StepDeadLetter {
            file: Arc::clone(self),
            run: step.run.clone(),
            run_id: step.run_id.clone(),
            connector: step.connector.clone(),
            pipeline: step.pipeline.clone(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many documents were kept by this run.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Makes what was kept outlive a crash of the machine. Called at the end of a step; cheap if nothing failed.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn sync(&self) -> io::Result<()> {
        let Some(file) = &*self.file.lock() else { return Ok(()) };
        file.sync_data().map_err(|error| self.explain(&error))
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.file.lock();
        let written = match &mut *open {
            Some(file) => file.write_all(line),
            None => open_for_append(&self.path).and_then(|file| open.insert(file).write_all(line)),
        };
        if let Err(error) = written {
            // the line may be torn: whoever opens the file again begins a new one
            *open = None;
            return Err(self.explain(&error));
        }
        self.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn explain(&self, error: &io::Error) -> io::Error {
        let path = self.path.display();
        io::Error::new(
            error.kind(),
            format!("dead letter {path}: failed documents cannot be kept: {error}; free it or choose another file by --dead-letter"),
        )
    }
}

/// Opens or makes the file, and ends a line that was torn by a crash or a full disk.
fn open_for_append(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    // a pipe or a device has no end to look at
    if file.metadata()?.is_file() && file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

impl DeadLetter for StepDeadLetter {
    fn keep(&self, letter: Letter<'_>) -> io::Result<()> {
        let content = match letter.content {
            Content::Document(document) => Kept::Document(document.fields()),
            Content::Raw(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Kept::Raw(text),
                Err(_) => Kept::RawBase64(STANDARD.encode(bytes)),
            },
        };
        let line = Line {
            time: jiff::Timestamp::now().to_string(),
            run: &self.run,
            run_id: &self.run_id,
            connector: &self.connector,
            pipeline: &self.pipeline,
            stage: letter.stage,
            id: letter.id,
            reason: letter.reason,
            attempts: letter.attempts,
            content,
        };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.file.write(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document::Document, event::Tag, secrets::Secrets};
    use serde_json::{Value, json};

    fn step(connector: &str) -> StepContext {
        static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().build().expect("runtime"));
        StepContext {
            run: "nightly".into(),
            run_id: "nightly-1".into(),
            connector: connector.into(),
            pipeline: "books".into(),
            base_dir: PathBuf::new(),
            run_base_dir: Default::default(),
            secrets: Secrets::default(),
            runtime: runtime.handle().clone(),
            stop: Default::default(),
            is_continuous: false,
            written: Default::default(),
        }
    }

    fn letter<'a>(id: &'a str, content: Content<'a>) -> Letter<'a> {
        Letter { tag: Tag::source(1), id, stage: "price", reason: "no number", attempts: 1, content }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("file");
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    #[test]
    fn a_failed_document_is_kept_with_its_reason_and_as_it_was_x4() {
        let folder = tempfile::tempdir().expect("folder");
        let file = Arc::new(DeadLetterFile::new(folder.path().join("deep/er/fail.jsonl")));
        let document = Document::with_fields("p-11", Fields::from_json(br#"{"price":"n/a","n":[1,{"a":null}]}"#).expect("fields"));
        file.for_step(&step("products")).keep(letter("p-11", Content::Document(&document))).expect("kept");
        let mut kept = lines(file.path());
        let time = kept[0]["time"].take();
        assert!(time.as_str().expect("time").parse::<jiff::Timestamp>().is_ok(), "{time}");
        let wanted = json!({"time": null, "run": "nightly", "runId": "nightly-1", "connector": "products", "pipeline": "books",
            "stage": "price", "id": "p-11", "reason": "no number", "attempts": 1, "document": {"price": "n/a", "n": [1, {"a": null}]}});
        assert_eq!((kept, file.kept()), (vec![wanted], 1));
    }

    #[test]
    fn an_unreadable_record_is_kept_byte_for_byte_x4() {
        let folder = tempfile::tempdir().expect("folder");
        let file = Arc::new(DeadLetterFile::new(folder.path().join("fail.jsonl")));
        let step = file.for_step(&step("products"));
        step.keep(letter("", Content::Raw(b"p-8,\"Broken\nrow"))).expect("kept");
        step.keep(letter("", Content::Raw(b"\xff\x00"))).expect("kept");
        let kept = lines(file.path());
        assert_eq!((&kept[0]["raw"], &kept[1]["rawBase64"]), (&json!("p-8,\"Broken\nrow"), &json!("/wA=")));
        assert!(kept[1].get("raw").is_none() && kept[0].get("document").is_none());
    }

    #[test]
    fn the_file_is_made_at_the_first_failure_only() {
        let folder = tempfile::tempdir().expect("folder");
        let file = Arc::new(DeadLetterFile::new(folder.path().join("sub/fail.jsonl")));
        file.check().expect("usable");
        let step = file.for_step(&step("a"));
        file.sync().expect("nothing to sync");
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
        step.keep(letter("1", Content::Raw(b"x"))).expect("kept");
        assert!(file.path().exists());
    }

    #[test]
    fn letters_of_an_earlier_run_stay_and_a_torn_line_is_ended_s40() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("fail.jsonl");
        std::fs::write(&path, "{\"id\":\"old\"}\n{\"id\":\"to").expect("file");
        let file = Arc::new(DeadLetterFile::new(path.clone()));
        file.check().expect("usable");
        file.for_step(&step("a")).keep(letter("new", Content::Raw(b"x"))).expect("kept");
        let text = std::fs::read_to_string(&path).expect("file");
        let ids: Vec<_> = text.lines().map(|line| serde_json::from_str::<Value>(line).map(|line| line["id"].clone()).ok()).collect();
        assert_eq!(ids, [Some(json!("old")), None, Some(json!("new"))]);
    }

    #[test]
    fn many_threads_and_steps_write_whole_lines() {
        let folder = tempfile::tempdir().expect("folder");
        let file = Arc::new(DeadLetterFile::new(folder.path().join("fail.jsonl")));
        let long = "x".repeat(9_000);
        std::thread::scope(|scope| {
            for lane in 0..8 {
                let (step, long) = (file.for_step(&step(&format!("c{}", lane % 2))), &long);
                scope.spawn(move || {
                    (0..50).for_each(|i| step.keep(letter(&format!("{lane}-{i}"), Content::Raw(long.as_bytes()))).expect("kept"));
                });
            }
        });
        file.sync().expect("sync");
        let ids: std::collections::HashSet<String> = lines(file.path()).iter().map(|line| line["id"].to_string()).collect();
        assert_eq!((ids.len(), file.kept()), (400, 400));
    }

    #[test]
    fn what_cannot_be_kept_is_an_error_that_names_file_and_cure_s39() {
        let folder = tempfile::tempdir().expect("folder");
        let directory = Arc::new(DeadLetterFile::new(folder.path().into()));
        assert!(directory.check().is_err());
        let full = Arc::new(DeadLetterFile::new("/dev/full".into()));
        for file in [directory, full] {
            let error = file.for_step(&step("a")).keep(letter("1", Content::Raw(b"x"))).expect_err("cannot be kept").to_string();
            assert!(error.contains(&file.path().display().to_string()) && error.contains("--dead-letter"), "{error}");
            assert_eq!(file.kept(), 0);
        }
    }
}
