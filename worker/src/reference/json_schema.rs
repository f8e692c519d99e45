//! The schema of manifests for editors (JSON Schema, draft 2020-12). Unlike the CRD it closes its objects, so that an editor
//! marks a typo, and it lets `${NAME}` stand where a number or boolean is wanted.

use crate::manifest::Kind;
use penstock_crds::{GROUP, VERSION};
use serde_json::{Map, Value, json};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const VARIABLE: &str = r"\$\{[A-Z_][A-Z0-9_]*(:-[^}]*)?\}";

/// The schema of one kind.
pub fn of_kind(kind: Kind) -> Value {
    let mut schema = json!({"$schema": DIALECT});
    merge(&mut schema, definition(kind));
    schema
}

/// The schema of any of the kinds.
pub fn of_all() -> Value {
    let definitions: Map<String, Value> = Kind::ALL.into_iter().map(|kind| (kind.name().to_owned(), definition(kind))).collect();
    let references: Vec<Value> = Kind::ALL.into_iter().map(|kind| json!({"$ref": format!("#/$defs/{}", kind.name())})).collect();
    json!({"$schema": DIALECT, "title": "Penstock manifest", "anyOf": references, "$defs": definitions})
}

fn definition(kind: Kind) -> Value {
    let schemas = kind.schema();
    let mut schema = for_editors(&schemas.object);
    schema["title"] = kind.name().into();
    schema["description"] = schemas.generated["description"].clone();
    schema["properties"]["apiVersion"] = json!({"const": format!("{GROUP}/{VERSION}")});
    schema["properties"]["kind"] = json!({"const": kind.name()});
    schema
}

fn merge(schema: &mut Value, more: Value) {
    if let (Value::Object(schema), Value::Object(more)) = (schema, more) {
        schema.extend(more);
    }
}

fn for_editors(schema: &Value) -> Value {
    let Value::Object(keywords) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in keywords {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let properties: Map<String, Value> = properties.iter().map(|(name, schema)| (name.clone(), for_editors(schema))).collect();
                out.insert(key.clone(), properties.into());
            }
            ("items" | "additionalProperties", Value::Object(_)) => {
                out.insert(key.clone(), for_editors(value));
            }
            (key, _) if key.starts_with("x-kubernetes-") => {}
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    let is_free = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if out.contains_key("properties") && !is_free {
        out.entry("additionalProperties").or_insert(false.into());
    }
    if schema["x-kubernetes-int-or-string"] == true {
        out.insert("type".into(), json!(["integer", "string"]));
    }
    if let Some(wanted @ ("integer" | "number" | "boolean")) = schema["type"].as_str() {
        out.insert("type".into(), json!([wanted, "string"]));
        out.insert("pattern".into(), VARIABLE.into());
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(schema: &Value, path: &str, check: &impl Fn(&Value, &str)) {
        check(schema, path);
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            walk(below, &format!("{path}.{name}"), check);
        }
        for key in ["items", "additionalProperties"] {
            if schema[key].is_object() {
                walk(&schema[key], &format!("{path}[]"), check);
            }
        }
    }

    #[test]
    fn every_object_with_fields_is_closed_and_no_kubernetes_keyword_is_left() {
        for kind in Kind::ALL {
            walk(&of_kind(kind), kind.name(), &|schema, path| {
                assert!(schema["properties"].is_null() || schema["additionalProperties"] == false, "{path} is open");
                let keywords = schema.as_object().expect("a schema");
                assert!(!keywords.keys().any(|key| key.starts_with("x-")), "{path}");
            });
        }
    }

    #[test]
    fn free_objects_stay_open_and_kinds_are_told_apart() {
        let schema = of_kind(Kind::Pipeline);
        let values = &schema["properties"]["spec"]["properties"]["stages"]["items"]["properties"]["set"]["properties"]["fields"];
        let set = &schema["properties"]["spec"]["properties"]["stages"]["items"]["properties"]["set"];
        assert!(set.is_object(), "{schema}");
        assert_ne!(values["additionalProperties"], false, "{set}");
        assert_eq!(schema["properties"]["kind"], json!({"const": "Pipeline"}));
        assert_eq!(of_all()["anyOf"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn a_variable_may_stand_for_a_number() {
        let schema = of_kind(Kind::Pipeline);
        let partitions = &schema["properties"]["spec"]["properties"]["partitions"];
        assert_eq!(partitions["type"], json!(["integer", "string"]));
        let pattern = regex::Regex::new(partitions["pattern"].as_str().expect("a pattern")).expect("a pattern");
        assert!(pattern.is_match("${PARTITIONS:-6}") && !pattern.is_match("six"));
    }
}
