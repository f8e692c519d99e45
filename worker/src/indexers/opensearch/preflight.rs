//! What is asked of the cluster before anything is read, so that a wrong setting costs nothing: does it answer, does it take
//! our credentials, is the index there or may it be made, is the ingest pipeline there.

use super::{
    response::error_text,
    send::{Ask, Cluster, NoAnswer, Reply},
};
use crate::indexers::BackendError;
use penstock_crds::{indexers::Operation, values};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use std::time::Duration;

/// Below this, an old write can bring back a document that was deleted: the cluster has forgotten the deletion.
const LEAST_GC_DELETES: Duration = Duration::from_secs(3600);

/// What the checks are about.
pub(super) struct Preflight<'a> {
    pub cluster: &'a Cluster,
    pub index: &'a str,
    pub ingest_pipeline: Option<&'a str>,
    pub operation: Operation,
    pub external_versions: bool,
}

impl Preflight<'_> {
    /// Checks everything that our rights allow to see. What they do not, the first request will show.
    pub async fn run(&self) -> Result<(), BackendError> {
        self.check_cluster().await?;
        if self.index_exists().await? {
            self.check_alias().await?;
            self.warn_of_forgotten_deletions().await?;
        } else {
            self.check_creation().await?;
        }
        self.check_pipeline().await
    }

    async fn check_cluster(&self) -> Result<(), BackendError> {
        let reply = self.get(&[""], &[]).await?;
        match reply.status {
            StatusCode::FORBIDDEN => return Ok(()), // known to the cluster, but may not see this
            StatusCode::UNAUTHORIZED => {
                return Err(wrong(format!("{} does not take our credentials (401); check username and password, or apiKey", reply.node)));
            }
            status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => return Err(unwell(&reply)),
            status if !status.is_success() => {
                return Err(wrong(format!("{} answers {status}: {}; is it the URL of a cluster?", reply.node, error_text(&reply.body))));
            }
            _ => {}
        }
        let about: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        if !about["version"]["number"].is_string() {
            return Err(wrong(format!("{} is not an OpenSearch or Elasticsearch cluster; check the URL", reply.node)));
        }
        Ok(())
    }

    async fn index_exists(&self) -> Result<bool, BackendError> {
        let ask = Ask { method: Method::HEAD, path: &[self.index], query: &[], body: None };
        let reply = self.cluster.ask(ask).await.map_err(unreachable)?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                tracing::warn!(index = self.index, "our rights do not allow to see whether the index exists");
                Ok(true)
            }
            status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => Err(unwell(&reply)),
            status => Err(wrong(format!("{} answers {status} to the question whether index `{}` exists", reply.node, self.index))),
        }
    }

    /// An alias of several indexes needs one that takes the writes.
    async fn check_alias(&self) -> Result<(), BackendError> {
        let Some(indices) = self.see(&["_alias", self.index], &[]).await? else { return Ok(()) };
        let indices: Vec<&Value> = indices.as_object().map(|indices| indices.values().collect()).unwrap_or_default();
        let alias = |index: &Value| index["aliases"][self.index]["is_write_index"].clone();
        let is_alias = indices.iter().all(|index| index["aliases"].get(self.index).is_some());
        if is_alias && indices.len() > 1 && !indices.iter().any(|index| alias(index) == true) {
            return Err(wrong(format!(
                "alias `{}` stands for {} indexes and none of them takes writes; set is_write_index for one",
                self.index,
                indices.len()
            )));
        }
        Ok(())
    }

    /// The index is not there: the cluster must be willing to make it.
    async fn check_creation(&self) -> Result<(), BackendError> {
        let query = [("include_defaults", "true"), ("filter_path", "*.action.auto_create_index")];
        let settings = self.see(&["_cluster", "settings"], &query).await?.unwrap_or_default();
        let setting = ["transient", "persistent", "defaults"]
            .iter()
            .find_map(|level| settings[level]["action"]["auto_create_index"].as_str())
            .unwrap_or("true");
        if !may_create(setting, self.index) {
            return Err(wrong(format!(
                "index `{}` does not exist and the cluster does not make it (action.auto_create_index is {setting}); make it before, for example by a `pre` action",
                self.index
            )));
        }
        if matches!(self.operation, Operation::Update | Operation::Delete) {
            return Err(wrong(format!("index `{}` does not exist, so there is nothing to change or delete in it", self.index)));
        }
        tracing::info!(index = self.index, "the index does not exist; the cluster makes it with the first document");
        Ok(())
    }

    async fn warn_of_forgotten_deletions(&self) -> Result<(), BackendError> {
        if !self.external_versions {
            return Ok(());
        }
        let query = [("include_defaults", "true"), ("filter_path", "*.*.index.gc_deletes")];
        let indices = self.see(&[self.index, "_settings"], &query).await?.unwrap_or_default();
        for (index, span) in forgetful(&indices) {
            tracing::warn!(
                index,
                gc_deletes = %span,
                "the index forgets deletions early: an older version that arrives later brings the document back; set index.gc_deletes to 1h or more"
            );
        }
        Ok(())
    }

    async fn check_pipeline(&self) -> Result<(), BackendError> {
        let Some(pipeline) = self.ingest_pipeline else { return Ok(()) };
        let reply = self.get(&["_ingest", "pipeline", pipeline], &[]).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Err(wrong(format!("ingest pipeline `{pipeline}` does not exist in the cluster")));
        }
        Ok(())
    }

    /// What the cluster says, if it says it.
    async fn see(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Option<Value>, BackendError> {
        let reply = self.get(path, query).await?;
        Ok(reply.status.is_success().then(|| serde_json::from_slice(&reply.body).unwrap_or_default()))
    }

    async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Reply, BackendError> {
        self.cluster.ask(Ask { method: Method::GET, path, query, body: None }).await.map_err(unreachable)
    }
}

