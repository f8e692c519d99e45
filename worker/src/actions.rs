//! HTTP requests before and after a step: an index is created, an alias swapped.

use crate::{
    context::StepContext,
    http::{self, HttpError, HttpOptions},
    problem::Problems,
    secrets::SecretError,
};
use backon::{BackoffBuilder, ExponentialBuilder};
use penstock_crds::connectors::{Action, HttpAction, HttpMethod};
use reqwest::{
    Method, RequestBuilder, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, InvalidHeaderValue},
};
use std::time::Duration;

/// How much of an answer is shown to people.
const SHOWN_ANSWER: usize = 500;

/// When actions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before anything is read.
    Pre,
    /// After every document is accounted for.
    Post,
}

impl When {
    /// The field of the connector that holds these actions.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

/// An action that failed: which, and why. Never holds a secret.
#[derive(Debug, thiserror::Error)]
#[error("{action}: {fault}")]
pub struct ActionError {
    action: String,
    #[source]
    fault: ActionFault,
}

impl ActionError {
    /// Whether the server could not be reached at all (exit code 69), or was overloaded to the last try.
    pub fn is_unreachable(&self) -> bool {
        matches!(&self.fault, ActionFault::Transport { .. })
            || matches!(&self.fault, ActionFault::Refused { status, .. } if is_temporary(*status))
    }
}

#[derive(Debug, thiserror::Error)]
enum ActionFault {
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("{0}")]
    Client(#[from] HttpError),
    #[error("`{url}` is not a URL: {source}")]
    Url { url: String, source: <Url as std::str::FromStr>::Err },
    #[error("the method, or a header, cannot be sent")]
    Request(#[source] reqwest::Error),
    #[error("the secret of header `{name}` cannot be sent in a header; it has line breaks or control characters")]
    SecretHeader { name: String, source: InvalidHeaderValue },
    #[error("no answer after {}: {reason}", count(*.tries))]
    Transport { tries: u32, reason: String },
    #[error("answered {status} after {}{}", count(*.tries), shown(.answer))]
    Refused { status: StatusCode, tries: u32, answer: String },
    #[error("the run was stopped before it was done")]
    Stopped,
}

fn count(tries: u32) -> String {
    if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") }
}

fn shown(answer: &str) -> String {
    if answer.is_empty() { String::new() } else { format!(": {answer}") }
}

/// Runs the actions in order. The first that fails ends it.
///
/// # Errors
/// An action failed: a secret is missing, the server cannot be reached or answered with a code that does not mean success.
pub async fn run(actions: &[Action], context: &StepContext, when: When) -> Result<(), ActionError> {
    for (index, Action::Http(spec)) in actions.iter().enumerate() {
        let method = method(spec.method);
        let url = context.fill(&spec.url);
        let name = format!("{}[{index}].http {method} {}", when.field(), without_secrets(&url));
        tracing::debug!(action = name, "running an action");
        run_http(spec, method, url, context).await.map_err(|fault| ActionError { action: name, fault })?;
    }
    Ok(())
}

async fn run_http(spec: &HttpAction, method: Method, url: String, context: &StepContext) -> Result<(), ActionFault> {
    let request = prepare(spec, method, url, context)?;
    let mut pauses = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(30))
        .with_max_times(spec.max_retries as usize)
        .with_jitter()
        .build();
    let mut tries = 0;
    loop {
        tries += 1;
        let fault = tokio::select! {
            answer = try_once(spec, &request, tries) => match answer {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            },
            () = context.stop.cancelled() => return Err(ActionFault::Stopped),
        };
        let Some(pause) = is_worth_retrying(&fault).then(|| pauses.next()).flatten() else { return Err(fault) };
        tracing::warn!(error = %fault, pause_ms = pause.as_millis() as u64, "an action failed and is tried again");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = context.stop.cancelled() => return Err(ActionFault::Stopped),
        }
    }
}

