//! What a pipeline promises: order, children, errors, counts.

use super::*;
use crate::stages::testing::{Recording, document, lane, run, sink, stages, to_json};
use crate::stages::{Next, StageError};
use penstock_crds::stages::OnError;
use proptest::prelude::*;

/// A list of numbers explodes; the numbers can be lists again.
const EXPLODE: &str = r#"{"explode": {"source": "v", "target": "v", "idTemplate": "{id}.{index}"}, "when": "is_array(.v)"}"#;

fn tags(recording: &Recording) -> Vec<(String, u32, u32)> {
    recording.forwarded.iter().map(|(document, tag)| (document.id().to_owned(), tag.ordinal, tag.children)).collect()
}

#[test]
fn stages_run_in_order_and_only_where_when_holds() {
    let stages = r#"[{"set": {"values": {"a": 1}}}, {"when": ".a == 1", "set": {"values": {"b": 2}}},
        {"when": ".a == 2", "set": {"values": {"c": 3}}}, {"rename": {"fields": {"b": "d"}}}]"#;
    let recording = run(stages, document("x", "{}"));
    assert_eq!(to_json(&recording.forwarded[0].0), r#"{"a":1,"d":2}"#);
    assert_eq!(recording.forwarded[0].1, Tag::source(1));
}

#[test]
fn a_skipped_document_sees_no_later_stage() {
    let recording = run(r#"[{"skip": {}}, {"drop": {}}]"#, document("x", "{}"));
    assert_eq!(recording.story, ["+x"]);
}

#[test]
fn a_dropped_document_is_counted_as_dropped_and_goes_nowhere_s36() {
    let recording = run(r#"[{"name": "bin", "drop": {"reason": "test data"}}, {"set": {"values": {"a": 1}}}]"#, document("x", "{}"));
    assert_eq!(recording.story, ["-x"]);
    assert_eq!(recording.dropped, [("x".into(), Tag::source(1), "bin".into(), "test data".into())]);
}

#[test]
fn children_go_depth_first_before_their_parent_through_later_stages_only() {
    let stages =
        format!(r#"[{{"set": {{"values": {{"before": true}}}}}}, {EXPLODE}, {EXPLODE}, {{"set": {{"values": {{"after": true}}}}}}]"#);
    let recording = run(&stages, document("p", r#"{"v":[[1,2],3]}"#));
    assert_eq!(
        tags(&recording),
        [
            // made in the order p.0 (1), p.0.0 (2), p.0.1 (3), p.1 (4); then the parent explodes once more
            ("p.0.0".into(), 2, 0),
            ("p.0.1".into(), 3, 0),
            ("p.0".into(), 1, 0),
            ("p.1".into(), 4, 0),
            ("p.0".into(), 5, 0),
            ("p.1".into(), 6, 0),
            ("p".into(), 0, 6),
        ] as [(String, u32, u32); 7]
    );
    assert_eq!(to_json(&recording.forwarded[0].0), r#"{"v":1,"after":true}"#);
    assert_eq!(recording.forwarded[0].0.parent_id(), Some("p.0"));
    assert_eq!(to_json(&recording.forwarded[6].0), r#"{"v":[[1,2],3],"before":true,"after":true}"#);
}

#[test]
fn a_failing_stage_fails_that_document_and_no_other_s7() {
    let stages = r#"{"name": "price", "remap": {"source": ".price = to_float!(.price)"}}"#;
    let mut lane = lane(stages);
    let mut sink = sink();
    for (seq, (id, fields)) in [("a", r#"{"price":"1.5"}"#), ("b", r#"{"price":"n/a"}"#), ("c", r#"{"price":2}"#)].into_iter().enumerate() {
        lane.process(document(id, fields), seq as u64 + 1, &mut sink).expect("open");
    }
    assert_eq!(sink.story, ["+a", "!b", "+c"]);
    let (id, tag, stage, reason, kept) = &sink.failed[0];
    assert_eq!((id.as_str(), *tag, stage.as_str()), ("b", Tag::source(2), "price"));
    assert_eq!(
        reason,
        "line 1 of the program, `.price = to_float!(.price)`: \"to_float\": Invalid floating point number \"n/a\": invalid float literal"
    );
    // whoever read the source document still has it
    assert_eq!(*kept, None);
}

#[test]
fn a_failed_child_costs_neither_its_siblings_nor_its_parent() {
    let stages = format!(r#"[{EXPLODE}, {{"name": "n", "when": "!is_array(.v)", "remap": {{"source": ".v = to_int!(.v)"}}}}]"#);
    let recording = run(&stages, document("p", r#"{"v":["1","x","3"]}"#));
    assert_eq!(recording.story, ["+p.0", "!p.1", "+p.2", "+p"]);
    let (_, tag, stage, _, kept) = &recording.failed[0];
    assert_eq!((*tag, stage.as_str()), (Tag { seq: 1, ordinal: 2, children: 0 }, "n"));
    assert_eq!(to_json(kept.as_ref().expect("the child")), r#"{"v":"x"}"#);
    assert_eq!(recording.forwarded[2].1, Tag { seq: 1, ordinal: 0, children: 3 });
}

#[test]
fn a_failed_child_is_kept_as_it_entered_the_stage() {
    // the first pair is written, the second cannot be
    let stages = format!(r#"[{EXPLODE}, {{"when": "!is_array(.v)", "copy": {{"fields": {{"v": ["a", "v.x"]}}}}}}]"#);
    let recording = run(&stages, document("p", r#"{"v":["1"]}"#));
    assert_eq!(recording.story, ["!p.0", "+p"]);
    assert_eq!(to_json(recording.failed[0].4.as_ref().expect("the child")), r#"{"v":"1"}"#);
}

#[test]
fn children_made_before_an_error_stay_and_their_parent_fails_s8() {
    for drop_parent in [false, true] {
        let stages = format!(
            r#"[{{"name": "x", "explode": {{"source": "v", "target": "t", "idTemplate": "{{t}}", "dropParent": {drop_parent}}}}}]"#
        );
        let recording = run(&stages, document("p", r#"{"v":["a","b",""]}"#));
        assert_eq!(recording.story, ["+a", "+b", "!p"]);
        assert_eq!(recording.failed[0].1, Tag { seq: 1, ordinal: 0, children: 2 });
        assert_eq!(recording.failed[0].3, "child 2: its id is empty; see `idTemplate`");
    }
}

#[test]
fn an_error_among_the_children_follows_on_error_of_their_stage() {
    for (on_error, story) in [("Continue", ["+a", "+p"]), ("Drop", ["+a", "-p"])] {
        let stages = format!(
            r#"{{"onError": "{on_error}", "explode": {{"source": "v", "target": "t", "idTemplate": "{{t}}", "dropParent": true}}}}"#
        );
        assert_eq!(run(&stages, document("p", r#"{"v":["a","","c"]}"#)).story, story);
    }
}

#[test]
fn a_dropped_parent_counts_its_children() {
    let stages = r#"{"name": "x", "explode": {"source": "v", "target": "t", "dropParent": true}}"#;
    let recording = run(stages, document("p", r#"{"v":[1,2]}"#));
    assert_eq!(recording.story, ["+p#0", "+p#1", "-p"]);
    assert_eq!(recording.dropped[0].1, Tag { seq: 1, ordinal: 0, children: 2 });
}

#[test]
fn a_dropped_child_is_counted_as_made_and_dropped_p22() {
    let stages = format!(r#"[{EXPLODE}, {{"when": ".v == 1", "drop": {{}}}}]"#);
    let recording = run(&stages, document("p", r#"{"v":[1,2]}"#));
    assert_eq!(recording.story, ["-p.0", "+p.1", "+p"]);
    assert_eq!(recording.dropped[0].1, Tag { seq: 1, ordinal: 1, children: 0 });
    assert_eq!(recording.forwarded[1].1.children, 2);
}

#[test]
fn children_may_share_an_id_and_keep_their_order() {
    let stages = r#"{"explode": {"source": "v", "target": "t", "idTemplate": "same"}}"#;
    let recording = run(stages, document("p", r#"{"v":[1,2]}"#));
    assert_eq!(recording.story, ["+same", "+same", "+p"]);
    assert_eq!(to_json(&recording.forwarded[0].0), r#"{"t":1}"#);
}

#[test]
fn on_error_decides_over_a_document_that_a_stage_cannot_process() {
    let stages = |on_error: &str| {
        format!(
            r#"[{{"name": "s", "onError": "{on_error}", "set": {{"values": {{"a": 1, "t.x": 2}}}}}}, {{"set": {{"values": {{"z": 0}}}}}}]"#
        )
    };
    let before = || document("d", r#"{"t":"text"}"#);
    let failed = run(&stages("Fail"), before());
    assert_eq!(failed.story, ["!d"]);
    let dropped = run(&stages("Drop"), before());
    assert_eq!(dropped.dropped, [("d".into(), Tag::source(1), "s".into(), "cannot write `t.x`: `t` is text, not an object".into())]);
    let continued = run(&stages("Continue"), before());
    assert_eq!(to_json(&continued.forwarded[0].0), r#"{"t":"text","z":0}"#);
}

#[test]
fn an_error_of_the_predicate_is_an_error_of_the_stage() {
    let stage = |on_error: &str| format!(r#"{{"name": "w", "onError": "{on_error}", "when": "to_int!(.a) > 1", "drop": {{}}}}"#);
    let recording = run(&stage("Fail"), document("d", r#"{"a":"x"}"#));
    assert_eq!(recording.failed[0].2, "w");
    assert!(recording.failed[0].3.starts_with("`when`: line 1 of the program, `to_int!(.a) > 1`"), "{}", recording.failed[0].3);
    assert_eq!(run(&stage("Continue"), document("d", r#"{"a":"x"}"#)).story, ["+d"]);
    assert_eq!(run(&stage("Fail"), document("d", r#"{"a":"2"}"#)).story, ["-d"]);
}

/// A stage for what no stage of ours does.
#[derive(Clone)]
struct Panics;

impl crate::stages::Stage for Panics {
    fn process(&mut self, document: &mut Document) -> Result<Next, StageError> {
        assert_ne!(document.id(), "bad", "cannot cope");
        Ok(Next::Continue)
    }
}

fn step(stage: impl crate::stages::Prototype + 'static, on_error: OnError) -> Plan {
    let label = StageLabel { name: "s".into(), kind: "set" };
    Plan { steps: vec![Arc::new(PlannedStep { label, when: None, on_error, stage: Box::new(stage) })] }
}

#[test]
fn a_panic_fails_one_document_whatever_on_error_says_and_the_rest_goes_on_s9() {
    let mut lane = step(Panics, OnError::Continue).lane();
    let mut sink = sink();
    for id in ["a", "bad", "b"] {
        lane.process(Document::new(id), 1, &mut sink).expect("open");
    }
    assert_eq!(sink.story, ["+a", "!bad", "+b"]);
    assert!(sink.failed[0].3.contains("cannot cope"), "{}", sink.failed[0].3);
}

/// Tells which stage the lane says it is in while a document passes.
#[derive(Clone)]
struct Look(Arc<parking_lot::Mutex<Vec<u32>>>, Arc<parking_lot::Mutex<Option<Arc<AtomicU32>>>>);

impl crate::stages::Stage for Look {
    fn process(&mut self, _: &mut Document) -> Result<Next, StageError> {
        let position = self.1.lock().as_ref().map_or(0, |position| position.load(Ordering::Relaxed));
        self.0.lock().push(position);
        Ok(Next::Continue)
    }
}

#[test]
fn a_watcher_sees_which_stage_is_at_work() {
    let look = Look(Arc::default(), Arc::default());
    let plan = Plan { steps: [look.clone(), look.clone()].into_iter().flat_map(|stage| step(stage, OnError::Fail).steps).collect() };
    let mut lane = plan.lane();
    *look.1.lock() = Some(lane.position());
    lane.process(Document::new("d"), 1, &mut sink()).expect("open");
    assert_eq!(*look.0.lock(), [0, 1]);
    assert_eq!(lane.position().load(Ordering::Relaxed), Pipeline::OUTSIDE);
}

/// Takes a number of documents and then no more.
struct Closing(usize);

impl Sink for Closing {
    fn forward(&mut self, _: Document, _: Tag) -> Result<(), SinkClosed> {
        self.0 = self.0.checked_sub(1).ok_or(SinkClosed)?;
        Ok(())
    }
    fn dropped(&mut self, document: Document, tag: Tag, _: &str, _: String) -> Result<(), SinkClosed> {
        self.forward(document, tag)
    }
    fn failed(&mut self, _: Failure<'_>) -> Result<(), SinkClosed> {
        Err(SinkClosed)
    }
}

#[test]
fn a_closed_sink_ends_the_passage_in_the_middle_of_a_family() {
    let mut lane = lane(EXPLODE);
    let family = || document("p", r#"{"v":[1,2,3]}"#);
    assert_eq!(lane.process(family(), 1, &mut Closing(2)), Err(SinkClosed));
    assert_eq!(lane.process(family(), 1, &mut Closing(4)), Ok(()));
}

#[test]
fn every_stage_is_counted_alike_and_counts_are_taken_once() {
    let stages = format!(
        r#"[{EXPLODE}, {{"name": "odd", "when": ".v == 1", "drop": {{}}}},
        {{"name": "int", "onError": "Continue", "when": "!is_array(.v)", "remap": {{"source": ".v = to_int!(.v)"}}}},
        {{"name": "fail", "when": ".v == \"x\"", "remap": {{"source": ".v = to_int!(.v)"}}}}]"#
    );
    let mut lane = lane(&stages);
    lane.process(document("p", r#"{"v":[1,"x","3"]}"#), 1, &mut sink()).expect("open");
    let stats: Vec<_> = lane.take_stats().map(|(label, stats)| (label.name.clone(), label.kind, stats)).collect();
    let counts = |i: usize| {
        let stats: &StageStats = &stats[i].2;
        (stats.processed, stats.passed_over, stats.failed, stats.dropped, stats.children, stats.continued)
    };
    assert_eq!((stats[0].0.as_str(), stats[0].1), ("explode-1", "explode"));
    assert_eq!(counts(0), (1, 0, 0, 0, 3, 0));
    assert_eq!(counts(1), (1, 3, 0, 1, 0, 0));
    assert_eq!(counts(2), (2, 1, 0, 0, 0, 1));
    assert_eq!(counts(3), (1, 2, 1, 0, 0, 0));
    assert!(stats.iter().all(|(_, _, stats)| stats.durations.count() > 0));
    assert!(lane.take_stats().all(|(_, stats)| stats == StageStats::default()));
}

#[test]
fn a_call_that_fails_is_timed_as_any_other_m4() {
    let mut lane = lane(r#"{"remap": {"source": "assert!(false)"}}"#);
    let mut sink = sink();
    lane.process(document("d", "{}"), 1, &mut sink).expect("open");
    let (_, stats) = lane.take_stats().next().expect("a stage");
    assert_eq!((sink.failed.len(), stats.processed, stats.failed), (1, 1, 1));
    assert!(stats.durations.count() > 0 && stats.durations.sum_seconds > 0.0);
}

#[test]
fn a_plan_names_every_problem_and_its_stages() {
    let context = crate::stages::testing::context_in(std::path::Path::new("/"));
    let bad = stages(r#"[{"rename": {"fields": {"a": ""}}}, {"when": ".a", "extract": {"source": "a", "pattern": "("}}]"#);
    let error = Plan::compile(&bad, &context).err().expect("problems");
    let paths: Vec<_> = error.0.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["[0].rename.fields.a", "[1].when", "[1].extract.pattern"]);
    let plan = Plan::compile(&stages(r#"[{"skip": {}}, {"name": "n", "drop": {}}]"#), &context).expect("plan");
    assert_eq!(plan.labels().map(|label| (label.name.as_str(), label.kind)).collect::<Vec<_>>(), [("skip-1", "skip"), ("n", "drop")]);
}

#[test]
fn a_preview_writes_nothing() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("x.jsonl");
    let preview = format!(r#"[{{"capture": {{"path": "{}"}}}}, {{"set": {{"values": {{"a": 1}}}}}}]"#, path.display());
    let mut sink = sink();
    Plan::preview(&stages(&preview)).expect("plan").lane().process(document("d", "{}"), 1, &mut sink).expect("open");
    assert_eq!(to_json(&sink.forwarded[0].0), r#"{"a":1}"#);
    assert!(!path.exists());
}

proptest! {
    /// Whatever happens to whom: each document ends once, the source last, and its children are all that were made.
    #[test]
    fn every_document_ends_once_and_the_family_is_complete(values in proptest::collection::vec(proptest::option::of(0_i64..5), 0..8)) {
        let list: Vec<String> = values.iter().map(|value| value.map_or("null".into(), |n| n.to_string())).collect();
        let stages = r#"[{"explode": {"source": "v", "target": "n", "idTemplate": "{id}.{n}"}},
            {"when": ".n == 0", "drop": {}}, {"when": ".n == 1", "remap": {"source": ".n = to_bool!([])"}},
            {"when": ".n == 2", "explode": {"source": "gone"}}, {"when": ".n == 3", "skip": {}}]"#;
        let recording = run(stages, document("p", &format!(r#"{{"v":[{}]}}"#, list.join(","))));
        let mut ordinals: Vec<u32> = recording.forwarded.iter().map(|(_, tag)| tag.ordinal)
            .chain(recording.dropped.iter().map(|dropped| dropped.1.ordinal))
            .chain(recording.failed.iter().map(|failed| failed.1.ordinal)).collect();
        ordinals.sort_unstable();
        let made = values.iter().take_while(|value| value.is_some()).count();
        prop_assert_eq!(ordinals, (0..=made as u32).collect::<Vec<_>>());
        let end = recording.story.last().expect("the source document");
        prop_assert_eq!(end, if made < values.len() { "!p" } else { "+p" });
        let source = recording.forwarded.iter().map(|f| f.1).chain(recording.failed.iter().map(|f| f.1)).find(|tag| tag.ordinal == 0);
        prop_assert_eq!(source.map(|tag| tag.children), Some(made as u32));
    }
}

#[test]
fn a_document_that_grew_too_large_fails_and_the_run_goes_on() {
    let double = r#"{"name": "double", "onError": "Continue", "copy": {"fields": {"t": ["t", "u"]}, "updateMode": "Append"}}"#;
    let doubled = vec![double; 40].join(",");
    let mut lane = lane(&format!("[{doubled}]"));
    let mut sink = sink();
    let grows = format!(r#"{{"t":"{}"}}"#, "x".repeat(100_000));
    for (seq, (id, json)) in [("a", "{}"), ("b", grows.as_str()), ("c", "{}")].into_iter().enumerate() {
        lane.process(document(id, json), seq as u64 + 1, &mut sink).expect("open");
    }
    assert_eq!(sink.story, ["+a", "!b", "+c"]);
    let (_, _, stage, reason, _) = &sink.failed[0];
    assert_eq!(stage, "double");
    assert!(reason.starts_with("the document has ") && reason.ends_with(" MiB after stage `double`, and may have 64.0 MiB"), "{reason}");
}

#[test]
fn no_stage_makes_gigabytes_out_of_one_field() {
    let long = format!(r#"{{"t":"{}"}}"#, "x".repeat(1 << 20));
    let with = "y".repeat(1_000);
    for (stage, message) in [
        (format!(r#"{{"replace": {{"source": "t", "pattern": "x", "with": "{with}"}}}}"#), "`t` would become longer than 64.0 MiB"),
        (
            format!(r#"{{"replace": {{"source": "t", "pattern": ".*", "with": "{}"}}}}"#, "$0".repeat(500)),
            "`t` would become longer than 64.0 MiB",
        ),
        (
            format!(r#"{{"concatenate": {{"target": "u", "template": "{}"}}}}"#, "{t}".repeat(500)),
            "the text of the template is longer than 64.0 MiB",
        ),
    ] {
        let recording = run(&stage, document("d", &long));
        assert_eq!(recording.failed[0].3, message);
    }
}
