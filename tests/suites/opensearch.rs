//! Documents into a real OpenSearch node: every operation, every answer, proxies in front of it.

use axum::{Router, body::Bytes, extract::State, http::StatusCode, response::IntoResponse};
use penstock::document::Document;
use penstock_tests::{
    indexing::{Indexing, document},
    services::{
        nginx::{CREDENTIALS, Nginx},
        opensearch::OpenSearch,
    },
};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, atomic::Ordering::Relaxed};

fn node() -> Arc<OpenSearch> {
    OpenSearch::shared().expect("OpenSearch")
}

/// Settings for an index of the node, with more for the backend and for the indexer.
fn settings(node: &OpenSearch, index: &str, backend: &str, indexer: &str) -> String {
    let url = node.url();
    let comma = |more: &str| if more.is_empty() { String::new() } else { format!(", {more}") };
    format!("{{opensearch: {{urls: ['{url}'], index: {index}{}}}{}}}", comma(backend), comma(indexer))
}

fn indexing(node: &OpenSearch, index: &str, backend: &str, indexer: &str) -> Indexing {
    Indexing::new(&settings(node, index, backend, indexer), None, 1)
}

#[test]
fn documents_are_indexed_replaced_and_deleted_in_order_x10() {
    let node = node();
    let indexing = indexing(&node, "order", "", "deletion: {field: gone}");
    indexing.check().expect("the index may be made");
    let report = indexing.index(vec![
        document("a/ü?#1", r#"{"v":1,"text":"line\nbreak"}"#),
        document("b", r#"{"v":1}"#),
        document("b", r#"{"gone":true}"#),
        document("c", r#"{"gone":true}"#),
        document("d", r#"{"gone":true}"#),
        document("d", r#"{"v":2}"#),
        document("a/ü?#1", r#"{"v":2}"#),
    ]);
    assert_eq!((report.finished.len(), report.failed.len()), (7, 0), "{report:?}");
    assert_eq!(node.count("order").expect("count"), 2);
    assert_eq!(node.document("order", "a%2F%C3%BC%3F%231").expect("document"), json!({"v": 2}));
    assert_eq!(node.document("order", "d").expect("document"), json!({"v": 2}));
}

#[test]
fn every_refused_document_fails_alone_with_the_reason_of_the_cluster_s18_s37() {
    let node = node();
    node.create("partial", json!({"mappings": {"properties": {"n": {"type": "integer"}}}})).expect("index");
    let indexing = indexing(&node, "partial", "", "");
    indexing.check().expect("check");
    let long = "x".repeat(513);
    let documents = vec![
        document("a", r#"{"n":1}"#),
        document("b", r#"{"n":"no number"}"#),
        document("c", r#"{"n":3}"#),
        document("d", r#"{"n":{"an":"object"}}"#),
        document(&long, r#"{"n":5}"#),
        document("e", r#"{"n":6}"#),
    ];
    let report = indexing.index(documents);
    assert_eq!(report.finished.into_iter().collect::<Vec<_>>(), [1, 3, 6]);
    assert!(report.failed["b"].contains("400: mapper_parsing_exception: failed to parse field [n]"), "{:?}", report.failed);
    assert!(report.failed["d"].contains("mapper_parsing_exception"), "{:?}", report.failed);
    assert!(report.failed[&long].contains("513 bytes"), "{:?}", report.failed);
    assert!(report.fatal.is_empty());
    assert_eq!(node.count("partial").expect("count"), 3);
}

#[test]
fn create_update_upsert_and_delete_do_what_they_say() {
    let node = node();
    let run =
        |operation: &str, documents: Vec<Document>| indexing(&node, "operations", &format!("operation: {operation}"), "").index(documents);
    let report = run("Create", vec![document("a", r#"{"x":1,"y":1}"#), document("a", r#"{"x":2}"#)]);
    assert!(report.finished.len() == 1 && report.failed["a"].contains("409"), "{report:?}");
    let report = run("Update", vec![document("a", r#"{"y":2}"#), document("b", r#"{"y":2}"#), document("a", r#"{"z":3}"#)]);
    assert!(report.finished.len() == 2 && report.failed["b"].contains("document_missing_exception"), "{report:?}");
    assert_eq!(node.document("operations", "a").expect("document"), json!({"x": 1, "y": 2, "z": 3}), "no part of an update is lost");
    let report = run("Upsert", vec![document("b", r#"{"y":2}"#), document("b", r#"{"x":3}"#)]);
    assert_eq!(report.finished.len(), 2, "{report:?}");
    assert_eq!(node.document("operations", "b").expect("document"), json!({"y": 2, "x": 3}));
    let report = run("Delete", vec![document("a", "{}"), document("never", "{}")]);
    assert_eq!(report.finished.len(), 2, "what is not there is deleted: {report:?}");
    assert_eq!(node.count("operations").expect("count"), 1);
}

#[test]
fn fields_choose_id_index_routing_and_what_is_written() {
    let node = node();
    node.create("routed", json!({"settings": {"number_of_shards": 4}})).expect("index");
    let common = "idField: sku, indexField: to, routingField: by, excludeFields: [secret, to], runIdField: run";
    let report = indexing(&node, "routed", "gzip: true", common).index(vec![
        document("1", r#"{"sku":"s-1","by":"north","secret":1,"v":1}"#),
        document("2", r#"{"sku":"s-2","to":"elsewhere","v":2}"#),
        document("3", r#"{"v":3}"#),
        document("4", r#"{"sku":"s-4","to":"Not Allowed","v":4}"#),
    ]);
    assert_eq!(report.finished.len(), 2, "{report:?}");
    assert!(report.failed["3"].contains("no `sku`") && report.failed["4"].contains("invalid_index_name"), "{report:?}");
    let (_, found) = node.get("/routed/_doc/s-1?routing=north").expect("document");
    assert_eq!((&found["_routing"], &found["_source"]), (&json!("north"), &json!({"sku": "s-1", "by": "north", "v": 1, "run": "run-1"})));
    assert_eq!(node.document("elsewhere", "s-2").expect("document")["v"], 2);
}

#[test]
fn an_older_version_is_refused_by_the_cluster_and_counted_as_success() {
    let node = node();
    let external = "versioning: External, versionField: v, deletion: {field: gone}";
    let indexing = indexing(&node, "versions", "", external);
    let report = indexing.index(vec![
        document("a", r#"{"v":5,"text":"new"}"#),
        document("a", r#"{"v":3,"text":"old"}"#),
        document("b", r#"{"v":"7"}"#),
        document("b", r#"{"v":6,"gone":true}"#),
        document("b", r#"{"v":8,"gone":true}"#),
        document("b", r#"{"v":7}"#),
        document("c", r#"{"text":"no version"}"#),
    ]);
    assert_eq!((report.finished.len(), report.failed.len()), (6, 1), "{report:?}");
    assert_eq!(indexing.stats().stale.load(Relaxed), 3);
    assert_eq!(node.document("versions", "a").expect("document"), json!({"v": 5, "text": "new"}));
    assert_eq!(node.count("versions").expect("count"), 1);

    // the check warns of this setting; here is what the cluster says of it
    let path = "/versions/_settings?include_defaults=true&filter_path=*.*.index.gc_deletes";
    assert_eq!(node.get(path).expect("settings").1, json!({"versions": {"defaults": {"index": {"gc_deletes": "60s"}}}}));
    indexing.check().expect("a warning, no fault");
}

#[test]
fn wrong_settings_are_found_before_anything_is_read_s14_s15_s38() {
    let node = node();
    let fault = |backend: &str| indexing(&node, "absent", backend, "").check().expect_err(backend);
    assert!(fault("ingestPipeline: none-such").message.contains("`none-such` does not exist"));
    assert!(fault("operation: Update").message.contains("`absent` does not exist"));

    for name in ["many-1", "many-2"] {
        node.create(name, json!({"aliases": {"many": {}}})).expect("index");
    }
    let error = indexing(&node, "many", "", "").check().expect_err("no write index");
    assert!(error.message.contains("is_write_index"), "{error}");

    let setting = |value: Value| {
        let body = json!({"persistent": {"action.auto_create_index": value}});
        node.request(Method::PUT, "/_cluster/settings", Some(body)).expect("setting");
    };
    setting(json!("-never-*,+*"));
    let error = indexing(&node, "never-1", "", "").check().expect_err("may not be made");
    let report = indexing(&node, "never-1", "", "").index(vec![document("a", "{}"), document("b", "{}")]);
    setting(Value::Null);
    assert!(error.message.contains("index `never-1` does not exist and the cluster does not make it"), "{error}");
    assert!(report.failed.is_empty() && report.finished.is_empty(), "pending, not failed: {report:?}");
    assert!(report.fatal[0].0.contains("index_not_found"), "{report:?}");

    let nobody = Indexing::new("{opensearch: {urls: ['http://127.0.0.1:9'], index: a}}", None, 1).check().expect_err("nobody");
    assert!(nobody.unreachable && nobody.message.contains("127.0.0.1:9"), "{nobody}");
}

#[test]
fn the_next_node_is_asked_if_one_cannot_be_connected_to() {
    let node = node();
    let settings =
        format!("{{opensearch: {{urls: ['http://127.0.0.1:9', '{}'], index: failover}}, batch: {{maxDocuments: 2}}}}", node.url());
    let indexing = Indexing::new(&settings, None, 1);
    indexing.check().expect("one node is enough");
    let report = indexing.index((0..20).map(|i| document(&i.to_string(), "{}")).collect());
    assert_eq!((report.finished.len(), indexing.stats().outages.load(Relaxed)), (20, 0), "{report:?}");
}

#[test]
fn tls_and_credentials_through_nginx() {
    let node = node();
    let nginx = Nginx::start(&node.url()).expect("nginx");
    let secrets = tempfile::tempdir().expect("folder");
    let secret = |key: &str, value: &str| std::fs::write(secrets.path().join("search").join(key), value).expect("secret");
    std::fs::create_dir(secrets.path().join("search")).expect("folder");
    secret("user", CREDENTIALS.0);
    secret("password", CREDENTIALS.1);
    secret("wrong", "topsecret");
    for name in ["ca", "other-ca", "client", "client-key"] {
        secret(name, &std::fs::read_to_string(nginx.pem(name)).expect(name));
    }
    let reference = |key: &str| format!("{{valueFrom: {{secretKeyRef: {{name: search, key: {key}}}}}}}");
    let indexing = |port: u16, more: &[(&str, &str)]| {
        let more: String = more.iter().map(|(field, key)| format!(", {field}: {}", reference(key))).collect();
        let settings = format!("{{opensearch: {{urls: ['https://localhost:{port}'], index: proxied{more}}}, batch: {{maxBytes: 4Mi}}}}");
        Indexing::new(&settings, Some(secrets.path().into()), 1)
    };
    let (by_password, by_certificate) = (nginx.password_port, nginx.certificate_port);
    let user = [("ca", "ca"), ("username", "user"), ("password", "password")];

    let good = indexing(by_password, &user);
    good.check().expect("password");
    // 3 MB at once are too many for nginx (1 MB), which says so with a page of its own
    let long = "x".repeat(100_000);
    let report = good.index((0..30).map(|i| document(&i.to_string(), &format!(r#"{{"text":"{long}"}}"#))).collect());
    assert_eq!((report.finished.len(), report.failed.len()), (30, 0), "{:?}", report.fatal);
    assert_eq!(node.count("proxied").expect("count"), 30);
    indexing(by_certificate, &[("ca", "ca"), ("clientCertificate", "client"), ("clientKey", "client-key")]).check().expect("certificate");

    let fault = |port, more: &[(&str, &str)]| indexing(port, more).check().expect_err("refused");
    let wrong_password = fault(by_password, &[("ca", "ca"), ("username", "user"), ("password", "wrong")]);
    assert!(!wrong_password.unreachable && wrong_password.message.contains("401"), "{wrong_password}");
    assert!(!format!("{wrong_password:?}").contains("topsecret"));
    let wrong_authority = fault(by_password, &[("ca", "other-ca"), user[1], user[2]]);
    assert!(wrong_authority.unreachable && wrong_authority.message.contains("certificate"), "{wrong_authority}");
    assert!(fault(by_password, &user[1..]).message.contains("certificate"), "the system does not know it");
    assert!(fault(by_certificate, &[("ca", "ca")]).message.contains("400"), "no client certificate");
    let missing = fault(by_password, &[("ca", "none")]);
    assert!(missing.message.contains("PENSTOCK_SECRET_SEARCH_NONE"), "{missing}");

    let settings = format!("{{opensearch: {{urls: ['https://localhost:{by_password}'], index: proxied, tlsTrust: Insecure}}}}");
    assert!(Indexing::new(&settings, None, 1).check().expect_err("no credentials").message.contains("401"));
}

/// A proxy that refuses the first operation on an id with 429, in the answer of the real node.
struct Refusing {
    upstream: String,
    client: reqwest::Client,
    refused: Mutex<u32>,
}

async fn refuse_first(State(proxy): State<Arc<Refusing>>, request: axum::extract::Request) -> impl IntoResponse {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("body");
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let first = path.contains("_bulk") && std::mem::replace(&mut *proxy.refused.lock().expect("lock"), 1) == 0;
    let lines: Vec<&[u8]> = body.split_inclusive(|byte| *byte == b'\n').collect();
    let passed: Bytes = if first { lines[2..].concat().into() } else { body.clone() };
    let mut request = proxy.client.request(parts.method, format!("{}{path}", proxy.upstream)).body(passed);
    if let Some(kind) = parts.headers.get("content-type") {
        request = request.header("content-type", kind);
    }
    let response = request.send().await.expect("upstream");
    let status = StatusCode::from_u16(response.status().as_u16()).expect("status");
    let answer = response.bytes().await.expect("answer");
    if !first {
        return (status, answer);
    }
    let mut answer: Value = serde_json::from_slice(&answer).expect("json");
    answer["errors"] = true.into();
    let refusal = json!({"index": {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "queue full"}}});
    answer["items"].as_array_mut().expect("items").insert(0, refusal);
    (status, answer.to_string().into())
}

#[test]
fn of_two_documents_of_one_id_the_second_stands_though_the_first_was_refused_x10() {
    let node = node();
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let proxy = Arc::new(Refusing { upstream: node.url(), client: reqwest::Client::new(), refused: Mutex::new(0) });
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    runtime.spawn(async move { axum::serve(listener, Router::new().fallback(refuse_first).with_state(proxy)).await });
    let settings = format!("{{opensearch: {{urls: ['{url}'], index: twice}}, retry: {{initialBackoff: 10ms}}, batch: {{maxInFlight: 4}}}}");
    let indexing = Indexing::new(&settings, None, 1);
    indexing.check().expect("check");
    let report = indexing.index(vec![document("a", r#"{"v":1}"#), document("b", r#"{"v":1}"#), document("a", r#"{"v":2}"#)]);
    assert_eq!((report.finished.len(), report.failed.len()), (3, 0), "{report:?}");
    assert_eq!(indexing.stats().retries.load(Relaxed), 1);
    assert_eq!(node.document("twice", "a").expect("document"), json!({"v": 2}));
}
