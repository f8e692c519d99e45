//! Backends that write documents to a file one after the other. They differ in how a document reads there.

use super::{Answer, Backend, BackendError, Needs, Rejected, Request, output_file::OutputFile};
use crate::document::Document;
use async_trait::async_trait;

/// How a document reads in a file.
pub(super) trait Notation: Send + Sync {
    /// Appends a document, with what ends it.
    ///
    /// # Errors
    /// The document cannot be written; nothing was appended.
    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected>;
}

/// A file in one notation.
#[derive(Debug)]
pub(super) struct FileBackend<N> {
    pub(super) notation: N,
    pub(super) file: OutputFile,
}

#[async_trait]
impl<N: Notation> Backend for FileBackend<N> {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    async fn check(&self) -> Result<(), BackendError> {
        self.file.open()
    }

    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        self.notation.encode(document, body)
    }

    async fn send(&self, request: &Request, items: &[u32]) -> Answer {
        self.file.write(request, items)
    }

    async fn commit(&self) -> Result<(), BackendError> {
        self.file.commit()
    }

    async fn abandon(&self) {
        self.file.abandon();
    }
}
