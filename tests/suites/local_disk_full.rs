//! What writes to the disk when the disk is full or read-only: the run ends with a cure, and nothing half-done is passed off as done.

use penstock::{
    context::StepContext,
    dead_letter::DeadLetterFile,
    document::{Document, Fields},
    event::Tag,
    indexers::{self, Answer, Backend, BackendError, Content, DeadLetter, Item, Letter, Request, embedded::Search},
    secrets::Secrets,
};
use penstock_crds::indexers::Indexer;
use penstock_tests::small_disk::SmallDisk;
use std::{path::Path, sync::Arc};

fn step(folder: &Path) -> StepContext {
    StepContext {
        run: "run".into(),
        run_id: "run-1".into(),
        connector: "connector".into(),
        pipeline: "pipeline".into(),
        base_dir: folder.into(),
        run_base_dir: folder.into(),
        secrets: Secrets::default(),
        runtime: tokio::runtime::Handle::current(),
        stop: Default::default(),
        is_continuous: false,
        written: Default::default(),
    }
}

fn backend(yaml: &str, folder: &Path) -> Arc<dyn Backend> {
    let spec: Indexer = serde_yaml_ng::from_str(yaml).expect(yaml);
    indexers::build(&spec, &step(folder)).expect(yaml)
}

/// Sends a hundred documents of about 1 kB that do not compress well.
async fn send(backend: &dyn Backend, round: u64) -> Answer {
    let mut request = Request::default();
    let mut random = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for n in 0..100 {
        let mut words = String::new();
        for _ in 0..60 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            words.push_str(&format!("{random:x} "));
        }
        let fields: Fields = [("text".into(), words.into())].into_iter().collect();
        let document = Document::with_fields(format!("{round}-{n}"), fields);
        backend.encode(&document, &mut request.body).expect("encoded");
        request.items.push(Item { tag: Tag::source(n + 1), id: document.id().into(), end: request.body.len() });
        request.documents.push(document);
    }
    backend.send(&request, &(0..100).collect::<Vec<_>>()).await
}

/// Writes until the disk is full, at the latest when it is committed.
async fn fill(backend: &dyn Backend) -> BackendError {
    for round in 1..200 {
        match send(backend, round).await {
            Answer::Done => {}
            Answer::Fatal(error) => {
                backend.abandon().await;
                return error;
            }
            other => unreachable!("a disk that fills up answered {other:?}"),
        }
    }
    backend.commit().await.expect_err("20 MB do not fit")
}

async fn write(backend: &dyn Backend) {
    backend.check().await.expect("check");
    assert!(matches!(send(backend, 0).await, Answer::Done));
    backend.commit().await.expect("commit");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("folder");
    entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_on_a_full_disk_keeps_its_former_content() {
    let disk = SmallDisk::mount(1_024).expect("disk");
    for yaml in ["jsonLines: {path: out.txt}", "csv: {path: out.txt, columns: [id, text]}", "jsonLines: {path: out.txt, append: true}"] {
        std::fs::write(disk.path().join("out.txt"), "former\n").expect("file");
        let indexer = backend(yaml, disk.path());
        indexer.check().await.expect("check");
        let error = fill(&*indexer).await;
        assert!(error.message.contains("out.txt") && error.message.contains("free space"), "{error}");
        assert!(!error.unreachable);
        assert_eq!(std::fs::read_to_string(disk.path().join("out.txt")).expect("file"), "former\n", "{yaml}");
        assert_eq!(names(disk.path()), ["out.txt"], "what was half-written is gone");
        write(&*backend(yaml, disk.path())).await;
        std::fs::remove_file(disk.path().join("out.txt")).expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_on_a_full_disk_keeps_its_last_commit() {
    let disk = SmallDisk::mount(4_096).expect("disk");
    let yaml = "embedded: {path: index}";
    write(&*backend(yaml, disk.path())).await;
    let indexer = backend(yaml, disk.path());
    indexer.check().await.expect("check");
    let error = fill(&*indexer).await;
    assert!(error.message.contains("/index") && error.message.contains("free space"), "{error}");
    drop(indexer);
    assert_eq!(Search::open(&disk.path().join("index")).expect("index").len(), 100);
    write(&*backend(yaml, disk.path())).await;
    assert_eq!(Search::open(&disk.path().join("index")).expect("index").len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_folder_is_found_before_anything_is_read() {
    let disk = SmallDisk::mount(1_024).expect("disk");
    std::fs::write(disk.path().join("out.txt"), "former\n").expect("file");
    disk.make_read_only().expect("read-only");
    for yaml in
        ["jsonLines: {path: out.txt}", "jsonLines: {path: new/out.txt}", "csv: {path: out.txt, columns: [id]}", "embedded: {path: index}"]
    {
        let error = backend(yaml, disk.path()).check().await.expect_err(yaml).to_string();
        assert!(error.contains("allow") && error.contains("or choose another path"), "{error}");
        assert_eq!(names(disk.path()), ["out.txt"]);
    }
    let letters = DeadLetterFile::new(disk.path().join("out.txt"));
    assert!(letters.check().expect_err("read-only").to_string().contains("--dead-letter"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_document_that_cannot_be_kept_ends_the_run_and_is_not_reported_s39() {
    let disk = SmallDisk::mount(64).expect("disk");
    let file = Arc::new(DeadLetterFile::new(disk.path().join("fail.jsonl")));
    let letters = file.for_step(&step(disk.path()));
    let raw = vec![b'x'; 5_000];
    let letter = Letter { tag: Tag::source(1), id: "1", stage: "price", reason: "no number", attempts: 1, content: Content::Raw(&raw) };
    let error = (0..100).find_map(|_| letters.keep(letter).err()).expect("500 kB do not fit").to_string();
    assert!(error.contains("fail.jsonl") && error.contains("--dead-letter"), "{error}");
    let text = std::fs::read_to_string(file.path()).expect("file");
    let whole = text.lines().filter(|line| line.ends_with('}')).count() as u64;
    assert_eq!(whole, file.kept(), "what was kept is there");
}
