//! A real OpenSearch node that is too small, or goes away in the middle: nothing is lost, and nothing fails for it.

use penstock::document::Document;
use penstock_tests::{
    indexing::{Indexing, document},
    services::{opensearch::OpenSearch, poll_until},
};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

fn indexing(node: &OpenSearch, index: &str, more: &str, lanes: usize) -> Indexing {
    Indexing::new(&format!("{{opensearch: {{urls: ['{}'], index: {index}}}{more}}}", node.url()), None, lanes)
}

fn documents(count: usize, text: &str) -> Vec<Document> {
    (0..count).map(|i| document(&format!("d{i}"), &format!(r#"{{"n":{i},"text":"{text}"}}"#))).collect()
}

#[test]
fn a_node_that_is_too_small_gets_everything_in_the_end_s17() {
    let limits = ["thread_pool.write.size=1", "thread_pool.write.queue_size=1", "http.max_content_length=200kb"];
    let node = OpenSearch::start(&limits).expect("OpenSearch");

    // 413: batches are halved; what is too large alone fails alone
    let halved = indexing(&node, "large", ", batch: {maxDocuments: 40, maxBytes: 5Mi}", 1);
    let mut large = documents(40, &"x".repeat(20_000));
    large.push(document("giant", &format!(r#"{{"text":"{}"}}"#, "x".repeat(300_000))));
    let report = halved.index(large);
    assert_eq!((report.finished.len(), report.failed.len()), (40, 1), "{:?}", report.fatal);
    let reason = &report.failed["giant"];
    assert!(reason.contains("413") && reason.contains("bytes in one request are too many"), "{reason}");
    assert_eq!(node.count("large").expect("count"), 40);

    // 429: a queue of one request, and twelve lanes with four requests each
    let retry = ", retry: {initialBackoff: 20ms, maxBackoff: 500ms, maxRetries: 1000}, batch: {maxDocuments: 20, maxInFlight: 4}";
    let crowded = indexing(&node, "crowded", retry, 12);
    let report = crowded.index(documents(6_000, "many at once"));
    assert_eq!((report.finished.len(), report.failed.len()), (6_000, 0), "{:?}", report.fatal);
    assert!(crowded.stats().outages.load(Relaxed) + crowded.stats().retries.load(Relaxed) > 0, "the queue was never full");
    assert_eq!(node.count("crowded").expect("count"), 6_000);
}

#[test]
fn a_node_that_goes_away_in_the_middle_is_waited_for_lucille_12_8() {
    let node = OpenSearch::start(&[]).expect("OpenSearch");
    let settings = ", retry: {initialBackoff: 50ms, maxBackoff: 500ms, maxRetries: 0}, batch: {maxDocuments: 50}";
    let patient = indexing(&node, "patient", settings, 4);
    let report = std::thread::scope(|scope| {
        let run = scope.spawn(|| patient.index(documents(30_000, "some text to take its time")));
        let finished = || patient.report().finished.len();
        poll_until("the first thousand", Duration::from_secs(60), || finished() >= 1_000).expect("progress");
        node.stop();
        poll_until("the outage is seen", Duration::from_secs(30), || patient.stats().waiting_lanes.load(Relaxed) > 0).expect("outage");
        assert!(finished() < 30_000, "it was over before");
        node.start_again().expect("OpenSearch again");
        run.join().expect("run")
    });
    assert_eq!((report.finished.len(), report.failed.len()), (30_000, 0), "{:?}", report.fatal);
    assert_eq!(patient.stats().waiting_lanes.load(Relaxed), 0);
    assert_eq!(node.count("patient").expect("count"), 30_000);

    // frozen: requests run into their time limit
    let settings = format!(
        "{{opensearch: {{urls: ['{}'], index: frozen, timeout: 1s}}, retry: {{initialBackoff: 50ms, maxBackoff: 100ms}}}}",
        node.url()
    );
    let frozen = Indexing::new(&settings, None, 1);
    node.pause().expect("pause");
    let report = std::thread::scope(|scope| {
        let run = scope.spawn(|| frozen.index(documents(10, "late")));
        poll_until("the outage is seen", Duration::from_secs(30), || frozen.stats().waiting_lanes.load(Relaxed) == 1).expect("outage");
        node.resume().expect("resume");
        run.join().expect("run")
    });
    assert_eq!((report.finished.len(), report.failed.len()), (10, 0), "{:?}", report.fatal);

    // away for longer than it is waited for
    let settings = ", retry: {initialBackoff: 50ms, maxBackoff: 100ms, maxElapsed: 2s}, batch: {maxDocuments: 50}";
    let impatient = indexing(&node, "impatient", settings, 2);
    let report = std::thread::scope(|scope| {
        let run = scope.spawn(|| impatient.index(documents(30_000, "some text to take its time")));
        poll_until("the first thousand", Duration::from_secs(60), || impatient.report().finished.len() >= 1_000).expect("progress");
        node.stop();
        run.join().expect("run")
    });
    assert!(report.failed.is_empty() && report.finished.len() < 30_000, "the rest is pending");
    let (message, unreachable) = &report.fatal[0];
    assert!(*unreachable && message.contains("longer than retry.maxElapsed"), "{message}");
}
