//! `csv`: rows of a file with delimiters.

use super::{
    ids::{self, Ids, Part},
    reading::{End, Format, RAW_LIMIT, Reading},
    scan::{Dialect, Extent, Piece, Scan, count_line_ends, each_place},
};
use crate::{
    document::{Columns, Key, Row},
    problem::Problems,
};
use penstock_crds::connectors as spec;
use std::{collections::HashMap, sync::Arc};

/// Reads rows as `spec` says.
pub(super) struct Csv {
    dialect: Dialect,
    columns: Vec<String>,
    id_parts: Vec<Part<String>>,
    id_prefix: String,
    line_field: Option<Key>,
    path_field: Option<Key>,
    max_record: usize,
}

impl Csv {
    /// A reader for many files.
    ///
    /// # Errors
    /// What [`check`] reports.
    pub(super) fn new(spec: &spec::Csv, file: &spec::File, id_prefix: &str) -> Result<Self, String> {
        Ok(Self {
            dialect: dialect(spec)?,
            columns: spec.columns.clone(),
            id_parts: ids::parts(&spec.id, spec.id_template.as_deref()).map_err(|error| error.to_string())?,
            id_prefix: id_prefix.to_owned(),
            line_field: file.line_field.as_deref().map(Key::from),
            path_field: file.path_field.as_deref().map(Key::from),
            max_record: super::max_record(file),
        })
    }
}

/// One file on its way: what its rows are made with.
struct Rows<'a> {
    csv: &'a Csv,
    columns: Arc<Columns>,
    ids: Ids<usize>,
    cells: Cells,
}

/// The cells of one row, one after the other.
#[derive(Default)]
struct Cells {
    text: String,
    ends: Vec<usize>,
    pieces: Vec<Piece>,
}

/// What the file goes on with.
enum Next {
    Record { extent: Extent, plain: bool },
    Fault(Fault),
    End,
}

/// Why a record cannot be cut out.
enum Fault {
    Malformed(usize),
    Unterminated,
    TooLarge,
}

impl Format for Csv {
    fn read(&self, reading: &mut Reading<'_>) -> Result<(), End> {
        let mut cells = Cells::default();
        let Some(names) = self.header(reading, &mut cells)? else { return Ok(()) };
        let mut rows = self.rows(reading, names, cells)?;
        reading.resume()?;
        loop {
            match self.next(reading, &mut rows.cells.pieces)? {
                Next::Record { extent, plain } => rows.publish(reading, extent, plain)?,
                Next::Fault(fault) => self.fail(reading, &fault)?,
                Next::End => return Ok(()),
            }
        }
    }
}

impl Csv {
    /// The names of the columns; none if the file is empty.
    fn header(&self, reading: &mut Reading<'_>, cells: &mut Cells) -> Result<Option<Vec<String>>, End> {
        if !self.columns.is_empty() {
            return Ok(Some(self.columns.clone()));
        }
        let (extent, plain) = match self.next(reading, &mut cells.pieces)? {
            Next::End => return Ok(None),
            Next::Record { extent, plain } => (extent, plain),
            Next::Fault(fault) => return Err(reading.unreadable(self.describe(reading, &fault))),
        };
        let content = &reading.window()[..extent.content];
        let Ok(text) = std::str::from_utf8(content) else {
            return Err(reading.unreadable(format!("the header is not valid {}", reading.encoding())));
        };
        if text.contains('\0') {
            return Err(reading.unreadable("the header holds NUL characters, as UTF-16 does; set `encoding`, for example `utf-16le`"));
        }
        cells.cut(&self.dialect, text, plain);
        let lines = 1 + count_line_ends(content);
        let names: Vec<String> = cells.iter().map(str::to_owned).collect();
        if let Some(fault) = header_fault(&names) {
            return Err(reading.unreadable(format!("{fault}; every column needs a name of its own")));
        }
        reading.advance(extent.whole, lines);
        Ok(Some(names))
    }

