//! Compares a node with the schema of the CRD: types, enums, limits, missing and unknown fields, all of them at once,
//! in words that say what to write instead.

use super::{
    path::{push_field, push_index},
    scalar,
    yaml::{Content, Entry, Finding, Node, Place, Scalar},
};
use crate::suggest::did_you_mean;
use regex::Regex;
use serde_json::{Map, Value};

/// More known fields than these are not listed.
const MAX_LISTED_FIELDS: usize = 24;

/// Patterns of the schema in words.
const PATTERNS_IN_WORDS: &[(&str, &str)] = &[
    (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "use lower-case letters, digits and `-`, with a letter or digit at both ends"),
    (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "write a quantity, for example 500m, 2 or 256Mi",
    ),
    (
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
        "the name of a Secret has lower-case letters, digits, `-` and single dots only, for example search-login; write the name, not a path",
    ),
    (
        r"^[.]?[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$",
        "a key of a Secret has letters, digits, `-`, `_` and single dots only, for example password; write the key, not a path",
    ),
];

/// Reports what in a node does not fit the schema.
pub fn walk(node: &Node, schema: &Value, findings: &mut Vec<Finding>) {
    Walk { findings, path: String::new() }.node(node, schema, node.place);
}

/// The node as JSON, without the nulls that the API server drops: those of fields that the schema knows.
pub fn to_json(node: &Node, schema: &Value) -> Value {
    match &node.content {
        Content::Scalar(scalar) => scalar.value(),
        Content::List(items) => items.iter().map(|item| to_json(item, &schema["items"])).collect(),
        Content::Map(entries) => {
            let mut map = Map::with_capacity(entries.len());
            for Entry { key, value, .. } in entries {
                let below = schema_below(schema, key);
                if below.is_none() || !value.is_null() {
                    map.insert(key.clone(), to_json(value, below.unwrap_or(&Value::Null)));
                }
            }
            Value::Object(map)
        }
    }
}

fn schema_below<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema["properties"].get(key).or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
}

struct Walk<'a> {
    findings: &'a mut Vec<Finding>,
    path: String,
}

impl Walk<'_> {
    /// `place` is where a problem of the whole node is shown.
    fn node(&mut self, node: &Node, schema: &Value, place: Place) {
        if let Content::Scalar(Scalar { unknown: true, .. }) = &node.content {
            return;
        }
        let value = match &node.content {
            Content::Scalar(scalar) => scalar.value(),
            // Their elements are looked at one by one.
            Content::List(_) => Value::Array(Vec::new()),
            Content::Map(_) => Value::Object(Map::new()),
        };
        if let Some(message) = type_problem(node, &value, schema) {
            return self.report(place, message);
        }
        let problems = enum_problem(&value, schema).into_iter().chain(number_problems(&value, schema)).chain(text_problems(&value, schema));
        for message in problems {
            self.report(place, message);
        }
        match &node.content {
            Content::Scalar(_) => {}
            Content::List(items) => self.list(items, schema, place),
            Content::Map(entries) => self.map(node, entries, schema, place),
        }
    }

    fn list(&mut self, items: &[Node], schema: &Value, place: Place) {
        if let Some(message) = count_problem(items.len(), schema, ("minItems", "maxItems"), ("item", "items")) {
            self.report(place, message);
        }
        let parent = self.path.len();
        for (index, item) in items.iter().enumerate() {
            push_index(&mut self.path, index);
            self.node(item, &schema["items"], item.place);
            self.path.truncate(parent);
        }
    }

    fn map(&mut self, node: &Node, entries: &[Entry], schema: &Value, place: Place) {
        if let Some(message) = count_problem(entries.len(), schema, ("minProperties", "maxProperties"), ("entry", "entries")) {
            self.report(place, message);
        }
        let parent = self.path.len();
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if node.get(required).is_none() {
                push_field(&mut self.path, required);
                self.report(place, format!("is missing{}", purpose(&schema["properties"][required])));
                self.path.truncate(parent);
            }
        }
        for entry in entries {
            push_field(&mut self.path, &entry.key);
            self.entry(entry, schema);
            self.path.truncate(parent);
        }
    }

    fn entry(&mut self, entry: &Entry, schema: &Value) {
        let Entry { key, place, value } = entry;
        match schema_below(schema, key) {
            Some(_) if value.is_null() => {}
            Some(below) => {
                let is_scalar = matches!(value.content, Content::Scalar(_));
                self.node(value, below, if is_scalar { value.place } else { *place });
            }
            None if is_free(schema) => {}
            None => self.report(*place, unknown_field(key, schema)),
        }
    }

    fn report(&mut self, place: Place, message: String) {
        self.findings.push(Finding { place, path: self.path.clone(), message });
    }
}

