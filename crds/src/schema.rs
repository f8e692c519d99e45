//! From the types to CRDs. Names, columns and subresources come from kube's derive; the schema is made here, because
//! the derive's own one has `nullable`, loses the docs of enum values, and says "exactly one" with a `oneOf`
//! whose error messages mislead.

use crate::{IngestRun, IngestSchedule, KafkaConnection, Pipeline};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, core::schema::StructuralSchemaRewriter};
use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

const RULES: &str = "x-kubernetes-validations";

/// The CRDs of all kinds.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![crd::<Pipeline>(), crd::<IngestRun>(), crd::<IngestSchedule>(), crd::<KafkaConnection>()]
}

/// The CRD of a kind.
pub fn crd<T: CustomResourceExt + JsonSchema>() -> CustomResourceDefinition {
    let mut crd = T::crd();
    let structural = serde_json::from_value(schema::<T>()).expect("what schemars makes is a JSON schema");
    if let Some(validation) = crd.spec.versions.first_mut().and_then(|version| version.schema.as_mut()) {
        validation.open_api_v3_schema = Some(structural);
    }
    crd
}

/// A CRD as the text of its file in `crds/generated`.
pub fn yaml(crd: &CustomResourceDefinition) -> String {
    serde_yaml_ng::to_string(crd).expect("a CRD has string keys only")
}

/// The structural schema of a type, as it stands in the CRD.
pub fn schema<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(UnwrappedDocs)
        .with_transform(OptionalIsNotNullable)
        .with_transform(DocumentedEnums) // before kube's rewriter, which throws the docs away
        .with_transform(FullerDocs) // likewise: it prefers the short ones
        .with_transform(StructuralSchemaRewriter)
        .with_transform(Unions) // after it: it makes the `oneOf`
        .with_transform(NumberFormats)
        .with_transform(Defaults)
        .into_generator()
        .into_root_schema_for::<T>();
    schema.remove("title");
    schema.to_value()
}

/// Takes the line breaks of the source out of descriptions; paragraphs stay.
#[derive(Clone)]
struct UnwrappedDocs;

impl Transform for UnwrappedDocs {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(Value::String(description)) = schema.get_mut("description") else { return };
        let paragraphs = description.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
        *description = paragraphs.collect::<Vec<_>>().join("\n\n");
    }
}

/// Makes an optional field of `Option<T>`, where the generator makes one that may be null.
#[derive(Clone)]
struct OptionalIsNotNullable;

impl Transform for OptionalIsNotNullable {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(keywords) = schema.as_object_mut() else { return };
        keywords.remove("nullable");
        if keywords.get("default") == Some(&Value::Null) {
            keywords.remove("default");
        }
        let Some(Value::Array(alternatives)) = keywords.get("anyOf") else { return };
        let (nulls, others): (Vec<Value>, Vec<Value>) = alternatives.iter().cloned().partition(accepts_only_null);
        if nulls.is_empty() {
            return;
        }
        keywords.remove("anyOf");
        match others.as_slice() {
            [Value::Object(one)] => merge(keywords, one.clone()),
            _ => drop(keywords.insert("anyOf".into(), others.into())),
        }
    }
}

fn accepts_only_null(schema: &Value) -> bool {
    schema["enum"] == json!([null]) || schema.get("const") == Some(&Value::Null)
}

/// Takes over the keywords of the type; what the field says itself stays, rules of both hold.
fn merge(field: &mut Map<String, Value>, of_type: Map<String, Value>) {
    for (keyword, value) in of_type {
        match (field.get_mut(&keyword), value) {
            (Some(Value::Array(rules)), Value::Array(more)) if keyword == RULES => rules.extend(more),
            (Some(_), _) => {}
            (None, value) => drop(field.insert(keyword, value)),
        }
    }
}

/// Keeps the docs of enum values: they follow the description of the field.
#[derive(Clone)]
struct DocumentedEnums;

impl Transform for DocumentedEnums {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(keywords) = schema.as_object_mut() else { return };
        let Some(Value::Array(variants)) = keywords.get("oneOf") else { return };
        let Some(variants) = variants.iter().map(values_and_doc).collect::<Option<Vec<_>>>() else { return };
        let mut description = keywords.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        for (values, doc) in &variants {
            if let ([Value::String(value)], Some(doc)) = (values.as_slice(), doc) {
                description.push_str(&format!("\n`{value}`: {doc}"));
            }
        }
        let values: Vec<Value> = variants.into_iter().flat_map(|(values, _)| values).collect();
        keywords.remove("oneOf");
        keywords.insert("type".into(), "string".into());
        keywords.insert("enum".into(), values.into());
        keywords.insert("description".into(), description.trim().into());
    }
}

/// What one alternative of a unit enum allows, and its doc; nothing for an alternative that carries content.
fn values_and_doc(variant: &Value) -> Option<(Vec<Value>, Option<String>)> {
    let values = match (variant.get("const"), variant.get("enum")) {
        (Some(value), _) => vec![value.clone()],
        (None, Some(Value::Array(values))) => values.clone(),
        _ => return None,
    };
    Some((values, variant["description"].as_str().map(str::to_owned)))
}