    fn rows<'a>(&'a self, reading: &Reading<'_>, names: Vec<String>, cells: Cells) -> Result<Rows<'a>, End> {
        for (field, name) in [("pathField", &self.path_field), ("lineField", &self.line_field)] {
            if let Some(name) = name.as_deref().filter(|name| names.iter().any(|column| column == name)) {
                return Err(
                    reading.unreadable(format!("there is a column `{name}`, and `{field}` would overwrite it; choose another name"))
                );
            }
        }
        let ids = Ids::new(&self.id_prefix, &self.id_parts, reading.path(), |wanted| {
            names.iter().position(|name| name == wanted).ok_or_else(|| reading.unreadable(no_column(wanted, &names)))
        })?;
        let columns = Arc::new(Columns {
            names: names.iter().map(Key::from).collect(),
            fixed: self.path_field.iter().map(|field| (field.clone(), reading.path().into())).collect(),
            line: self.line_field.clone(),
        });
        Ok(Rows { csv: self, columns, ids, cells })
    }

    /// Finds the next record, which then stands at the beginning of the window; blank lines and comments are passed over.
    fn next(&self, reading: &mut Reading<'_>, pieces: &mut Vec<Piece>) -> Result<Next, End> {
        loop {
            let window = reading.window();
            if window.is_empty() {
                if reading.ended() {
                    return Ok(Next::End);
                }
                reading.fill()?;
                continue;
            }
            // Never looks further than a record may be long, so that the outcome does not depend on how much was read.
            let seen = window.len().min(self.max_record + 2);
            let ended = reading.ended() && seen == window.len();
            let scan = self.dialect.scan(&window[..seen], ended, pieces);
            let plain = matches!(scan, Scan::Plain(_));
            match scan {
                Scan::Plain(extent) | Scan::Quoted(extent) if extent.content <= self.max_record => {
                    return Ok(Next::Record { extent, plain });
                }
                Scan::Plain(_) | Scan::Quoted(_) => return Ok(Next::Fault(Fault::TooLarge)),
                Scan::More if seen == self.max_record + 2 => return Ok(Next::Fault(Fault::TooLarge)),
                Scan::More => reading.fill()?,
                Scan::Blank(length) => reading.advance(length, 1),
                Scan::Comment => reading.skip_line(true)?,
                Scan::Malformed(at) => return Ok(Next::Fault(Fault::Malformed(at))),
                Scan::Unterminated => return Ok(Next::Fault(Fault::Unterminated)),
            }
        }
    }

    /// Fails the line at the beginning of the window and goes on with the next one, so that a lost quote costs one record
    /// and not all that follow.
    fn fail(&self, reading: &mut Reading<'_>, fault: &Fault) -> Result<(), End> {
        let reason = self.describe(reading, fault);
        let window = reading.window();
        let line = memchr::memchr2(b'\n', b'\r', window).unwrap_or(window.len());
        let kept = if matches!(fault, Fault::TooLarge) { line.min(RAW_LIMIT) } else { line };
        let raw = window[..kept].to_vec();
        let number = reading.line() + 1;
        reading.skip_line(true)?;
        reading.fail(number, None, &reason, raw)
    }

    fn describe(&self, reading: &Reading<'_>, fault: &Fault) -> String {
        match fault {
            Fault::Malformed(at) => {
                let before = &reading.window()[..*at];
                let line = reading.line() + 1 + count_line_ends(before);
                let begin = memchr::memrchr2(b'\n', b'\r', before).map_or(0, |at| at + 1);
                let column = String::from_utf8_lossy(&before[begin..]).chars().count() + 1;
                format!("text follows a closing quote at line {line}, character {column}; inside quotes a quote is written twice")
            }
            Fault::Unterminated => "a quote is opened and never closed".to_owned(),
            Fault::TooLarge => {
                format!("the record is larger than `maxRecordSize`, {} bytes, or a quote in it is never closed", self.max_record)
            }
        }
    }
}