/// Whether the schema says nothing about the content.
fn is_free(schema: &Value) -> bool {
    schema.is_null() || schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn unknown_field(key: &str, schema: &Value) -> String {
    let known: Vec<&str> = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let hint = did_you_mean(key, known.iter().copied());
    if !hint.is_empty() || known.is_empty() || known.len() > MAX_LISTED_FIELDS {
        return format!("unknown field `{key}`{hint}");
    }
    format!("unknown field `{key}`; known here: {}", known.join(", "))
}

/// The first sentence of a field's description.
fn purpose(schema: &Value) -> String {
    let description = schema["description"].as_str().unwrap_or_default();
    let sentence = description.split_once(". ").map_or(description, |(first, _)| first).lines().next().unwrap_or_default();
    if sentence.is_empty() { String::new() } else { format!(": {}", sentence.trim_end_matches('.')) }
}

fn type_problem(node: &Node, value: &Value, schema: &Value) -> Option<String> {
    if schema["x-kubernetes-int-or-string"] == true {
        let fits = value.is_i64() || value.is_string();
        return (!fits).then(|| format!("must be a whole number or text, is {}", what_it_is(node, value)));
    }
    let wanted = schema["type"].as_str()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => true,
    };
    if fits {
        return None;
    }
    if schema["properties"].get("valueFrom").is_some() {
        // Perhaps a password in clear text: it is not repeated.
        let cure = "{valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}}";
        return Some(format!("a credential is never written into a manifest; name the Secret that holds it: {cure}"));
    }
    Some(format!("must be {}, is {}{}", in_words(wanted), what_it_is(node, value), cure(wanted, node, value)))
}

fn in_words(schema_type: &str) -> &str {
    match schema_type {
        "object" => "a map",
        "array" => "a list",
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        other => other,
    }
}

fn what_it_is(node: &Node, value: &Value) -> String {
    let text = match &node.content {
        Content::List(_) => return "a list".into(),
        Content::Map(_) => return "a map".into(),
        Content::Scalar(scalar) => shortened(&scalar.text),
    };
    match value {
        Value::Null => "empty".into(),
        Value::String(_) => format!("text (`{text}`)"),
        Value::Number(_) => format!("a number ({text})"),
        _ => format!("a boolean ({text})"),
    }
}

fn shortened(text: &str) -> String {
    const MAX: usize = 40;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.len() < text.trim_end().len() => format!("{line}…"),
        None => line.to_owned(),
    }
}

fn cure(wanted: &str, node: &Node, value: &Value) -> String {
    let Content::Scalar(scalar) = &node.content else { return String::new() };
    let text = shortened(&scalar.text);
    let unquoted = || scalar::resolve(&scalar.text).unwrap_or_default();
    match wanted {
        _ if value.is_null() => String::new(),
        "string" => format!("; write \"{text}\" in quotes"),
        "array" => format!("; write [{text}]"),
        "integer" if unquoted().is_i64() && !scalar.plain => "; remove the quotes".into(),
        "number" if unquoted().is_number() && !scalar.plain => "; remove the quotes".into(),
        "boolean" if unquoted().is_boolean() && !scalar.plain => "; remove the quotes".into(),
        _ => String::new(),
    }
}

