//! The results that the contract's manifests must give, however their documents flow.

use serde_json::{Value, json};

/// Counts of a step or a run that is complete.
pub fn counts(published: u64, created: u64, finished: u64, failed: u64, dropped: u64) -> Value {
    json!({"published": published, "created": created, "finished": finished, "failed": failed, "dropped": dropped, "pending": 0})
}

/// The summary of a run over `quickstart.yaml` or `kafka.yaml`.
pub fn assert_quickstart(summary: &Value) {
    assert_eq!(summary["phase"], "Succeeded", "{summary}");
    assert_eq!(summary["totals"], counts(16, 3, 15, 2, 2));
    let connectors = summary["connectors"].as_array().expect("connectors");
    assert_categories(&connectors[0]);
    assert_products(&connectors[1]);
}

/// The result of its first step.
pub fn assert_categories(result: &Value) {
    assert_eq!((&result["name"], &result["state"]), (&json!("categories"), &json!("Succeeded")), "{result}");
    assert_eq!(result["counts"], counts(4, 0, 4, 0, 0));
}

/// The result of its second step.
pub fn assert_products(result: &Value) {
    assert_eq!((&result["name"], &result["state"]), (&json!("products"), &json!("Succeeded")), "{result}");
    assert_eq!(result["counts"], counts(12, 3, 11, 2, 2));
    let failures = result["failures"].as_array().expect("failures");
    assert_eq!(failures.len(), 2);
    assert_eq!((&failures[0]["id"], &failures[0]["stage"]), (&json!(""), &json!("")));
    assert!(failures[0]["reason"].as_str().is_some_and(|reason| reason.contains("products.csv:9:")), "{failures:?}");
    assert_eq!((&failures[1]["id"], &failures[1]["stage"]), (&json!("p-11"), &json!("price")));
}
