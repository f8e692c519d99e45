//! What every backend must do, whatever it writes to. A backend's tests call [`run`] with a [`Case`].

use super::{Answer, Backend, Item, ItemAnswer, Request};
use crate::{
    context::StepContext,
    document::{Document, Fields, Value},
    event::Tag,
    secrets::Secrets,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};
use tokio::runtime::Runtime;

/// How a backend is made and looked into.
pub trait Case: Sync {
    /// The backend for one step that writes below the folder.
    fn backend(&self, folder: &Path) -> Arc<dyn Backend>;
    /// What a reader finds below the folder now.
    fn visible(&self, folder: &Path) -> Visible;
}

/// What a reader finds.
#[derive(Clone, Debug, PartialEq)]
pub enum Visible {
    /// The backend keeps nothing that could be read.
    Nothing,
    /// One document for each id.
    Documents(Vec<(String, serde_json::Value)>),
    /// Whatever was sent, in order, also twice.
    Lines(Vec<(String, serde_json::Value)>),
    /// As lines, of which only the ids can be compared.
    Ids(Vec<String>),
}

impl Visible {
    fn ids(&self) -> Option<BTreeSet<&str>> {
        match self {
            Self::Nothing => None,
            Self::Documents(documents) | Self::Lines(documents) => Some(documents.iter().map(|(id, _)| id.as_str()).collect()),
            Self::Ids(ids) => Some(ids.iter().map(String::as_str).collect()),
        }
    }
}

