//! Letters as lines and as JSON.

use crate::{
    cli::style::printable,
    kafka::{dlq::Letter, letter::LetterContent},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

/// One line for people.
pub(super) fn line(letter: &Letter<'_>) -> String {
    let place = format!("{}/{}", letter.partition, letter.offset);
    let stage = match &*letter.headers.stage {
        "" => "(unreadable)",
        stage => stage,
    };
    let reason = letter.headers.reason.replace('\n', " ");
    printable(&format!("{place:<9} {:.0}  {stage:<14} {:<24} {reason}", letter.time, letter.id())).into_owned()
}

/// All that is known, with the document if it is wanted.
pub(super) fn json(letter: &Letter<'_>, with_document: bool) -> Value {
    let headers = &letter.headers;
    let mut all = Map::new();
    let mut add = |name: &str, value: Value| {
        if !value.is_null() && value != "" {
            all.insert(name.to_owned(), value);
        }
    };
    add("place", format!("{}/{}", letter.partition, letter.offset).into());
    add("time", letter.time.to_string().into());
    add("id", letter.id().into());
    for (name, text) in [("run", &headers.run), ("step", &headers.step), ("pipeline", &headers.pipeline), ("stage", &headers.stage)] {
        add(name, text.as_ref().into());
    }
    add("reason", headers.reason.as_ref().into());
    add("attempts", json!(headers.attempts));
    add("source", json!(headers.source.as_ref().map(ToString::to_string)));
    add("epoch", json!(headers.epoch));
    add("seq", json!(headers.seq));
    add("ordinal", if headers.ordinal > 0 { json!(headers.ordinal) } else { Value::Null });
    add("truncated", if headers.truncated { true.into() } else { Value::Null });
    if with_document {
        let (name, value) = content(letter);
        all.insert(name.into(), value);
    }
    Value::Object(all)
}

/// What was kept, under the name that says how.
fn content(letter: &Letter<'_>) -> (&'static str, Value) {
    if letter.headers.content == LetterContent::Document
        && let Ok(document) = serde_json::from_slice(letter.value)
    {
        return ("document", document);
    }
    match std::str::from_utf8(letter.value) {
        Ok(text) => ("raw", text.into()),
        Err(_) => ("rawBase64", STANDARD.encode(letter.value).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::letter::{LetterHeaders, SourcePlace};

    fn letter(value: &'static [u8]) -> Letter<'static> {
        let headers = LetterHeaders {
            run: "nightly-1".into(),
            stage: "price".into(),
            reason: "no\nnumber\u{1b}[31m".into(),
            attempts: Some(1),
            source: Some(SourcePlace { topic: "books_source".into(), partition: 2, offset: 7 }),
            content: LetterContent::Document,
            ..LetterHeaders::default()
        };
        let time = "2026-05-01T10:00:00.25Z".parse().expect("a time");
        Letter { partition: 0, offset: 12, time, key: Some(b"p-11"), value, headers }
    }

    #[test]
    fn a_line_has_what_one_looks_for_and_steers_no_terminal() {
        let line = line(&letter(b"{}"));
        assert_eq!(line, "0/12      2026-05-01T10:00:00Z  price          p-11                     no number\\u{1b}[31m");
    }

    #[test]
    fn json_has_what_is_known_and_the_document() {
        let wanted = json!({"place": "0/12", "time": "2026-05-01T10:00:00.25Z", "id": "p-11", "run": "nightly-1", "stage": "price",
            "reason": "no\nnumber\u{1b}[31m", "attempts": 1, "source": "books_source/2/7"});
        assert_eq!(json(&letter(b"{}"), false), wanted);
        assert_eq!(json(&letter(br#"{"a":[1]}"#), true)["document"], json!({"a": [1]}));
        assert_eq!(json(&letter(br#"{"a":[1"#), true)["raw"], json!(r#"{"a":[1"#), "cut");
        assert_eq!(json(&letter(b"\xff\x00"), true)["rawBase64"], json!("/wA="));
    }
}
