//! The embedded index as a whole: what is written is what is found.

use super::*;
use crate::{
    document::Fields,
    indexers::compliance::{self, Case, Visible, step_context, write_all},
};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

fn build(folder: &Path) -> Embedded {
    build_with(folder, "embedded: {path: out/index}")
}

fn build_with(folder: &Path, indexer: &str) -> Embedded {
    let indexer = serde_yaml_ng::from_str(indexer).expect(indexer);
    let projection = Projection::new(&indexer, "run-1").expect("projection");
    Embedded::new(&Spec { path: "out/index".into() }, projection, &step_context(folder))
}

fn document(id: &str, json: &str) -> Document {
    Document::with_fields(id, Fields::from_json(json.as_bytes()).expect(json))
}

fn search(folder: &Path) -> Search {
    Search::open(&folder.join("out/index")).expect("index")
}

fn ids(folder: &Path, query: &str) -> Vec<String> {
    let mut ids: Vec<_> = search(folder).find(query, 1_000).expect(query).hits.into_iter().map(|hit| hit.id).collect();
    ids.sort();
    ids
}

struct Index;

impl Case for Index {
    fn backend(&self, folder: &Path) -> Arc<dyn Backend> {
        Arc::new(build(folder))
    }
    fn visible(&self, folder: &Path) -> Visible {
        let Ok(index) = Search::open(&folder.join("out/index")) else { return Visible::Documents(Vec::new()) };
        let found = index.find("*", 10_000).expect("search");
        assert_eq!(found.count, found.hits.len());
        Visible::Documents(found.hits.into_iter().map(|hit| (hit.id, serde_json::to_value(hit.fields).expect("json"))).collect())
    }
}

#[test]
fn is_a_backend_like_the_others() {
    compliance::run(&Index);
}

