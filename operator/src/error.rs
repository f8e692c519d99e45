//! What can go wrong while an object is reconciled, and what is done about it.

use crate::resources::BuildError;
use std::time::Duration;

/// A reconcile that could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a request, or did not answer.
    #[error("failed to {action} {object}")]
    Api {
        /// What was tried: `apply`, `delete`, `read`.
        action: &'static str,
        /// Kind and name, for example `Deployment shop/products-worker`.
        object: String,
        /// What the server, or the way to it, said.
        source: Box<kube::Error>,
    },
    /// An object cannot be built out of what the user gave.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The stored object cannot be read by this build.
    #[error("{kind} {name} cannot be read: {reason}; apply the CustomResourceDefinitions of this version")]
    Unreadable {
        /// Its kind.
        kind: String,
        /// Namespace and name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The system gives no randomness for a token.
    #[error("failed to make a token: {0}")]
    Token(String),
}

/// What kind of trouble it is: decides when it is tried again, and is a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Somebody else wrote in between: try again at once.
    Conflict,
    /// The operator has not the rights: somebody must give them.
    Forbidden,
    /// It cannot work before somebody changes the object.
    Invalid,
    /// The API server is busy or away.
    Transient,
}

impl ErrorClass {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Forbidden => "forbidden",
            Self::Invalid => "invalid",
            Self::Transient => "transient",
        }
    }

    /// How long to wait after so many failures in a row, this one included.
    pub fn wait(self, failures: u32) -> Duration {
        const LONGEST: Duration = Duration::from_secs(300);
        let doubling = |first: Duration| first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(LONGEST);
        match self {
            // a finalizer that waits minutes for its removal is what people complain about
            Self::Conflict if failures <= 3 => Duration::from_millis(100),
            Self::Conflict | Self::Transient => doubling(Duration::from_secs(1)),
            Self::Forbidden => doubling(Duration::from_secs(10)),
            Self::Invalid => LONGEST,
        }
    }
}

impl Error {
    /// A request to the API server failed.
    pub fn api(action: &'static str, object: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { action, object: object.into(), source: Box::new(source) }
    }

    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => match status.code {
                    409 => ErrorClass::Conflict,
                    401 | 403 => ErrorClass::Forbidden,
                    400 | 422 => ErrorClass::Invalid,
                    _ => ErrorClass::Transient,
                },
                _ => ErrorClass::Transient,
            },
            Self::Build(_) | Self::Unreadable { .. } => ErrorClass::Invalid,
            Self::Token(_) => ErrorClass::Transient,
        }
    }

    /// The message with all of its causes.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let more = error.to_string();
            // transparent layers repeat what stands there already
            if !text.contains(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            cause = error.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> Error {
        let status = kube::core::Status { code, message: format!("refused with {code}"), ..Default::default() };
        Error::api("apply", "Deployment shop/products-worker", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn the_class_follows_from_the_answer_and_decides_how_long_to_wait() {
        for (code, class, first, tenth) in [
            (409, ErrorClass::Conflict, 100, 300_000),
            (403, ErrorClass::Forbidden, 10_000, 300_000),
            (422, ErrorClass::Invalid, 300_000, 300_000),
            (500, ErrorClass::Transient, 1_000, 300_000),
            (429, ErrorClass::Transient, 1_000, 300_000),
        ] {
            let found = refused(code).class();
            assert_eq!(found, class, "{code}");
            assert_eq!(found.wait(1), Duration::from_millis(first), "{code}");
            assert_eq!(found.wait(10), Duration::from_millis(tenth), "{code}");
        }
    }

    #[test]
    fn the_message_names_the_object_and_all_causes() {
        let text = refused(500).chain();
        assert!(text.starts_with("failed to apply Deployment shop/products-worker: "), "{text}");
        assert!(text.contains("refused with 500"), "{text}");
    }
}
