//! `csv`: rows of a file with delimiters.

use super::{
    ids::{self, Ids, Part},
    reading::{End, Format, RAW_LIMIT, Reading},
    scan::{Dialect, Extent, Piece, Scan, count_line_ends},
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
        for end in memchr::memchr_iter(dialect.delimiter, record.as_bytes()) {
            self.push(dialect, &record[begin..end]);
            begin = end + 1;
        }
        self.push(dialect, &record[begin..]);
    }

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
