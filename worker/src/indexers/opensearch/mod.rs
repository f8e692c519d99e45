//! OpenSearch and Elasticsearch, by their bulk API.

mod check;
mod encode;
mod preflight;
mod response;
mod send;

pub use check::check;

use super::{Answer, Backend, BackendError, Needs, Projection, Refusal, Rejected, Request};
use crate::{
    context::StepContext,
    document::Document,
    http::{self, ClientCertificate, HttpOptions},
    secrets::{SecretError, SecretText},
};
use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use encode::Encoder;
use penstock_crds::{
    indexers::{Indexer, Opensearch as Spec, TlsTrust, Versioning},
    values::Credential,
};
use preflight::Preflight;
use reqwest::{Method, header::HeaderValue};
use response::Judge;
use send::{Ask, Cluster};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster that takes documents.
#[derive(Debug)]
pub struct Opensearch {
    cluster: Cluster,
    encoder: Encoder,
    judge: Judge,
    index: String,
    ingest_pipeline: Option<String>,
    gzip: bool,
}

impl Opensearch {
    /// Prepares the client; nothing is connected to yet.
    ///
    /// # Errors
    /// A secret is missing, a certificate cannot be used, or a setting is one that [`check`] refuses.
    pub fn new(indexer: &Indexer, spec: &Spec, projection: Projection, context: &StepContext) -> Result<Self, BackendError> {
        let external_versions = indexer.versioning == Some(Versioning::External);
        if external_versions && indexer.version_field.is_none() && !(context.is_continuous && indexer.version_generation.is_some()) {
            let cure = match context.is_continuous {
                true => "`versionField`, or `versionGeneration`: minutes from 2020 to the creation of the topic",
                false => "`versionField`: documents in one process have no other version",
            };
            return Err(wrong(&format!("`versioning: External` needs {cure}")));
        }
        if context.run_id.is_empty() && ["{run}", "{runId}", "{connector}"].iter().any(|name| spec.index.contains(name)) {
            return Err(wrong("its index names the run, but over Kafka an indexer works for all runs: name one index, or use indexField"));
        }
        let secret = |credential: &Option<Credential>| {
            credential.as_ref().map(|credential| context.secrets.resolve(credential)).transpose().map_err(missing)
        };
        let own = match (secret(&spec.client_certificate)?, secret(&spec.client_key)?) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            _ => None,
        };
        let client = http::client(&HttpOptions {
            ca: secret(&spec.ca)?,
            client_certificate: own,
            insecure: spec.tls_trust == TlsTrust::Insecure,
            timeout: spec.timeout.get(),
            connect_timeout: CONNECT_TIMEOUT.min(spec.timeout.get()),
        })
        .map_err(|error| BackendError { message: http::chain(&error), unreachable: false, source: Some(error.into()) })?;
        let authorization = authorization(secret(&spec.username)?, secret(&spec.password)?, secret(&spec.api_key)?)?;
        let urls = spec.urls.iter().map(|url| check::node_url(url)).collect::<Result<_, _>>().map_err(|fault| wrong(&fault))?;
        Ok(Self {
            cluster: Cluster::new(client, urls, authorization),
            encoder: Encoder { projection, operation: spec.operation },
            judge: Judge { codes: indexer.retry.codes.clone(), external_versions, one_index: indexer.index_field.is_none() },
            index: context.fill(&spec.index),
            ingest_pipeline: spec.ingest_pipeline.clone(),
            gzip: spec.gzip,
        })
    }

    async fn bulk(&self, body: Bytes, compressed: bool) -> Result<send::Reply, send::NoAnswer> {
        let mut query = vec![("filter_path", response::FILTER)];
        query.extend(self.ingest_pipeline.as_deref().map(|pipeline| ("pipeline", pipeline)));
        self.cluster.ask(Ask { method: Method::POST, path: &[&self.index, "_bulk"], query: &query, body: Some((body, compressed)) }).await
    }
}

#[async_trait]
impl Backend for Opensearch {
    fn needs(&self) -> Needs {
        Needs { distinct_ids: true, keep_documents: true }
    }

    async fn check(&self) -> Result<(), BackendError> {
        Preflight {
            cluster: &self.cluster,
            index: &self.index,
            ingest_pipeline: self.ingest_pipeline.as_deref(),
            operation: self.encoder.operation,
            external_versions: self.judge.external_versions,
        }
        .run()
        .await
    }

    fn encode(&self, document: &Document, body: &mut Vec<u8>) -> Result<(), Rejected> {
        self.encoder.encode(document, body)
    }

    async fn send(&self, request: &Request, items: &[u32]) -> Answer {
        let plain = body_of(request, items);
        let bytes = plain.len();
        let body = match self.gzip {
            true => match tokio::task::spawn_blocking(move || send::gzip(&plain)).await {
                Ok(body) => body,
                Err(_) => return Answer::Fatal(wrong("failed to compress a request")),
            },
            false => plain,
        };
        let reply = match self.bulk(body, self.gzip).await {
            Ok(reply) => reply,
            Err(error) => return Answer::Outage(Refusal { reason: error.to_string(), retry_after: None }),
        };
        if reply.status.is_success() {
            return self.judge.items(&reply.node, &reply.body);
        }
        self.judge.refused(&reply.node, reply.status, reply.retry_after, &reply.body, bytes)
    }
}

/// The operations of these items.
fn body_of(request: &Request, items: &[u32]) -> Bytes {
    if items.len() == request.items.len() {
        return Bytes::copy_from_slice(&request.body);
    }
    items.iter().flat_map(|item| request.part(*item)).copied().collect()
}

fn authorization(
    username: Option<SecretText>,
    password: Option<SecretText>,
    api_key: Option<SecretText>,
) -> Result<Option<HeaderValue>, BackendError> {
    let text = match (username, password, api_key) {
        (Some(username), Some(password), _) => {
            format!("Basic {}", STANDARD.encode(format!("{}:{}", username.expose(), password.expose())))
        }
        (_, _, Some(key)) => format!("ApiKey {}", key.expose()),
        _ => return Ok(None),
    };
    let mut header = HeaderValue::from_str(&text).map_err(|_| wrong("the apiKey has characters that a header cannot have"))?;
    header.set_sensitive(true);
    Ok(Some(header))
}

fn missing(error: SecretError) -> BackendError {
    BackendError { message: error.to_string(), unreachable: false, source: Some(error.into()) }
}

fn wrong(message: &str) -> BackendError {
    BackendError { message: message.to_owned(), unreachable: false, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Tag, indexers::Item};

    #[test]
    fn any_selection_of_items_can_be_sent_again() {
        let mut request = Request { body: b"a\nbb\nccc\n".to_vec(), ..Request::default() };
        for (id, end) in [("a", 2), ("b", 5), ("c", 9)] {
            request.items.push(Item { tag: Tag::source(1), id: id.into(), end });
        }
        assert_eq!(&body_of(&request, &[0, 1, 2])[..], b"a\nbb\nccc\n");
        assert_eq!(&body_of(&request, &[0, 2])[..], b"a\nccc\n");
        assert_eq!(&body_of(&request, &[1])[..], b"bb\n");
    }

    #[test]
    fn credentials_do_not_show() {
        let header = authorization(Some("user".into()), Some("topsecret".into()), None).expect("header").expect("some");
        assert_eq!(header, "Basic dXNlcjp0b3BzZWNyZXQ=");
        assert!(!format!("{header:?}").contains("dXNl"));
        let error = authorization(None, None, Some("top\nsecret".into())).expect_err("line break");
        assert!(!format!("{error:?}").contains("secret"));
    }
}