/// The indexes that forget deletions too early, by the answer to the question for their settings.
fn forgetful(indices: &Value) -> Vec<(&str, values::Duration)> {
    let span = |settings: &Value| {
        let text = ["settings", "defaults"].iter().find_map(|level| settings[level]["index"]["gc_deletes"].as_str())?;
        serde_json::from_value::<values::Duration>(text.into()).ok()
    };
    let spans = indices.as_object().into_iter().flatten().filter_map(|(index, settings)| Some((index.as_str(), span(settings)?)));
    spans.filter(|(_, span)| span.get() < LEAST_GC_DELETES).collect()
}

/// Whether `action.auto_create_index` lets the cluster make an index: `true`, `false`, or patterns with `+` and `-`, of
/// which the first that fits decides.
fn may_create(setting: &str, index: &str) -> bool {
    match setting {
        "true" => true,
        "false" => false,
        patterns => patterns.split(',').map(str::trim).find_map(|pattern| fits(pattern, index)).unwrap_or(false),
    }
}

fn fits(pattern: &str, index: &str) -> Option<bool> {
    let (yes, pattern) = match pattern.as_bytes().first() {
        Some(b'-') => (false, &pattern[1..]),
        Some(b'+') => (true, &pattern[1..]),
        _ => (true, pattern),
    };
    let glob = globset::Glob::new(pattern).ok()?.compile_matcher();
    glob.is_match(index).then_some(yes)
}

fn unreachable(error: NoAnswer) -> BackendError {
    BackendError { message: format!("the cluster cannot be reached: {error}"), unreachable: true, source: None }
}

fn unwell(reply: &Reply) -> BackendError {
    let message = format!("{} answers {}: {}", reply.node, reply.status, error_text(&reply.body));
    BackendError { message, unreachable: true, source: None }
}

fn wrong(message: String) -> BackendError {
    BackendError { message, unreachable: false, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_index_that_forgets_deletions_within_an_hour_is_named() {
        let indices = json!({
            "usual": {"defaults": {"index": {"gc_deletes": "60s"}}},
            "patient": {"settings": {"index": {"gc_deletes": "2h"}}, "defaults": {}},
            "unknown": {"settings": {"index": {"gc_deletes": "1d"}}},
        });
        assert_eq!(forgetful(&indices), [("usual", values::Duration::from_secs(60))]);
        assert!(forgetful(&Value::Null).is_empty());
    }

    #[test]
    fn the_first_pattern_that_fits_decides_whether_an_index_may_be_made() {
        for (setting, index, expected) in [
            ("true", "a", true),
            ("false", "a", false),
            ("logs-*", "logs-1", true),
            ("logs-*", "products", false),
            ("-logs-*,+*", "logs-1", false),
            ("-logs-*, +*", "products", true),
        ] {
            assert_eq!(may_create(setting, index), expected, "{setting} {index}");
        }
    }
}
