//! `changeCase`: small and capital letters.

use super::{Next, Stage, StageError, setting};
use crate::{
    document::{Document, Path, Value},
    problem::Problems,
};
use compact_str::CompactString;
use penstock_crds::{
    stages::{self as spec, LetterCase},
    values::UpdateMode,
};

/// Changes the case of the letters of text fields.
#[derive(Clone, Debug)]
pub(super) struct ChangeCase {
    fields: Vec<(Path, Path)>,
    to: LetterCase,
    update_mode: UpdateMode,
}

impl ChangeCase {
    pub(super) fn compile(spec: &spec::ChangeCase, problems: &mut Problems<'_>) -> Option<Self> {
        Some(Self { fields: setting::path_pairs(&spec.fields, problems)?, to: spec.to, update_mode: spec.update_mode })
    }
}

impl Stage for ChangeCase {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        for (source, target) in &self.fields {
            let value = match document.get(source) {
                None | Some(Value::Null) => continue,
                Some(value) => change(value, self.to).map_err(|found| StageError(format!("`{source}` is {found}, not text")))?,
            };
            if source == target {
                document.set(target, value)?;
            } else {
                setting::write(document, target, value, self.update_mode)?;
            }
        }
        Ok(Next::Continue)
    }

    fn may_leave_half_changed(&self) -> bool {
        self.fields.len() > 1 || self.fields.iter().any(|(_, target)| setting::is_nested(target))
    }
}

/// The value in another case, or what it is instead of text.
fn change(value: &Value, to: LetterCase) -> Result<Value, String> {
    match value {
        Value::Text(text) => Ok(Value::Text(change_text(text, to))),
        Value::List(values) => {
            let changed: Result<Vec<_>, _> = values
                .iter()
                .map(|value| match value {
                    Value::Text(text) => Ok(Value::Text(change_text(text, to))),
                    Value::Null => Ok(Value::Null),
                    other => Err(format!("a list with {} in it", other.kind())),
                })
                .collect();
            changed.map(Value::list)
        }
        other => Err(other.kind().to_owned()),
    }
}

fn change_text(text: &str, to: LetterCase) -> CompactString {
    if text.is_ascii() && matches!(to, LetterCase::Lower | LetterCase::Upper) {
        let mut out = CompactString::from(text);
        match to {
            LetterCase::Upper => out.make_ascii_uppercase(),
            _ => out.make_ascii_lowercase(),
        }
        return out;
    }
    match to {
        LetterCase::Lower => CompactString::from_str_to_lowercase(text),
        LetterCase::Upper => CompactString::from_str_to_uppercase(text),
        LetterCase::Title => {
            let mut out = CompactString::with_capacity(text.len());
            text.split_inclusive(char::is_whitespace).for_each(|word| push_capitalized(word, &mut out));
            out
        }
        LetterCase::Sentence => {
            let mut out = CompactString::with_capacity(text.len());
            push_capitalized(text, &mut out);
            out
        }
    }
}

/// Appends the text with its first letter capital and all others small.
fn push_capitalized(text: &str, out: &mut CompactString) {
    // the whole text at once, since the small form of a letter may depend on its neighbours (the Greek sigma)
    let small = CompactString::from_str_to_lowercase(text);
    let Some((at, first)) = small.char_indices().find(|(_, c)| c.is_alphabetic()) else {
        out.push_str(&small);
        return;
    };
    out.push_str(&small[..at]);
    out.extend(first.to_uppercase());
    out.push_str(&small[at + first.len_utf8()..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::testing::{failure, transform};

    #[test]
    fn letters_change_in_every_script() {
        for (to, before, after) in [
            (LetterCase::Lower, "KITCHEN Größe ΟΔΟΣ", "kitchen größe οδος"),
            (LetterCase::Upper, "straße é", "STRASSE É"),
            (LetterCase::Title, "chef's  KNIFE (small) 2nd ΟΔΟΣ", "Chef's  Knife (Small) 2Nd Οδος"),
            (LetterCase::Sentence, "¿QUÉ tal? bien", "¿Qué tal? bien"),
            (LetterCase::Sentence, "", ""),
            (LetterCase::Title, "42 - ", "42 - "),
        ] {
            assert_eq!(change_text(before, to), after, "{to:?}");
        }
    }

    #[test]
    fn fields_change_in_place_or_into_others() {
        let stage = r#"{"changeCase": {"fields": {"a": "b", "c": "c", "gone": "x", "n": "y"}, "to": "Lower"}}"#;
        assert_eq!(transform(stage, r#"{"a":"A","c":["B",null,"C"],"n":null}"#), r#"{"a":"A","c":["b",null,"c"],"n":null,"b":"a"}"#);
    }

    #[test]
    fn in_place_no_update_mode_applies() {
        let stage = r#"{"changeCase": {"fields": {"a": "a"}, "to": "Upper", "updateMode": "Append"}}"#;
        assert_eq!(transform(stage, r#"{"a":"x"}"#), r#"{"a":"X"}"#);
    }

    #[test]
    fn update_modes_replace_add_or_leave() {
        let stage = |mode: &str| format!(r#"{{"changeCase": {{"fields": {{"a": "b"}}, "to": "Upper", "updateMode": "{mode}"}}}}"#);
        for (mode, after) in [("Overwrite", r#"{"a":"x","b":"X"}"#), ("Append", r#"{"a":"x","b":[1,"X"]}"#), ("Skip", r#"{"a":"x","b":1}"#)]
        {
            assert_eq!(transform(&stage(mode), r#"{"a":"x","b":1}"#), after, "{mode}");
        }
    }

    #[test]
    fn what_is_not_text_fails() {
        let stage = r#"{"changeCase": {"fields": {"a": "b"}, "to": "Lower"}}"#;
        assert_eq!(failure(stage, r#"{"a":1}"#), "`a` is a whole number, not text");
        assert_eq!(failure(stage, r#"{"a":["x",{}]}"#), "`a` is a list with an object in it, not text");
    }
}