/// A step of no run in particular, in that folder.
pub fn step_context(folder: &Path) -> StepContext {
    StepContext {
        run: "run".into(),
        run_id: "run-1".into(),
        connector: "connector".into(),
        pipeline: "pipeline".into(),
        base_dir: folder.into(),
        run_base_dir: Default::default(),
        secrets: Secrets::default(),
        runtime: runtime().handle().clone(),
        stop: Default::default(),
        is_continuous: false,
        written: Default::default(),
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime"))
}

/// Does a whole step with these documents.
pub fn write_all(backend: &dyn Backend, documents: &[Document]) {
    runtime().block_on(async {
        backend.check().await.expect("check");
        send(backend, documents).await;
        backend.commit().await.expect("commit");
    });
}

/// Runs all checks.
pub fn run(case: &dyn Case) {
    takes_documents_of_every_kind_and_shows_them_after_commit(case);
    answers_exactly_the_items_that_were_sent(case);
    keeps_the_order_of_an_id_and_stands_a_repetition(case);
    takes_requests_of_several_threads_at_once(case);
    leaves_the_former_state_when_abandoned(case);
    adds_nothing_without_documents(case);
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

fn document(id: &str, json: &str) -> Document {
    Document::with_fields(id, Fields::from_json(json.as_bytes()).expect(json))
}

fn numbered(n: usize, text: &str) -> Document {
    document(&format!("d-{n}"), &format!(r#"{{"n":{n},"text":"{text}"}}"#))
}

fn request(backend: &dyn Backend, documents: &[Document]) -> Request {
    let mut request = Request::default();
    for (index, document) in documents.iter().enumerate() {
        backend.encode(document, &mut request.body).expect("the backend takes it");
        request.items.push(Item { tag: Tag::source(index as u64 + 1), id: document.id().into(), end: request.body.len() });
    }
    if backend.needs().keep_documents {
        request.documents = documents.to_vec();
    }
    request
}

async fn send_items(backend: &dyn Backend, request: &Request, items: &[u32]) {
    match backend.send(request, items).await {
        Answer::Done => {}
        Answer::Items(answers) => assert_eq!(answers, vec![ItemAnswer::Done; items.len()]),
        other => panic!("{other:?}"),
    }
}

async fn send(backend: &dyn Backend, documents: &[Document]) {
    let request = request(backend, documents);
    send_items(backend, &request, &(0..documents.len() as u32).collect::<Vec<_>>()).await;
}

/// Documents that have broken somebody's parser before.
fn of_every_kind() -> Vec<Document> {
    let wide: Vec<String> = (0..10_000).map(|i| format!("\"field {i}\":{i}")).collect();
    let deep = (0..100).fold(Value::Int(1), |value, _| Value::object([("d".into(), value)].into_iter().collect()));
    let mut documents = vec![
        document(
            "types",
            r#"{"text":"a","i":-1,"u":18446744073709551615,"f":1.5e300,"t":true,"z":null,"l":[1,"x",null,[2]],"o":{"p":{"q":1}}}"#,
        ),
        document("empty", "{}"),
        document(
            "names",
            r#"{"":1,"a.b":"dotted","a":{"b":"nested","c":2},"with space":"x","ü":"y","q\"uote":"z","\u0000":"nul","\u0001":"soh"}"#,
        ),
        document("texts", r#"{"quote":"\"'","line":"a\nb\r\nc","tab":"\t","nul":"\u0000","emoji":"😀","comma":",","sep":"\u2028"}"#),
        document("mixed-1", r#"{"mixed":1}"#),
        document("mixed-2", r#"{"mixed":"one"}"#),
        document("mixed-3", r#"{"mixed":{"one":1}}"#),
        document("dates", r#"{"at":"2024-02-29T12:00:00Z","early":"0000-01-01T00:00:00Z","late":"9999-12-31T23:59:59.999999999Z"}"#),
        document("wide", &format!("{{{}}}", wide.join(","))),
        Document::with_fields("deep", [("d".into(), deep)].into_iter().collect()),
        Document::with_fields("long", [("word".into(), Value::from("x".repeat(200_000)))].into_iter().collect()),
        Document::with_fields("key", [(("k".repeat(70_000)).as_str().into(), Value::from("v"))].into_iter().collect()),
    ];
    let odd_ids =
        ["a \"quoted\" id", "line\nbreak", "back\\slash", "ünïcödé 😀", "comma,semi;", "../../etc/passwd", " ", "\u{0}", "{\"id\":1}"];
    documents.extend(odd_ids.map(|id| Document::with_fields(id, Fields::new())));
    documents.push(Document::new("3".repeat(3_072)));
    documents
}

fn takes_documents_of_every_kind_and_shows_them_after_commit(case: &dyn Case) {
    let folder = folder();
    let documents = of_every_kind();
    let backend = case.backend(folder.path());
    write_all(&*backend, &documents);
    drop(backend);
    let expected: BTreeMap<String, serde_json::Value> =
        documents.iter().map(|document| (document.id().to_owned(), serde_json::to_value(document.fields()).expect("json"))).collect();
    let visible = case.visible(folder.path());
    if let Some(ids) = visible.ids() {
        assert_eq!(ids, expected.keys().map(String::as_str).collect());
    }
    if let Visible::Documents(found) | Visible::Lines(found) = visible {
        assert_eq!(found.len(), expected.len());
        for (id, fields) in found {
            assert_eq!(fields, expected[&id], "{id}");
        }
    }
}

fn answers_exactly_the_items_that_were_sent(case: &dyn Case) {
    let folder = folder();
    let backend = case.backend(folder.path());
    runtime().block_on(async {
        backend.check().await.expect("check");
        let request = request(&*backend, &(0..10).map(|n| numbered(n, "x")).collect::<Vec<_>>());
        send_items(&*backend, &request, &[1, 3, 4, 9]).await;
        send_items(&*backend, &request, &[0]).await;
        send_items(&*backend, &request, &[]).await;
        backend.commit().await.expect("commit");
    });
    drop(backend);
    if let Some(ids) = case.visible(folder.path()).ids() {
        assert_eq!(ids, BTreeSet::from(["d-0", "d-1", "d-3", "d-4", "d-9"]));
    }
}

fn keeps_the_order_of_an_id_and_stands_a_repetition(case: &dyn Case) {
    let folder = folder();
    let backend = case.backend(folder.path());
    runtime().block_on(async {
        backend.check().await.expect("check");
        for version in ["first", "second", "last", "last"] {
            send(&*backend, &[numbered(1, version)]).await;
        }
        if !backend.needs().distinct_ids {
            send(&*backend, &[numbered(2, "first"), numbered(3, "x"), numbered(2, "last")]).await;
        }
        backend.commit().await.expect("commit");
    });
    drop(backend);
    match case.visible(folder.path()) {
        Visible::Documents(found) => {
            assert_eq!(found.iter().filter(|(id, _)| id == "d-1").count(), 1, "an id is there once");
            assert!(found.iter().all(|(id, fields)| id == "d-3" || fields["text"] == "last"), "{found:?}");
        }
        Visible::Lines(found) => {
            let texts: Vec<_> = found.iter().filter(|(id, _)| id == "d-1").map(|(_, fields)| fields["text"].clone()).collect();
            assert_eq!(texts, ["first", "second", "last", "last"]);
        }
        Visible::Nothing | Visible::Ids(_) => {}
    }
}

fn takes_requests_of_several_threads_at_once(case: &dyn Case) {
    const LANES: usize = 4;
    const BATCHES: usize = 20;
    let folder = folder();
    let backend = case.backend(folder.path());
    let text = "word ".repeat(200);
    runtime().block_on(async {
        backend.check().await.expect("check");
        let lanes = (0..LANES).map(|lane| {
            let (backend, text) = (Arc::clone(&backend), text.clone());
            tokio::spawn(async move {
                for batch in 0..BATCHES {
                    let documents: Vec<_> = (0..25).map(|i| numbered((lane * BATCHES + batch) * 25 + i, &text)).collect();
                    send(&*backend, &documents).await;
                }
            })
        });
        for lane in lanes.collect::<Vec<_>>() {
            lane.await.expect("lane");
        }
        backend.commit().await.expect("commit");
    });
    drop(backend);
    if let Some(ids) = case.visible(folder.path()).ids() {
        assert_eq!(ids.len(), LANES * BATCHES * 25);
    }
}

fn leaves_the_former_state_when_abandoned(case: &dyn Case) {
    let folder = folder();
    for (round, committed) in [(0, false), (1, true), (2, false)] {
        let before = (case.visible(folder.path()), if round == 0 { files(folder.path()) } else { BTreeSet::new() });
        let backend = case.backend(folder.path());
        runtime().block_on(async {
            backend.check().await.expect("check");
            send(&*backend, &[numbered(round, "x")]).await;
            match committed {
                true => backend.commit().await.expect("commit"),
                false => backend.abandon().await,
            }
        });
        drop(backend);
        if !committed {
            assert_eq!(case.visible(folder.path()), before.0, "round {round}");
        }
        if round == 0 {
            assert_eq!(files(folder.path()), before.1, "nothing is left of the first run");
        }
    }
}

fn adds_nothing_without_documents(case: &dyn Case) {
    let folder = folder();
    write_all(&*case.backend(folder.path()), &[]);
    if let Some(ids) = case.visible(folder.path()).ids() {
        assert_eq!(ids, BTreeSet::new());
    }
}

/// All files and folders below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).expect("folder") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}
