//! The reference of all kinds, components and fields, from their types: as text for a terminal, as Markdown pages, and as
//! a JSON schema for editors.

mod field;
pub mod json_schema;
pub mod lookup;
pub mod markdown;
pub mod text;

pub use field::{Field, Topic};

use crate::manifest::Kind;
use serde_json::Value;

/// A family of components: they stand in a union, one key each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Where documents come from.
    Connector,
    /// Where documents go.
    Indexer,
    /// What is done to a document.
    Stage,
}

impl Family {
    /// All families, by name.
    pub const ALL: [Self; 3] = [Self::Connector, Self::Indexer, Self::Stage];

    /// The name of one of the family.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connector => "connector",
            Self::Indexer => "indexer",
            Self::Stage => "stage",
        }
    }

    /// Where the family stands in a manifest.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Connector => "ingestrun.spec.connectors",
            Self::Indexer => "pipeline.spec.indexer",
            Self::Stage => "pipeline.spec.stages",
        }
    }

    /// The schema of one of the family: the union, and what all have in common.
    pub fn schema(self) -> &'static Value {
        match self {
            Self::Connector => &Kind::IngestRun.schema().object["properties"]["spec"]["properties"]["connectors"]["items"],
            Self::Indexer => &Kind::Pipeline.schema().object["properties"]["spec"]["properties"]["indexer"],
            Self::Stage => &Kind::Pipeline.schema().object["properties"]["spec"]["properties"]["stages"]["items"],
        }
    }

    /// The components, and the fields that all of them have.
    pub fn members(self) -> (Vec<Field<'static>>, Vec<Field<'static>>) {
        let keys = union_keys(self.schema());
        Field::all(self.schema()).into_iter().partition(|field| keys.contains(&field.name))
    }
}

/// The keys of which exactly one must be set: the rule about them says so.
pub(crate) fn union_keys(schema: &Value) -> Vec<&str> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules
        .filter_map(|rule| rule["message"].as_str()?.strip_prefix("set exactly one of: "))
        .next()
        .map(|keys| keys.split(", ").collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_components_and_common_fields() {
        for (family, component, common) in
            [(Family::Stage, "rename", "when"), (Family::Connector, "file", "maxRate"), (Family::Indexer, "opensearch", "batch")]
        {
            let (components, others) = family.members();
            assert!(components.iter().any(|field| field.name == component), "{family:?}");
            assert!(others.iter().any(|field| field.name == common), "{family:?}");
            assert!(!others.iter().any(|field| field.name == component), "{family:?}");
        }
    }

    #[test]
    fn every_field_of_every_kind_is_documented() {
        fn walk(schema: &Value, path: &str, undocumented: &mut Vec<String>) {
            for field in Field::all(schema) {
                let path = format!("{path}.{}", field.name);
                if field.description().is_empty() {
                    undocumented.push(path.clone());
                }
                walk(field.inner(), &path, undocumented);
            }
        }
        let mut undocumented = Vec::new();
        for kind in Kind::ALL {
            walk(&kind.schema().generated, kind.name(), &mut undocumented);
        }
        assert_eq!(undocumented, Vec::<String>::new());
    }
}
