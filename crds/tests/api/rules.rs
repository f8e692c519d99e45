//! The rules of the schemas, tried on the manifests of `tests/fixtures/manifests`. The first line of a bad manifest says
//! what is wrong with it: `# rule PATH: MESSAGE` (a rule of ours), `# schema …` (a type or bound), `# local …` (what only
//! local validation sees). The suite `api_server` tries the same files on a real API server.

use super::schemas;
use kube::core::cel::{ErrorKind, ValidationError, Validator};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

struct Rules(BTreeMap<String, Value>);

impl Rules {
    fn new() -> Self {
        Self(schemas().into_iter().collect())
    }

    fn broken_by(&self, object: &Value, old: Option<&Value>) -> Vec<ValidationError> {
        let schema = &self.0[object["kind"].as_str().unwrap()];
        Validator::new().validate(schema, object, old).err().map(|errors| errors.into_vec()).unwrap_or_default()
    }
}

fn manifests(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/manifests").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", folder.display());
    files
}

/// What the first line says: path and message of the rule that the manifest breaks.
fn broken_rule(text: &str) -> Option<(&str, &str)> {
    text.lines().next()?.strip_prefix("# rule ")?.split_once(": ").map(|(path, message)| (path.trim(), message))
}

fn documents(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text).map(|document| without_nulls(Value::deserialize(document).unwrap())).collect()
}

/// As the API server reads an object: a null is an absent field.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn assert_breaks(file: &Path, errors: &[ValidationError], (path, message): (&str, &str)) {
    let found = errors.iter().any(|error| error.field_path.trim_start_matches('.') == path && error.message.contains(message));
    assert!(found, "{}: wanted {path}: {message}\nfound {errors:?}", file.display());
    assert!(errors.iter().all(|error| error.kind == ErrorKind::ValidationFailure), "{}: {errors:?}", file.display());
}

#[test]
fn good_manifests_break_no_rule() {
    let rules = Rules::new();
    for file in manifests("good") {
        for object in documents(&fs::read_to_string(&file).unwrap()) {
            let errors = rules.broken_by(&object, None);
            assert!(errors.is_empty(), "{}: {errors:?}", file.display());
        }
    }
}

#[test]
fn bad_manifests_break_the_rule_that_they_name() {
    let rules = Rules::new();
    for file in manifests("bad") {
        let text = fs::read_to_string(&file).unwrap();
        let Some(expected) = broken_rule(&text) else { continue };
        for object in documents(&text) {
            assert_breaks(&file, &rules.broken_by(&object, None), expected);
        }
    }
}

#[test]
fn updates_break_the_rule_that_they_name() {
    let rules = Rules::new();
    for file in manifests("updates") {
        let text = fs::read_to_string(&file).unwrap();
        let [old, new] = <[Value; 2]>::try_from(documents(&text)).unwrap();
        assert!(rules.broken_by(&old, None).is_empty(), "{}", file.display());
        let errors = rules.broken_by(&new, Some(&old));
        match broken_rule(&text) {
            Some(expected) => assert_breaks(&file, &errors, expected),
            None => assert!(errors.is_empty() && text.starts_with("# allowed\n"), "{}: {errors:?}", file.display()),
        }
    }
}

/// Nobody adds a rule without showing what it refuses.
#[test]
fn every_rule_is_broken_by_some_manifest() {
    let rules = Rules::new();
    let mut broken = BTreeSet::new();
    for folder in ["bad", "updates"] {
        for file in manifests(folder) {
            let text = fs::read_to_string(&file).unwrap();
            if broken_rule(&text).is_none() {
                continue;
            }
            let objects = documents(&text);
            let (object, old) = (&objects[objects.len() - 1], (objects.len() > 1).then(|| &objects[0]));
            broken.extend(rules.broken_by(object, old).into_iter().map(|error| error.rule));
        }
    }
    for (kind, schema) in &rules.0 {
        each_rule(schema, &mut |rule| assert!(broken.contains(rule), "{kind}: no manifest breaks the rule {rule}"));
    }
}

fn each_rule(schema: &Value, check: &mut impl FnMut(&str)) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        check(rule["rule"].as_str().unwrap());
    }
    for below in schema["properties"].as_object().into_iter().flat_map(|properties| properties.values()) {
        each_rule(below, check);
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            each_rule(&schema[below], check);
        }
    }
}
