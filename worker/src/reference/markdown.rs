//! The reference as Markdown pages, for `docs/reference`.

use super::{
    Family,
    field::{self, Field, inner, is_credential},
};
use crate::manifest::Kind;
use serde_json::Value;
use std::fmt::Write;

const NOTES: &str = "\
Types: a *duration* is text such as `500ms`, `30s`, `5m` or `1h30m`; a *size* is text such as `512Ki`, `64Mi` or `2Gi`; a
*credential* is `{valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}}`.
";

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Name of the file.
    pub file: String,
    /// Its content.
    pub text: String,
}

/// All pages.
pub fn pages() -> Vec<Page> {
    let families = Family::ALL.into_iter().map(family_page);
    let kinds = Kind::ALL.into_iter().map(kind_page);
    std::iter::once(index()).chain(families).chain(kinds).collect()
}

fn index() -> Page {
    let mut text =
        String::from("# Reference\n\nMade from the types by `penstock explain --markdown docs/reference`: do not edit.\n\n## Kinds\n\n");
    for kind in Kind::ALL {
        let summary = super::text::first_sentence(&field::description(&kind.schema().generated));
        let _ = writeln!(text, "- [{}]({}): {summary}", kind.name(), kind_file(kind));
    }
    for family in [Family::Connector, Family::Stage, Family::Indexer] {
        let _ = write!(text, "\n## {}\n\n", title(family));
        for component in family.members().0 {
            let summary = super::text::first_sentence(&component.description());
            let _ = writeln!(text, "- [{}]({}#{}): {summary}", component.name, family_file(family), component.name.to_lowercase());
        }
    }
    Page { file: "README.md".into(), text }
}

fn kind_file(kind: Kind) -> String {
    format!("{}.md", kind.name().to_lowercase())
}

fn family_file(family: Family) -> String {
    format!("{}s.md", family.name())
}

fn title(family: Family) -> &'static str {
    match family {
        Family::Connector => "Connectors",
        Family::Indexer => "Indexers",
        Family::Stage => "Stages",
    }
}

fn kind_page(kind: Kind) -> Page {
    let schema = &kind.schema().generated;
    let mut text = format!("# {}\n\n{}\n\n{NOTES}", kind.name(), field::description(schema));
    for part in ["spec", "status"] {
        let part_schema = &schema["properties"][part];
        if part_schema.is_object() {
            section(&mut text, &format!("## {part}"), part_schema, &Field::all(part_schema));
        }
    }
    Page { file: kind_file(kind), text }
}

fn family_page(family: Family) -> Page {
    let schema = family.schema();
    let (components, common) = family.members();
    let mut text = format!("# {}\n\n{}\n\n{NOTES}", title(family), field::description(schema));
    section(&mut text, &format!("## Every {}", family.name()), schema, &common);
    for component in components {
        section(&mut text, &format!("## {}", component.name), component.schema, &Field::all(component.schema));
    }
    Page { file: family_file(family), text }
}

fn section(text: &mut String, heading: &str, schema: &Value, fields: &[Field<'_>]) {
    let _ = write!(text, "\n{heading}\n");
    if !heading.starts_with("## Every ") {
        let _ = write!(text, "\n{}\n", field::description(schema));
    }
    if fields.is_empty() {
        text.push_str("\nNo fields.\n");
    } else {
        text.push_str("\n| Field | Type | Default | Description |\n|---|---|---|---|\n");
        rows(text, "", fields);
    }
    let mut rules = Vec::new();
    collect_rules(&mut rules, schema, fields);
    if !rules.is_empty() {
        text.push_str("\nRules:\n\n");
        rules.iter().for_each(|rule| text.push_str(&format!("- {rule}\n")));
    }
}

fn rows(text: &mut String, prefix: &str, fields: &[Field<'_>]) {
    for field in fields {
        let name = format!("{prefix}{}", field.name);
        let default = match (field.required, field.default()) {
            (true, _) => "required".to_owned(),
            (false, Some(default)) => code(&default),
            (false, None) => String::new(),
        };
        let link = link(field).unwrap_or_default();
        let _ = writeln!(text, "| `{name}` | {} | {default} | {}{link} |", cell(&field.type_in_words()), cell(&field.description()));
        if link.is_empty() && !is_credential(inner(field.schema)) {
            rows(text, &format!("{name}{}.", marks(field.schema)), &Field::all(inner(field.schema)));
        }
    }
}

/// A family has its page of its own.
fn link(field: &Field<'_>) -> Option<String> {
    let family = Family::ALL.into_iter().find(|family| family.schema()["properties"] == inner(field.schema)["properties"])?;
    Some(format!(" See [{}]({}).", title(family).to_lowercase(), family_file(family)))
}

/// `[]` for an element of a list, `.*` for one of a map.
fn marks(schema: &Value) -> String {
    match (schema.get("items"), schema.get("additionalProperties")) {
        (Some(items), _) => format!("[]{}", marks(items)),
        (None, Some(values)) if values.is_object() => format!(".*{}", marks(values)),
        _ => String::new(),
    }
}

fn collect_rules(rules: &mut Vec<String>, schema: &Value, fields: &[Field<'_>]) {
    let objects_only = |schema: &Value| schema["type"] == "object";
    if objects_only(schema) {
        rules.extend(field::rules(schema).into_iter().map(str::to_owned).filter(|rule| !rules.contains(rule)).collect::<Vec<_>>());
    }
    for field in fields {
        if link(field).is_none() && !is_credential(inner(field.schema)) {
            collect_rules(rules, inner(field.schema), &Field::all(inner(field.schema)));
        }
    }
}

fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', "<br>")
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_committed_pages_are_current() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
        let mut committed: Vec<String> = folder
            .read_dir()
            .expect("docs/reference")
            .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
            .collect();
        committed.sort();
        let mut wanted: Vec<String> = pages().into_iter().map(|page| page.file).collect();
        wanted.sort();
        assert_eq!(committed, wanted, "run: cargo run -- explain --markdown docs/reference");
        for page in pages() {
            let text = std::fs::read_to_string(folder.join(&page.file)).expect("a page");
            assert!(text == page.text, "docs/reference/{} is not current; run: cargo run -- explain --markdown docs/reference", page.file);
        }
    }

    #[test]
    fn rows_name_nested_fields_by_their_path() {
        let page = pages().into_iter().find(|page| page.file == "indexers.md").expect("indexers");
        for part in ["| `batch.maxDocuments` | whole number, 1 to 100000 | `500` |", "| `password` | credential |  |", "## opensearch\n"] {
            assert!(page.text.contains(part), "{part:?} is not in\n{}", page.text);
        }
    }
}
