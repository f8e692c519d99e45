//! What is wrong with the certificate of a broker. The Kafka client says only that it could not be verified.

use super::{connection::Transport, error::TlsFault};
use crate::http::{self, ClientCertificate, HttpOptions};
use std::time::Duration;

/// Time for one look.
const LIMIT: Duration = Duration::from_secs(5);

/// Shakes hands once more, with our own TLS, which says why not. Nothing but the handshake is of interest: a broker does not
/// understand the request that comes after it.
pub fn tls_fault(broker: &str, transport: &Transport) -> TlsFault {
    let own = transport.certificate.clone().zip(transport.key.clone());
    let options = HttpOptions {
        ca: transport.ca.clone(),
        client_certificate: own.map(|(certificate, key)| ClientCertificate { certificate, key }),
        timeout: LIMIT,
        connect_timeout: LIMIT,
        ..HttpOptions::default()
    };
    let Ok(client) = http::client(&options) else { return TlsFault::Other };
    let answer = super::token::block_on(async { client.get(format!("https://{broker}/")).send().await });
    match answer {
        Some(Err(error)) => classify(&http::chain(&error)),
        _ => TlsFault::Other,
    }
}

fn classify(reason: &str) -> TlsFault {
    let reason = reason.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    match () {
        () if says(&["expired", "notvalidyet"]) => TlsFault::Expired,
        () if says(&["not valid for name", "notvalidforname", "name mismatch"]) => TlsFault::OtherName,
        () if says(&["unknownissuer", "unknown issuer", "unknownca", "not trusted", "self-signed", "self signed"]) => {
            TlsFault::UnknownAuthority
        }
        () => TlsFault::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found_in_the_words_of_tls() {
        for (reason, want) in [
            ("error sending request: invalid peer certificate: certificate expired: verified at time 1", TlsFault::Expired),
            ("invalid peer certificate: UnknownIssuer", TlsFault::UnknownAuthority),
            ("invalid peer certificate: certificate not valid for name \"localhost\"; it is only valid for …", TlsFault::OtherName),
            ("connection closed before message completed", TlsFault::Other),
        ] {
            assert_eq!(classify(reason), want, "{reason}");
        }
    }
}
