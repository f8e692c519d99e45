//! The four kinds and their schemas, each made once.

use kube::core::cel::{CompiledSchema, compile_schema};
use penstock_crds::{IngestRun, IngestSchedule, KafkaConnection, Pipeline, schema};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// A kind of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum Kind {
    /// Connectors that run one after the other.
    IngestRun,
    /// Runs by cron or by a changed nonce.
    IngestSchedule,
    /// How to reach a Kafka cluster.
    KafkaConnection,
    /// Topics, stages, workers and indexer.
    Pipeline,
}

/// The schema of a kind, as the CRD has it.
pub struct KindSchema {
    /// The schema of a whole object as people write it: with what the API server adds for `apiVersion`, `kind` and
    /// `metadata`, and a status that nobody looks at.
    pub object: Value,
    /// The schema as generated, with description and status.
    pub generated: Value,
    /// Its rules.
    pub rules: CompiledSchema,
}

impl Kind {
    /// All kinds, by name.
    pub const ALL: [Self; 4] = [Self::IngestRun, Self::IngestSchedule, Self::KafkaConnection, Self::Pipeline];

    /// The name as it stands in a manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IngestRun => "IngestRun",
            Self::IngestSchedule => "IngestSchedule",
            Self::KafkaConnection => "KafkaConnection",
            Self::Pipeline => "Pipeline",
        }
    }

    /// The short name that kubectl knows.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::IngestRun => "irun",
            Self::IngestSchedule => "isch",
            Self::KafkaConnection => "kconn",
            Self::Pipeline => "ppl",
        }
    }

    /// The kind of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The schema.
    pub fn schema(self) -> &'static KindSchema {
        static SCHEMAS: [OnceLock<KindSchema>; 4] = [const { OnceLock::new() }; 4];
        SCHEMAS[self as usize].get_or_init(|| {
            let generated = match self {
                Self::IngestRun => schema::schema::<IngestRun>(),
                Self::IngestSchedule => schema::schema::<IngestSchedule>(),
                Self::KafkaConnection => schema::schema::<KafkaConnection>(),
                Self::Pipeline => schema::schema::<Pipeline>(),
            };
            KindSchema { rules: compile_schema(&generated), object: object_schema(&generated["properties"]["spec"]), generated }
        })
    }
}

fn object_schema(spec: &Value) -> Value {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let free = json!({"x-kubernetes-preserve-unknown-fields": true});
    json!({
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "generateName": {"type": "string"},
                    "namespace": {"type": "string"},
                    "labels": texts,
                    "annotations": texts,
                    "finalizers": {"type": "array", "items": {"type": "string"}},
                    "ownerReferences": free,
                    "creationTimestamp": free,
                    "deletionGracePeriodSeconds": free,
                    "deletionTimestamp": free,
                    "generation": free,
                    "managedFields": free,
                    "resourceVersion": free,
                    "selfLink": free,
                    "uid": free,
                },
            },
            "spec": spec,
            "status": free,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_those_of_the_crds() {
        for crd in schema::all() {
            let names = crd.spec.names;
            let kind = Kind::by_name(&names.kind).expect("a kind");
            assert_eq!(names.short_names, Some(vec![kind.short_name().to_owned()]));
        }
    }

    #[test]
    fn every_rule_of_every_kind_compiles_here() {
        for kind in Kind::ALL {
            assert_eq!(Kind::by_name(kind.name()), Some(kind));
            let errors: Vec<String> = kind.schema().rules.compilation_errors().iter().map(ToString::to_string).collect();
            assert_eq!(errors, Vec::<String>::new(), "{}", kind.name());
        }
    }
}
