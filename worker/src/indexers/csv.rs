//! Separated values: chosen columns, one line a document.

use super::{
    Projection, Rejected,
    file_backend::{FileBackend, Notation},
    id_field::check_id_field,
    output_file::OutputFile,
};
use crate::{
    context::StepContext,
    document::{Document, Path, PathError, Value},
    problem::Problems,
};
use csv_core::{WriteResult, Writer, WriterBuilder};
use penstock_crds::indexers::CsvFile;
use std::collections::HashSet;

/// A file of separated values.
#[derive(Debug)]
pub struct Csv {
    columns: Vec<Column>,
    /// The column for the id, if there is one.
    id_name: Option<String>,
    projection: Projection,
    /// Each document begins with a copy of it.
    writer: Writer,
}

#[derive(Debug)]
enum Column {
    Id,
    /// What `runIdField` names: the id of the run.
    RunId,
    Field(Path),
    /// A field that `includeFields` or `excludeFields` leave out.
    Empty,
}

/// Reports what is wrong with the settings.
pub fn check(spec: &CsvFile, problems: &mut Problems<'_>) {
    super::output_file::check_path(&spec.path, problems);
    if let Err(fault) = delimiter(&spec.delimiter) {
        problems.add("delimiter", fault);
    }
    let mut seen = HashSet::new();
    for (index, column) in spec.columns.iter().enumerate() {
        let field = format!("columns[{index}]");
        if !seen.insert(column) {
            problems.add(&field, format!("the column `{column}` stands twice; remove one"));
        }
        if *column == spec.id_name {
            continue;
        }
        if let Err(error) = column.parse::<Path>() {
            problems.add(&field, error.to_string());
        }
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err(format!("`{}` cannot stand between values; write one ASCII character such as `,` or `;`, or `\\t`", text.escape_debug())),
    }
}

impl Csv {
    /// The backend for one step. Nothing is opened before it is checked.
    ///
    /// # Errors
    /// A column is not a path; [`check`] finds that before.
    pub(super) fn backend(spec: &CsvFile, projection: Projection, step: &StepContext) -> Result<FileBackend<Self>, PathError> {
        let writer = WriterBuilder::new().delimiter(delimiter(&spec.delimiter).unwrap_or(b',')).build();
        let column = |name: &String| {
            Ok(match projection.run_id_field() {
                _ if *name == spec.id_name => Column::Id,
                Some(field) if field == name => Column::RunId,
                _ => {
                    let path: Path = name.parse()?;
                    if takes(&projection, &path) { Column::Field(path) } else { Column::Empty }
                }
            })
        };
        let columns = spec.columns.iter().map(column).collect::<Result<_, PathError>>()?;
        let mut header = Vec::new();
        if spec.header {
            let mut line = Line::new(&writer, &mut header);
            spec.columns.iter().for_each(|name| line.cell(name.as_bytes()));
            line.end();
        }
        let file = OutputFile::new(&spec.path, spec.append, header, step);
        let id_name = spec.columns.contains(&spec.id_name).then(|| spec.id_name.clone());
        Ok(FileBackend { notation: Self { columns, id_name, projection, writer }, file })
    }
}

/// Whether the projection writes the field on which the path begins.
fn takes(projection: &Projection, path: &Path) -> bool {
    let probe = Document::with_fields("", [(path.first().clone(), Value::Null)].into_iter().collect());
    projection.fields(&probe).next().is_some()
}

impl Notation for Csv {
    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        let id = self.projection.id(document)?;
        if let Some(id_name) = &self.id_name {
            check_id_field(document, id_name, &id, &self.projection)?;
        }
        let mut line = Line::new(&self.writer, body);
        let mut scratch = Vec::new();
        for column in &self.columns {
            match column {
                Column::Id => line.cell(id.as_bytes()),
                Column::RunId => line.cell(self.projection.run_id(document).map_or("", |(_, id)| id).as_bytes()),
                Column::Field(path) => line.value(document.get(path).unwrap_or(&Value::Null), &mut scratch),
                Column::Empty => line.cell(b""),
            }
        }
        line.end();
        Ok(())
    }
}

