//! The API as users meet it: the generated schemas, and the rules in them.
#![expect(clippy::unwrap_used, reason = "these are tests: they may panic")]

mod generated;
mod rules;

use serde_json::Value;

/// The schema of each kind, by its name.
fn schemas() -> Vec<(String, Value)> {
    penstock_crds::schema::all()
        .into_iter()
        .map(|crd| {
            let kind = crd.spec.names.kind.clone();
            let schema = crd.spec.versions[0].schema.as_ref().and_then(|validation| validation.open_api_v3_schema.as_ref());
            (kind, serde_json::to_value(schema.unwrap()).unwrap())
        })
        .collect()
}
