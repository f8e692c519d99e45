//! What every component of a step may know about the run it works for.

use crate::secrets::Secrets;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;

/// One step of a run: a connector and the pipeline that it feeds.
#[derive(Clone, Debug)]
pub struct StepContext {
    /// Name of the run.
    pub run: String,
    /// Unique id of this execution of the run.
    pub run_id: String,
    /// Name of the connector.
    pub connector: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Where relative paths of the pipeline's manifest start.
    pub base_dir: PathBuf,
    /// Where relative paths of the run's manifest, with its connectors, start.
    pub run_base_dir: PathBuf,
    /// Where credentials come from.
    pub secrets: Secrets,
    /// For components that wait on the network from a thread of their own.
    pub runtime: tokio::runtime::Handle,
    /// Cancelled when the step must end at once.
    pub stop: CancellationToken,
    /// Documents go on flowing after a step, and a crash must not lose what was answered: a backend makes each request durable at
    /// once instead of all of them at the end.
    pub is_continuous: bool,
    /// Files that earlier steps of this run have written: a later step appends to them.
    pub written: Arc<parking_lot::Mutex<HashSet<PathBuf>>>,
}

impl StepContext {
    /// A path of the manifest: as it is if absolute, else below the manifest's folder.
    pub fn resolve(&self, path: &str) -> PathBuf {
        resolve(&self.base_dir, path)
    }

    /// A text of the manifest with `{run}`, `{runId}` and `{connector}` replaced.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{runId}", &self.run_id).replace("{run}", &self.run).replace("{connector}", &self.connector)
    }
}

/// A path of a manifest in that folder.
pub fn resolve(base_dir: &Path, path: &str) -> PathBuf {
    base_dir.join(path)
}
