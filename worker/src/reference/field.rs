//! One field as its schema describes it.

use serde_json::Value;

/// A field of a map.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it must be set.
    pub required: bool,
    /// Its schema.
    pub schema: &'a Value,
}

/// What is explained: a field, a kind or a family.
#[derive(Clone, Debug)]
pub struct Topic<'a> {
    /// How it is reached, for example `pipeline.spec.stages.rename`.
    pub path: String,
    /// Its schema.
    pub schema: &'a Value,
    /// Whether it must be set.
    pub required: bool,
}

impl<'a> Field<'a> {
    /// The fields of a schema, required ones first, else by name.
    pub fn all(schema: &'a Value) -> Vec<Self> {
        let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let mut fields: Vec<Self> =
            properties.map(|(name, schema)| Self { name, required: required.contains(&name.as_str()), schema }).collect();
        fields.sort_by_key(|field| (!field.required, field.name));
        fields
    }

    /// What it is for, without the default.
    pub fn description(&self) -> String {
        description(self.schema)
    }

    /// The value that stands in for it, as text.
    pub fn default(&self) -> Option<String> {
        default(self.schema)
    }

    /// Its type in words, with limits.
    pub fn type_in_words(&self) -> String {
        type_in_words(self.schema)
    }

    /// The schema that has the fields below it: that of the elements, if it is a list or a map of names.
    pub fn inner(&self) -> &'a Value {
        inner(self.schema)
    }
}

/// The schema that has the fields below: through lists and maps of names.
pub fn inner(schema: &Value) -> &Value {
    match (schema.get("items"), schema.get("additionalProperties")) {
        (Some(items), _) => inner(items),
        (None, Some(values)) if values.is_object() => inner(values),
        _ => schema,
    }
}

/// A credential is a map as well, but its content is the same everywhere.
pub fn is_credential(schema: &Value) -> bool {
    schema["properties"].as_object().is_some_and(|properties| properties.len() == 1 && properties.contains_key("valueFrom"))
}

/// What a schema is for, without the default.
pub fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    match default_sentence(text) {
        Some((before, _)) => before.trim_end().to_owned(),
        None => text.to_owned(),
    }
}

/// The value that stands in if nothing is set.
pub fn default(schema: &Value) -> Option<String> {
    default_sentence(schema["description"].as_str()?).map(|(_, value)| value.to_owned())
}

/// Defaults inside lists are known by the description only, which has them everywhere as its last sentence.
fn default_sentence(description: &str) -> Option<(&str, &str)> {
    let (before, value) = description.rsplit_once("Default: `")?;
    Some((before, value.strip_suffix("`.")?))
}

/// The type in words, with limits.
pub fn type_in_words(schema: &Value) -> String {
    let limits = |least: &str, most: &str| limits(&schema[least], &schema[most]);
    match schema["type"].as_str() {
        _ if is_credential(schema) => "credential".into(),
        _ if is_named_text(schema, "not a duration") => "duration".into(),
        _ if is_named_text(schema, "not a size") => "size".into(),
        _ if schema["x-kubernetes-int-or-string"] == true => "whole number or text".into(),
        Some("array") => format!("list of {}", type_in_words(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_in_words(&schema["additionalProperties"]))
        }
        Some("object") if schema["x-kubernetes-preserve-unknown-fields"] == true => "free map".into(),
        Some("object") => "map".into(),
        Some("integer") => format!("whole number{}", limits("minimum", "maximum")),
        Some("number") => format!("number{}", limits("minimum", "maximum")),
        Some("boolean") => "boolean".into(),
        Some("string") => match schema["enum"].as_array() {
            Some(values) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
            None if schema["format"] == "date-time" => "time".into(),
            None => "text".into(),
        },
        _ => "anything".into(),
    }
}

fn is_named_text(schema: &Value, message: &str) -> bool {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules.filter_map(|rule| rule["message"].as_str()).any(|text| text.starts_with(message))
}

fn limits(least: &Value, most: &Value) -> String {
    match (least.as_f64(), most.as_f64()) {
        (Some(least), Some(most)) => format!(", {least} to {most}"),
        (Some(least), None) => format!(", at least {least}"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    }
}

/// What must hold between fields, in words. The rule of a union is not among them: its keys are told apart anyway.
pub fn rules(schema: &Value) -> Vec<&str> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let mut messages: Vec<&str> = rules.filter_map(|rule| rule["message"].as_str()).collect();
    messages.dedup();
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_and_limits_are_put_in_words() {
        for (schema, want) in [
            (json!({"type": "integer", "minimum": 1.0, "maximum": 1024.0}), "whole number, 1 to 1024"),
            (json!({"type": "integer", "minimum": 0}), "whole number, at least 0"),
            (json!({"type": "string", "enum": ["A", "B"]}), "A | B"),
            (json!({"type": "array", "items": {"type": "string"}}), "list of text"),
            (json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}), "map of list of text"),
            (json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), "free map"),
            (json!({"x-kubernetes-int-or-string": true}), "whole number or text"),
            (json!({"type": "object", "properties": {"valueFrom": {}}}), "credential"),
            (json!({"type": "string", "x-kubernetes-validations": [{"message": "not a duration; write 5m"}]}), "duration"),
        ] {
            assert_eq!(type_in_words(&schema), want);
        }
    }

    #[test]
    fn the_default_is_told_apart_from_the_description() {
        let schema = json!({"description": "Time for one request.\nDefault: `60s`."});
        assert_eq!((description(&schema).as_str(), default(&schema).as_deref()), ("Time for one request.", Some("60s")));
        let schema = json!({"description": "No Default: here."});
        assert_eq!((description(&schema).as_str(), default(&schema)), ("No Default: here.", None));
    }
}