impl Rows<'_> {
    /// Hands over the record at the beginning of the window.
    fn publish(&mut self, reading: &mut Reading<'_>, extent: Extent, plain: bool) -> Result<(), End> {
        let content = &reading.window()[..extent.content];
        let line = reading.line() + 1;
        let cut = std::str::from_utf8(content);
        if let Ok(text) = cut {
            self.cells.cut(&self.csv.dialect, text, plain);
        }
        let lines = if plain { 1 } else { 1 + count_line_ends(content) };
        let (cells, expected) = (&self.cells, self.columns.names.len());
        let id = match cut {
            Err(error) => Err(format!("not valid {} at byte {} of the record", reading.encoding(), error.valid_up_to() + 1)),
            Ok(_) if cells.ends.len() != expected => Err(wrong_count(cells.ends.len(), expected, self.csv.columns.is_empty())),
            Ok(_) => id(&mut self.ids, cells, &self.columns, line),
        };
        match id {
            Ok(id) => {
                reading.advance(extent.whole, lines);
                reading.publish_row(Row { columns: &self.columns, id, text: &cells.text, ends: &cells.ends, line })
            }
            Err(reason) => {
                let raw = content.to_vec();
                reading.advance(extent.whole, lines);
                reading.fail(line, None, &reason, raw)
            }
        }
    }
}

/// The id of a row; the usual one is a slice of its text.
fn id<'a>(ids: &'a mut Ids<usize>, cells: &'a Cells, columns: &Columns, line: u64) -> Result<&'a str, String> {
    let id = match ids.single() {
        Some(column) if !cells.cell(*column).is_empty() => Ok(cells.cell(*column)),
        _ => ids.build(line, |column, out| match cells.cell(*column) {
            "" => Err(format!("column `{}` is empty, so there is no id", columns.names[*column])),
            cell => {
                out.push_str(cell);
                Ok(())
            }
        }),
    };
    ids::accept(id?)
}

impl Cells {
    fn cut(&mut self, dialect: &Dialect, record: &str, plain: bool) {
        self.text.clear();
        self.ends.clear();
        if !plain {
            for piece in &self.pieces {
                self.text.push_str(&record[piece.begin..piece.end]);
                if piece.last {
                    self.ends.push(self.text.len());
                }
            }
            return;
        }
        let mut begin = 0;
        each_place(record.as_bytes(), dialect.delimiter, |end| {
            self.push(dialect, &record[begin..end]);
            begin = end + 1;
        });
        self.push(dialect, &record[begin..]);
    }

    #[inline]
    fn push(&mut self, dialect: &Dialect, cell: &str) {
        let (begin, end) = dialect.trimmed(cell.as_bytes());
        self.text.push_str(&cell[begin..end]);
        self.ends.push(self.text.len());
    }

    fn cell(&self, column: usize) -> &str {
        let begin = if column == 0 { 0 } else { self.ends[column - 1] };
        &self.text[begin..self.ends[column]]
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|column| self.cell(column))
    }
}

/// What is wrong with the names of columns.
fn header_fault(names: &[String]) -> Option<String> {
    let mut seen = HashMap::new();
    names.iter().zip(1..).find_map(|(name, column)| {
        if name.is_empty() {
            return Some(format!("column {column} has no name"));
        }
        seen.insert(name, column).map(|other| format!("columns {other} and {column} are both called `{name}`"))
    })
}

fn no_column(wanted: &str, names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("there is no column `{wanted}` for the id; the columns are {}{more}; name those that make the id in `csv.id`", shown.join(", "))
}

fn wrong_count(found: usize, expected: usize, by_header: bool) -> String {
    let values = if found == 1 { "value" } else { "values" };
    let source = if by_header { "the header" } else { "`columns`" };
    format!("{found} {values}, but {source} has {expected}")
}

fn dialect(spec: &spec::Csv) -> Result<Dialect, String> {
    let one = |text: &str, what: &str| match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(*byte),
        _ => Err(format!("the {what} must be one ASCII character and no line end, not `{}`", text.escape_debug())),
    };
    Ok(Dialect {
        delimiter: if spec.delimiter == "\\t" { b'\t' } else { one(&spec.delimiter, "delimiter")? },
        quote: if spec.quote.is_empty() { None } else { Some(one(&spec.quote, "quote")?) },
        comment: spec.comment.as_deref().map(|text| one(text, "comment character")).transpose()?,
        trim: spec.trim,
    })
}

