//! Files that a run would use for two things at once. One use would spoil the other: what is renamed into place takes away
//! what was added there before, and who reads what he writes comes to no end.

use crate::{
    connectors::file_paths,
    context::resolve,
    manifest::{Manifests, Object},
};
use penstock_crds::{IngestRunSpec, PipelineSpec, indexers::IndexerKind, stages::StageKind};
use std::path::{Path, PathBuf};

/// What a file is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Input,
    Capture,
    /// The output of a backend of this kind.
    Output(&'static str),
    DeadLetter,
}

/// One use of one file.
#[derive(Clone, Debug)]
struct Use {
    file: PathBuf,
    role: Role,
    /// Which connector of the run it is, from 0.
    step: usize,
    what: String,
}

/// What is wrong with the files of a run: each pair of uses that cannot share a file, with its cure. Looks at links and
/// folders, opens nothing. Files behind patterns and directories are not known before the run.
pub fn shared_files(manifests: &Manifests, run: &Object<IngestRunSpec>, dead_letter: &Path) -> Vec<String> {
    let mut uses = Vec::new();
    for (step, connector) in run.spec.connectors.iter().enumerate() {
        for path in file_paths(connector) {
            let what = format!("connector `{}` reads", connector.name);
            uses.extend(use_of(&run.base_dir, &path, Role::Input, step, what));
        }
        if let Some(pipeline) = manifests.pipeline(&run.namespace, &connector.pipeline) {
            let fill = |path: &str| path.replace("{run}", &run.name).replace("{connector}", &connector.name);
            uses.extend(uses_of_pipeline(pipeline, step, fill));
        }
    }
    uses.extend(use_of(
        Path::new(""),
        &dead_letter.to_string_lossy(),
        Role::DeadLetter,
        0,
        "the dead letter (--dead-letter) is written to".into(),
    ));
    let mut messages = Vec::new();
    for (index, first) in uses.iter().enumerate() {
        for second in uses[index + 1..].iter().filter(|second| second.file == first.file && collide(first, second)) {
            let file = first.file.display();
            let message = format!("{} the file that {} as well: {file}; give each a file of its own", first.what, second.what);
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
    }
    messages
}

fn uses_of_pipeline(pipeline: &Object<PipelineSpec>, step: usize, fill: impl Fn(&str) -> String) -> Vec<Use> {
    let mut uses = Vec::new();
    for (index, stage) in pipeline.spec.stages.iter().enumerate() {
        if let StageKind::Capture(capture) = &stage.kind
            && let Some(path) = &capture.path
        {
            let what = format!("stage `{}` of pipeline `{}` writes", stage.display_name(index), pipeline.name);
            uses.extend(use_of(&pipeline.base_dir, &fill(path), Role::Capture, step, what));
        }
    }
    let kind = &pipeline.spec.indexer.kind;
    let path = match kind {
        IndexerKind::Csv(file) => &file.path,
        IndexerKind::JsonLines(file) => &file.path,
        IndexerKind::Embedded(index) => &index.path,
        IndexerKind::Elasticsearch(_) | IndexerKind::Nop(_) | IndexerKind::Opensearch(_) => return uses,
    };
    let what = format!("the indexer of pipeline `{}` writes", pipeline.name);
    uses.extend(use_of(&pipeline.base_dir, path, Role::Output(kind.key()), step, what));
    uses
}

/// The use of a file; nothing for pipes and devices, which take what they are given.
fn use_of(base_dir: &Path, path: &str, role: Role, step: usize, what: String) -> Option<Use> {
    let file = real_path(&resolve(base_dir, path));
    let is_special = file.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
    (!is_special).then_some(Use { file, role, step, what })
}

/// Where a file is or would be, without links.
fn real_path(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent().and_then(|parent| parent.canonicalize().ok()), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// Whether two uses of one file spoil each other. A later step may read what an earlier one has written.
fn collide(first: &Use, second: &Use) -> bool {
    match (&first.role, &second.role) {
        (Role::Input, Role::Input) | (Role::Capture, Role::Capture) => false,
        (Role::Input, Role::Capture | Role::Output(_)) => first.step <= second.step,
        (Role::Capture | Role::Output(_), Role::Input) => second.step <= first.step,
        (Role::Output(one), Role::Output(other)) => one != other,
        (Role::Capture, Role::Output(_)) | (Role::Output(_), Role::Capture) => true,
        (Role::DeadLetter, _) | (_, Role::DeadLetter) => true,
    }
}
