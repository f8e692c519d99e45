//! From the settings of an indexer to its backend.

use super::{Backend, BackendError, Projection, csv::Csv, json_lines::JsonLines, nop::Nop, opensearch};
use crate::{context::StepContext, document::Path, problem::Problems};
use penstock_crds::indexers::{Indexer, IndexerKind, Versioning};
use std::sync::Arc;

/// Reports everything that is wrong with the settings of an indexer, without opening or reaching anything.
pub fn check(spec: &Indexer, problems: &mut Problems<'_>) {
    check_paths(spec, problems);
    check_retry(spec, problems);
    match &spec.kind {
        IndexerKind::Csv(csv) => {
            check_file(spec, &csv.id_name, problems);
            super::csv::check(csv, &mut problems.below("csv"));
        }
        IndexerKind::JsonLines(lines) => {
            check_file(spec, &lines.id_name, problems);
            super::json_lines::check(lines, &mut problems.below("jsonLines"));
        }
        IndexerKind::Embedded(_) => check_only_for_clusters(spec, problems),
        IndexerKind::Elasticsearch(cluster) | IndexerKind::Opensearch(cluster) => {
            check_versioning(spec, problems);
            opensearch::check(spec, cluster, problems);
        }
        IndexerKind::Nop(_) => {}
    }
}

/// Makes the backend for one step. Nothing is opened before [`Backend::check`].
///
/// # Errors
/// The settings are not those that [`check`] has passed, or the backend is not part of this program.
pub fn build(spec: &Indexer, step: &StepContext) -> Result<Arc<dyn Backend>, BackendError> {
    let wrong = |error: crate::document::PathError| BackendError {
        message: format!("indexer of pipeline `{}`: {error}", step.pipeline),
        unreachable: false,
        source: None,
    };
    let projection = Projection::new(spec, &step.run_id).map_err(wrong)?;
    Ok(match &spec.kind {
        IndexerKind::Csv(csv) => Arc::new(Csv::backend(csv, projection, step).map_err(wrong)?),
        IndexerKind::Elasticsearch(cluster) | IndexerKind::Opensearch(cluster) => {
            Arc::new(opensearch::Opensearch::new(spec, cluster, projection, step)?)
        }
        IndexerKind::JsonLines(lines) => Arc::new(JsonLines::backend(lines, projection, step)),
        IndexerKind::Nop(_) => Arc::new(Nop),
        #[cfg(feature = "embedded")]
        IndexerKind::Embedded(embedded) => Arc::new(super::embedded::Embedded::new(embedded, projection, step)),
        #[cfg(not(feature = "embedded"))]
        IndexerKind::Embedded(_) => return Err(not_part_of_this_program(&spec.kind)),
    })
}

#[cfg(not(feature = "embedded"))]
fn not_part_of_this_program(kind: &IndexerKind) -> BackendError {
    let key = kind.key();
    let message = format!("indexer `{key}`: it is not part of this program; build penstock with the feature `{key}`");
    BackendError { message, unreachable: false, source: None }
}

fn check_paths(spec: &Indexer, problems: &mut Problems<'_>) {
    let deletion = spec.deletion.as_ref().map(|deletion| &deletion.field);
    let fields = [
        ("idField", spec.id_field.as_ref()),
        ("indexField", spec.index_field.as_ref()),
        ("routingField", spec.routing_field.as_ref()),
        ("versionField", spec.version_field.as_ref()),
        ("deletion.field", deletion),
    ];
    for (field, path) in fields {
        if let Some(Err(error)) = path.map(|path| path.parse::<Path>()) {
            problems.add(field, error.to_string());
        }
    }
}

fn check_retry(spec: &Indexer, problems: &mut Problems<'_>) {
    let retry = &spec.retry;
    if retry.max_backoff < retry.initial_backoff {
        let message = format!("maxBackoff ({}) is shorter than initialBackoff ({})", retry.max_backoff, retry.initial_backoff);
        problems.add("retry.maxBackoff", message);
    }
}