/// Reports what is wrong with the format.
pub(super) fn check(spec: &spec::Csv, problems: &mut Problems<'_>) {
    let character = |text: &str| matches!(text.as_bytes(), [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r'));
    if spec.delimiter != "\\t" && !character(&spec.delimiter) {
        problems.add("delimiter", r"must be one ASCII character, for example `;`, or `\t`");
    }
    if !spec.quote.is_empty() && !character(&spec.quote) {
        problems.add("quote", "must be one ASCII character, or empty if quotes have no meaning");
    }
    if spec.comment.as_deref().is_some_and(|comment| !character(comment)) {
        problems.add("comment", "must be one ASCII character, for example `#`");
    }
    if spec.delimiter == spec.quote || spec.comment.as_ref() == Some(&spec.delimiter) {
        problems.add("delimiter", "is the quote or the comment character as well; each needs a character of its own");
    }
    if !spec.quote.is_empty() && spec.comment.as_ref() == Some(&spec.quote) {
        problems.add("comment", "is the quote as well; each needs a character of its own");
    }
    if let Some(fault) = header_fault(&spec.columns) {
        problems.add("columns", format!("{fault}; every column needs a name of its own"));
    }
    check_id(spec, problems);
}

fn check_id(spec: &spec::Csv, problems: &mut Problems<'_>) {
    let parts = match ids::parts(&spec.id, spec.id_template.as_deref()) {
        Ok(parts) => parts,
        Err(error) => return problems.add("idTemplate", format!("not a template: {error}; write for example {{shop}}-{{sku}}")),
    };
    if spec.columns.is_empty() {
        return;
    }
    let field = match (&spec.id_template, spec.id.is_empty()) {
        (Some(_), _) => "idTemplate",
        (None, false) => "id",
        (None, true) => "",
    };
    for part in parts {
        if let Part::Key(name) = part
            && !spec.columns.contains(&name)
        {
            problems.add(field, no_column(&name, &spec.columns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::*, *};
    use crate::connectors::testing::{Entry, assert_compliance};
    use proptest::prelude::*;
    use serde_json::json;

    fn read(content: impl AsRef<[u8]>) -> Vec<String> {
        lines("x.csv", content, &json!({"csv": {}}))
    }

    fn refused(content: impl AsRef<[u8]>, format: serde_json::Value) -> String {
        failure(read_one("x.csv", content.as_ref(), &json!({"csv": format})).1)
    }

    #[test]
    fn rows_become_documents_of_text() {
        let wanted = [r#"1 {"id":"1","a":"x"}"#, r#"2 {"id":"2","a":""}"#];
        for content in [
            "id,a\n1,x\n2,\n",
            "id,a\r\n1,x\r\n2,",
            "id,a\r1,x\r\r2,\r",
            "\u{feff}id,a\n1,x\n\n2,\n",
            "\u{feff}\"id\",\"a\"\n\"1\",x\n2,\"\"",
        ] {
            assert_eq!(read(content), wanted, "{content:?}");
        }
    }

    #[test]
    fn an_empty_file_and_one_with_a_header_only_have_no_documents_lucille_12_5() {
        for content in ["", "\n\n", "\u{feff}", "id,a", "id,a\n", "id,a\r\n\r\n"] {
            assert_eq!(read(content), [""; 0], "{content:?}");
        }
    }

    #[test]
    fn a_row_of_the_wrong_width_is_a_counted_fault_with_line_and_counts_lucille_12_1() {
        let (recording, _) = read_one("x.csv", b"id,a\n1,x\n2\n\n3,y,z\n,\n4,v\n", &json!({"csv": {}}));
        assert_eq!(
            recording.lines(),
            [
                r#"1 {"id":"1","a":"x"}"#,
                "fault: x.csv:3: 1 value, but the header has 2",
                "fault: x.csv:5: 3 values, but the header has 2",
                "fault: x.csv:6: column `id` is empty, so there is no id",
                r#"4 {"id":"4","a":"v"}"#
            ]
        );
        assert_eq!(recording.faults().iter().map(|fault| fault.raw.as_slice()).collect::<Vec<_>>(), [&b"2"[..], b"3,y,z", b","]);
    }

    #[test]
    fn a_lost_quote_costs_one_record_and_no_other_lucille_12_2_x8() {
        let mut rows: Vec<String> = (1..=9).map(|row| format!("{row},\"text {row}\",z\n")).collect();
        rows[3] = "4,\"text 4,z\n".to_owned();
        let (recording, outcome) = read_one("x.csv", format!("id,a,b\n{}", rows.concat()).as_bytes(), &json!({"csv": {}}));
        outcome.expect("readable");
        assert_eq!(recording.ids(), ["1", "2", "3", "5", "6", "7", "8", "9"]);
        let [fault] = recording.faults()[..] else { panic!("{:?}", recording.faults()) };
        assert_eq!(fault.reason, "x.csv:5: text follows a closing quote at line 6, character 4; inside quotes a quote is written twice");
        assert_eq!(fault.raw, b"4,\"text 4,z");
        // no quote follows at all
        let plain = read("id,a\n1,\"x\n2,y\n3,z");
        assert_eq!(plain, ["fault: x.csv:2: a quote is opened and never closed", r#"2 {"id":"2","a":"y"}"#, r#"3 {"id":"3","a":"z"}"#]);
    }

    #[test]
    fn text_behind_a_closing_quote_is_a_fault_and_a_backslash_is_a_character_lucille_12_3() {
        assert_eq!(
            read("id,a\n\"1\"y,x\n2,a\\\n3,\"x\"\"y\"\n4,5\" disk\n"),
            [
                "fault: x.csv:2: text follows a closing quote at line 2, character 4; inside quotes a quote is written twice",
                r#"2 {"id":"2","a":"a\\"}"#,
                r#"3 {"id":"3","a":"x\"y"}"#,
                r#"4 {"id":"4","a":"5\" disk"}"#
            ]
        );
        let (recording, _) = read_one("x.csv", b"id,a\n1,\xff\xfe\n2,x\n", &json!({"csv": {}}));
        assert_eq!(recording.faults()[0].reason, "x.csv:2: not valid UTF-8 at byte 3 of the record");
        assert_eq!(recording.faults()[0].raw, b"1,\xff\xfe");
        assert_eq!(recording.ids(), ["2"]);
    }

    #[test]
    fn a_character_cut_by_a_delimiter_is_a_fault_and_no_panic() {
        let (recording, _) = read_one("x.csv", b"id,a\n1\xc3,\xa9\n2,x\n", &json!({"csv": {}}));
        assert_eq!((recording.ids(), recording.faults().len()), (vec!["2"], 1));
    }

    #[test]
    fn lines_are_physical_lines_where_the_record_begins() {
        let folder = Folder::new(&[("d/x.csv", b"id,a\n1,\"x\r\ny\rz\"\n\n2,b\r\n3\n")]);
        let (recording, _) = folder.read(&json!({"paths": ["d/x.csv"], "lineField": "line", "pathField": "file", "format": {"csv": {}}}));
        assert_eq!(
            recording.lines(),
            [
                r#"1 {"id":"1","a":"x\r\ny\rz","file":"d/x.csv","line":2}"#,
                r#"2 {"id":"2","a":"b","file":"d/x.csv","line":6}"#,
                "fault: d/x.csv:7: 1 value, but the header has 2"
            ]
        );
    }

    #[test]
    fn a_header_must_name_every_column_once() {
        assert!(refused("id,a,b,a\n1,2,3,4\n", json!({})).contains("x.csv: columns 2 and 4 are both called `a`"));
        assert!(refused("id,,b\n", json!({})).contains("column 2 has no name"));
        assert!(refused(b"id,\xff\n", json!({})).contains("not valid UTF-8"));
        assert!(refused(b"i\0d\0\n\0", json!({})).contains("utf-16le"));
        assert!(refused("sku,a\n1,2\n", json!({})).contains("no column `id` for the id; the columns are sku, a;"));
        assert!(refused("id,a\n", json!({"id": ["sku"]})).contains("no column `sku`"));
        assert!(refused("id,\"a\"b\n", json!({})).contains("text follows a closing quote at line 1, character 7"));
    }

    #[test]
    fn a_field_of_ours_never_overwrites_a_column() {
        let folder = Folder::new(&[("x.csv", b"id,line\n1,2\n")]);
        let (_, outcome) = folder.read(&json!({"paths": ["x.csv"], "lineField": "line", "format": {"csv": {}}}));
        assert!(failure(outcome).contains("`lineField` would overwrite it"));
    }

    #[test]
    fn ids_come_from_columns_or_a_template() {
        let ids = |format: serde_json::Value, content: &str| {
            let (recording, outcome) = read_one("shop.csv", content.as_bytes(), &json!({"csv": format}));
            outcome.expect("readable");
            recording.ids().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(ids(json!({"id": ["b", "a"]}), "a,b\n1,2\n3,\n"), ["2_1"]);
        assert_eq!(ids(json!({"idTemplate": "{a}-{file}:{line}"}), "a,b\n1,2\n,2\n"), ["1-shop.csv:2"]);
        assert_eq!(ids(json!({"columns": ["id", "x"]}), "7,y\n"), ["7"]);
        assert_eq!(ids(json!({}), "id\n\"a\nb\"\n"), ["a\nb"]);
        assert_eq!(ids(json!({}), &format!("id\n{}\n{}\n", "x".repeat(3000), "y".repeat(33_000))), ["x".repeat(3000)]);
    }

    #[test]
    fn an_id_prefix_stands_before_every_id() {
        let folder = Folder::new(&[("x.csv", b"id,a\n1,x\n")]);
        let spec = serde_json::from_value(json!({"paths": ["x.csv"], "format": {"csv": {}}})).expect("spec");
        let mut connector = super::super::FileConnector::new(&spec, "p-", &folder.path("")).expect("connector");
        let mut recording = crate::connectors::testing::Recording::default();
        crate::connectors::Connector::execute(&mut connector, &mut recording, None).expect("execute");
        assert_eq!(recording.lines(), [r#"p-1 {"id":"1","a":"x"}"#]);
    }

    #[test]
    fn dialects_are_told() {
        let format = json!({"csv": {"delimiter": ";", "quote": "'", "comment": "#", "trim": true}});
        assert_eq!(
            lines("x.csv", "# it's a comment\n id ; a\n#\n1; 'x;''y ' \n \t\n2;\" \n", &format),
            [r#"1 {"id":"1","a":"x;'y "}"#, r#"2 {"id":"2","a":"\""}"#]
        );
        assert_eq!(lines("x.tsv", "id\ta\n1\t\"x\n", &json!({"csv": {"delimiter": "\\t", "quote": ""}})), [r#"1 {"id":"1","a":"\"x"}"#]);
    }

    #[test]
    fn nul_bytes_are_data_and_ten_thousand_columns_are_read() {
        assert_eq!(read("id,a\n1,x\0y\n"), ["1 {\"id\":\"1\",\"a\":\"x\\u0000y\"}"]);
        let names: Vec<String> = (1..10_000).map(|column| format!("c{column}")).collect();
        let cells: Vec<String> = (1..10_000).map(|column| column.to_string()).collect();
        let (recording, _) = read_one("x.csv", format!("id,{}\nx,{}\n", names.join(","), cells.join(",")).as_bytes(), &json!({"csv": {}}));
        let [(Entry::Document(document), _)] = &recording.entries[..] else { panic!("{:?}", recording.faults()) };
        assert_eq!(document.fields().len(), 10_000);
        assert_eq!(document.fields().get("c9999"), Some(&"9999".into()));
    }

    #[test]
    fn a_record_that_is_too_large_fails_alone() {
        let folder =
            Folder::new(&[("x.csv", format!("id,a\n1,{}\r\n2,x\n3,\"{}\n4,y\n", "a".repeat(200_000), "b".repeat(3000)).as_bytes())]);
        let (recording, outcome) = folder.read(&json!({"paths": ["x.csv"], "maxRecordSize": "1Ki", "format": {"csv": {}}}));
        outcome.expect("readable");
        assert_eq!(recording.ids(), ["2", "4"]);
        let faults = recording.faults();
        assert_eq!(faults.iter().map(|fault| fault.reason.split(": ").next()).collect::<Vec<_>>(), [Some("x.csv:2"), Some("x.csv:4")]);
        assert!(faults[0].raw.starts_with(b"1,aaa") && faults[0].raw.len() <= RAW_LIMIT, "{}", faults[0].raw.len());
        // exactly as large as allowed
        let row = format!("1,{}", "a".repeat(1022));
        for end in ["", "\n", "\r\n", "\r"] {
            folder.write("x.csv", format!("id,a\n{row}{end}").as_bytes());
            let (recording, _) = folder.read(&json!({"paths": ["x.csv"], "maxRecordSize": "1Ki", "format": {"csv": {}}}));
            assert_eq!(recording.ids(), ["1"], "{end:?}");
        }
    }

    #[test]
    fn problems_of_the_format_are_all_found() {
        let found = |format: serde_json::Value| {
            let mut found = Vec::new();
            check(&serde_json::from_value(format).expect("csv"), &mut Problems::new("csv", &mut found));
            found.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
        };
        assert_eq!(found(json!({})), [""; 0]);
        assert_eq!(found(json!({"delimiter": "\\t", "quote": "", "comment": "#", "id": ["a"]})), [""; 0]);
        assert_eq!(
            found(json!({"delimiter": "ab", "quote": "é", "comment": "\n", "idTemplate": "{a"})),
            ["csv.delimiter", "csv.quote", "csv.comment", "csv.idTemplate"]
        );
        assert_eq!(found(json!({"delimiter": "\"", "comment": "\""})), ["csv.delimiter", "csv.comment"]);
        assert_eq!(found(json!({"columns": ["a", "b", "a"]})), ["csv.columns", "csv"]);
        assert_eq!(found(json!({"columns": ["a"], "id": ["b"]})), ["csv.id"]);
        assert_eq!(found(json!({"columns": ["a"], "idTemplate": "{b}{line}{file}"})), ["csv.idTemplate"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// For any file, also a broken one, and any place in it, a new attempt gives exactly the rest.
        #[test]
        fn any_file_is_resumed_behind_any_record(rows in prop::collection::vec("[1a,é\"\n\r]{0,12}\n?", 0..40), mark in any::<bool>(), small in any::<bool>()) {
            let content = format!("{}id,a\n{}", if mark { "\u{feff}" } else { "" }, rows.concat());
            let folder = Folder::new(&[("x.csv", content.as_bytes()), ("y.csv", b"id\nlast\n")]);
            let limit = if small { "16" } else { "1Ki" };
            let spec = json!({"paths": ["x.csv", "y.csv"], "maxRecordSize": limit, "lineField": "n", "format": {"csv": {}}});
            assert_compliance(|| Box::new(folder.connector(&spec)));
        }

        /// Every row that was written is read, whatever it holds.
        #[test]
        fn what_the_csv_crate_writes_is_read(rows in prop::collection::vec(("[a,\"\n\r é😀]{0,120}", "[a,\"]{0,5}"), 0..20), crlf in any::<bool>()) {
            let terminator = if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
            let mut writer = csv::WriterBuilder::new().terminator(terminator).from_writer(Vec::new());
            writer.write_record(["id", "a", "b"]).expect("write");
            for (number, (a, b)) in rows.iter().enumerate() {
                writer.write_record([&number.to_string(), a, b]).expect("write");
            }
            let wanted: Vec<String> = rows.iter().enumerate().map(|(number, (a, b))| {
                format!("{number} {}", json!({"id": number.to_string(), "a": a, "b": b}))
            }).collect();
            prop_assert_eq!(read(writer.into_inner().expect("text")), wanted);
        }
    }
}
