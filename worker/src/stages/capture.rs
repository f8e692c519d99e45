//! `capture`: documents as JSON lines into a file, or printed.

use super::{Next, Stage, StageError};
use crate::{
    context::StepContext,
    document::{Document, Fields},
    problem::Problems,
};
use parking_lot::Mutex;
use penstock_crds::stages as spec;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    sync::Arc,
};

/// Writes documents and passes them on. All lanes write to the same place.
#[derive(Clone)]
pub(super) struct Capture {
    output: Arc<Mutex<Output>>,
    fields: Vec<String>,
    line: Vec<u8>,
}

struct Output {
    target: Target,
    name: String,
    /// How many documents may still be written.
    left: u64,
    /// A write broke off in the middle of a line.
    is_torn: bool,
}

enum Target {
    File(File),
    StandardError,
    Nowhere,
}

impl Capture {
    /// Opens the file; without a context nothing is opened and nothing will be written.
    pub(super) fn compile(spec: &spec::Capture, context: Option<&StepContext>, problems: &mut Problems<'_>) -> Option<Self> {
        let left = match spec.limit.map(u64::try_from) {
            None => u64::MAX,
            Some(Ok(limit)) if limit > 0 => limit,
            Some(_) => {
                problems.add("limit", "must be at least 1");
                return None;
            }
        };
        let (target, name) = match (&spec.path, context) {
            (_, None) => (Target::Nowhere, String::new()),
            (Some(path), Some(context)) => open(path, context, problems)?,
            (None, Some(_)) => (Target::StandardError, "standard error".into()),
        };
        let output = Output { target, name, left, is_torn: false };
        Some(Self { output: Arc::new(Mutex::new(output)), fields: spec.fields.clone(), line: Vec::new() })
    }

    /// The line for a document: its id, then its fields. The id wins over a field called `id`.
    fn write_line(&mut self, document: &Document) {
        let is_wanted = |key: &str| key != "id" && (self.fields.is_empty() || self.fields.iter().any(|field| field == key));
        let mut line = Fields::with_capacity(document.fields().len() + 1);
        line.insert("id", document.id().into());
        for (key, value) in document.fields().iter().filter(|(key, _)| is_wanted(key)) {
            line.push_new(key.clone(), value.clone());
        }
        self.line.clear();
        line.write_json(&mut self.line);
        self.line.push(b'\n');
    }
}

fn open(path: &str, context: &StepContext, problems: &mut Problems<'_>) -> Option<(Target, String)> {
    let path = context.resolve(&context.fill(path));
    let opened =
        path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| OpenOptions::new().append(true).create(true).open(&path));
    match opened {
        Ok(file) => Some((Target::File(file), path.display().to_string())),
        Err(error) => {
            problems.add("path", format!("failed to open {} for writing: {error}", path.display()));
            None
        }
    }
}

impl Output {
    /// Writes one line with one call and without a buffer: what was captured is there whatever happens next.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        if self.is_torn {
            self.target.write_all(b"\n")?;
            self.is_torn = false;
        }
        if let Err(error) = self.target.write_all(line) {
            self.is_torn = true;
            return Err(error);
        }
        self.left -= 1;
        Ok(())
    }
}

impl Target {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(bytes),
            Self::StandardError => io::stderr().lock().write_all(bytes),
            Self::Nowhere => Ok(()),
        }
    }
}

impl Stage for Capture {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        if self.output.lock().left == 0 {
            return Ok(Next::Continue);
        }
        self.write_line(document);
        let mut output = self.output.lock();
        output.write(&self.line).map_err(|error| StageError(format!("failed to write to {}: {error}", output.name)))?;
        Ok(Next::Continue)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        document::{Document, Fields},
        stages::testing::{context_in, plan_in, problems, sink},
    };

    fn documents() -> Vec<Document> {
        (0..5)
            .map(|i| {
                let fields = Fields::from_json(format!(r#"{{"n":{i},"id":"other","text":"a \"b\"\n"}}"#).as_bytes()).expect("fields");
                Document::with_fields(format!("d-{i}"), fields)
            })
            .collect()
    }

    #[test]
    fn lines_are_appended_by_all_lanes_up_to_the_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let stage = r#"{"capture": {"path": "deep/{run}.jsonl", "fields": ["n", "text"], "limit": 7}}"#;
        let plan = plan_in(&context_in(directory.path()), stage);
        let (mut first, mut second) = (plan.lane(), plan.lane());
        for document in documents() {
            first.process(document.clone(), 1, &mut sink()).expect("open");
            second.process(document, 1, &mut sink()).expect("open");
        }
        let text = std::fs::read_to_string(directory.path().join("deep/test.jsonl")).expect("file");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[0], r#"{"id":"d-0","n":0,"text":"a \"b\"\n"}"#);
        assert_eq!((lines[0], lines[2], lines[4]), (lines[1], lines[3], lines[5]));

        // a later run goes on behind what is there
        plan_in(&context_in(directory.path()), stage).lane().process(Document::new("later"), 1, &mut sink()).expect("open");
        let text = std::fs::read_to_string(directory.path().join("deep/test.jsonl")).expect("file");
        assert!(text.ends_with("{\"id\":\"later\"}\n"), "{text}");
    }

    #[test]
    fn documents_pass_on_unchanged() {
        let directory = tempfile::tempdir().expect("directory");
        let mut lane = plan_in(&context_in(directory.path()), r#"{"capture": {"path": "x.jsonl"}}"#).lane();
        let mut sink = sink();
        documents().into_iter().for_each(|document| lane.process(document, 1, &mut sink).expect("open"));
        assert_eq!(sink.forwarded.into_iter().map(|(document, _)| document).collect::<Vec<_>>(), documents());
    }

    #[test]
    fn checking_makes_no_file_x13() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("x.jsonl");
        assert_eq!(problems(&format!(r#"{{"capture": {{"path": "{}"}}}}"#, path.display())), []);
        assert_eq!(problems(r#"{"capture": {"limit": 0}}"#).len(), 1);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_cannot_be_made_fails_the_build() {
        let directory = tempfile::tempdir().expect("directory");
        std::fs::write(directory.path().join("file"), "").expect("file");
        let stages = [serde_json::from_str(r#"{"capture": {"path": "file/x.jsonl"}}"#).expect("stage")];
        let error = crate::pipeline::Plan::compile(&stages, &context_in(directory.path())).err().expect("error").to_string();
        assert!(error.contains("[0].capture.path: failed to open"), "{error}");
    }
}
