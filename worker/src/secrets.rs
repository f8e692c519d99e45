//! Credentials by reference: from a directory or the environment, never from a manifest, never into a log.

use penstock_crds::values::{Credential, SecretKeyRef};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
};

/// Where the values of Secrets are read from.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    directory: Option<PathBuf>,
    /// By name and key; if there are any, nothing is read from elsewhere.
    given: Option<BTreeMap<(String, String), SecretText>>,
}

/// A secret that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It is nowhere.
    #[error("secret `{name}`, key `{key}`: set {variable}, or put it into the file {name}/{key} below --secrets-dir")]
    Missing {
        /// Name of the Secret.
        name: String,
        /// Key in the Secret.
        key: String,
        /// The environment variable that would hold it.
        variable: String,
    },
    /// It is not among those that were given.
    #[error("secret `{name}` has no key `{key}`, or there is no such Secret in the namespace")]
    NotGiven {
        /// Name of the Secret.
        name: String,
        /// Key in the Secret.
        key: String,
    },
    /// Its name or key would lead out of the directory.
    #[error("secret `{name}`, key `{key}`: a path is no name; write the name of the Secret and its key, without `/` and `..`")]
    NoName {
        /// Name of the Secret.
        name: String,
        /// Key in the Secret.
        key: String,
    },
    /// Its file cannot be read.
    #[error("secret `{name}`, key `{key}`: failed to read {}", path.display())]
    Unreadable {
        /// Name of the Secret.
        name: String,
        /// Key in the Secret.
        key: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The value of a secret. Prints as stars.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The value itself, to hand it to a client.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Secrets {
    /// Reads `DIR/NAME/KEY` first, if there is a directory, then the environment.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, given: None }
    }

    /// These, by name and key, and no others.
    pub fn given(secrets: BTreeMap<(String, String), SecretText>) -> Self {
        Self { directory: None, given: Some(secrets) }
    }

    /// The value of a credential. One line break at its end is not part of it.
    ///
    /// # Errors
    /// The secret is nowhere, or its file cannot be read.
    pub fn resolve(&self, credential: &Credential) -> Result<SecretText, SecretError> {
        let SecretKeyRef { name, key } = &credential.value_from.secret_key_ref;
        // validation refuses it too, but nothing may ever be read elsewhere
        if !is_file_name(name) || !is_file_name(key) {
            return Err(SecretError::NoName { name: name.clone(), key: key.clone() });
        }
        if let Some(given) = &self.given {
            let found = given.get(&(name.clone(), key.clone())).map(|text| SecretText(without_line_break(text.0.clone())));
            return found.ok_or_else(|| SecretError::NotGiven { name: name.clone(), key: key.clone() });
        }
        if let Some(directory) = &self.directory {
            let path = directory.join(name).join(key);
            match std::fs::read_to_string(&path) {
                Ok(text) => return Ok(SecretText(without_line_break(text))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(SecretError::Unreadable { name: name.clone(), key: key.clone(), path, source }),
            }
        }
        let variable = variable(name, key);
        match std::env::var(&variable) {
            Ok(text) => Ok(SecretText(without_line_break(text))),
            Err(_) => Err(SecretError::Missing { name: name.clone(), key: key.clone(), variable }),
        }
    }
}

fn is_file_name(text: &str) -> bool {
    let mut components = Path::new(text).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(name)), None) if name == text)
}

/// `PENSTOCK_SECRET_<NAME>_<KEY>` in upper case, all other characters `_`.
fn variable(name: &str, key: &str) -> String {
    let word = |text: &str| text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect::<String>();
    format!("PENSTOCK_SECRET_{}_{}", word(name), word(key))
}

fn without_line_break(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_crds::values::CredentialSource;

    fn credential(name: &str, key: &str) -> Credential {
        Credential { value_from: CredentialSource { secret_key_ref: SecretKeyRef { name: name.into(), key: key.into() } } }
    }

    #[test]
    fn of_secrets_that_were_given_no_other_one_is_found_elsewhere() {
        let secrets = Secrets::given([(("os".into(), "password".into()), "a\n".into())].into());
        assert_eq!(secrets.resolve(&credential("os", "password")).expect("given").expose(), "a");
        let error = secrets.resolve(&credential("os", "user")).expect_err("not given");
        assert_eq!(error.to_string(), "secret `os` has no key `user`, or there is no such Secret in the namespace");
    }

    #[test]
    fn a_secret_is_read_from_its_file_without_the_last_line_break() {
        let directory = tempfile::tempdir().expect("directory");
        std::fs::create_dir(directory.path().join("os")).expect("directory");
        std::fs::write(directory.path().join("os/password"), "a b\n\n").expect("file");
        let secrets = Secrets::new(Some(directory.path().into()));
        let value = secrets.resolve(&credential("os", "password")).expect("value");
        assert_eq!((value.expose(), format!("{value:?}")), ("a b\n", "***".to_owned()));
    }

    #[test]
    fn nothing_outside_of_the_directory_is_read() {
        let directory = tempfile::tempdir().expect("directory");
        std::fs::create_dir_all(directory.path().join("secrets/os")).expect("directory");
        std::fs::write(directory.path().join("outside"), "outside").expect("file");
        std::fs::write(directory.path().join("secrets/os/inside"), "inside").expect("file");
        let secrets = Secrets::new(Some(directory.path().join("secrets")));
        let absolute = directory.path().to_string_lossy().into_owned();
        for (name, key) in [
            ("..", "outside"),
            ("os", "../../outside"),
            (absolute.as_str(), "outside"),
            ("os/../..", "outside"),
            ("os", "."),
            ("os/", "inside"),
        ] {
            let error = secrets.resolve(&credential(name, key)).expect_err(name);
            assert!(matches!(error, SecretError::NoName { .. }), "{name} {key}: {error}");
        }
        assert_eq!(secrets.resolve(&credential("os", "inside")).expect("value").expose(), "inside");
    }

    #[test]
    fn a_missing_secret_names_the_variable_that_would_hold_it() {
        let error = Secrets::default().resolve(&credential("my.os", "pass-word")).expect_err("missing");
        assert!(error.to_string().contains("PENSTOCK_SECRET_MY_OS_PASS_WORD"), "{error}");
    }
}
