//! HTTP clients, all built alike: TLS verified, a name of our own, no redirects followed, time limits.

use crate::secrets::SecretText;
use std::time::Duration;

/// What the server sees as `User-Agent`.
pub const USER_AGENT: &str = concat!("penstock/", env!("CARGO_PKG_VERSION"));

/// How a client connects.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Certificate authorities of the server, as PEM: only these are trusted. Without them the system's.
    pub ca: Option<SecretText>,
    /// What we show to a server that asks who we are.
    pub client_certificate: Option<ClientCertificate>,
    /// Take any certificate of the server. Anybody in between can then read and change everything.
    pub insecure: bool,
    /// Time for one request, answer included.
    pub timeout: Duration,
    /// Time to connect.
    pub connect_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            ca: None,
            client_certificate: None,
            insecure: false,
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A certificate of our own and its key, both as PEM.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The certificate, or the chain of them.
    pub certificate: SecretText,
    /// The private key.
    pub key: SecretText,
}

/// A client that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The text of the certificate authorities is none.
    #[error("the certificate authority is not a PEM certificate; it must begin with -----BEGIN CERTIFICATE-----")]
    Ca(#[source] Option<reqwest::Error>),
    /// The client certificate or its key cannot be used.
    #[error("the client certificate and its key cannot be used; both must be PEM, the key without a password")]
    ClientCertificate(#[source] reqwest::Error),
    /// The client as a whole.
    #[error("failed to set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// Builds a client.
///
/// Redirects are not followed: they would turn a POST into a GET, and carry credentials to where nobody wanted them.
///
/// # Errors
/// A certificate or key cannot be used.
pub fn client(options: &HttpOptions) -> Result<reqwest::Client, HttpError> {
    let builder = || {
        reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(options.timeout)
            .connect_timeout(options.connect_timeout)
            .tls_danger_accept_invalid_certs(options.insecure)
    };
    let own = options.client_certificate.as_ref().map(identity).transpose()?;
    let with_own = |builder: reqwest::ClientBuilder| match &own {
        Some(own) => builder.identity(own.clone()),
        None => builder,
    };
    if let Some(ca) = &options.ca {
        return with_own(builder().tls_certs_only(authorities(ca)?)).build().map_err(HttpError::Client);
    }
    with_own(builder()).build().or_else(|error| {
        // a system without certificate authorities, a small container for example: plain HTTP must work there
        let client = with_own(builder().tls_certs_only([])).build().map_err(HttpError::Client)?;
        tracing::warn!(error = %error, "the system's certificate authorities cannot be used; https needs a `ca`");
        Ok(client)
    })
}

fn authorities(ca: &SecretText) -> Result<Vec<reqwest::Certificate>, HttpError> {
    let certificates = reqwest::Certificate::from_pem_bundle(ca.expose().as_bytes()).map_err(|error| HttpError::Ca(Some(error)))?;
    if certificates.is_empty() { Err(HttpError::Ca(None)) } else { Ok(certificates) }
}

fn identity(own: &ClientCertificate) -> Result<reqwest::Identity, HttpError> {
    let pem = format!("{}\n{}", own.certificate.expose(), own.key.expose());
    reqwest::Identity::from_pem(pem.as_bytes()).map_err(HttpError::ClientCertificate)
}

/// An error with all that lies beneath it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(beneath) = source {
        let beneath_text = beneath.to_string();
        if !text.contains(&beneath_text) {
            text = format!("{text}: {beneath_text}");
        }
        source = beneath.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_pem_is_refused_without_repeating_it() {
        let options = |ca: Option<&str>, own: Option<(&str, &str)>| HttpOptions {
            ca: ca.map(SecretText::from),
            client_certificate: own.map(|(certificate, key)| ClientCertificate { certificate: certificate.into(), key: key.into() }),
            ..HttpOptions::default()
        };
        assert!(client(&options(None, None)).is_ok());
        let error = client(&options(Some("topsecret"), None)).expect_err("no certificate");
        assert!(matches!(error, HttpError::Ca(_)), "{error}");
        let error = client(&options(None, Some(("topsecret", "topsecret")))).expect_err("no certificate");
        assert!(matches!(error, HttpError::ClientCertificate(_)), "{error}");
        assert!(!format!("{error:?}").contains("topsecret"));
    }

    #[test]
    fn a_client_is_built() {
        assert!(client(&HttpOptions::default()).is_ok());
    }

    #[test]
    fn a_system_without_certificates_still_has_clients() {
        let tests = std::env::current_exe().expect("this program");
        let status = std::process::Command::new(tests)
            .args(["--exact", "http::tests::a_client_is_built"])
            .envs([("SSL_CERT_FILE", "/nonexistent"), ("SSL_CERT_DIR", "/nonexistent")])
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.expect("run").success());
    }
}
