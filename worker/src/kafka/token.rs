//! Tokens for OAUTHBEARER: the client credentials flow of OpenID Connect.

use super::error::KafkaError;
use crate::{
    http::{self, HttpOptions},
    secrets::{SecretText, Secrets},
};
use penstock_crds::kafka_connection::Oauth;
use rdkafka::{client::OAuthToken, util::current_time_millis};
use serde::Deserialize;
use std::time::Duration;

/// Time for one request.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a token is taken to be good if the provider does not say it.
const DEFAULT_LIFETIME_SECONDS: i64 = 300;

/// Where tokens come from.
pub struct TokenSource {
    client: reqwest::Client,
    endpoint: String,
    id: SecretText,
    secret: SecretText,
    scope: Option<String>,
}

/// No token could be had.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There was no answer.
    #[error("{endpoint} cannot be asked for a token: {reason}")]
    Unreachable {
        /// The URL of the endpoint.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// The answer was no.
    #[error("{endpoint} gives no token: status {status} {code}")]
    Refused {
        /// The URL of the endpoint.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The code of the error by OAuth, such as `invalid_client`.
        code: String,
    },
    /// The answer cannot be understood.
    #[error("{endpoint} answers without an access_token")]
    NoToken {
        /// The URL of the endpoint.
        endpoint: String,
    },
    /// No thread could be started.
    #[error("no thread could be started to ask for a token")]
    Thread,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Answer {
    access_token: Option<String>,
    expires_in: Option<i64>,
    error: Option<String>,
}

impl TokenSource {
    /// Resolves the credentials; asks nobody yet. The endpoint's certificate is checked with the system's authorities.
    pub fn new(oauth: &Oauth, secrets: &Secrets) -> Result<Self, KafkaError> {
        let options = HttpOptions { timeout: LIMIT, connect_timeout: LIMIT, ..HttpOptions::default() };
        Ok(Self {
            client: http::client(&options)?,
            endpoint: oauth.token_endpoint.clone(),
            id: secrets.resolve(&oauth.client_id)?,
            secret: secrets.resolve(&oauth.client_secret)?,
            scope: oauth.scope.clone(),
        })
    }

    /// Asks for a token.
    pub fn fetch(&self) -> Result<OAuthToken, TokenError> {
        block_on(self.ask()).unwrap_or(Err(TokenError::Thread))
    }

    async fn ask(&self) -> Result<OAuthToken, TokenError> {
        let endpoint = self.endpoint.clone();
        let mut body = url_encoded("grant_type", "client_credentials");
        if let Some(scope) = &self.scope {
            body = format!("{body}&{}", url_encoded("scope", scope));
        }
        let request = self.client.post(&endpoint).basic_auth(encode(self.id.expose()), Some(encode(self.secret.expose())));
        let request = request.header("Content-Type", "application/x-www-form-urlencoded").header("Accept", "application/json");
        let unreachable = |error: reqwest::Error| TokenError::Unreachable { endpoint: endpoint.clone(), reason: http::chain(&error) };
        let response = request.body(body).send().await.map_err(unreachable)?;
        let status = response.status();
        let answer: Answer = response.json().await.unwrap_or_default();
        if !status.is_success() {
            return Err(TokenError::Refused { endpoint, status: status.as_u16(), code: answer.error.unwrap_or_default() });
        }
        let token = answer.access_token.ok_or(TokenError::NoToken { endpoint })?;
        let lifetime = answer.expires_in.unwrap_or(DEFAULT_LIFETIME_SECONDS).saturating_mul(1000);
        Ok(OAuthToken { token, principal_name: self.id.expose().to_owned(), lifetime_ms: current_time_millis().saturating_add(lifetime) })
    }
}

/// Waits for something of the network, on a thread of its own: callbacks of the Kafka client may run within a runtime.
pub fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> Option<T> {
    let run = || Some(tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?.block_on(future));
    std::thread::scope(|scope| std::thread::Builder::new().name("kafka-ask".into()).spawn_scoped(scope, run).ok()?.join().ok()?)
}

fn url_encoded(name: &str, value: &str) -> String {
    format!("{name}={}", encode(value))
}

/// `application/x-www-form-urlencoded`, which OAuth also wants for id and secret.
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_forms_are_encoded() {
        assert_eq!(url_encoded("scope", "a b:c/ü"), "scope=a%20b%3Ac%2F%C3%BC");
    }
}
