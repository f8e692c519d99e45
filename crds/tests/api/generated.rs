//! What must hold of every generated schema.

use super::schemas;
use penstock_crds::schema;
use serde_json::Value;
use std::{fs, path::Path};

const RULES: &str = "x-kubernetes-validations";

/// A schema, where it stands, and what stands above it.
struct Place<'a> {
    path: String,
    schema: &'a Value,
    in_list: bool,
    above: Vec<&'a Value>,
}

/// Every schema of every kind, the outermost first.
fn each_schema(check: impl Fn(&Place<'_>)) {
    for (kind, schema) in schemas() {
        visit(&Place { path: kind, schema: &schema, in_list: false, above: Vec::new() }, &check);
    }
}

fn visit(place: &Place<'_>, check: &impl Fn(&Place<'_>)) {
    check(place);
    let mut above = place.above.clone();
    above.push(place.schema);
    for (key, schema) in place.schema["properties"].as_object().into_iter().flatten() {
        visit(&Place { path: format!("{}.{key}", place.path), schema, in_list: place.in_list, above: above.clone() }, check);
    }
    if place.schema["items"].is_object() {
        visit(&Place { path: format!("{}[]", place.path), schema: &place.schema["items"], in_list: true, above: above.clone() }, check);
    }
    if place.schema["additionalProperties"].is_object() {
        let schema = &place.schema["additionalProperties"];
        visit(&Place { path: format!("{}.*", place.path), schema, in_list: place.in_list, above }, check);
    }
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

#[test]
fn committed_files_are_current() {
    for crd in schema::all() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("generated/{}.yaml", crd.spec.names.plural));
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == schema::yaml(&crd), "{} is not current: run `cargo run -p penstock-crds --bin crdgen`", path.display());
    }
}

#[test]
fn each_crd_is_small_enough_for_client_side_apply() {
    for crd in schema::all() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size <= 180_000, "{} has {size} bytes", crd.spec.names.kind);
    }
}

#[test]
fn optional_fields_are_not_nullable_and_unions_are_rules() {
    each_schema(|place| {
        for keyword in ["nullable", "oneOf", "anyOf", "allOf", "$ref"] {
            assert!(place.schema.get(keyword).is_none(), "{}: {keyword}", place.path);
        }
        assert!(!place.schema["format"].as_str().is_some_and(|format| format.starts_with("uint")), "{}", place.path);
    });
}

#[test]
fn no_defaults_inside_lists() {
    each_schema(|place| assert!(!place.in_list || place.schema.get("default").is_none(), "{}", place.path));
}

#[test]
fn every_property_is_documented() {
    each_schema(|place| {
        let named = !place.above.is_empty() && !place.path.ends_with("[]") && !place.path.ends_with(".*");
        assert!(!named || !description(place.schema).is_empty(), "{}", place.path);
    });
}

#[test]
fn docs_tell_the_real_default_once() {
    each_schema(|place| {
        let told = description(place.schema).matches("Default: `").count();
        assert!(told <= 1, "{}: {}", place.path, description(place.schema));
        let wanted = place.schema.get("default").is_some_and(|default| !default.is_object());
        assert!(!wanted || told == 1, "{}: {}", place.path, description(place.schema));
    });
}

#[test]
fn a_block_left_out_equals_an_empty_one() {
    each_schema(|place| {
        for (key, value) in place.schema["default"].as_object().into_iter().flatten() {
            assert_eq!(place.schema["properties"][key].get("default"), Some(value), "{}.{key}", place.path);
        }
    });
}

/// Else the API server refuses the CRD, or will once a rule reads the field.
#[test]
fn lists_maps_and_strings_that_rules_see_are_bounded() {
    let bounded = |schema: &Value| match schema["type"].as_str() {
        Some("array") => schema.get("maxItems").is_some(),
        Some("object") => !schema["additionalProperties"].is_object() || schema.get("maxProperties").is_some(),
        Some("string") => ["maxLength", "enum", "format"].iter().any(|bound| schema.get(*bound).is_some()),
        _ => true,
    };
    each_schema(|place| {
        if place.schema.get(RULES).is_some() {
            assert!(bounded(place.schema), "{}", place.path);
            assert!(place.above.iter().all(|schema| bounded(schema)), "above {}", place.path);
        }
        let list = place.schema["type"] == "array" && !place.path.contains(".status");
        assert!(!list || bounded(place.schema), "{}", place.path);
    });
}

/// The keys of a union as its rule lists them are the documented properties beside the common ones.
#[test]
fn unions_name_their_keys() {
    let common: [(&str, &[&str]); 6] = [
        (".stages[]", &["name", "when", "onError"]),
        (
            ".spec.indexer",
            &[
                "batch",
                "retry",
                "idField",
                "indexField",
                "routingField",
                "includeFields",
                "excludeFields",
                "deletion",
                "versioning",
                "versionField",
                "versionGeneration",
                "runIdField",
            ],
        ),
        (
            ".connectors[]",
            &["name", "pipeline", "idPrefix", "maxRate", "maxPending", "collapse", "timeout", "restartPolicy", "pre", "post"],
        ),
        (".format", &[]),
        (".pre[]", &[]),
        (".post[]", &[]),
    ];
    let found = std::cell::Cell::new(0);
    each_schema(|place| {
        let messages = place.schema[RULES].as_array().into_iter().flatten().filter_map(|rule| rule["message"].as_str());
        let Some(listed) = messages.into_iter().find_map(|message| message.strip_prefix("set exactly one of: ")) else { return };
        let (_, common) = common.iter().find(|(end, _)| place.path.ends_with(end)).unwrap_or_else(|| panic!("new union {}", place.path));
        let mut keys: Vec<&str> = place.schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        keys.retain(|key| !common.contains(key));
        let mut listed: Vec<&str> = listed.split(", ").collect();
        keys.sort_unstable();
        listed.sort_unstable();
        assert_eq!(keys, listed, "{}", place.path);
        found.set(found.get() + 1);
    });
    assert_eq!(found.get(), 10, "stages, indexer, and twice (run and schedule) connectors, format, pre, post");
}

#[test]
fn enum_values_are_documented() {
    each_schema(|place| {
        let values: Vec<&str> = place.schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for value in values {
            assert!(description(place.schema).contains(&format!("`{value}`: ")), "{}: {value}", place.path);
        }
    });
}

#[test]
fn components_are_described_in_full() {
    let all = schemas();
    let (_, pipeline) = all.iter().find(|(kind, _)| kind == "Pipeline").unwrap();
    let explode = description(&pipeline["properties"]["spec"]["properties"]["stages"]["items"]["properties"]["explode"]);
    assert!(explode.contains("reach the index before their parent"), "{explode}");
}
