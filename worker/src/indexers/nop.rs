//! The backend that writes nothing: it takes every document. For measuring and trying out.

use super::{Answer, Backend, BackendError, Needs, Rejected, Request};
use crate::document::Document;
use async_trait::async_trait;

/// Takes everything and keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nop;

#[async_trait]
impl Backend for Nop {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    async fn check(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn encode(&self, _document: &Document, _body: &mut Vec<u8>) -> Result<(), Rejected> {
        Ok(())
    }

    async fn send(&self, _request: &Request, _items: &[u32]) -> Answer {
        Answer::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::indexers::compliance::{self, Case, Visible};
    use std::{path::Path, sync::Arc};

    impl Case for Nop {
        fn backend(&self, _folder: &Path) -> Arc<dyn Backend> {
            Arc::new(Nop)
        }
        fn visible(&self, _folder: &Path) -> Visible {
            Visible::Nothing
        }
    }

    #[test]
    fn is_a_backend_like_the_others() {
        compliance::run(&Nop);
    }
}
