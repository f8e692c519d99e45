//! What tests of the file connector need: a folder with files, and connectors that read them.

use super::FileConnector;
use crate::connectors::{Connector, ConnectorError, testing::Recording};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A folder that is removed at the end.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    /// With these files.
    pub(super) fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().expect("directory"));
        files.iter().for_each(|(name, content)| folder.write(name, content));
        folder
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        std::fs::write(path, content).expect("file");
    }

    /// A connector for a `file` block.
    pub(super) fn connector(&self, spec: &Value) -> FileConnector {
        let spec = serde_json::from_value(spec.clone()).expect("a file connector");
        FileConnector::new(&spec, "", self.0.path()).expect("no problems")
    }

    /// Everything that a connector with this block gives, and how it ended.
    pub(super) fn read(&self, spec: &Value) -> (Recording, Result<(), ConnectorError>) {
        let mut recording = Recording::default();
        let outcome = self.connector(spec).execute(&mut recording, None);
        (recording, outcome)
    }
}

/// What a file of that content gives when it is read in a format.
pub(super) fn read_one(name: &str, content: &[u8], format: &Value) -> (Recording, Result<(), ConnectorError>) {
    Folder::new(&[(name, content)]).read(&json!({"paths": [name], "format": format}))
}

/// The lines that a readable file gives.
pub(super) fn lines(name: &str, content: impl AsRef<[u8]>, format: &Value) -> Vec<String> {
    let (recording, outcome) = read_one(name, content.as_ref(), format);
    outcome.expect("the file can be read");
    recording.lines()
}

/// Why a file cannot be read, with all that lies beneath.
pub(super) fn failure(outcome: Result<(), ConnectorError>) -> String {
    let error = outcome.expect_err("cannot be read");
    match &error.source {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