/// A line that is being appended to a buffer.
struct Line<'a> {
    writer: Writer,
    body: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Line<'a> {
    fn new(writer: &Writer, body: &'a mut Vec<u8>) -> Self {
        Self { writer: writer.clone(), body, first: true }
    }

    fn value(&mut self, value: &Value, scratch: &mut Vec<u8>) {
        match value {
            Value::Null => self.cell(b""),
            Value::Text(text) => self.cell(text.as_bytes()),
            value => {
                scratch.clear();
                match value {
                    Value::List(values) => write_joined(values, scratch),
                    single => write_plain(single, scratch),
                }
                self.cell(scratch);
            }
        }
    }

    fn cell(&mut self, bytes: &[u8]) {
        if !self.first {
            self.drive(|writer, out| {
                let (result, written) = writer.delimiter(out);
                (result, 0, written)
            });
        }
        self.first = false;
        let mut rest = bytes;
        self.drive(|writer, out| {
            let (result, read, written) = writer.field(rest, out);
            rest = &rest[read..];
            (result, read, written)
        });
    }

    fn end(mut self) {
        self.drive(|writer, out| {
            let (result, written) = writer.terminator(out);
            (result, 0, written)
        });
    }

    /// Calls the writer with more room until it has written all.
    fn drive(&mut self, mut step: impl FnMut(&mut Writer, &mut [u8]) -> (WriteResult, usize, usize)) {
        loop {
            let end = self.body.len();
            self.body.resize(end + ROOM, 0);
            let (result, _, written) = step(&mut self.writer, &mut self.body[end..]);
            self.body.truncate(end + written);
            if result == WriteResult::InputEmpty {
                return;
            }
        }
    }
}

/// Room for one call of the writer: most cells fit.
const ROOM: usize = 64;

fn write_joined(values: &[Value], out: &mut Vec<u8>) {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b'|');
        }
        write_plain(value, out);
    }
}

