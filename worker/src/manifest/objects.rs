//! Objects in memory, as an API server gives them, checked by the very code that checks files. What differs: they have no lines,
//! nothing of the environment is put in, and objects that they name may be elsewhere.

use super::{
    Environment, Manifests, Problem, Report, check_object, conclude,
    object::{self, Identity},
    references,
    sources::Source,
    substitute, to_problem,
    yaml::{Content, Entry, Finding, Node, Place, Scalar},
};
use serde_json::Value;
use std::path::PathBuf;

/// Checks objects and reads them. A text with a `${NAME}` is taken as it is: it gets its value in the pod, from the pod's
/// environment. Whether objects exist that these ones name, and that are not among them, is for the caller to say. Relative paths
/// of the objects have no beginning.
///
/// # Errors
/// Everything that is wrong with them, object by object. The file of a problem is `KIND/NAME`, without a place.
pub fn check_objects(objects: &[Value]) -> Result<Manifests, Vec<Problem>> {
    let sources: Vec<Source> = objects.iter().map(source_of).collect();
    let mut checked = Vec::new();
    let mut problems = Vec::new();
    let mut manifests = Manifests::default();
    for (source, given) in sources.iter().zip(objects) {
        let (root, mut findings) = (node_of(given), Vec::new());
        match object::identify(&root, &mut findings) {
            Identity::Ours(kind) => {
                let mut object = check_object(source, kind, root, findings, Environment::LeftToThePod);
                substitute::forget_left(&mut object.findings);
                // as it stands in the cluster, with the escapes that the pod takes away
                object.json["spec"] = given["spec"].clone();
                checked.push(object);
            }
            Identity::Foreign => manifests.foreign += 1,
            Identity::Unknown => problems.extend(findings.into_iter().map(|finding: Finding| to_problem(source, finding))),
        }
    }
    references::check(&mut checked, true);
    conclude(&sources, checked, manifests, problems).map_err(|Report { mut problems }| {
        problems.iter_mut().for_each(|problem| problem.place = None);
        problems
    })
}

/// What stands in the place of a file.
fn source_of(object: &Value) -> Source {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let name = format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]));
    Source { name, base_dir: PathBuf::new(), text: String::new() }
}

