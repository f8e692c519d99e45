//! `jsonLines`: one JSON object a line.

use super::{
    ids::{self, Ids, Part},
    reading::{End, Format, RAW_LIMIT, Reading},
};
use crate::{
    document::{Document, DocumentJsonError, Fields, Key, Path, PathError, Value},
    problem::Problems,
};
use compact_str::CompactString;
use memchr::memchr;
use penstock_crds::connectors as spec;
use std::fmt::Write as _;

/// Reads lines as `spec` says.
pub(super) struct JsonLines {
    id_parts: Vec<Part<String>>,
    id_prefix: String,
    line_field: Option<Key>,
    path_field: Option<Key>,
    max_record: usize,
}

/// What is wrong with a line, and in which column.
struct LineFault {
    column: Option<usize>,
    reason: String,
}

impl LineFault {
    fn new(reason: impl Into<String>) -> Self {
        Self { column: None, reason: reason.into() }
    }
}

impl JsonLines {
    /// A reader for many files.
    ///
    /// # Errors
    /// What [`check`] reports.
    pub(super) fn new(spec: &spec::JsonLines, file: &spec::File, id_prefix: &str) -> Result<Self, String> {
        let id_parts = ids::parts(&spec.id, spec.id_template.as_deref()).map_err(|error| error.to_string())?;
        for part in &id_parts {
            if let Part::Key(key) = part {
                key.parse::<Path>().map_err(|error| error.to_string())?;
            }
        }
        Ok(Self {
            id_parts,
            id_prefix: id_prefix.to_owned(),
            line_field: file.line_field.as_deref().map(Key::from),
            path_field: file.path_field.as_deref().map(Key::from),
            max_record: super::max_record(file),
        })
    }

    fn document(&self, ids: &mut Ids<Path>, content: &[u8], path: &str, line: u64) -> Result<Document, LineFault> {
        let fields = Fields::from_json(content).map_err(|error| json_fault(&error))?;
        if has_large_float(&fields)
            && let Some(at) = inexact_integer(content)
        {
            let reason = "a whole number beyond 64 bits would lose digits; put it in quotes";
            return Err(LineFault { column: Some(at + 1), reason: reason.to_owned() });
        }
        let mut document = Document::with_fields(CompactString::default(), fields);
        let id = id(ids, &document, line).map_err(LineFault::new)?;
        add_field(&mut document, self.path_field.as_ref(), "pathField", || path.into())?;
        add_field(&mut document, self.line_field.as_ref(), "lineField", || line.into())?;
        document.prefix_id(&id);
        Ok(document)
    }
}

impl Format for JsonLines {
    fn read(&self, reading: &mut Reading<'_>) -> Result<(), End> {
        let mut ids = Ids::new(&self.id_prefix, &self.id_parts, reading.path(), str::parse::<Path>)
            .map_err(|error: PathError| reading.unreadable(error.to_string()))?;
        reading.resume()?;
        loop {
            let window = reading.window();
            // Never looks further than a line may be long, so that the outcome does not depend on how much was read.
            let seen = &window[..window.len().min(self.max_record + 2)];
            let (content, whole) = match memchr(b'\n', seen) {
                Some(end) => (&seen[..end], end + 1),
                None if seen.len() == self.max_record + 2 => (seen, seen.len()),
                None if !reading.ended() => {
                    reading.fill()?;
                    continue;
                }
                None if window.is_empty() => return Ok(()),
                None => (window, window.len()),
            };
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            let line = reading.line() + 1;
            if content.len() > self.max_record {
                let raw = content[..content.len().min(RAW_LIMIT)].to_vec();
                reading.skip_line(false)?;
                reading.fail(line, None, &format!("the line is longer than `maxRecordSize`, {} bytes", self.max_record), raw)?;
                continue;
            }
            if content.trim_ascii().is_empty() {
                reading.advance(whole, 1);
                continue;
            }
            match self.document(&mut ids, content, reading.path(), line) {
                Ok(document) => {
                    reading.advance(whole, 1);
                    reading.publish(document)?;
                }
                Err(fault) => {
                    let raw = content.to_vec();
                    reading.advance(whole, 1);
                    reading.fail(line, fault.column, &fault.reason, raw)?;
                }
            }
        }
    }
}

