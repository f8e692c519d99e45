//! What a publisher is told by: a token that it knows us by, and the state that it finds at its start.

use super::{metadata, owner_reference};
use crate::names;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt;
use penstock_crds::IngestRun;

/// Key of the token.
pub const TOKEN: &str = "token";
/// Key of the state.
pub const STATE: &str = "state";

/// The Secret of a Job, which has its name.
pub fn build(run: &IngestRun, job: &str, token: &str, state: &str) -> Secret {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: metadata(job.to_owned(), run.namespace(), names::run_labels(&run.name_any()), &owner_reference(run)),
        data: Some([(TOKEN.to_owned(), bytes(token)), (STATE.to_owned(), bytes(state))].into()),
        type_: Some("Opaque".into()),
        ..Secret::default()
    }
}