/// A value as if it had been read from a file, without a place.
fn node_of(value: &Value) -> Node {
    let scalar = |text: String, plain| Content::Scalar(Scalar { text, plain, unknown: false, source: None });
    let content = match value {
        Value::Null => scalar(String::new(), true),
        Value::Bool(_) | Value::Number(_) => scalar(value.to_string(), true),
        Value::String(text) => scalar(text.clone(), false),
        Value::Array(items) => Content::List(items.iter().map(node_of).collect()),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| Entry { key: key.clone(), place: Place::START, value: node_of(value) };
            Content::Map(entries.iter().map(entry).collect())
        }
    };
    Node { place: Place::START, content }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::schema_walk;
    use proptest::prelude::*;
    use serde_json::json;

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        json!({"apiVersion": "penstock.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": "ingest"}, "spec": spec})
    }

    fn problems(objects: &[Value]) -> Vec<String> {
        check_objects(objects).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    fn pipeline(stages: Value) -> Value {
        object("Pipeline", "products", json!({"stages": stages, "indexer": {"nop": {}}}))
    }

    #[test]
    fn objects_of_a_cluster_become_typed_with_all_that_the_server_adds() {
        let mut stored = pipeline(json!([{"rename": {"fields": {"a": "b"}}}]));
        stored["metadata"]["uid"] = "0d4c".into();
        stored["metadata"]["generation"] = 3.into();
        stored["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
        stored["metadata"]["ownerReferences"] = json!([{"kind": "X", "controller": true}]);
        stored["status"] = json!({"observedGeneration": 3, "conditions": []});
        let run = object("IngestRun", "nightly", json!({"connectors": [{"name": "c", "pipeline": "elsewhere", "sequence": {"count": 1}}]}));
        let manifests = check_objects(&[stored, run, json!({"apiVersion": "v1", "kind": "Secret"})]).expect("valid");
        assert_eq!(manifests.pipeline("ingest", "products").map(|pipeline| pipeline.spec.stages.len()), Some(1));
        assert_eq!((manifests.runs[0].name.as_str(), manifests.foreign), ("nightly", 1));
    }

    #[test]
    fn all_problems_come_at_once_with_the_object_and_the_path_of_the_field() {
        let stages = json!([{"chunk": {"field": "a", "size": 0}}, {"remap": {"source": ".a = "}}, {"nosuch": {}}]);
        let connection = object("KafkaConnection", "main", json!({"bootstrapServers": "k:9092", "properties": {"group.id": "x"}}));
        let found = problems(&[pipeline(stages), connection]);
        for wanted in [
            "Pipeline/products: spec.stages[0].chunk.size: must be at least 1, is 0",
            "Pipeline/products: spec.stages[1].remap.source: the program does not compile: ",
            "Pipeline/products: spec.stages[2].nosuch: unknown field `nosuch`",
            "KafkaConnection/main: spec.properties.group.id: ",
        ] {
            assert!(found.iter().any(|problem| problem.starts_with(wanted)), "{wanted} in {found:#?}");
        }
    }

    #[test]
    fn what_is_no_object_of_ours_is_said() {
        let wrong = object("Pipelin", "p", json!({}));
        assert_eq!(
            problems(&[wrong]),
            ["Pipelin/p: kind: `Pipelin` is not one of IngestRun, IngestSchedule, KafkaConnection, Pipeline, did you mean `Pipeline`?"]
        );
        assert!(problems(&[json!([])])[0].starts_with("?/?: is no object"), "{:?}", problems(&[json!([])]));
    }

    #[test]
    fn variables_are_left_to_the_pod_and_nothing_of_the_environment_is_seen() {
        let given = object(
            "Pipeline",
            "p",
            json!({"stages": [
                {"set": {"values": {"home": "${HOME}", "path": "${PATH:-x}", "text": "$${HOME}"}}},
                {"remap": {"source": "${PROGRAM}"}},
            ], "indexer": {"opensearch": {"urls": ["${SEARCH}"], "index": "i"}}}),
        );
        let manifests = check_objects(std::slice::from_ref(&given)).expect("valid");
        let spec = serde_json::to_value(&manifests.pipelines[0].spec).expect("JSON");
        assert_eq!(spec["stages"][0]["set"]["values"], given["spec"]["stages"][0]["set"]["values"]);
        assert_eq!(spec["indexer"]["opensearch"]["urls"], json!(["${SEARCH}"]));
    }

    #[test]
    fn what_is_wrong_beside_a_variable_is_still_found() {
        let found = problems(&[pipeline(json!([{"set": {"values": {"a": "${A:-${B}}"}}}, {"remap": {"source": "${P}"}, "when": ".a ="}]))]);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(
            found[0].starts_with("Pipeline/products: spec.stages[0].set.values.a: the default of A cannot hold a variable"),
            "{found:#?}"
        );
        assert!(found[1].starts_with("Pipeline/products: spec.stages[1].when: the predicate does not compile"), "{found:#?}");
    }

    #[test]
    fn an_escaped_variable_is_checked_as_the_pod_will_see_it() {
        assert_eq!(problems(&[pipeline(json!([{"remap": {"source": ".a = \"$${HOME}\""}}]))]), Vec::<String>::new());
        assert_eq!(problems(&[pipeline(json!([{"remap": {"source": ".a = $${HOME}"}}]))]).len(), 1);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            // whole numbers lose their point, as with kubectl
            any::<i32>().prop_map(|number| Value::from(f64::from(number) + 0.5)),
            "[a-z0-9.~ _-]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_stays_what_it_is(value in any_json()) {
            prop_assert_eq!(schema_walk::to_json(&node_of(&value), &Value::Null), value);
        }
    }
}
