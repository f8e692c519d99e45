//! The reference as text, in the shape of `kubectl explain`.

use super::{
    Family, Topic,
    field::{self, Field},
    lookup::fields_of,
    union_keys,
};
use crate::manifest::Kind;
use std::fmt::Write;

/// Longest line of a paragraph.
const WIDTH: usize = 100;

/// Everything that can be explained, a line each.
pub fn overview(heading: impl Fn(&str) -> String) -> String {
    let mut out = heading("KINDS") + "\n";
    for kind in Kind::ALL {
        let text = first_sentence(&field::description(&kind.schema().generated));
        let name = format!("{} ({})", kind.name().to_lowercase(), kind.short_name());
        line(&mut out, &name, &text);
    }
    for family in [Family::Connector, Family::Stage, Family::Indexer] {
        let title = format!("{}S", family.name().to_uppercase());
        let _ = write!(out, "\n{}\n", heading(&title));
        for component in family.members().0 {
            line(&mut out, component.name, &first_sentence(&component.description()));
        }
    }
    out.push_str("\nTry `penstock explain stage rename`, `penstock explain pipeline.spec.workers`.\n");
    out
}

/// A family: its components, and the fields that all of them have.
pub fn family(family: Family, heading: impl Fn(&str) -> String) -> String {
    let (components, common) = family.members();
    let mut out = format!("{}  {}\n\n", heading("FAMILY:"), family.name());
    paragraphs(&mut out, &field::description(family.schema()), "");
    let _ = write!(out, "\n{}\n", heading("ONE OF:"));
    for component in components {
        line(&mut out, component.name, &first_sentence(&component.description()));
    }
    let _ = write!(out, "\n{}\n", heading("EACH MAY ALSO HAVE:"));
    fields(&mut out, &common);
    rules(&mut out, family.schema(), &heading);
    out
}

/// Anything else.
pub fn topic(topic: &Topic<'static>, heading: impl Fn(&str) -> String) -> String {
    let schema = topic.schema;
    let mut out = format!(
        "{}  {}  <{}>{}\n",
        heading("FIELD:"),
        topic.path,
        field::type_in_words(schema),
        if topic.required { "  required" } else { "" }
    );
    if let Some(default) = field::default(schema) {
        let _ = writeln!(out, "{}  {default}", heading("DEFAULT:"));
    }
    out.push('\n');
    paragraphs(&mut out, &field::description(schema), "");
    let below = fields_of(topic);
    let keys = union_keys(below);
    let (one_of, others): (Vec<_>, Vec<_>) = Field::all(below).into_iter().partition(|field| keys.contains(&field.name));
    if !one_of.is_empty() {
        let _ = write!(out, "\n{}\n", heading("EXACTLY ONE OF:"));
        fields(&mut out, &one_of);
    }
    if !others.is_empty() {
        let _ = write!(out, "\n{}\n", heading("FIELDS:"));
        fields(&mut out, &others);
    }
    rules(&mut out, below, &heading);
    out
}

fn fields(out: &mut String, fields: &[Field<'_>]) {
    for field in fields {
        let default = field.default().map(|default| format!("  default {default}")).unwrap_or_default();
        let required = if field.required { "  required" } else { "" };
        let _ = writeln!(out, "  {}  <{}>{required}{default}", field.name, field.type_in_words());
        paragraphs(out, &field.description(), "    ");
    }
}

fn rules(out: &mut String, schema: &serde_json::Value, heading: &impl Fn(&str) -> String) {
    let rules: Vec<&str> = field::rules(schema).into_iter().filter(|rule| !rule.starts_with("set exactly one of: ")).collect();
    if !rules.is_empty() && schema["type"] == "object" {
        let _ = write!(out, "\n{}\n", heading("RULES:"));
        for rule in rules {
            paragraphs(out, rule, "  ");
        }
    }
}

fn line(out: &mut String, name: &str, text: &str) {
    const NAME_WIDTH: usize = 24;
    let _ = writeln!(out, "  {name:NAME_WIDTH$} {text}");
}

/// The first sentence of a text.
pub fn first_sentence(text: &str) -> String {
    let first_line = text.lines().next().unwrap_or_default();
    match first_line.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => first_line.to_owned(),
    }
}

/// Breaks lines at the width, keeps those that are there.
fn paragraphs(out: &mut String, text: &str, indent: &str) {
    for paragraph in text.lines() {
        let mut length = 0;
        for word in paragraph.split_whitespace() {
            let needed = word.chars().count();
            if length > 0 && indent.len() + length + 1 + needed > WIDTH {
                out.push('\n');
                length = 0;
            }
            out.push_str(if length == 0 { indent } else { " " });
            out.push_str(word);
            length += needed + usize::from(length > 0);
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::lookup::{Found, find};

    fn plain(heading: &str) -> String {
        heading.to_owned()
    }

    fn explain(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match find(&words).expect("a topic") {
            Found::Family(found) => family(found, plain),
            Found::Topic(found) => topic(&found, plain),
        }
    }

    #[test]
    fn a_stage_is_explained_with_type_need_default_and_values() {
        let text = explain(&["stage", "rename"]);
        for part in [
            "FIELD:  pipeline.spec.stages.rename  <map>\n",
            "Gives fields another name",
            "  fields  <map of text>  required\n    Old name to new name",
            "  updateMode  <Overwrite | Append | Skip>  default Overwrite\n",
            "    `Append`: Add to what is there",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_family_lists_its_components_and_what_all_have() {
        let text = explain(&["indexers"]);
        for part in ["ONE OF:\n", "  opensearch               An OpenSearch cluster", "EACH MAY ALSO HAVE:\n", "  batch  <map>", "RULES:\n"]
        {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn no_line_is_too_long_and_none_ends_in_space() {
        for text in [overview(plain), explain(&["connectors"]), explain(&["pipeline", "spec"]), explain(&["indexer", "opensearch"])] {
            for line in text.lines() {
                assert_eq!(line, line.trim_end());
            }
        }
        let mut out = String::new();
        paragraphs(&mut out, &"word ".repeat(60), "    ");
        assert!(out.lines().all(|line| line.len() <= WIDTH && line.starts_with("    word")), "{out}");
    }

    #[test]
    fn the_overview_names_everything() {
        let text = overview(plain);
        for word in ["pipeline (ppl)", "rename", "file", "opensearch"] {
            assert!(text.contains(word), "{word} is not in\n{text}");
        }
    }
}