fn check_versioning(spec: &Indexer, problems: &mut Problems<'_>) {
    if spec.version_field.is_some() && spec.versioning != Some(Versioning::External) {
        problems.add("versionField", "a version needs `versioning: External`; set it, or remove versionField");
    }
}

/// What a file cannot do: nothing in it can be replaced.
fn check_file(spec: &Indexer, id_name: &str, problems: &mut Problems<'_>) {
    check_only_for_clusters(spec, problems);
    if spec.deletion.is_some() {
        problems.add("deletion", "nothing can be deleted from a file; remove it, and drop such documents by a stage (`drop` with `when`)");
    }
    if spec.run_id_field.as_deref() == Some(id_name) {
        problems.add("runIdField", format!("`{id_name}` receives the id of the document (idName); choose another name for one of both"));
    }
}

fn check_only_for_clusters(spec: &Indexer, problems: &mut Problems<'_>) {
    let key = spec.kind.key();
    for (field, is_set) in [
        ("indexField", spec.index_field.is_some()),
        ("routingField", spec.routing_field.is_some()),
        ("versioning", spec.versioning == Some(Versioning::External)),
        ("versionField", spec.version_field.is_some()),
    ] {
        if is_set {
            problems.add(field, format!("`{key}` has no such thing; remove it, or use opensearch or elasticsearch"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indexers::compliance::step_context;

    fn problems(yaml: &str) -> Vec<String> {
        let spec: Indexer = serde_yaml_ng::from_str(yaml).expect(yaml);
        let mut found = Vec::new();
        check(&spec, &mut Problems::new("indexer", &mut found));
        found.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn all_problems_are_found_at_once_x13() {
        let expected: &[(&str, &[&str])] = &[
            ("{nop: {}, idField: a.b}", &[]),
            ("{nop: {}, idField: a., deletion: {field: ''}}", &["indexer.idField", "indexer.deletion.field"]),
            ("{jsonLines: {path: x}, runIdField: run}", &[]),
            (
                "{jsonLines: {path: x/}, runIdField: id, deletion: {field: gone}}",
                &["indexer.deletion", "indexer.runIdField", "indexer.jsonLines.path"],
            ),
            ("{csv: {path: x, columns: [a.]}, routingField: r}", &["indexer.routingField", "indexer.csv.columns[0]"]),
            ("{embedded: {path: x}, deletion: {field: gone}}", &[]),
            (
                "{embedded: {path: x}, indexField: i, versioning: External, versionField: v}",
                &["indexer.indexField", "indexer.versioning", "indexer.versionField"],
            ),
            (
                "{opensearch: {urls: [localhost 9200, 'http://u:p@h'], index: Bad, operation: Update}, idField: 'a[', versionField: v,
                  versioning: External, retry: {initialBackoff: 30s, maxBackoff: 1s}}",
                &[
                    "indexer.idField",
                    "indexer.retry.maxBackoff",
                    "indexer.opensearch.urls[0]",
                    "indexer.opensearch.urls[1]",
                    "indexer.opensearch.index",
                    "indexer.versioning",
                ],
            ),
            ("{elasticsearch: {urls: ['https://a:9200'], index: 'p-{runId}'}, versionField: v}", &["indexer.versionField"]),
            ("{opensearch: {urls: ['http://a'], index: p, operation: Update}, deletion: {field: gone}, versioning: None}", &[]),
        ];
        for (yaml, paths) in expected {
            assert_eq!(problems(yaml), *paths, "{yaml}");
        }
    }

    #[test]
    fn building_a_backend_touches_nothing_x13() {
        let folder = tempfile::tempdir().expect("folder");
        for yaml in [
            "nop: {}",
            "jsonLines: {path: out/x}",
            "csv: {path: out/x, columns: [a]}",
            "embedded: {path: out/x}",
            "opensearch: {urls: ['http://localhost:9'], index: x}",
        ] {
            let spec: Indexer = serde_yaml_ng::from_str(yaml).expect(yaml);
            build(&spec, &step_context(folder.path())).map(drop).expect(yaml);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    }
}
