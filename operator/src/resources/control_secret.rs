//! What a publisher is told by: a token that it knows the operator by, and the state that it finds at its start.

use super::{BuildError, job::connector, metadata, owner_reference};
use crate::names;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt;
use penstock_crds::{IngestRun, report::Wanted};

/// Key of the token.
pub const TOKEN: &str = "token";
/// Key of the state.
pub const STATE: &str = "state";

/// The Secret of a connector's attempt; it has the name of its Job. It carries no hash: its state changes in place, and nothing that
/// follows from a token stands anywhere else.
///
/// # Errors
/// There is no such connector.
pub fn build(run: &IngestRun, index: usize, attempt: i32, token: &str, wanted: Wanted) -> Result<Secret, BuildError> {
    let name = run.name_any();
    let connector = connector(run, index)?;
    let labels = names::publisher_labels(&name, &connector.name, &connector.pipeline);
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Ok(Secret {
        metadata: metadata(names::job(&name, index, attempt), run.namespace(), labels, &owner_reference(run)),
        data: Some([(TOKEN.to_owned(), bytes(token)), (STATE.to_owned(), bytes(wanted.as_str()))].into()),
        type_: Some("Opaque".into()),
        ..Secret::default()
    })
}
