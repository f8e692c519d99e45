//! `${NAME}` and `${NAME:-default}` in the scalars of a manifest, from the environment.
//!
//! Only upper-case names are variables, so that `${1}` or `${name}` in a pattern or program stay what they are; `$${` is a
//! literal `${`. A plain scalar gets its type from the text that results.

use super::{
    path::{push_field, push_index},
    scalar,
    yaml::{Content, Finding, Node, Scalar},
};
use std::cell::Cell;

/// Where the values of variables come from.
pub type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Message of a finding that only keeps others from judging a value.
const LEFT: &str = "its value is known in the pod";

/// Replaces the variables in all values below a node. Keys stay as they are.
pub fn substitute(node: &mut Node, variables: &Variables<'_>, findings: &mut Vec<Finding>) {
    Substitution { variables: Some(variables), findings, path: String::new() }.node(node);
}

/// Leaves the variables below a node where they are: such values are not known. While the findings say so, nobody judges them; then
/// [`forget_left`] takes these findings away.
pub fn leave(node: &mut Node, findings: &mut Vec<Finding>) {
    Substitution { variables: None, findings, path: String::new() }.node(node);
}

/// Takes away what [`leave`] has said of values that are not known.
pub fn forget_left(findings: &mut Vec<Finding>) {
    findings.retain(|finding| finding.message != LEFT);
}

struct Substitution<'a> {
    /// Nothing: they are left where they are.
    variables: Option<&'a Variables<'a>>,
    findings: &'a mut Vec<Finding>,
    path: String,
}

impl Substitution<'_> {
    fn node(&mut self, node: &mut Node) {
        let parent = self.path.len();
        match &mut node.content {
            Content::Scalar(scalar) => {
                for message in self.scalar(scalar) {
                    self.findings.push(Finding { place: node.place, path: self.path.clone(), message });
                }
            }
            Content::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    push_index(&mut self.path, index);
                    self.node(item);
                    self.path.truncate(parent);
                }
            }
            Content::Map(entries) => {
                for entry in entries {
                    push_field(&mut self.path, &entry.key);
                    self.node(&mut entry.value);
                    self.path.truncate(parent);
                }
            }
        }
    }

    fn scalar(&mut self, scalar: &mut Scalar) -> Vec<String> {
        if !scalar.text.contains("${") {
            return Vec::new();
        }
        if let Some(variable) = with_nested_default(&scalar.text) {
            scalar.unknown = true;
            return vec![format!(
                "the default of {} cannot hold a variable itself: it would end at the first `}}`; write the default out, or set {0}",
                variable.name
            )];
        }
        let Some(variables) = self.variables else { return leave_scalar(scalar) };
        let (text, unset) = expand(&scalar.text, variables);
        scalar.unknown = !unset.is_empty();
        if text != scalar.text {
            scalar.text = text;
            scalar.source = None;
        }
        let mut messages: Vec<String> = unset
            .into_iter()
            .map(|name| format!("the variable {name} is not set; set it, give a default as in ${{{name}:-default}}, or write $${{{name}}} for the text itself"))
            .collect();
        if scalar.plain && scalar::resolve(&scalar.text).is_none() {
            messages.push(format!("`{}` is not a number that JSON knows", scalar.text));
        }
        messages
    }
}

/// A value with a variable is not known; of any other one the escapes are taken away, as they will be.
fn leave_scalar(scalar: &mut Scalar) -> Vec<String> {
    let has_variable = Cell::new(false);
    let (text, _) = expand(&scalar.text, &|_| {
        has_variable.set(true);
        None
    });
    if has_variable.get() {
        scalar.unknown = true;
        return vec![LEFT.into()];
    }
    scalar.text = text;
    scalar.source = None;
    Vec::new()
}

/// The text with all variables replaced, and the names of those that have no value.
fn expand(text: &str, variables: &Variables<'_>) -> (String, Vec<String>) {
    let mut expanded = String::with_capacity(text.len());
    let mut unset = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find("${") {
        let (before, from) = rest.split_at(begin);
        if let Some(literal) = before.strip_suffix('$') {
            expanded.push_str(literal);
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        }
        expanded.push_str(before);
        let Some(variable) = Variable::parse(from) else {
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        };
        rest = &from[variable.length..];
        // As in a shell, a default also stands in for a variable that is set to nothing.
        let value = variables(variable.name).filter(|value| !(value.is_empty() && variable.default.is_some()));
        match value.as_deref().or(variable.default) {
            Some(value) => expanded.push_str(value),
            None => {
                expanded.push_str(&from[..variable.length]);
                if !unset.iter().any(|name| name == variable.name) {
                    unset.push(variable.name.to_owned());
                }
            }
        }
    }
    expanded.push_str(rest);
    (expanded, unset)
}