fn id(ids: &mut Ids<Path>, document: &Document, line: u64) -> Result<CompactString, String> {
    if let Some(Value::Text(text)) = ids.single().and_then(|path| document.get(path))
        && !text.is_empty()
    {
        ids::accept(text)?;
        return Ok(text.clone());
    }
    let id = ids.build(line, |path, out| append_id(document.get(path), out).map_err(|fault| format!("field `{path}` {fault}")))?;
    ids::accept(id).map(CompactString::from)
}

/// Adds the value of a field to an id: text, or what JSON writes for a whole number or a boolean.
fn append_id(value: Option<&Value>, out: &mut String) -> Result<(), String> {
    let written = match value {
        Some(Value::Text(text)) if !text.is_empty() => out.write_str(text),
        Some(Value::Int(number)) => write!(out, "{number}"),
        Some(Value::Uint(number)) => write!(out, "{number}"),
        Some(Value::Bool(value)) => write!(out, "{value}"),
        Some(Value::Text(_)) => return Err("is empty, so there is no id".to_owned()),
        Some(Value::Float(_)) => return Err("is a number with a fraction or exponent, which is no id; put it in quotes".to_owned()),
        Some(other) => return Err(format!("is {}, which is no id; text, a whole number or a boolean is", other.kind())),
        None => return Err("is missing, so there is no id".to_owned()),
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
    Ok(())
}

fn add_field(document: &mut Document, field: Option<&Key>, option: &str, value: impl FnOnce() -> Value) -> Result<(), LineFault> {
    let Some(field) = field else { return Ok(()) };
    if document.fields().contains(field) {
        return Err(LineFault::new(format!("there is a field `{field}`, and `{option}` would overwrite it; choose another name")));
    }
    document.fields_mut().push_new(field.clone(), value());
    Ok(())
}

/// The words of the parser for people: it sees one line only, and does not know that it is one of many.
fn json_fault(error: &DocumentJsonError) -> LineFault {
    match error {
        DocumentJsonError::Utf8(at) => LineFault { column: Some(at + 1), reason: "not valid UTF-8".to_owned() },
        DocumentJsonError::Json(error) => {
            let text = error.to_string();
            let text = text.rfind(" at line ").map_or(text.as_str(), |at| &text[..at]);
            let reason = match text {
                "recursion limit exceeded" => "nested deeper than 128 levels",
                "trailing characters" => "more follows behind the object; write one object a line",
                "number out of range" => "the number is beyond what JSON readers can keep; put it in quotes",
                text => text,
            };
            LineFault { column: Some(error.column().max(1)), reason: format!("not a JSON object: {reason}") }
        }
    }
}

/// From here on a float may have been a whole number that does not fit 64 bits.
const LARGE: f64 = 9_223_372_036_854_775_808.0;

fn has_large_float(fields: &Fields) -> bool {
    fields.iter().any(|(_, value)| is_large_float(value))
}

fn is_large_float(value: &Value) -> bool {
    match value {
        Value::Float(number) => number.abs() >= LARGE,
        Value::List(values) => values.iter().any(is_large_float),
        Value::Object(fields) => has_large_float(fields),
        _ => false,
    }
}

/// Where in a JSON text a whole number stands that fits neither `i64` nor `u64`.
fn inexact_integer(json: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < json.len() {
        match json[at] {
            b'"' => at = string_end(json, at + 1),
            b'-' | b'0'..=b'9' => {
                let is_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = json[at..].iter().take_while(|byte| is_number(byte)).count();
                let number = std::str::from_utf8(&json[at..at + length]).unwrap_or_default();
                let whole = !number.contains(['.', 'e', 'E']);
                if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(at);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

/// Where the string ends whose content begins at `at`.
fn string_end(json: &[u8], mut at: usize) -> usize {
    while at < json.len() {
        match json[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// Reports what is wrong with the format.
pub(super) fn check(spec: &spec::JsonLines, problems: &mut Problems<'_>) {
    for (index, path) in spec.id.iter().enumerate() {
        if let Err(error) = path.parse::<Path>() {
            problems.add(&format!("id[{index}]"), error.to_string());
        }
    }
    let Some(template) = spec.id_template.as_deref() else { return };
    match ids::parts(&[], Some(template)) {
        Err(error) => problems.add("idTemplate", format!("not a template: {error}; write for example {{shop}}-{{sku}}")),
        Ok(parts) => {
            for part in parts {
                if let Part::Key(key) = part
                    && let Err(error) = key.parse::<Path>()
                {
                    problems.add("idTemplate", error.to_string());
                }
            }
        }
    }
}
