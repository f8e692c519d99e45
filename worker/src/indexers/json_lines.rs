//! One JSON object a line, the id in front.

use super::{
    Projection, Rejected,
    file_backend::{FileBackend, Notation},
    id_field::check_id_field,
    output_file::OutputFile,
};
use crate::{context::StepContext, document::Document, problem::Problems};
use penstock_crds::indexers::JsonLinesFile;

/// A file with one JSON object a line.
#[derive(Debug)]
pub struct JsonLines {
    id_name: String,
    projection: Projection,
}

/// Reports what is wrong with the settings.
pub fn check(spec: &JsonLinesFile, problems: &mut Problems<'_>) {
    super::output_file::check_path(&spec.path, problems);
}

impl JsonLines {
    /// The backend for one step. Nothing is opened before it is checked.
    pub(super) fn backend(spec: &JsonLinesFile, projection: Projection, step: &StepContext) -> FileBackend<Self> {
        let file = OutputFile::new(&spec.path, spec.append, Vec::new(), step);
        FileBackend { notation: Self { id_name: spec.id_name.clone(), projection }, file }
    }
}

impl Notation for JsonLines {
    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        let id = self.projection.id(document)?;
        check_id_field(document, &self.id_name, &id, &self.projection)?;
        self.projection.write_json(document, Some((&self.id_name, &id)), body);
        body.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        document::Fields,
        indexers::{
            Backend,
            compliance::{self, Case, Visible, step_context},
        },
    };
    use std::{path::Path, sync::Arc};

    struct Lines(&'static str);

    impl Case for Lines {
        fn backend(&self, folder: &Path) -> Arc<dyn Backend> {
            let spec = serde_yaml_ng::from_str(self.0).expect(self.0);
            Arc::new(JsonLines::backend(&spec, Projection::default(), &step_context(folder)))
        }
        fn visible(&self, folder: &Path) -> Visible {
            let Ok(text) = std::fs::read_to_string(folder.join("out/x.jsonl")) else { return Visible::Documents(Vec::new()) };
            let read = |line: &str| {
                let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).expect(line);
                let id = fields.remove("_id").expect("id").as_str().expect("text").to_owned();
                (id, fields.into())
            };
            Visible::Lines(text.lines().map(read).collect())
        }
    }

    #[test]
    fn is_a_backend_like_the_others() {
        compliance::run(&Lines("{path: out/x.jsonl, idName: _id}"));
    }

    #[test]
    fn appends_like_the_others() {
        compliance::run(&Lines("{path: out/x.jsonl, idName: _id, append: true}"));
    }

    fn encoded(json: &str) -> Result<String, Rejected> {
        let folder = Path::new("/nowhere");
        let spec = serde_yaml_ng::from_str("path: x.jsonl").expect("spec");
        let mut body = Vec::new();
        let document = Document::with_fields("7", Fields::from_json(json.as_bytes()).expect(json));
        JsonLines::backend(&spec, Projection::default(), &step_context(folder)).encode(&document, &mut body)?;
        Ok(String::from_utf8(body).expect("utf-8"))
    }

    #[test]
    fn a_field_named_like_the_id_is_not_repeated_and_never_lost() {
        assert_eq!(encoded(r#"{"a":1}"#).as_deref(), Ok("{\"id\":\"7\",\"a\":1}\n"));
        assert_eq!(encoded(r#"{"a":1,"id":"7"}"#).as_deref(), Ok("{\"id\":\"7\",\"a\":1}\n"));
        assert_eq!(encoded(r#"{"id":7}"#).as_deref(), Ok("{\"id\":\"7\"}\n"));
        for json in [r#"{"id":"8"}"#, r#"{"id":["7"]}"#, r#"{"id":null}"#] {
            let rejected = encoded(json).expect_err(json);
            assert!(rejected.0.contains("idName"), "{rejected}");
        }
    }

    #[test]
    fn settings_are_checked_without_touching_anything_x13() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join("x.jsonl"), "old").expect("file");
        for (path, bad) in
            [(folder.path().join("x.jsonl").display().to_string(), false), ("out/".to_owned(), true), ("..".to_owned(), true)]
        {
            let spec = serde_yaml_ng::from_str(&format!("path: {path}")).expect("spec");
            let mut found = Vec::new();
            check(&spec, &mut Problems::new("spec.indexer.jsonLines", &mut found));
            assert_eq!(!found.is_empty(), bad, "{path}");
            JsonLines::backend(&spec, Projection::default(), &step_context(folder.path()));
        }
        assert_eq!(std::fs::read_to_string(folder.path().join("x.jsonl")).expect("file"), "old");
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 1);
    }
}
