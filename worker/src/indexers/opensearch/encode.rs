//! A document as operations of the bulk API: one line that says what is done, and one with the fields unless it deletes.

use crate::{
    document::Document,
    indexers::{Projection, Rejected, write_json_text, write_number},
};
use penstock_crds::indexers::Operation;

/// What the cluster takes as an id, in bytes.
const LONGEST_ID: usize = 512;
/// Changes from outside that an update may meet; the cluster repeats it as often.
const UPDATE_CONFLICTS: u64 = 3;

/// Writes operations.
#[derive(Debug)]
pub(super) struct Encoder {
    pub projection: Projection,
    pub operation: Operation,
}

impl Encoder {
    /// Appends the operation for a document. Nothing is appended if it is rejected.
    pub fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        let operation = if self.projection.deletes(document) { Operation::Delete } else { self.operation };
        let id = self.projection.id(document)?;
        if id.len() > LONGEST_ID {
            return Err(Rejected(format!("the id has {} bytes, and the cluster takes {LONGEST_ID} at most", id.len())));
        }
        let index = self.projection.index(document)?;
        let routing = self.projection.routing(document)?;
        let version = self.projection.version(document)?;

        body.extend_from_slice(match operation {
            Operation::Index => br#"{"index":{"_id":"#,
            Operation::Create => br#"{"create":{"_id":"#,
            Operation::Update | Operation::Upsert => br#"{"update":{"_id":"#,
            Operation::Delete => br#"{"delete":{"_id":"#,
        });
        write_json_text(&id, body);
        write_text(br#","_index":"#, index.as_deref(), body);
        write_text(br#","routing":"#, routing.as_deref(), body);
        if let Some(version) = version {
            body.extend_from_slice(br#","version_type":"external","version":"#);
            write_number(version, body);
        }
        if matches!(operation, Operation::Update | Operation::Upsert) {
            body.extend_from_slice(br#","retry_on_conflict":"#);
            write_number(UPDATE_CONFLICTS, body);
        }
        body.extend_from_slice(b"}}\n");
        self.write_fields(operation, document, body);
        Ok(())
    }

    fn write_fields(&self, operation: Operation, document: &Document, body: &mut Vec<u8>) {
        let (before, after): (&[u8], &[u8]) = match operation {
            Operation::Delete => return,
            Operation::Index | Operation::Create => (b"", b"\n"),
            Operation::Update => (br#"{"doc":"#, b"}\n"),
            Operation::Upsert => (br#"{"doc":"#, b",\"doc_as_upsert\":true}\n"),
        };
        body.extend_from_slice(before);
        self.projection.write_json(document, None, body);
        body.extend_from_slice(after);
    }
}

fn write_text(key: &[u8], value: Option<&str>, body: &mut Vec<u8>) {
    if let Some(value) = value {
        body.extend_from_slice(key);
        write_json_text(value, body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Fields;
    use penstock_crds::indexers::Indexer;

    fn encoded(operation: Operation, settings: &str, id: &str, json: &str) -> Result<String, Rejected> {
        let spec: Indexer = serde_json::from_str(&format!(r#"{{"nop":{{}}{settings}}}"#)).expect(settings);
        let encoder = Encoder { projection: Projection::new(&spec, "run-1").expect(settings), operation };
        let mut body = Vec::new();
        encoder.encode(&Document::with_fields(id, Fields::from_json(json.as_bytes()).expect(json)), &mut body)?;
        Ok(String::from_utf8(body).expect("utf-8"))
    }

    #[test]
    fn every_operation_has_its_lines() {
        for (operation, settings, json, expected) in [
            (Operation::Index, "", r#"{"a":1}"#, "{\"index\":{\"_id\":\"d\\\"1\"}}\n{\"a\":1}\n"),
            (Operation::Create, "", r#"{"a":1}"#, "{\"create\":{\"_id\":\"d\\\"1\"}}\n{\"a\":1}\n"),
            (Operation::Update, "", r#"{"a":1}"#, "{\"update\":{\"_id\":\"d\\\"1\",\"retry_on_conflict\":3}}\n{\"doc\":{\"a\":1}}\n"),
            (
                Operation::Upsert,
                "",
                r#"{"a":1}"#,
                "{\"update\":{\"_id\":\"d\\\"1\",\"retry_on_conflict\":3}}\n{\"doc\":{\"a\":1},\"doc_as_upsert\":true}\n",
            ),
            (Operation::Delete, "", r#"{"a":1}"#, "{\"delete\":{\"_id\":\"d\\\"1\"}}\n"),
            (Operation::Upsert, r#","deletion":{"field":"gone"}"#, r#"{"gone":true}"#, "{\"delete\":{\"_id\":\"d\\\"1\"}}\n"),
            (
                Operation::Index,
                r#","indexField":"to","routingField":"r","versioning":"External","versionField":"v","includeFields":["a"]"#,
                r#"{"a":1,"to":"other","r":7,"v":12}"#,
                "{\"index\":{\"_id\":\"d\\\"1\",\"_index\":\"other\",\"routing\":\"7\",\"version_type\":\"external\",\"version\":12}}\n{\"a\":1}\n",
            ),
        ] {
            assert_eq!(encoded(operation, settings, "d\"1", json).expect(json), expected);
        }
    }

    #[test]
    fn an_id_that_the_cluster_cannot_take_is_rejected_with_the_limit() {
        assert!(encoded(Operation::Index, "", &"x".repeat(512), "{}").is_ok());
        let rejected = encoded(Operation::Index, "", &"ü".repeat(257), "{}").expect_err("too long");
        assert_eq!(rejected.0, "the id has 514 bytes, and the cluster takes 512 at most");
    }
}
