//! The publisher as a connector sees it, over a writer that remembers what it was told.

use super::*;
use crate::{
    connectors::{Cursor, Publish, RecordFault, Stopped},
    document::{Document, Value},
    indexers::{DeadLetter, Letter},
    messenger::{Closed, SourceWriter, recording::Recording},
    telemetry::testing::logged,
};
use parking_lot::Mutex;
use penstock_crds::ingest_run::Counts;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use tracing::Level;

/// Remembers in one story what is sent, kept and flushed.
#[derive(Clone, Default)]
struct Story {
    lines: Arc<Mutex<Vec<String>>>,
    is_closed: Arc<AtomicBool>,
    is_full: Arc<AtomicBool>,
}

impl Story {
    fn add(&self, line: String) {
        self.lines.lock().push(line);
    }
}

impl SourceWriter for Story {
    fn send(&mut self, seq: u64, document: Document) -> Result<(), Closed> {
        if self.is_closed.load(SeqCst) {
            return Err(Closed);
        }
        let values = document.fields().get("v").map(|value| format!("={value:?}")).unwrap_or_default();
        self.add(format!("{seq} {}{values}", document.id()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Closed> {
        self.add("flush".into());
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        0
    }

    fn finish(&mut self) {
        self.add("finish".into());
    }
}

impl DeadLetter for Story {
    fn keep(&self, letter: Letter<'_>) -> io::Result<()> {
        if self.is_full.load(SeqCst) {
            return Err(io::Error::other("disk full"));
        }
        self.add(format!("kept {}", letter.reason));
        Ok(())
    }
}

const SETTINGS: PublisherSettings =
    PublisherSettings { max_pending: 1_000, max_rate: None, collapse: false, limit: None, epoch: 1, after: 0, checkpoints: None };

/// A publisher with what it works on.
struct Stand {
    publisher: Publisher<Story>,
    story: Story,
    state: Arc<StepState>,
    events: Recording,
}

fn stand(settings: PublisherSettings) -> Stand {
    let (story, state, events) = (Story::default(), StepState::new(), Recording::new());
    let publisher = Publisher::new(story.clone(), Arc::clone(&state), Arc::new(events.clone()), Arc::new(story.clone()), settings);
    Stand { publisher, story, state, events }
}

impl Stand {
    fn publish(&mut self, id: &str) -> Result<(), Stopped> {
        self.publisher.publish(Document::new(id), Cursor::default())
    }

    fn publish_value(&mut self, id: &str, value: i64) -> Result<(), Stopped> {
        let mut document = Document::new(id);
        document.fields_mut().insert("v", Value::Int(value));
        self.publisher.publish(document, Cursor::default())
    }

    fn fail(&mut self) -> Result<(), Stopped> {
        self.publisher.fail(RecordFault { id: String::new(), reason: "broken".into(), raw: b"x".to_vec() }, Cursor::default())
    }

    /// Ends the publisher; gives the story and why it had ended before.
    fn finish(self) -> (Vec<String>, Option<PublisherEnd>) {
        let end = self.publisher.finish();
        (self.story.lines.lock().clone(), end)
    }
}

#[test]
fn a_number_is_given_out_before_its_document_is_sent_p1() {
    let mut stand = stand(SETTINGS);
    stand.story.is_closed.store(true, SeqCst);
    assert_eq!(stand.publish("a"), Err(Stopped));
    assert_eq!(stand.state.counts(), Counts { published: 1, pending: 1, ..Counts::default() });
}

#[test]
fn a_document_that_cannot_be_sent_stays_pending_and_stops_the_connector_p20() {
    let mut stand = stand(SETTINGS);
    stand.publish("a").expect("open");
    stand.story.is_closed.store(true, SeqCst);
    assert_eq!(stand.publish("b"), Err(Stopped));
    assert_eq!(stand.publish("c"), Err(Stopped), "and so it stays");
    assert_eq!(stand.state.counts(), Counts { published: 2, pending: 2, ..Counts::default() });
    let (story, end) = stand.finish();
    assert_eq!(story, ["1 a", "finish"]);
    assert!(matches!(end, Some(PublisherEnd::Stopped)));
}

#[test]
fn what_is_held_back_is_sent_at_the_end_also_without_documents_p19() {
    assert_eq!(stand(SETTINGS).finish().0, ["finish"]);
    let mut merging = stand(PublisherSettings { collapse: true, ..SETTINGS });
    merging.publish("a").expect("open");
    assert!(merging.story.lines.lock().is_empty(), "held back");
    let (story, end) = merging.finish();
    assert_eq!((story, end.is_none()), (vec!["1 a".to_owned(), "finish".to_owned()], true));
}

#[test]
fn a_record_that_cannot_be_read_keeps_its_place_among_merged_ones_p18() {
    let mut stand = stand(PublisherSettings { collapse: true, ..SETTINGS });
    stand.publish_value("a", 1).expect("open");
    stand.publish_value("a", 2).expect("open");
    stand.fail().expect("open");
    stand.publish_value("a", 3).expect("open");
    let state = Arc::clone(&stand.state);
    assert_eq!(stand.events.history().events.iter().map(|(_, tag)| tag.seq).collect::<Vec<_>>(), [2]);
    let (story, _) = stand.finish();
    assert_eq!(story, ["1 a=List([Int(1), Int(2)])", "kept broken", "3 a=Int(3)", "finish"]);
    assert_eq!(state.received(), Some(4));
}

#[test]
fn a_limit_counts_records_and_loses_none_of_them() {
    for (collapse, expected) in [(false, vec!["1 a", "2 a", "3 b", "finish"]), (true, vec!["1 a", "2 b", "finish"])] {
        let mut stand = stand(PublisherSettings { limit: Some(3), collapse, ..SETTINGS });
        for id in ["a", "a", "b"] {
            stand.publish(id).expect("within the limit");
        }
        assert_eq!((stand.publish("c"), stand.fail()), (Err(Stopped), Err(Stopped)));
        let state = Arc::clone(&stand.state);
        let (story, end) = stand.finish();
        assert_eq!(story, expected);
        assert_eq!(state.received(), collapse.then_some(3));
        assert!(matches!(end, Some(PublisherEnd::Limit)), "{end:?}");
    }
}

#[test]
fn a_limit_is_no_success_if_the_rest_cannot_be_sent() {
    let mut stand = stand(PublisherSettings { limit: Some(1), collapse: true, ..SETTINGS });
    stand.publish("a").expect("within the limit");
    assert_eq!(stand.publish("b"), Err(Stopped));
    stand.state.stop_publishing();
    assert!(matches!(stand.finish().1, Some(PublisherEnd::Stopped)));
}

#[test]
fn a_rate_holds_documents_up_and_hands_on_what_was_held_back() {
    let mut stand = stand(PublisherSettings { max_rate: Some(100), ..SETTINGS });
    let begun = Instant::now();
    for _ in 0..15 {
        stand.publish("a").expect("open");
    }
    // 5 at once, then 5 for each twentieth of a second
    assert!(begun.elapsed() >= Duration::from_millis(90), "{:?}", begun.elapsed());
    let (story, _) = stand.finish();
    let flushed = story.iter().position(|line| line == "flush");
    assert_eq!(flushed, Some(5), "before the first wait: {story:?}");
}

#[test]
fn a_step_that_ends_wakes_a_publisher_that_waits() {
    for settings in [PublisherSettings { max_pending: 1, ..SETTINGS }, PublisherSettings { max_rate: Some(1), ..SETTINGS }] {
        let mut stand = stand(settings);
        stand.publish("a").expect("open");
        let stopper = thread::spawn({
            let (state, story) = (Arc::clone(&stand.state), stand.story.clone());
            move || {
                // it is about to wait once it has flushed
                while !story.lines.lock().iter().any(|line| line == "flush") {
                    thread::yield_now();
                }
                state.stop_publishing();
            }
        });
        assert_eq!(stand.publish("b"), Err(Stopped));
        stopper.join().expect("stopper");
        assert_eq!(stand.state.published(), 1, "what waits has no number");
        assert!(matches!(stand.finish().1, Some(PublisherEnd::Stopped)));
    }
}

#[test]
fn a_record_that_cannot_be_kept_stays_pending_and_is_the_reason_of_the_end_s39() {
    let mut stand = stand(SETTINGS);
    stand.story.is_full.store(true, SeqCst);
    assert_eq!(stand.fail(), Err(Stopped));
    assert_eq!(stand.publish("a"), Err(Stopped));
    assert_eq!(stand.state.counts(), Counts { published: 1, pending: 1, ..Counts::default() });
    assert!(stand.events.history().events.is_empty());
    assert!(matches!(stand.finish().1, Some(PublisherEnd::DeadLetter(error)) if error.to_string() == "disk full"));
}

#[test]
fn each_document_that_is_published_or_cannot_be_read_is_a_line_at_debug_level_m12() {
    let mut stand = stand(SETTINGS);
    let (result, log) = logged(Level::DEBUG, || stand.publish("a").and_then(|()| stand.fail()));
    result.expect("open");
    let lines: Vec<_> = log.lines().filter(|line| line.contains("penstock::document: ")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains(r#"published doc_id="a" seq=1"#) && lines[1].contains(r#"unreadable doc_id="" reason="broken""#), "{log}");
}
