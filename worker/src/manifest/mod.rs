//! Manifests: YAML → checked, typed objects. Everything that is wrong is reported at once, each with its place and cure.
//!
//! The way of a manifest: [`sources`] reads the text, [`yaml`] makes nodes that know their place, [`object`] says what a
//! document is, [`substitute`] puts in the environment, [`schema_walk`] compares with the schema of the CRD, [`rules`] runs its
//! cross-field rules, [`components`] asks stages, connectors and indexers, [`references`] looks at all objects together, and
//! serde reads what has passed. Nothing is opened but the manifests; nothing is created or changed. [`objects`] takes objects that
//! come from somewhere else the same way.

mod components;
pub mod kind;
mod locate;
mod object;
mod objects;
mod path;
mod problem;
mod references;
mod rules;
mod scalar;
mod schema_walk;
mod sources;
mod substitute;
mod yaml;

pub use kind::Kind;
pub use object::{DEFAULT_NAMESPACE, Object};
pub use objects::check_objects;
pub use problem::{Problem, Report};
pub use substitute::Variables;
pub use yaml::Place;

use crate::wording::counted;
use object::Identity;
use penstock_crds::{IngestRunSpec, IngestScheduleSpec, KafkaConnectionSpec, PipelineSpec};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sources::Source;
use std::path::{Path, PathBuf};
use yaml::{Finding, Node};

/// How manifests are read.
pub struct LoadOptions<'a> {
    /// Where relative paths start, instead of the folder of each manifest.
    pub base_dir: Option<&'a Path>,
    /// Where the values of `${NAME}` come from.
    pub variables: &'a Variables<'a>,
}

impl Default for LoadOptions<'_> {
    /// Relative paths start at the folder of each manifest, variables come from the environment.
    fn default() -> Self {
        Self { base_dir: None, variables: &|name| std::env::var(name).ok() }
    }
}

/// All objects of some manifests, checked.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// The pipelines.
    pub pipelines: Vec<Object<PipelineSpec>>,
    /// The runs.
    pub runs: Vec<Object<IngestRunSpec>>,
    /// The schedules.
    pub schedules: Vec<Object<IngestScheduleSpec>>,
    /// The Kafka connections.
    pub kafka_connections: Vec<Object<KafkaConnectionSpec>>,
    /// Objects of others, such as Secrets. They were passed over.
    pub foreign: usize,
}

impl Manifests {
    /// The pipeline of that name in that namespace.
    pub fn pipeline(&self, namespace: &str, name: &str) -> Option<&Object<PipelineSpec>> {
        self.pipelines.iter().find(|pipeline| pipeline.namespace == namespace && pipeline.name == name)
    }

    /// The Kafka connection of that name in that namespace.
    pub fn kafka_connection(&self, namespace: &str, name: &str) -> Option<&Object<KafkaConnectionSpec>> {
        self.kafka_connections.iter().find(|connection| connection.namespace == namespace && connection.name == name)
    }

    /// `3 pipelines and 1 run`.
    pub fn summary(&self) -> String {
        let counts = [
            (self.pipelines.len(), "pipeline"),
            (self.runs.len(), "run"),
            (self.schedules.len(), "schedule"),
            (self.kafka_connections.len(), "Kafka connection"),
        ];
        let parts: Vec<String> =
            counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, noun)| counted(count as u64, noun)).collect();
        match parts.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, before)) => format!("{} and {last}", before.join(", ")),
            None => "nothing".into(),
        }
    }
}

/// Reads and checks manifests: files, directories (their `*.yaml` and `*.yml`), `-` for standard input.
///
/// # Errors
/// Everything that is wrong with them.
pub fn load(paths: &[PathBuf], options: &LoadOptions<'_>) -> Result<Manifests, Report> {
    let mut problems = Vec::new();
    let sources = sources::read_all(paths, options.base_dir, &mut problems);
    check_and_read(&sources, problems, options.variables)
}

/// What becomes of `${NAME}`.
#[derive(Clone, Copy)]
enum Environment<'a> {
    /// It gets its value from here.
    Here(&'a Variables<'a>),
    /// It stays, and the value where it stands cannot be judged.
    LeftToThePod,
}

/// One of our objects on its way through the checks.
struct Checked<'a> {
    source: &'a Source,
    root: Node,
    kind: Kind,
    /// Nothing if it has none, or none that can be known.
    name: Option<String>,
    namespace: String,
    json: Value,
    findings: Vec<Finding>,
}