/// Text as it is, nothing for null, everything else as JSON.
fn write_plain(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        value => {
            // writing into memory cannot fail
            let written = serde_json::to_writer(out, value);
            debug_assert!(written.is_ok());
        }
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
    use proptest::prelude::*;
    use std::sync::Arc;

    fn build(spec: &str, folder: &std::path::Path) -> FileBackend<Csv> {
        let spec = serde_yaml_ng::from_str(spec).expect(spec);
        Csv::backend(&spec, Projection::default(), &step_context(folder)).expect("columns")
    }

    fn document(id: &str, json: &str) -> Document {
        Document::with_fields(id, Fields::from_json(json.as_bytes()).expect(json))
    }

    fn line(spec: &str, json: &str) -> String {
        let mut body = Vec::new();
        build(spec, std::path::Path::new("/nowhere")).encode(&document("7", json), &mut body).expect("encoded");
        String::from_utf8(body).expect("utf-8")
    }

    struct Cells;

    impl Case for Cells {
        fn backend(&self, folder: &std::path::Path) -> Arc<dyn Backend> {
            Arc::new(build("{path: out/x.csv, columns: [_id, n, text], idName: _id}", folder))
        }
        fn visible(&self, folder: &std::path::Path) -> Visible {
            let Ok(mut reader) = csv::Reader::from_path(folder.join("out/x.csv")) else { return Visible::Documents(Vec::new()) };
            assert_eq!(reader.headers().expect("header"), vec!["_id", "n", "text"]);
            Visible::Ids(reader.records().map(|record| record.expect("record")[0].to_owned()).collect())
        }
    }

    #[test]
    fn is_a_backend_like_the_others() {
        compliance::run(&Cells);
    }

    #[test]
    fn values_of_every_type_become_cells() {
        let spec = "{path: x, columns: [t, i, u, f, b, z, l, e, o, o.p, missing, id]}";
        let json = r#"{"t":"a \"b\", c\nd","i":-1,"u":18446744073709551615,"f":18.0,"b":true,"z":null,
            "l":["x",1,null,{"k":2},[3]],"e":[],"o":{"p":"deep"}}"#;
        assert_eq!(
            line(spec, json),
            "\"a \"\"b\"\", c\nd\",-1,18446744073709551615,18.0,true,,\"x|1||{\"\"k\"\":2}|[3]\",,\"{\"\"p\"\":\"\"deep\"\"}\",deep,,7\n"
        );
    }

    #[test]
    fn the_delimiter_is_one_character_or_a_tab() {
        assert_eq!(line("{path: x, columns: [a, b], delimiter: '\\t'}", r#"{"a":"x,y","b":"p\tq"}"#), "x,y\t\"p\tq\"\n");
        assert_eq!(line("{path: x, columns: [a, b], delimiter: ';'}", r#"{"a":"x,y","b":"p;q"}"#), "x,y;\"p;q\"\n");
    }

    #[test]
    fn fields_that_are_left_out_stay_empty_and_the_run_may_be_named() {
        let indexer = serde_yaml_ng::from_str("{nop: {}, excludeFields: [a], runIdField: run}").expect("indexer");
        let projection = Projection::new(&indexer, "run-1").expect("projection");
        let spec = serde_yaml_ng::from_str("{path: x, columns: [id, a, a.x, b, run]}").expect("spec");
        let backend = Csv::backend(&spec, projection, &step_context(std::path::Path::new("/nowhere"))).expect("columns");
        let mut body = Vec::new();
        backend.encode(&document("7", r#"{"a":{"x":1},"b":2,"run":"own"}"#), &mut body).expect("encoded");
        assert_eq!(body, b"7,,,2,run-1\n");
    }

    #[test]
    fn a_single_empty_cell_is_not_a_blank_line() {
        assert_eq!(line("{path: x, columns: [a]}", "{}"), "\"\"\n");
    }

    #[test]
    fn problems_of_the_settings_are_found_all_at_once_x13() {
        let spec = serde_yaml_ng::from_str("{path: out/, columns: [a, a, 'b.', id], delimiter: '::'}").expect("spec");
        let mut found = Vec::new();
        check(&spec, &mut Problems::new("csv", &mut found));
        let paths: Vec<_> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["csv.path", "csv.delimiter", "csv.columns[1]", "csv.columns[2]"]);
    }

    #[test]
    fn an_existing_file_is_neither_truncated_by_validation_nor_replaced_before_success_x13() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("x.csv");
        std::fs::write(&path, "old\n").expect("file");
        let backend = build("{path: x.csv, columns: [a]}", folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 1);
        backend.file.open().expect("open");
        assert_eq!(std::fs::read_to_string(&path).expect("file"), "old\n");
        backend.file.commit().expect("commit");
        assert_eq!(std::fs::read_to_string(&path).expect("file"), "a\n");
    }

    #[test]
    fn the_header_stands_once_over_all_steps_of_a_run() {
        let folder = tempfile::tempdir().expect("folder");
        let context = step_context(folder.path());
        let spec = serde_yaml_ng::from_str("{path: x.csv, columns: [id, a]}").expect("spec");
        for id in ["1", "2"] {
            let backend = Csv::backend(&spec, Projection::default(), &context).expect("columns");
            compliance::write_all(&backend, &[document(id, r#"{"a":"x"}"#)]);
        }
        assert_eq!(std::fs::read_to_string(folder.path().join("x.csv")).expect("file"), "id,a\n1,x\n2,x\n");
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_as_it_was(cells in prop::collection::vec("\\PC*|[\",\n\r|\t]*|.{60,140}", 1..6)) {
            let names: Vec<String> = (0..cells.len()).map(|i| format!("c{i}")).collect();
            let fields: Fields = names.iter().zip(&cells).map(|(name, cell)| (name.as_str().into(), cell.as_str().into())).collect();
            let backend = build(&format!("{{path: x, columns: [{}]}}", names.join(", ")), std::path::Path::new("/nowhere"));
            // not the first line: a reader takes U+FEFF at the very beginning for a byte order mark
            let mut body = b"header\n".to_vec();
            backend.encode(&Document::with_fields("7", fields), &mut body).expect("encoded");
            let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(body.as_slice());
            let records: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("csv");
            prop_assert_eq!(records.len(), 1);
            prop_assert_eq!(records[0].iter().collect::<Vec<_>>(), cells);
        }
    }
}
