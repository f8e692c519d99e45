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

    fn document(&self, ids: &mut Ids<Path>, content: &[u8], reading: &Reading<'_>) -> Result<Document, LineFault> {
        let (path, line) = (reading.path(), reading.line() + 1);
        let fields = Fields::from_json(content).map_err(|error| json_fault(&error, reading.encoding()))?;
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
            match self.document(&mut ids, content, reading) {
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
fn json_fault(error: &DocumentJsonError, encoding: &str) -> LineFault {
    match error {
        DocumentJsonError::Utf8(at) => LineFault { column: Some(at + 1), reason: format!("not valid {encoding}") },
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

#[cfg(test)]
mod tests {
    use super::{super::fixture::*, *};
    use crate::connectors::testing::assert_compliance;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(content: impl AsRef<[u8]>) -> Vec<String> {
        lines("x.jsonl", content, &json!({"jsonLines": {}}))
    }

    #[test]
    fn lines_become_documents() {
        let wanted = [r#"1 {"id":"1","a":[1,{"b":null}]}"#, r#"2 {"id":2,"z":18446744073709551615,"y":-0.5}"#];
        let (one, two) = (r#"{"id":"1","a":[1,{"b":null}]}"#, r#" {"id": 2, "z": 18446744073709551615, "y": -0.5} "#);
        for content in [format!("{one}\n{two}\n"), format!("\u{feff}{one}\r\n\r\n \t\n{two}"), format!("\n{one}\r\n{two}\r\n")] {
            assert_eq!(read(&content), wanted, "{content:?}");
        }
        assert_eq!(read(""), [""; 0]);
    }

    #[test]
    fn each_fault_costs_its_line_and_no_other_lucille_12_4_x8_s13() {
        let deep = format!("{{\"id\":1,\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        let cases: [(&[u8], &str); 16] = [
            (b"{\"id\":1", "x.jsonl:1:7: not a JSON object: EOF while parsing an object"),
            (b"nonsense", "x.jsonl:1:2: not a JSON object: expected ident"),
            (b"[1]", "x.jsonl:1:1: not a JSON object: invalid type: sequence, expected a JSON object"),
            (b"{\"id\":1} {\"id\":2}", "x.jsonl:1:10: not a JSON object: more follows behind the object; write one object a line"),
            (b"{\"id\":1,\"id\":2}", "x.jsonl:1:12: not a JSON object: the name `id` stands twice in one object"),
            (
                b"{\"id\":1,\"a\":1e999}",
                "x.jsonl:1:17: not a JSON object: the number is beyond what JSON readers can keep; put it in quotes",
            ),
            (b"{\"id\":1,\"a\":NaN}", "x.jsonl:1:13: not a JSON object: expected value"),
            (b"{\"id\":\"\xff\"}", "x.jsonl:1:8: not valid UTF-8"),
            (deep.as_bytes(), "x.jsonl:1:139: not a JSON object: nested deeper than 128 levels"),
            (
                b"{\"a\":\"-1\",\"id\":18446744073709551616}",
                "x.jsonl:1:16: a whole number beyond 64 bits would lose digits; put it in quotes",
            ),
            (
                b"{\"id\":1,\"b\":[{\"c\":-9223372036854775809}]}",
                "x.jsonl:1:19: a whole number beyond 64 bits would lose digits; put it in quotes",
            ),
            (b"{\"a\":1}", "x.jsonl:1: field `id` is missing, so there is no id"),
            (b"{\"id\":\"\"}", "x.jsonl:1: field `id` is empty, so there is no id"),
            (b"{\"id\":1.5}", "x.jsonl:1: field `id` is a number with a fraction or exponent, which is no id; put it in quotes"),
            (b"{\"id\":null}", "x.jsonl:1: field `id` is null, which is no id; text, a whole number or a boolean is"),
            (b"{\"id\":[1]}", "x.jsonl:1: field `id` is a list, which is no id; text, a whole number or a boolean is"),
        ];
        for (bad, reason) in cases {
            let content = [bad, b"\n{\"id\":\"good\"}\n"].concat();
            let (recording, outcome) = read_one("x.jsonl", &content, &json!({"jsonLines": {}}));
            outcome.expect("the file can be read");
            assert_eq!(recording.lines(), [format!("fault: {reason}"), r#"good {"id":"good"}"#.to_owned()]);
            assert_eq!(recording.faults()[0].raw, bad);
        }
    }

    #[test]
    fn large_numbers_that_are_no_integers_are_kept() {
        let line = r#"{"id":"1e20","a":1e20,"b":[18446744073709551615,123456789012345678901.5],"c":"99999999999999999999\""}"#;
        assert_eq!(inexact_integer(line.as_bytes()), None);
        assert_eq!(read(line).len(), 1);
        assert!(read(line)[0].starts_with("1e20 {"), "{:?}", read(line));
    }

    #[test]
    fn ids_come_from_fields_or_a_template() {
        let ids = |format: serde_json::Value| {
            let line = br#"{"id":7,"a":{"b":["x","y"]},"ok":true,"n":-5}"#;
            let (recording, outcome) = read_one("f.jsonl", line, &json!({"jsonLines": format}));
            outcome.expect("readable");
            recording.ids().concat()
        };
        assert_eq!(ids(json!({})), "7");
        assert_eq!(ids(json!({"id": ["a.b[1]", "ok", "n"]})), "y_true_-5");
        assert_eq!(ids(json!({"idTemplate": "{a.b[0]}/{file}:{line}"})), "x/f.jsonl:1");
    }

    #[test]
    fn the_file_and_the_line_become_fields_but_overwrite_none() {
        let folder = Folder::new(&[("x.jsonl", b"\n{\"id\":1}\n{\"id\":2,\"n\":0}\n")]);
        let (recording, _) = folder.read(&json!({"paths": ["x.jsonl"], "pathField": "p", "lineField": "n", "format": {"jsonLines": {}}}));
        assert_eq!(
            recording.lines(),
            [
                r#"1 {"id":1,"p":"x.jsonl","n":2}"#,
                "fault: x.jsonl:3: there is a field `n`, and `lineField` would overwrite it; choose another name"
            ]
        );
    }

    #[test]
    fn utf_16_is_read_and_what_is_none_fails_its_line() {
        let text = "{\"id\":\"é😀\"}\n{\"id\":\"?\"}\n{\"id\":\"c\"}";
        let mut bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mark = text.encode_utf16().position(|unit| unit == u16::from(b'?')).expect("mark");
        bytes[2 * mark + 1] = 0xd8;
        let folder = Folder::new(&[("x.jsonl", &bytes)]);
        let (recording, _) = folder.read(&json!({"paths": ["x.jsonl"], "encoding": "utf-16le", "format": {"jsonLines": {}}}));
        assert_eq!(recording.ids(), ["é😀", "c"]);
        assert_eq!(recording.faults()[0].reason, "x.jsonl:2:8: not valid UTF-16LE");
    }

    #[test]
    fn a_line_that_is_too_long_fails_alone_with_little_kept_of_it() {
        let content = format!("{{\"id\":\"{}\"}}\n{{\"id\":2}}\n", "x".repeat(1_000_000));
        let folder = Folder::new(&[("x.jsonl", content.as_bytes())]);
        let (recording, _) = folder.read(&json!({"paths": ["x.jsonl"], "maxRecordSize": "128Ki", "format": {"jsonLines": {}}}));
        assert_eq!(recording.ids(), ["2"]);
        assert_eq!(recording.faults()[0].reason, "x.jsonl:1: the line is longer than `maxRecordSize`, 131072 bytes");
        assert_eq!(recording.faults()[0].raw, &content.as_bytes()[..RAW_LIMIT]);
    }

    #[test]
    fn problems_of_the_format_are_all_found() {
        let mut found = Vec::new();
        let spec = json!({"id": ["a", "a..b", "["], "idTemplate": "{a.}-{b}"});
        check(&serde_json::from_value(spec).expect("spec"), &mut Problems::new("f", &mut found));
        assert_eq!(found.iter().map(|problem| problem.path.as_str()).collect::<Vec<_>>(), ["f.id[1]", "f.id[2]", "f.idTemplate"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// For any file, also a broken one, and any place in it, a new attempt gives exactly the rest.
        #[test]
        fn any_file_is_resumed_behind_any_record(rows in prop::collection::vec(prop_oneof!["\\{\"id\":[1-9]{1,3},\"a\":\"[aé]{0,200}\"\\}\r?\n", "[{}\"a1: \n\r]{0,9}\n?"], 0..20), small in any::<bool>()) {
            let folder = Folder::new(&[("x.jsonl", rows.concat().as_bytes()), ("y.jsonl", b"{\"id\":1}")]);
            let limit = if small { "20" } else { "1Ki" };
            let spec = json!({"paths": ["x.jsonl", "y.jsonl"], "maxRecordSize": limit, "format": {"jsonLines": {}}});
            assert_compliance(|| Box::new(folder.connector(&spec)));
        }
    }
}
