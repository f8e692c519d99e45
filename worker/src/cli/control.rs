//! `--control-dir`: what a run is wanted to do. A file says it when the process starts, `PUT /control` says it later.

use crate::{metrics::RunFigures, runner::Control};
use anyhow::{Context, anyhow, bail};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    response::{IntoResponse, Response},
    routing::put,
};
use clap::Args;
use penstock_crds::{
    IngestRunSpec,
    report::{ControlRequest, Wanted},
};
use serde_json::json;
use std::{fs, hint::black_box, io, path::PathBuf, sync::Arc};

/// Larger requests are none of ours.
const LARGEST_REQUEST: usize = 1_024;

/// Arguments of a process that can be told what to do.
#[derive(Debug, Args)]
pub(super) struct ControlArgs {
    /// Folder with the files `state` (Run, Suspend or Cancel; looked at once, when the process starts) and `token`. Whoever has the
    /// token may tell the run what to do: PUT /control at --metrics-addr, {"wanted": "Suspend"}, with Authorization: Bearer TOKEN.
    #[arg(long, value_name = "DIR")]
    control_dir: Option<PathBuf>,
}

/// Who may tell the run what to do.
pub(super) struct Token(Vec<u8>);

impl ControlArgs {
    /// What the run is wanted to do when it starts, and who may say so later.
    ///
    /// # Errors
    /// A file of the folder cannot be read, or makes no sense.
    pub fn read(&self, spec: &IngestRunSpec) -> anyhow::Result<(Wanted, Option<Token>)> {
        Ok((self.wanted(spec)?, self.token()?))
    }

    /// The file is newer than the manifest, but a cancelled run stays so.
    fn wanted(&self, spec: &IngestRunSpec) -> anyhow::Result<Wanted> {
        let of_run = Wanted::of_run(spec.suspend, spec.cancel);
        let Some(said) = self.read_file("state")? else { return Ok(of_run) };
        let wanted =
            said.parse().map_err(|error: String| anyhow!("the file `state` in --control-dir {error}, is `{}`", said.trim_end()))?;
        Ok(if of_run == Wanted::Cancel { of_run } else { wanted })
    }

    fn token(&self) -> anyhow::Result<Option<Token>> {
        let Some(dir) = &self.control_dir else { return Ok(None) };
        let token = self.read_file("token")?.with_context(|| format!("there is no file `token` in the --control-dir {}", dir.display()))?;
        if token.trim_end().is_empty() {
            bail!("the file `token` in the --control-dir {} is empty", dir.display());
        }
        Ok(Some(Token(token.trim_end().into())))
    }

    fn read_file(&self, name: &str) -> anyhow::Result<Option<String>> {
        let Some(dir) = &self.control_dir else { return Ok(None) };
        match fs::read_to_string(dir.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("failed to read the file `{name}` in the --control-dir {}", dir.display())),
        }
    }
}

/// What the port needs to take orders.
#[derive(Clone)]
struct Remote {
    token: Arc<Token>,
    control: Control,
    figures: Arc<RunFigures>,
}

/// The part of the port that takes orders.
pub(super) fn router(token: Token, control: Control, figures: Arc<RunFigures>) -> Router {
    Router::new().route("/control", put(obey)).layer(DefaultBodyLimit::max(LARGEST_REQUEST)).with_state(Remote {
        token: Arc::new(token),
        control,
        figures,
    })
}

async fn obey(State(remote): State<Remote>, headers: HeaderMap, body: Bytes) -> Response {
    if !remote.token.is_in(&headers) {
        return refuse(StatusCode::UNAUTHORIZED, "the token is missing or wrong: send Authorization: Bearer TOKEN");
    }
    let Ok(ControlRequest { wanted }) = serde_json::from_slice(&body) else {
        let words = Wanted::ALL.map(Wanted::as_str).join(", ");
        return refuse(StatusCode::BAD_REQUEST, &format!("send {{\"wanted\": WORD}}, with one of the words {words}"));
    };
    match remote.control.want(wanted) {
        Ok(()) => Json(remote.figures.report()).into_response(),
        Err(error) => refuse(StatusCode::CONFLICT, &error.to_string()),
    }
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({"error": why}))).into_response()
}

impl Token {
    /// Whether a request has this token. How long the look takes says nothing about how much of it was right.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        given.is_some_and(|given| {
            let differing = given.iter().zip(&self.0).fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
            given.len() == self.0.len() && differing == 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(suspend: bool, cancel: bool) -> IngestRunSpec {
        serde_json::from_value(json!({"connectors": [], "suspend": suspend, "cancel": cancel})).expect("a run")
    }

    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, ControlArgs) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let arguments = ControlArgs { control_dir: Some(folder.path().into()) };
        (folder, arguments)
    }

    #[test]
    fn the_file_decides_at_the_start_save_that_a_cancelled_run_stays_so() {
        for (state, suspend, cancel, wanted) in [
            (Some("Run"), true, false, Wanted::Run),
            (Some("Suspend\n"), false, false, Wanted::Suspend),
            (Some("Cancel"), false, false, Wanted::Cancel),
            (Some("Run"), false, true, Wanted::Cancel),
            (None, false, false, Wanted::Run),
            (None, true, false, Wanted::Suspend),
            (None, true, true, Wanted::Cancel),
        ] {
            let (_folder, arguments) = folder(&state.map(|state| ("state", state)).into_iter().collect::<Vec<_>>());
            assert_eq!(arguments.wanted(&spec(suspend, cancel)).expect("a word"), wanted, "{state:?} {suspend} {cancel}");
        }
        assert_eq!(ControlArgs { control_dir: None }.wanted(&spec(true, false)).expect("a word"), Wanted::Suspend);
    }

    #[test]
    fn a_folder_that_makes_no_sense_is_an_error() {
        let (_folder, arguments) = folder(&[("state", "pause"), ("token", "\n")]);
        let error = arguments.wanted(&spec(false, false)).expect_err("no word");
        assert_eq!(error.to_string(), "the file `state` in --control-dir must be one of Run, Suspend, Cancel, is `pause`");
        assert!(arguments.token().err().is_some_and(|error| error.to_string().ends_with("is empty")));
        assert!(folder(&[]).1.token().err().is_some_and(|error| error.to_string().starts_with("there is no file `token`")));
    }

    #[test]
    fn only_the_whole_token_is_taken() {
        let (_folder, arguments) = folder(&[("token", "s3cret\n")]);
        let token = arguments.token().expect("readable").expect("a token");
        let with = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().expect("a header"))]);
        assert!(token.is_in(&with("Bearer s3cret")));
        for wrong in ["Bearer s3cre", "Bearer s3cret1", "Bearer S3cret", "Bearer ", "s3cret", "Basic s3cret"] {
            assert!(!token.is_in(&with(wrong)), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }
}