/// Describes a component in full. The doc of its key in the union often is the beginning of the component's own,
/// and would hide the rest.
#[derive(Clone)]
struct FullerDocs;

impl Transform for FullerDocs {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(Value::Array(alternatives)) = schema.get_mut("oneOf") else { return };
        for alternative in alternatives.iter_mut().filter_map(Value::as_object_mut) {
            let Some(short) = alternative.get("description").and_then(Value::as_str) else { continue };
            let Some(component) = alternative.get("properties").and_then(Value::as_object).and_then(|keys| keys.values().next()) else {
                continue;
            };
            if component["description"].as_str().is_some_and(|full| full.starts_with(short)) {
                alternative.remove("description");
            }
        }
    }
}

/// Says "exactly one key" by rules with messages that help. With `oneOf` the server also reports what the first
/// alternative lacks, and does not run the rules at all.
#[derive(Clone)]
struct Unions;

impl Transform for Unions {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(Value::Object(items)) = schema.get_mut("items") {
            say_exactly_one(items, "move all but one to items of their own");
        }
        if let Some(keywords) = schema.as_object_mut() {
            say_exactly_one(keywords, "keep one");
        }
        transform_subschemas(self, schema);
    }
}

fn say_exactly_one(keywords: &mut Map<String, Value>, cure: &str) {
    let Some(Value::Array(alternatives)) = keywords.get("oneOf") else { return };
    let Some(keys) = alternatives.iter().map(only_required_key).collect::<Option<Vec<_>>>() else { return };
    keywords.remove("oneOf");
    if let Value::Array(rules) = keywords.entry(RULES).or_insert_with(|| json!([])) {
        rules.extend(union_rules(&keys, cure));
    }
}

fn only_required_key(alternative: &Value) -> Option<String> {
    match alternative["required"].as_array()?.as_slice() {
        [Value::String(key)] => Some(key.clone()),
        _ => None,
    }
}

fn union_rules(keys: &[String], cure: &str) -> Vec<Value> {
    let message = format!("set exactly one of: {}", keys.join(", "));
    let is_set = keys.iter().map(|key| format!("has(self.{key})")).collect::<Vec<_>>().join(", ");
    let set = keys.iter().map(|key| format!("has(self.{key}) ? '{key}' : ''")).collect::<Vec<_>>().join(", ");
    let mut rules = vec![json!({"rule": format!("[{is_set}].exists(x, x)"), "message": message})];
    if keys.len() > 1 {
        rules.push(json!({
            "rule": format!("[{is_set}].filter(x, x).size() <= 1"),
            "message": message,
            "messageExpression": format!("'%s cannot be set together; {cure}'.format([[{set}].filter(x, x != '')])"),
        }));
    }
    rules
}

/// Bounds instead of the formats that the API server does not know, and no keyword that makes a schema not structural.
#[derive(Clone)]
struct NumberFormats;

impl Transform for NumberFormats {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(keywords) = schema.as_object_mut() else { return };
        let largest = match keywords.get("format").and_then(Value::as_str) {
            Some("uint8") => Some(json!(u8::MAX)),
            Some("uint16") => Some(json!(u16::MAX)),
            Some("uint32") => Some(json!(u32::MAX)),
            Some("uint64") => None,
            _ => return tidy(keywords),
        };
        keywords.remove("format");
        keywords.entry("minimum").or_insert(json!(0));
        if let Some(largest) = largest {
            keywords.entry("maximum").or_insert(largest);
        }
    }
}

fn tidy(keywords: &mut Map<String, Value>) {
    if keywords.contains_key("x-kubernetes-int-or-string") {
        keywords.remove("anyOf");
    }
    if keywords.get("additionalProperties") == Some(&json!(false)) {
        keywords.remove("additionalProperties");
    }
}

/// Writes defaults into the descriptions, as `kubectl explain` does not show them, and takes them out of the schema
/// inside lists: there they would make every `kubectl apply` of an unchanged manifest answer `configured`.
#[derive(Clone)]
struct Defaults;

impl Transform for Defaults {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(keywords) = schema.as_object_mut() else { return };
        describe_default(keywords);
        if let Some(Value::Object(items)) = keywords.get_mut("items") {
            remove_defaults(items);
        }
    }
}

fn describe_default(keywords: &mut Map<String, Value>) {
    let text = match keywords.get("default") {
        None | Some(Value::Object(_)) => return,
        Some(Value::String(text)) if !text.is_empty() => format!("Default: `{text}`."),
        Some(value) => format!("Default: `{}`.", spaced(value)),
    };
    let description = keywords.get("description").and_then(Value::as_str).unwrap_or_default();
    if !description.contains(&text) {
        let described = format!("{description}\n{text}");
        keywords.insert("description".into(), described.trim().into());
    }
}

/// JSON the way people write it in a flow list: `[429, 502]`.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

fn remove_defaults(keywords: &mut Map<String, Value>) {
    keywords.remove("default");
    if let Some(Value::Object(properties)) = keywords.get_mut("properties") {
        properties.values_mut().filter_map(Value::as_object_mut).for_each(remove_defaults);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(Value::Object(schema)) = keywords.get_mut(below) {
            remove_defaults(schema);
        }
    }
}
