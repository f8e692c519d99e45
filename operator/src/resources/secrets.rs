//! Which Secrets a spec names: only names and keys, the operator never reads a value.

use penstock_crds::values::SecretKeyRef;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Secrets by name, each with the keys that are used.
pub type SecretKeys = BTreeMap<String, BTreeSet<String>>;

/// The Secrets that a spec names in any `secretKeyRef`. Those of podPatches are left out: Kubernetes brings them to where the patch
/// wants them.
pub fn secrets_of<S: Serialize>(spec: &S) -> SecretKeys {
    let mut found = SecretKeys::new();
    // what cannot be written as JSON has not come from a cluster
    collect(&serde_json::to_value(spec).unwrap_or_default(), &mut found);
    found
}

fn collect(value: &Value, found: &mut SecretKeys) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields.iter().filter(|(field, _)| *field != "podPatches") {
                match (field.as_str(), serde_json::from_value(value.clone())) {
                    ("secretKeyRef", Ok(SecretKeyRef { name, key })) => drop(found.entry(name).or_default().insert(key)),
                    _ => collect(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_found_at_any_depth_and_their_keys_are_put_together() {
        let reference = |name: &str, key: &str| json!({"valueFrom": {"secretKeyRef": {"name": name, "key": key}}});
        let spec = json!({
            "indexer": {"opensearch": {"username": reference("search", "user"), "password": reference("search", "password")}},
            "list": [{"headers": {"Authorization": reference("proxy", "header")}}, {"again": reference("search", "user")}],
            "workers": {"podPatches": [{"spec": {"containers": [{"env": [reference("other", "x")]}]}}]},
            "values": {"secretKeyRef": "no reference", "deeper": {"secretKeyRef": {"name": "no key"}}},
        });
        let found = serde_json::to_value(secrets_of(&spec)).unwrap();
        assert_eq!(found, json!({"proxy": ["header"], "search": ["password", "user"]}));
    }
}