fn enum_problem(value: &Value, schema: &Value) -> Option<String> {
    let allowed = schema["enum"].as_array()?;
    if allowed.contains(value) {
        return None;
    }
    let names: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
    let given = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(format!("`{}` is not one of {}{}", shortened(&given), names.join(", "), did_you_mean(&given, names.iter().copied())))
}

fn number_problems(value: &Value, schema: &Value) -> Vec<String> {
    let Some(number) = value.as_f64() else { return Vec::new() };
    let mut problems = Vec::new();
    if let Some(least) = schema["minimum"].as_f64()
        && number < least
    {
        problems.push(format!("must be at least {least}, is {value}"));
    }
    if let Some(most) = schema["maximum"].as_f64()
        && number > most
    {
        problems.push(format!("must be at most {most}, is {value}"));
    }
    problems
}

fn text_problems(value: &Value, schema: &Value) -> Vec<String> {
    let Some(text) = value.as_str() else { return Vec::new() };
    let length = text.chars().count() as u64;
    let mut problems = Vec::new();
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        problems.push(if length == 0 {
            "must not be empty".into()
        } else {
            format!("is too short: at least {} characters", schema["minLength"])
        });
    }
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        problems.push(format!("has {length} characters, at most {} are allowed", schema["maxLength"]));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && length > 0
        && Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
    {
        let words = PATTERNS_IN_WORDS.iter().find(|(known, _)| *known == pattern).map(|(_, words)| (*words).to_owned());
        problems.push(format!("`{}` is not allowed: {}", shortened(text), words.unwrap_or_else(|| format!("it must match {pattern}"))));
    }
    problems
}

/// Part of the message about a list that is too long.
pub const TOO_MANY_ITEMS: &str = " items, at most ";

