//! The cross-field rules of the CRD (CEL), run here as the API server runs them.

use super::{
    kind::KindSchema,
    locate::locate,
    path::{is_within, parent},
    schema_walk,
    yaml::{Finding, Node},
};
use kube::core::cel::{ErrorKind, ValidationError, Validator};
use serde_json::Value;

/// Reports the rules that an object breaks. `findings` are what was found wrong in the shape of the same object.
pub fn check(root: &Node, json: &Value, schema: &KindSchema, findings: &mut Vec<Finding>) {
    // A rule that compares all items of a list with each other would run for minutes over one that is far too long.
    if findings.iter().any(|finding| finding.message.contains(schema_walk::TOO_MANY_ITEMS)) {
        return;
    }
    let Err(errors) = Validator::new().validate_compiled(&schema.rules, json, None) else { return };
    let shape = findings.len();
    for error in errors.into_vec() {
        if is_new(&error, &findings[..shape]) {
            let path = if is_about_name(&error) { "metadata.name".to_owned() } else { error.field_path };
            findings.push(Finding { place: locate(root, &path).place, path, message: error.message });
        }
    }
}

/// Whether the error says something that the findings about the shape do not say already.
fn is_new(error: &ValidationError, shape: &[Finding]) -> bool {
    if shape.is_empty() {
        return true;
    }
    // Where the shape is wrong, rules stumble over what is missing.
    let stumbled = error.kind != ErrorKind::ValidationFailure;
    // A mistyped key is an unknown field, and leaves its item without a key: that is one problem, not two.
    let about_mistyped_key =
        shape.iter().any(|finding| parent(&finding.path) == error.field_path && finding.message.starts_with("unknown field"));
    let about_faulty_value = shape.iter().any(|finding| is_within(&error.field_path, &finding.path) && !finding.path.is_empty());
    // The name was looked at before.
    let about_name = is_about_name(error) && shape.iter().any(|finding| is_within(&finding.path, "metadata"));
    !(stumbled || about_mistyped_key || about_faulty_value || about_name)
}

/// A rule about the name can only stand at the object.
fn is_about_name(error: &ValidationError) -> bool {
    error.rule.contains("self.metadata.name")
}