fn check_and_read(sources: &[Source], mut problems: Vec<Problem>, variables: &Variables<'_>) -> Result<Manifests, Report> {
    let mut objects = Vec::new();
    let mut manifests = Manifests::default();
    let mut incomplete = !problems.is_empty();
    for source in sources {
        let yaml::Documents { documents, errors } = yaml::parse(&source.text);
        incomplete |= !errors.is_empty();
        problems.extend(errors.into_iter().map(|finding| to_problem(source, finding)));
        for yaml::Document { root, mut findings } in documents {
            match object::identify(&root, &mut findings) {
                Identity::Ours(kind) => objects.push(check_object(source, kind, root, findings, Environment::Here(variables))),
                Identity::Foreign => manifests.foreign += 1,
                Identity::Unknown => {
                    incomplete = true;
                    problems.extend(findings.into_iter().map(|finding| to_problem(source, finding)));
                }
            }
        }
    }
    references::check(&mut objects, incomplete);
    if objects.is_empty() && problems.is_empty() {
        let empty = |source: &Source| Problem::of_file(&source.name, "holds no object of penstock.io/v1alpha1");
        problems.extend(sources.iter().map(empty));
    }
    conclude(sources, objects, manifests, problems)
}

/// Takes over what has passed all checks, unless there is a problem anywhere.
fn conclude(
    sources: &[Source],
    objects: Vec<Checked<'_>>,
    mut manifests: Manifests,
    mut problems: Vec<Problem>,
) -> Result<Manifests, Report> {
    for mut object in objects {
        if object.findings.is_empty() {
            manifests.add(&mut object);
        }
        problems.extend(object.findings.into_iter().map(|finding| to_problem(object.source, finding)));
    }
    if problems.is_empty() {
        return Ok(manifests);
    }
    let order = |problem: &Problem| sources.iter().position(|source| source.name == problem.file).unwrap_or(usize::MAX);
    problems.sort_by_key(|problem| (order(problem), problem.place));
    Err(Report { problems })
}

fn check_object<'a>(
    source: &'a Source,
    kind: Kind,
    mut root: Node,
    mut findings: Vec<Finding>,
    environment: Environment<'_>,
) -> Checked<'a> {
    match environment {
        Environment::Here(variables) => substitute::substitute(&mut root, variables, &mut findings),
        Environment::LeftToThePod => substitute::leave(&mut root, &mut findings),
    }
    let schema = kind.schema();
    let name = object::name_of(&root, &mut findings);
    schema_walk::walk(&root, &schema.object, &mut findings);
    let mut json = schema_walk::to_json(&root, &schema.object);
    if let Value::Object(object) = &mut json {
        // The API server takes no status from users.
        object.remove("status");
    }
    if let (Some(name), Some(Value::Object(metadata))) = (&name, json.get_mut("metadata")) {
        // The API server makes the name out of `generateName` before it runs the rules.
        metadata.entry("name").or_insert_with(|| name.as_str().into());
    }
    rules::check(&root, &json, schema, &mut findings);
    components::check(kind, &root, &source.text, &json, &mut findings);
    Checked { source, namespace: object::namespace_of(&root), root, kind, name, json, findings }
}

impl Manifests {
    /// Takes over an object that has passed all checks.
    fn add(&mut self, object: &mut Checked<'_>) {
        let result = match object.kind {
            Kind::Pipeline => typed(object).map(|typed| self.pipelines.push(typed)),
            Kind::IngestRun => typed(object).map(|typed| self.runs.push(typed)),
            Kind::IngestSchedule => typed(object).map(|typed| self.schedules.push(typed)),
            Kind::KafkaConnection => typed(object).map(|typed| self.kafka_connections.push(typed)),
        };
        if let Err(error) = result {
            let place = locate::locate(&object.root, "spec").place;
            object.findings.push(Finding { place, path: "spec".into(), message: error.to_string() });
        }
    }
}

fn typed<T: DeserializeOwned>(object: &mut Checked<'_>) -> Result<Object<T>, serde_json::Error> {
    Ok(Object {
        file: object.source.name.clone(),
        place: object.root.place,
        base_dir: object.source.base_dir.clone(),
        name: object.name.clone().unwrap_or_default(),
        namespace: object.namespace.clone(),
        spec: serde_json::from_value(object.json["spec"].take())?,
    })
}

fn to_problem(source: &Source, finding: Finding) -> Problem {
    Problem { file: source.name.clone(), place: Some(finding.place), path: finding.path, message: finding.message }
}

#[cfg(test)]
mod tests;