fn count_problem(count: usize, schema: &Value, (least, most): (&str, &str), (one, many): (&str, &str)) -> Option<String> {
    let count = count as u64;
    if let Some(least) = schema[least].as_u64()
        && count < least
    {
        return Some(format!("must have at least {least} {}, has {count}", if least == 1 { one } else { many }));
    }
    let most = schema[most].as_u64().filter(|most| count > *most)?;
    Some(format!("has {count} {many}, at most {most} are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::yaml::read_one;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "description": "What it is called. More.", "minLength": 1, "maxLength": 5, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
            "size": {"type": "integer", "minimum": 1.0, "maximum": 9.0},
            "share": {"type": "number"},
            "on": {"type": "boolean"},
            "mode": {"type": "string", "enum": ["Overwrite", "Append"]},
            "tags": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
            "map": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
            "cpu": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "password": {"type": "object", "properties": {"valueFrom": {"type": "object"}}},
        }})
    }

    fn problems(text: &str) -> Vec<(usize, usize, String)> {
        let mut findings = Vec::new();
        let node = read_one(text).root;
        walk(&node, &schema(), &mut findings);
        findings.into_iter().map(|f| (f.place.line, f.place.column, format!("{}: {}", f.path, f.message))).collect()
    }

    #[test]
    fn each_fault_is_named_with_place_and_cure() {
        for (text, column, want) in [
            ("{name: no}", 8, r#"name: must be text, is a boolean (no); write "no" in quotes"#),
            ("{name: 12}", 8, r#"name: must be text, is a number (12); write "12" in quotes"#),
            ("{name: [a]}", 2, "name: must be text, is a list"),
            ("{name: ''}", 8, "name: must not be empty"),
            ("{name: abcdef}", 8, "name: has 6 characters, at most 5 are allowed"),
            ("{name: A_b}", 8, "name: `A_b` is not allowed: use lower-case letters, digits and `-`, with a letter or digit at both ends"),
            ("{size: 1}", 1, "name: is missing: What it is called"),
            ("{name: ~}", 1, "name: is missing: What it is called"),
            ("{name: a, size: eight}", 17, "size: must be a whole number, is text (`eight`)"),
            ("{name: a, size: '8'}", 17, "size: must be a whole number, is text (`8`); remove the quotes"),
            ("{name: a, size: 1.5}", 17, "size: must be a whole number, is a number (1.5)"),
            ("{name: a, size: 0}", 17, "size: must be at least 1, is 0"),
            ("{name: a, size: 1e1}", 17, "size: must be at most 9, is 10"),
            ("{name: a, share: x}", 18, "share: must be a number, is text (`x`)"),
            ("{name: a, \"on\": 'true'}", 17, "on: must be true or false, is text (`true`); remove the quotes"),
            ("{name: a, mode: Overwite}", 17, "mode: `Overwite` is not one of Overwrite, Append, did you mean `Overwrite`?"),
            ("{name: a, mode: zzz}", 17, "mode: `zzz` is not one of Overwrite, Append"),
            ("{name: a, tags: b}", 17, "tags: must be a list, is text (`b`); write [b]"),
            ("{name: a, tags: []}", 11, "tags: must have at least 1 item, has 0"),
            ("{name: a, tags: [a, b, c]}", 11, "tags: has 3 items, at most 2 are allowed"),
            ("{name: a, tags: [~]}", 18, "tags[0]: must be text, is empty"),
            ("{name: a, map: {a: 1, b: 2}}", 11, "map: has 2 entries, at most 1 are allowed"),
            ("{name: a, map: {a: x}}", 20, "map.a: must be a whole number, is text (`x`)"),
            ("{name: a, map: 3}", 16, "map: must be a map, is a number (3)"),
            ("{name: a, cpu: [1]}", 11, "cpu: must be a whole number or text, is a list"),
            ("{nam: a, name: a}", 2, "nam: unknown field `nam`, did you mean `name`?"),
            (
                "{name: a, zzzzz: a}",
                11,
                "zzzzz: unknown field `zzzzz`; known here: name, size, share, on, mode, tags, map, cpu, free, password",
            ),
            (
                "{name: a, password: hunter2}",
                21,
                "password: a credential is never written into a manifest; name the Secret that holds it: {valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}}",
            ),
        ] {
            assert_eq!(problems(text), [(1, column, want.to_owned())], "{text}");
        }
    }

    #[test]
    fn what_fits_is_silent() {
        let text = "{name: a, size: 3.0, share: 1.5, \"on\": yes, mode: Append, tags: [x], map: {a: 017}, cpu: 500m, free: {any: [~]}}";
        assert_eq!(problems(text), []);
    }

    #[test]
    fn all_faults_come_at_once() {
        assert_eq!(problems("size: x\nmode: y\ntags: z\n").len(), 4);
    }

    #[test]
    fn every_pattern_of_the_api_is_put_in_words() {
        fn patterns(schema: &Value, found: &mut Vec<String>) {
            if let Value::String(pattern) = &schema["pattern"] {
                found.push(pattern.clone());
            }
            for below in schema.as_object().into_iter().flatten().map(|(_, below)| below).filter(|below| below.is_object()) {
                patterns(below, found);
            }
        }
        let mut found = Vec::new();
        for kind in crate::manifest::Kind::ALL {
            patterns(&kind.schema().object, &mut found);
        }
        assert!(!found.is_empty());
        for pattern in found {
            assert!(PATTERNS_IN_WORDS.iter().any(|(known, _)| *known == pattern), "{pattern}");
        }
    }

    #[test]
    fn nulls_are_dropped_where_the_server_drops_them() {
        let node = read_one("{name: ~, map: {a: ~}, free: {a: ~, b: [~]}}").root;
        assert_eq!(to_json(&node, &schema()), json!({"map": {}, "free": {"a": null, "b": [null]}}));
    }
}