#[test]
fn every_field_can_be_searched_without_a_schema() {
    let folder = tempfile::tempdir().expect("folder");
    write_all(
        &build(folder.path()),
        &[
            document(
                "p-1",
                r#"{"name":"Steel Kettle","price":39.9,"stock":4,"new":true,"tags":["hot","kitchen"],"author":{"name":"Ann Lee"}}"#,
            ),
            document("p-2", r#"{"name":"Iron kettle stand","price":12,"id":"other","at":"2024-05-01T10:00:00Z","weight":1.5}"#),
            document(
                "p-3",
                r#"{"name":"Rake","price":-3,"at":"2024-06-01T10:00:00Z","maker name":"Ann","a.b":"dotted","big":18446744073709551615}"#,
            ),
            document("x/1", r#"{"name":"2024 model","hash":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}"#),
        ],
    );
    let expected: &[(&str, &[&str])] = &[
        ("kettle", &["p-1", "p-2"]),
        ("KETTLE steel", &["p-1"]),
        ("steel OR rake", &["p-1", "p-3"]),
        ("kettle -iron", &["p-1"]),
        ("NOT kettle", &["p-3", "x/1"]),
        ("(steel OR iron) AND kettle", &["p-1", "p-2"]),
        ("\"steel kettle\"", &["p-1"]),
        ("\"kettle steel\"", &[]),
        ("name:kettle", &["p-1", "p-2"]),
        ("name:\"iron kettle\"", &["p-2"]),
        ("name:ket*", &["p-1", "p-2"]),
        ("ket*", &["p-1", "p-2"]),
        ("name:\"steel ket\"*", &["p-1"]),
        ("tags:hot", &["p-1"]),
        ("author.name:ann", &["p-1"]),
        ("author.name:lee kettle", &["p-1"]),
        ("maker\\ name:ann", &["p-3"]),
        ("a.b:dotted", &["p-3"]),
        ("price:12", &["p-2"]),
        ("price:39.9", &["p-1"]),
        ("price:>12", &["p-1"]),
        ("price:>=12", &["p-1", "p-2"]),
        ("price:<0", &["p-3"]),
        ("price:[0 TO 39.9}", &["p-2"]),
        ("price:[0 TO *]", &["p-1", "p-2"]),
        ("price:-3", &["p-3"]),
        ("stock:4", &["p-1"]),
        ("big:18446744073709551615", &["p-3"]),
        ("new:true", &["p-1"]),
        ("new:false", &[]),
        ("at:>2024-05-15", &["p-3"]),
        ("at:[2024-05-01 TO 2024-05-02]", &["p-2"]),
        ("at:>=2024-06-01T10:00:00Z", &["p-3"]),
        ("at:\"2024-06-01T10:00:00Z\"", &["p-3"]),
        ("weight:*", &["p-2"]),
        ("author:*", &["p-1"]),
        ("author.name:*", &["p-1"]),
        ("tags:*", &["p-1"]),
        ("new:*", &["p-1"]),
        ("id:p-1", &["p-1"]),
        ("id:other", &["p-2"]),
        ("id:p-*", &["p-1", "p-2", "p-3"]),
        ("_id:x/1", &["x/1"]),
        ("id:\"x/1\"", &["x/1"]),
        ("2024", &["p-2", "p-3", "x/1"]),
        ("hash:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", &["x/1"]),
        ("name: IN [rake stand]", &["p-2", "p-3"]),
        ("missing:x", &[]),
        ("missing:>1", &[]),
        ("missing:*", &[]),
        ("*", &["p-1", "p-2", "p-3", "x/1"]),
        ("kettle , &", &["p-1", "p-2"]),
    ];
    let got: Vec<(&str, Vec<String>)> = expected.iter().map(|(query, _)| (*query, ids(folder.path(), query))).collect();
    let wrong: Vec<_> = got.iter().zip(expected).filter(|((_, got), (_, want))| got != want).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_query_that_makes_no_sense_is_answered_with_the_place_and_a_cure() {
    let folder = tempfile::tempdir().expect("folder");
    write_all(&build(folder.path()), &[document("1", r#"{"name":"x"}"#)]);
    for (query, part, at) in [
        ("name:", "", Some(5)),
        ("", "no words", None),
        ("name:k*t", "does not stand at the end", None),
        ("name:/k.t/", "regular expressions", None),
        ("price:>cheap", "write a number", None),
        ("[1 TO 2]", "needs a field", None),
    ] {
        match search(folder.path()).find(query, 10) {
            Err(SearchError::Query(error)) => {
                assert!(error.message.contains(part), "{query}: {error}");
                assert_eq!(error.at, at, "{query}: {error}");
            }
            other => panic!("{query}: {other:?}"),
        }
    }
}

#[test]
fn a_later_step_and_a_later_run_replace_by_id_and_add() {
    let folder = tempfile::tempdir().expect("folder");
    write_all(&build(folder.path()), &[document("1", r#"{"v":"old"}"#), document("2", r#"{"v":"old"}"#)]);
    write_all(&build(folder.path()), &[document("2", r#"{"v":"new"}"#), document("3", r#"{"v":"new"}"#)]);
    assert_eq!((ids(folder.path(), "v:old"), ids(folder.path(), "v:new")), (vec!["1".to_owned()], vec!["2".to_owned(), "3".to_owned()]));
    let index = search(folder.path());
    assert_eq!((index.len(), index.find("*", 0).expect("count").count), (3, 3));
}

#[test]
fn a_deletion_marker_deletes_and_a_later_document_of_the_id_stays() {
    let folder = tempfile::tempdir().expect("folder");
    let indexer = "{embedded: {path: x}, deletion: {field: gone}, excludeFields: [secret], runIdField: run, idField: key}";
    let keyed = |key: &str, more: &str| document(&format!("doc {key}"), &format!(r#"{{"key":"{key}","secret":"hidden"{more}}}"#));
    write_all(&build_with(folder.path(), indexer), &[keyed("1", ""), keyed("2", ""), keyed("3", "")]);
    let gone = r#","gone":true"#;
    let again = [keyed("1", gone), keyed("2", gone), keyed("2", ""), keyed("4", ""), keyed("4", gone), keyed("5", gone)];
    write_all(&build_with(folder.path(), indexer), &again);
    assert_eq!(ids(folder.path(), "*"), ["2", "3"]);
    assert_eq!(ids(folder.path(), "hidden"), Vec::<String>::new());
    assert_eq!(ids(folder.path(), "run:run-1"), ["2", "3"]);
    let hit = search(folder.path()).find("id:2", 1).expect("search").hits.remove(0);
    assert_eq!(serde_json::to_string(&hit.fields).expect("json"), r#"{"key":"2","run":"run-1"}"#);
}

#[test]
fn an_id_that_the_index_cannot_hold_fails_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let backend = build(folder.path());
    let long = Document::new("x".repeat(40_000));
    assert!(backend.encode(&long, &mut Vec::new()).expect_err("too long").0.contains("40000 bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_writer_at_a_time_and_the_error_says_so() {
    let folder = tempfile::tempdir().expect("folder");
    let first = build(folder.path());
    first.check().await.expect("first");
    let error = build(folder.path()).check().await.expect_err("second").to_string();
    assert!(error.contains("another run is writing it") && error.contains("out/index"), "{error}");
    first.commit().await.expect("commit");
    build(folder.path()).check().await.expect("free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn building_touches_nothing_and_check_refuses_what_is_no_index_x13() {
    let folder = tempfile::tempdir().expect("folder");
    let backend = build(folder.path());
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    std::fs::create_dir_all(folder.path().join("out/index")).expect("folder");
    std::fs::write(folder.path().join("out/index/letter.txt"), "dear").expect("file");
    let error = backend.check().await.expect_err("no index").to_string();
    assert!(error.contains("letter.txt"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path().join("out/index")).expect("folder").count(), 1);
}

/// What the killed process of the next test runs.
#[test]
#[ignore = "is started by killed_in_mid_run_leaves_the_former_commit, and killed"]
fn child_that_writes_until_it_is_killed() {
    let Ok(folder) = std::env::var("PENSTOCK_TEST_FOLDER") else { return };
    let backend = build(Path::new(&folder));
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    runtime.block_on(async {
        backend.check().await.expect("check");
        for n in 0.. {
            let mut request = Request::default();
            for i in 0..100 {
                let document = document(&format!("new-{n}-{i}"), &format!(r#"{{"v":"new","text":"{}"}}"#, "word ".repeat(100)));
                backend.encode(&document, &mut request.body).expect("encoded");
                let end = request.body.len();
                request.items.push(crate::indexers::Item { tag: Default::default(), id: document.id().into(), end });
                request.documents.push(document);
            }
            let items: Vec<u32> = (0..100).collect();
            assert!(matches!(backend.send(&request, &items).await, Answer::Done));
            eprintln!("sent {n}");
        }
    });
}

#[test]
fn killed_in_mid_run_leaves_the_former_commit() {
    let folder = tempfile::tempdir().expect("folder");
    write_all(&build(folder.path()), &[document("old-1", r#"{"v":"old"}"#), document("old-2", r#"{"v":"old"}"#)]);
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "--ignored", "--nocapture", "indexers::embedded::tests::child_that_writes_until_it_is_killed"])
        .env("PENSTOCK_TEST_FOLDER", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("child");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("sent 20") {
        line.clear();
        assert!(errors.read_line(&mut line).expect("child's output") > 0, "the child ended by itself");
    }
    assert_eq!(ids(folder.path(), "*"), ["old-1", "old-2"], "nothing is visible before the commit");
    assert!(build_is_busy(folder.path()));
    child.kill().expect("killed");
    child.wait().expect("ended");
    errors.read_to_string(&mut line).expect("rest");
    assert_eq!(ids(folder.path(), "*"), ["old-1", "old-2"]);
    write_all(&build(folder.path()), &[document("old-2", r#"{"v":"new"}"#), document("new-1", r#"{"v":"new"}"#)]);
    assert_eq!(ids(folder.path(), "v:new"), ["new-1", "old-2"]);
    assert_eq!(ids(folder.path(), "*"), ["new-1", "old-1", "old-2"]);
}

fn build_is_busy(folder: &Path) -> bool {
    matches!(Writing::begin(&folder.join("out/index")), Err(OpenError::Busy(_)))
}