fn is_worth_retrying(fault: &ActionFault) -> bool {
    match fault {
        ActionFault::Transport { .. } => true,
        ActionFault::Refused { status, .. } => is_temporary(*status),
        _ => false,
    }
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// A request that can be sent again and again.
struct Prepared {
    client: reqwest::Client,
    request: reqwest::Request,
}

fn prepare(spec: &HttpAction, method: Method, url: String, context: &StepContext) -> Result<Prepared, ActionFault> {
    let secret = |credential| context.secrets.resolve(credential);
    let client = http::client(&HttpOptions {
        ca: spec.ca.as_ref().map(secret).transpose()?,
        timeout: spec.timeout.get(),
        ..HttpOptions::default()
    })?;
    let parsed = Url::parse(&url).map_err(|source| ActionFault::Url { url: without_secrets(&url), source })?;
    let mut request: RequestBuilder = client.request(method, parsed);
    for (name, value) in &spec.headers {
        request = request.header(name, value);
    }
    for (name, credential) in &spec.secret_headers {
        let mut value = HeaderValue::from_str(secret(credential)?.expose())
            .map_err(|source| ActionFault::SecretHeader { name: name.clone(), source })?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    if let Some(username) = &spec.username {
        let password = spec.password.as_ref().map(secret).transpose()?;
        request = request.basic_auth(secret(username)?.expose(), password.as_ref().map(|password| password.expose()));
    }
    if let Some(body) = &spec.body {
        request = request.body(context.fill(body));
    }
    let mut request = request.build().map_err(|error| ActionFault::Request(error.without_url()))?;
    if spec.body.is_some() && !request.headers().contains_key(CONTENT_TYPE) {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(Prepared { client, request })
}

async fn try_once(spec: &HttpAction, prepared: &Prepared, tries: u32) -> Result<(), ActionFault> {
    let transport = |error: reqwest::Error| ActionFault::Transport { tries, reason: http::chain(&error.without_url()) };
    let request = prepared.request.try_clone().expect("a body in memory can be sent again");
    let mut response = prepared.client.execute(request).await.map_err(transport)?;
    let status = response.status();
    if is_expected(&spec.expect, status) {
        return Ok(());
    }
    let mut answer = Vec::new();
    while answer.len() < SHOWN_ANSWER {
        match response.chunk().await {
            Ok(Some(chunk)) => answer.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    answer.truncate(SHOWN_ANSWER);
    Err(ActionFault::Refused { status, tries, answer: String::from_utf8_lossy(&answer).trim().to_owned() })
}

fn is_expected(expected: &[u16], status: StatusCode) -> bool {
    if expected.is_empty() { status.is_success() } else { expected.contains(&status.as_u16()) }
}

/// A URL without what may be secret in it: user, password, query and fragment.
fn without_secrets(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else {
        let visible = url.split(['?', '#']).next().unwrap_or_default();
        return visible.rsplit_once('@').map_or(visible, |(_, host)| host).to_owned();
    };
    url.set_query(None);
    url.set_fragment(None);
    // both fail only for URLs that cannot have a user at all
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Delete => Method::DELETE,
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
    }
}

/// Reports what is wrong with actions.
pub fn check(actions: &[Action], when: When, problems: &mut Problems<'_>) {
    for (index, Action::Http(spec)) in actions.iter().enumerate() {
        check_http(spec, &mut problems.below(&format!("{}[{index}].http", when.field())));
    }
}

fn check_http(spec: &HttpAction, problems: &mut Problems<'_>) {
    check_url(&spec.url, problems);
    for (name, value) in &spec.headers {
        let field = format!("headers.{name}");
        check_header_name(name, &field, problems);
        if HeaderValue::from_str(value).is_err() {
            problems.add(&field, "the value has line breaks or control characters, which a header cannot carry");
        }
        if name.eq_ignore_ascii_case(AUTHORIZATION.as_str()) {
            problems.add(&field, "credentials do not belong into a manifest; put this header into `secretHeaders`");
        }
    }
    for name in spec.secret_headers.keys() {
        check_header_name(name, &format!("secretHeaders.{name}"), problems);
        if spec.headers.keys().any(|other| other.eq_ignore_ascii_case(name)) {
            problems.add(&format!("secretHeaders.{name}"), "this header stands in `headers` as well; leave one of them");
        }
    }
    if spec.password.is_some() && spec.username.is_none() {
        problems.add("password", "a password needs a `username`");
    }
    if spec.timeout.get().is_zero() {
        problems.add("timeout", "a request needs time; write for example 30s");
    }
}

fn check_header_name(name: &str, field: &str, problems: &mut Problems<'_>) {
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        problems.add(field, format!("`{name}` cannot be the name of a header; write for example X-Api-Key"));
    }
}

fn check_url(text: &str, problems: &mut Problems<'_>) {
    let filled = text.replace("{runId}", "x").replace("{run}", "x").replace("{connector}", "x");
    if let Some(open) = filled.find('{') {
        let placeholder: String = filled[open..].chars().take_while(|c| *c != '}').collect();
        problems.add("url", format!("`{placeholder}}}` is not known here; {{runId}}, {{run}} and {{connector}} are"));
        return;
    }
    let url = match Url::parse(&filled) {
        Ok(url) => url,
        Err(error) => {
            return problems
                .add("url", format!("`{}` is not a URL: {error}; write for example http://localhost:9200/index", without_secrets(text)));
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        problems.add("url", format!("`{}:` cannot be requested; only http: and https: can", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        problems.add("url", "credentials do not belong into a URL; use `username` and `password` with a secret each");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{
        Router,
        body::Bytes,
        extract::State,
        http::{HeaderMap, Uri},
    };
    use penstock_crds::values::{Credential, CredentialSource, SecretKeyRef};
    use std::{net::SocketAddr, sync::Arc};

    type Seen = Arc<parking_lot::Mutex<Vec<(String, HeaderMap, String)>>>;

    #[derive(Clone)]
    struct Server {
        seen: Seen,
        answers: Arc<Vec<(u16, &'static str)>>,
    }

    /// A server that gives these answers in order, the last one for ever.
    async fn serve(answers: Vec<(u16, &'static str)>) -> (SocketAddr, Seen) {
        async fn answer(
            State(server): State<Server>,
            method: axum::http::Method,
            uri: Uri,
            headers: HeaderMap,
            body: Bytes,
        ) -> (StatusCode, &'static str) {
            let mut seen = server.seen.lock();
            let (code, text) = server.answers[seen.len().min(server.answers.len() - 1)];
            seen.push((format!("{method} {uri}"), headers, String::from_utf8_lossy(&body).into_owned()));
            (StatusCode::from_u16(code).expect("code"), text)
        }
        let seen = Seen::default();
        let server = Server { seen: Arc::clone(&seen), answers: Arc::new(answers) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
        let address = listener.local_addr().expect("address");
        let router = Router::new().fallback(answer).with_state(server);
        tokio::spawn(async move { axum::serve(listener, router).await });
        (address, seen)
    }

    fn context(secrets: &tempfile::TempDir) -> StepContext {
        StepContext {
            run: "nightly".into(),
            run_id: "nightly-1".into(),
            connector: "products".into(),
            pipeline: "p".into(),
            base_dir: ".".into(),
            run_base_dir: Default::default(),
            secrets: crate::secrets::Secrets::new(Some(secrets.path().into())),
            runtime: tokio::runtime::Handle::current(),
            stop: Default::default(),
            is_continuous: false,
            written: Default::default(),
        }
    }

    fn secret(directory: &tempfile::TempDir, key: &str, value: &str) -> Credential {
        std::fs::create_dir_all(directory.path().join("es")).expect("directory");
        std::fs::write(directory.path().join("es").join(key), value).expect("file");
        Credential { value_from: CredentialSource { secret_key_ref: SecretKeyRef { name: "es".into(), key: key.into() } } }
    }

    fn action(json: serde_json::Value) -> HttpAction {
        serde_json::from_value(json).expect("an action")
    }

    #[tokio::test]
    async fn actions_run_in_order_with_placeholders_filled() {
        let (address, seen) = serve(vec![(200, "")]).await;
        let directory = tempfile::tempdir().expect("directory");
        let mut second =
            action(serde_json::json!({"url": format!("http://{address}/_aliases"), "body": "{\"add\": \"{run}-{connector}\"}"}));
        second.secret_headers.insert("X-Api-Key".into(), secret(&directory, "key", "s3cret"));
        second.username = Some(secret(&directory, "user", "me"));
        second.password = Some(secret(&directory, "password", "pass"));
        let first = action(serde_json::json!({"method": "PUT", "url": format!("http://{address}/products-{{runId}}")}));
        run(&[Action::Http(first), Action::Http(second)], &context(&directory), When::Pre).await.expect("both");
        let seen = seen.lock();
        assert_eq!((seen[0].0.as_str(), seen[0].2.as_str()), ("PUT /products-nightly-1", ""));
        assert!(!seen[0].1.contains_key(CONTENT_TYPE));
        assert_eq!((seen[1].0.as_str(), seen[1].2.as_str()), ("POST /_aliases", "{\"add\": \"nightly-products\"}"));
        let header = |name: &str| seen[1].1.get(name).expect(name).to_str().expect("text").to_owned();
        assert_eq!(
            [header("content-type"), header("x-api-key"), header("authorization"), header("user-agent")],
            ["application/json", "s3cret", "Basic bWU6cGFzcw==", http::USER_AGENT]
        );
    }

    #[tokio::test]
    async fn a_failed_action_is_named_with_the_answer_and_ends_the_rest() {
        let (address, seen) = serve(vec![(400, "no such alias"), (200, "")]).await;
        let directory = tempfile::tempdir().expect("directory");
        let one = || Action::Http(action(serde_json::json!({"url": format!("http://{address}/_aliases?token=s3cret")})));
        let error = run(&[one(), one()], &context(&directory), When::Post).await.expect_err("400");
        assert_eq!(
            error.to_string(),
            format!("post[0].http POST http://{address}/_aliases: answered 400 Bad Request after 1 try: no such alias")
        );
        assert!(!error.is_unreachable());
        assert_eq!(seen.lock().len(), 1);
    }

    #[tokio::test]
    async fn overload_is_tried_again_and_expected_codes_are_success() {
        let directory = tempfile::tempdir().expect("directory");
        let (address, seen) = serve(vec![(503, ""), (429, ""), (404, "")]).await;
        let delete = action(serde_json::json!({"method": "DELETE", "url": format!("http://{address}/old"), "expect": [200, 404]}));
        run(&[Action::Http(delete)], &context(&directory), When::Pre).await.expect("404 is expected");
        assert_eq!(seen.lock().len(), 3);
        let (address, seen) = serve(vec![(503, "later")]).await;
        let never = action(serde_json::json!({"url": format!("http://{address}/"), "maxRetries": 1}));
        let error = run(&[Action::Http(never)], &context(&directory), When::Pre).await.expect_err("503");
        assert!(error.to_string().ends_with("answered 503 Service Unavailable after 2 tries: later"), "{error}");
        assert!(error.is_unreachable());
        assert_eq!(seen.lock().len(), 2);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_without_secrets() {
        let address = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
            listener.local_addr().expect("address")
        };
        let directory = tempfile::tempdir().expect("directory");
        let spec = action(serde_json::json!({"url": format!("http://{address}/x?key=s3cret"), "maxRetries": 0}));
        let error = run(&[Action::Http(spec)], &context(&directory), When::Pre).await.expect_err("nobody listens");
        assert!(error.is_unreachable());
        let text = format!("{error} {error:?}");
        assert!(error.to_string().contains("no answer after 1 try") && !text.contains("s3cret"), "{text}");
    }

    #[tokio::test]
    async fn a_stopped_run_does_not_wait_for_a_slow_server() {
        let directory = tempfile::tempdir().expect("directory");
        let (address, _) = serve(vec![(503, "")]).await;
        let context = context(&directory);
        let spec = action(serde_json::json!({"url": format!("http://{address}/"), "maxRetries": 100}));
        context.stop.cancel();
        let error = run(&[Action::Http(spec)], &context, When::Pre).await.expect_err("stopped");
        assert!(error.to_string().contains("stopped"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_secret_is_named() {
        let directory = tempfile::tempdir().expect("directory");
        let mut spec = action(serde_json::json!({"url": "http://127.0.0.1:1/"}));
        spec.username = Some(secret(&directory, "user", "me"));
        std::fs::remove_file(directory.path().join("es/user")).expect("remove");
        let error = run(&[Action::Http(spec)], &context(&directory), When::Pre).await.expect_err("no secret");
        assert!(error.to_string().contains("PENSTOCK_SECRET_ES_USER"), "{error}");
    }

    #[test]
    fn problems_of_actions_are_found_all_at_once() {
        let cases = [
            ("localhost:9200/x", "only http: and https: can"),
            ("localhost 9200", "not a URL"),
            ("ftp://host/x", "only http: and https: can"),
            ("http://me:s3cret@host/x", "credentials do not belong into a URL"),
            ("http://host/{index}", "`{index}` is not known here"),
        ];
        for (url, wanted) in cases {
            let mut found = Vec::new();
            let actions = [
                Action::Http(action(serde_json::json!({"url": "http://h/{runId}"}))),
                Action::Http(action(serde_json::json!({"url": url}))),
            ];
            check(&actions, When::Post, &mut Problems::new("", &mut found));
            let [problem] = &found[..] else { panic!("{url}: {found:?}") };
            assert_eq!(problem.path, "post[1].http.url");
            assert!(problem.message.contains(wanted) && !problem.message.contains("s3cret"), "{}", problem.message);
        }
        let spec = serde_json::json!({"url": "http://h/", "headers": {"a b": "x", "Authorization": "Bearer x", "X": "a\nb"}, "timeout": "0s",
            "password": {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}});
        let mut found = Vec::new();
        check(&[Action::Http(action(spec))], When::Pre, &mut Problems::new("connectors[0]", &mut found));
        let paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
        let below = |field: &str| format!("connectors[0].pre[0].http.{field}");
        assert_eq!(paths, [below("headers.Authorization"), below("headers.X"), below("headers.a b"), below("password"), below("timeout")]);
    }
}