/// The first variable whose default begins another one.
fn with_nested_default(text: &str) -> Option<Variable<'_>> {
    let begins = text.match_indices("${").filter(|(at, _)| !text[..*at].ends_with('$'));
    begins
        .filter_map(|(at, _)| Variable::parse(&text[at..]))
        .find(|variable| variable.default.is_some_and(|default| default.contains("${")))
}

struct Variable<'a> {
    name: &'a str,
    default: Option<&'a str>,
    /// Bytes from `${` to `}`, both included.
    length: usize,
}

impl<'a> Variable<'a> {
    /// The variable that a text begins with.
    fn parse(text: &'a str) -> Option<Self> {
        let (inner, _) = text.strip_prefix("${")?.split_once('}')?;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let begins_well = name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_');
        let goes_on_well = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        (begins_well && goes_on_well).then_some(Self { name, default, length: inner.len() + 3 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::yaml::{Place, read_one};
    use proptest::prelude::*;
    use serde_json::json;

    fn variables(name: &str) -> Option<String> {
        match name {
            "KAFKA" => Some("localhost:9092".into()),
            "COUNT" => Some("6".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${COUNT}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced_and_all_else_stays() {
        for (text, want) in [
            ("${KAFKA}", "localhost:9092"),
            ("a-${COUNT}-${COUNT}", "a-6-6"),
            ("${NONE:-x}", "x"),
            ("${NONE:-}", ""),
            ("${EMPTY:-x}", "x"),
            ("${EMPTY}", ""),
            ("${COUNT:-9}", "6"),
            ("${NONE:-a:-b}", "a:-b"),
            ("$${KAFKA}", "${KAFKA}"),
            ("$$${KAFKA}", "$${KAFKA}"),
            ("$${${COUNT}}", "${6}"),
            ("${name} ${1} ${A-b} ${9A} $COUNT {COUNT} ${", "${name} ${1} ${A-b} ${9A} $COUNT {COUNT} ${"),
            ("${NESTED}", "${COUNT}"),
            ("é${COUNT}é", "é6é"),
        ] {
            assert_eq!(expand(text, &variables), (want.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn a_variable_without_value_is_named_once() {
        assert_eq!(expand("${NO} ${NO} ${OTHER}", &variables).1, ["NO", "OTHER"]);
    }

    #[test]
    fn a_plain_scalar_is_typed_by_what_results_and_a_quoted_one_is_text() {
        let mut findings = Vec::new();
        let mut node = read_one("a: ${COUNT}\nb: '${COUNT}'\nc: ${NONE:-yes}\nd: [x, '${NOPE}']\n${COUNT}: k\n").root;
        substitute(&mut node, &variables, &mut findings);
        let want = json!({"a": 6, "b": "6", "c": true, "d": ["x", "${NOPE}"], "${COUNT}": "k"});
        assert_eq!(crate::manifest::schema_walk::to_json(&node, &serde_json::Value::Null), want);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].place, findings[0].path.as_str()), (Place { line: 4, column: 8 }, "d[1]"));
        assert!(findings[0].message.starts_with("the variable NOPE is not set"), "{}", findings[0].message);
    }

    #[test]
    fn a_variable_in_a_default_is_a_problem_and_no_text_is_made_of_it() {
        let mut findings = Vec::new();
        let mut node = read_one("a: ${A:-${KAFKA}}\nb: x-${A:-y${B:-z}}\nc: $${A:-${COUNT}}\nd: ${COUNT:-${A}}\n").root;
        substitute(&mut node, &variables, &mut findings);
        let told: Vec<_> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(told, ["a", "b", "d"]);
        assert_eq!(
            findings[0].message,
            "the default of A cannot hold a variable itself: it would end at the first `}`; write the default out, or set A"
        );
        assert_eq!(node.text("c"), Some("${A:-6}"));
    }

    proptest! {
        #[test]
        fn any_text_is_expanded(text in "[${}A-C:\\-é ]{0,24}") {
            expand(&text, &variables);
        }

        #[test]
        fn a_text_without_dollar_brace_stays(text in "[^$]{0,24}") {
            prop_assert_eq!(expand(&text, &variables), (text, vec![]));
        }
    }
}
