//! What every stage promises, tried with all of them.

use super::{
    check,
    testing::{Recording, context_in, document, lane, plan_in, problems, run, sink, stages, to_json},
};
use crate::{
    document::{Document, Fields, Origin, Value},
    pipeline::Plan,
    problem::Problems,
};
use proptest::prelude::*;
use std::{collections::BTreeSet, path::Path};

/// A member: its key, a typical stage, a document on which it has something to do, and one on which it fails.
struct Member {
    key: &'static str,
    stage: &'static str,
    works_on: &'static str,
    fails_on: Option<&'static str>,
    /// A document without the fields that it names passes unchanged.
    passes_absent: bool,
}

const fn member(key: &'static str, stage: &'static str, works_on: &'static str, fails_on: Option<&'static str>) -> Member {
    Member { key, stage, works_on, fails_on, passes_absent: true }
}

const fn writes_always(member: Member) -> Member {
    Member { passes_absent: false, ..member }
}

const MEMBERS: [Member; 15] = [
    member("capture", r#"{"capture": {"fields": ["a"], "limit": 1}}"#, r#"{"a":1}"#, None),
    member(
        "changeCase",
        r#"{"changeCase": {"fields": {"a": "b", "c": "d.e"}, "to": "Title"}}"#,
        r#"{"a":"x"}"#,
        Some(r#"{"a":"x","c":5}"#),
    ),
    member("chunk", r#"{"chunk": {"source": "a", "size": 4}}"#, r#"{"a":"one two three"}"#, Some(r#"{"a":["x"]}"#)),
    writes_always(member(
        "concatenate",
        r#"{"concatenate": {"target": "c.d", "template": "{a}{b.c[0]}{id}"}}"#,
        r#"{"a":"x"}"#,
        Some(r#"{"c":"x"}"#),
    )),
    member("copy", r#"{"copy": {"fields": {"a": ["b", "c.d"]}}}"#, r#"{"a":"x"}"#, Some(r#"{"a":1,"c":"x"}"#)),
    writes_always(member("drop", r#"{"drop": {}}"#, "{}", None)),
    member("explode", r#"{"explode": {"source": "a", "target": "b"}}"#, r#"{"a":["x"]}"#, Some(r#"{"a":"x"}"#)),
    member("extract", r#"{"extract": {"source": "a", "pattern": "(?<b>.)(?<c.d>.)"}}"#, r#"{"a":"xy"}"#, Some(r#"{"a":"xy","c":"x"}"#)),
    member("keep", r#"{"keep": {"fields": ["a", "x*", "z"]}}"#, r#"{"a":1,"y":2}"#, None),
    writes_always(member("remap", r#"{"remap": {"source": ".b = 1\n.c = to_int!(.a)"}}"#, r#"{"a":"1"}"#, Some(r#"{"a":"x"}"#))),
    member("remove", r#"{"remove": {"fields": ["a", "b[0]", "c*"]}}"#, r#"{"a":1}"#, None),
    member("rename", r#"{"rename": {"fields": {"a": "b", "c": "d.e"}}}"#, r#"{"a":1}"#, Some(r#"{"a":1,"c":1,"d":1}"#)),
    member("replace", r#"{"replace": {"source": "a", "target": "b.c", "pattern": "x", "with": "y"}}"#, r#"{"a":"x"}"#, Some(r#"{"a":1}"#)),
    writes_always(member("set", r#"{"set": {"values": {"a": 1, "b.c": 2}}}"#, "{}", Some(r#"{"b":1}"#))),
    member("skip", r#"{"skip": {}}"#, "{}", None),
];

fn with_on_error(stage: &str, on_error: &str) -> String {
    format!(r#"{{"onError": "{on_error}", {}"#, &stage[1..])
}

fn outcome(recording: &Recording) -> (Vec<String>, Vec<String>) {
    (recording.story.clone(), recording.forwarded.iter().map(|(document, _)| to_json(document)).collect())
}

#[test]
fn every_stage_is_a_member() {
    let schema = serde_json::to_value(schemars::schema_for!(penstock_crds::stages::StageKind)).expect("schema");
    let mut keys = BTreeSet::new();
    collect_keys(&schema, &mut keys);
    let members: BTreeSet<String> = MEMBERS.iter().map(|member| member.key.to_owned()).collect();
    assert_eq!(members, keys);
    for Member { key, stage, .. } in &MEMBERS {
        assert_eq!(stages(stage)[0].kind.key(), *key);
    }
}

/// The names of the union's variants, whichever way the schema writes the union.
fn collect_keys(schema: &serde_json::Value, keys: &mut BTreeSet<String>) {
    for variant in schema.get("oneOf").or(schema.get("anyOf")).and_then(|variants| variants.as_array()).into_iter().flatten() {
        collect_keys(variant, keys);
    }
    if let Some(properties) = schema.get("properties").and_then(|properties| properties.as_object()) {
        keys.extend(properties.keys().cloned());
    }
}

#[test]
fn a_typical_stage_has_no_problem_and_works() {
    for Member { key, stage, works_on, .. } in &MEMBERS {
        assert_eq!(problems(stage), [], "{key}");
        let recording = run(stage, document("d", works_on));
        assert!(recording.failed.is_empty(), "{key}: {recording:?}");
    }
}

#[test]
fn whatever_comes_of_a_document_comes_from_where_it_did() {
    let origin = Origin { offset: Some(7), run_id: Some("r-1".into()) };
    for Member { key, stage, works_on, .. } in &MEMBERS {
        let recording = run(stage, document("d", works_on).from_origin(origin.clone()));
        for (document, _) in &recording.forwarded {
            assert_eq!(*document.origin(), origin, "{key}: without it a backend cannot tell the older of two versions");
        }
    }
}

#[test]
fn a_document_without_the_fields_passes_unchanged() {
    for Member { key, stage, .. } in MEMBERS.iter().filter(|member| member.passes_absent) {
        // `keep` names z
        let recording = run(stage, document("d", r#"{"z":1}"#));
        assert_eq!(outcome(&recording), (vec!["+d".to_owned()], vec![r#"{"z":1}"#.to_owned()]), "{key}");
    }
}

#[test]
fn an_error_leaves_the_document_as_it_was() {
    for Member { key, stage, fails_on, .. } in &MEMBERS {
        let Some(fails_on) = fails_on else { continue };
        let failed = run(stage, document("d", fails_on));
        assert_eq!(failed.story, ["!d"], "{key}");
        assert!(!failed.failed[0].3.is_empty(), "{key}");
        let continued = run(&with_on_error(stage, "Continue"), document("d", fails_on));
        assert_eq!(outcome(&continued), (vec!["+d".to_owned()], vec![(*fails_on).to_owned()]), "{key}");
        assert_eq!(run(&with_on_error(stage, "Drop"), document("d", fails_on)).story, ["-d"], "{key}");
    }
}

#[test]
fn lanes_of_one_plan_give_the_same() {
    for Member { key, stage, works_on, .. } in &MEMBERS {
        let plan = plan_in(&context_in(Path::new("/")), stage);
        // `capture` counts what all lanes write, which shows in no document
        let outcomes: Vec<_> = (0..3)
            .map(|_| {
                let mut recording = sink();
                plan.lane().process(document("d", works_on), 1, &mut recording).expect("open");
                outcome(&recording)
            })
            .collect();
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{key}");
    }
}

#[test]
fn a_document_leaves_no_trace_in_the_next() {
    for Member { key, stage, works_on, fails_on, .. } in &MEMBERS {
        let mut used = lane(stage);
        for before in [Some(*works_on), *fails_on, Some("{}")].into_iter().flatten() {
            used.process(document("earlier", before), 1, &mut sink()).expect("open");
        }
        for before in [*works_on, "{}"] {
            let mut recording = sink();
            used.process(document("d", before), 1, &mut recording).expect("open");
            assert_eq!(outcome(&recording), outcome(&run(stage, document("d", before))), "{key}");
        }
    }
}

#[test]
fn names_taken_twice_are_reported_at_the_second_s35() {
    let found = problems(r#"[{"name": "one", "skip": {}}, {"name": "skip-3", "skip": {}}, {"skip": {}}, {"name": "one", "drop": {}}]"#);
    let reported: Vec<_> = found.iter().map(|problem| (problem.path.as_str(), problem.message.as_str())).collect();
    assert_eq!(
        reported,
        [
            ("[2].name", "the name `skip-3` is taken by stage 2; give each stage a name of its own"),
            ("[3].name", "the name `one` is taken by stage 1; give each stage a name of its own"),
        ]
    );
}

#[test]
fn all_problems_of_all_stages_come_at_once_s1() {
    let stages = stages(
        r#"[{"name": "one", "remap": {"source": ".x = to_float!(.y"}}, {"name": "one", "when": ".a ==", "drop": {}},
            {"extract": {"source": "a", "pattern": "(?P<x>[)"}}, {"chunk": {"source": "a", "size": 5, "overlap": 5}}]"#,
    );
    let mut found = Vec::new();
    check(&stages, &mut Problems::new("spec.stages", &mut found));
    let mut paths: Vec<_> = found.iter().map(|problem| problem.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "spec.stages[0].remap.source",
            "spec.stages[1].name",
            "spec.stages[1].when",
            "spec.stages[2].extract.pattern",
            "spec.stages[3].chunk.overlap"
        ]
    );
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::Float),
        prop_oneof![".{0,8}", "[a-z ]{0,40}"].prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::list),
            proptest::collection::vec(("[a-e]", inner), 0..4)
                .prop_map(|fields| Value::object(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())),
        ]
    })
}

fn any_document() -> impl Strategy<Value = Document> {
    proptest::collection::vec(("[a-e]", value()), 0..6).prop_map(|fields| {
        let fields: Fields = fields.into_iter().map(|(key, value)| (key.into(), value)).collect();
        Document::with_fields("d", fields)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No document makes a stage panic or lose one, and what goes on can be written and read as JSON.
    #[test]
    fn no_document_is_too_odd(document in any_document()) {
        for Member { key, stage, .. } in &MEMBERS {
            let mut recording = sink();
            MEMBER_PLANS.with(|plans| plans[*key].lane().process(document.clone(), 1, &mut recording)).expect("open");
            let source = recording.forwarded.iter().map(|f| f.1).chain(recording.failed.iter().map(|f| f.1))
                .chain(recording.dropped.iter().map(|f| f.1)).filter(|tag| tag.ordinal == 0).count();
            prop_assert_eq!(source, 1, "{}", key);
            for (forwarded, _) in &recording.forwarded {
                let json = to_json(forwarded);
                prop_assert_eq!(&Fields::from_json(json.as_bytes()).expect("json"), forwarded.fields(), "{}", key);
            }
            for failed in &recording.failed {
                prop_assert!(!failed.3.contains("panicked"), "{}: {}", key, failed.3);
            }
            let mut continued = sink();
            CONTINUING_PLANS.with(|plans| plans[*key].lane().process(document.clone(), 1, &mut continued)).expect("open");
            if !recording.failed.is_empty() {
                prop_assert_eq!(&continued.forwarded.last().expect("goes on").0, &document, "{} {}", key, stage);
            }
        }
    }
}

type Plans = std::collections::HashMap<&'static str, Plan>;

fn plans(stage: impl Fn(&Member) -> String) -> Plans {
    MEMBERS.iter().map(|member| (member.key, plan_in(&context_in(Path::new("/")), &stage(member)))).collect()
}

thread_local! {
    static MEMBER_PLANS: Plans = plans(|member| member.stage.to_owned());
    static CONTINUING_PLANS: Plans = plans(|member| with_on_error(member.stage, "Continue"));
}
