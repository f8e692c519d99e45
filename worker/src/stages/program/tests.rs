//! What programs may do with documents, and how their errors read.

use crate::stages::testing::{document, failure, lane, problems, run, sink, to_json, transform};
use proptest::prelude::*;

fn remap(source: &str) -> String {
    serde_json::json!({ "remap": { "source": source } }).to_string()
}

fn remapped(source: &str, before: &str) -> String {
    transform(&remap(source), before)
}

#[test]
fn only_what_a_program_writes_changes() {
    // neither the huge number nor the order of what is not touched
    let before = r#"{"z":18446744073709551615,"a":{"y":1,"b":2},"n":1.0}"#;
    assert_eq!(remapped(".c = 1", before), r#"{"z":18446744073709551615,"a":{"y":1,"b":2},"n":1.0,"c":1}"#);
    assert_eq!(remapped(".a.c = 1", before), r#"{"z":18446744073709551615,"a":{"y":1,"b":2,"c":1},"n":1.0}"#);
    assert_eq!(remapped("del(.a.y)", before), r#"{"z":18446744073709551615,"a":{"b":2},"n":1.0}"#);
    assert_eq!(remapped("del(.a); .n = 2", before), r#"{"z":18446744073709551615,"n":2}"#);
    assert_eq!(remapped("x = .a.b", before), before);
}

#[test]
fn values_keep_their_type_x20() {
    let before = r#"{"i":9007199254740993,"u":18446744073709551615,"f":1.0,"t":"x","l":[1,2.5,null,true,"s"],"o":{"z":1,"a":{}}}"#;
    let copied = remapped(".copy = [.i, .f, .t, .l, .o]", before);
    assert!(copied.ends_with(r#","copy":[9007199254740993,1.0,"x",[1,2.5,null,true,"s"],{"a":{},"z":1}]}"#), "{copied}");
    // written back as it came: exact, and in its order
    assert_eq!(remapped(". = .", before), before);
    assert_eq!(remapped(".u = .u; .o = .o; .l = .l", before), before);
}

#[test]
fn a_program_may_rewrite_the_document_as_a_whole() {
    assert_eq!(remapped(r#". = merge(., {"b": 2, "a": 3})"#, r#"{"c":1,"b":0}"#), r#"{"c":1,"b":2,"a":3}"#);
    assert_eq!(remapped(r#". = {"n": 1}"#, r#"{"c":1}"#), r#"{"n":1}"#);
    assert_eq!(remapped(r#". = map_keys(.) -> |key| { upcase(key) }"#, r#"{"b":1,"a":2}"#), r#"{"A":2,"B":1}"#);
    assert_eq!(failure(&remap(". = [1]"), "{}"), "the program made the document a list; it must stay an object");
    let unnested = failure(&remap(". = unnest!(.l)"), r#"{"l":[1,2],"x":1}"#);
    assert_eq!(unnested, "the program made the document a list; it must stay an object");
    assert_eq!(
        remapped("rows = unnest!(.l); .n = length(rows); .first = rows[0]", r#"{"x":1,"l":[7,8]}"#),
        r#"{"x":1,"l":[7,8],"first":{"l":7,"x":1},"n":2}"#
    );
}

#[test]
fn what_json_does_not_know_becomes_text_or_an_error() {
    assert_eq!(
        remapped(r#".t = parse_timestamp!(.t, "%Y-%m-%d %H:%M")"#, r#"{"t":"2024-02-29 12:30"}"#),
        r#"{"t":"2024-02-29T12:30:00Z"}"#
    );
    assert_eq!(remapped(".b = decode_base64!(.b)", r#"{"b":"/wD+"}"#), r#"{"b":"/wD+"}"#);
    assert_eq!(remapped(".b = decode_base64!(.b)", r#"{"b":"YcO8"}"#), r#"{"b":"aü"}"#);
    assert_eq!(failure(&remap(".a = {\"x\": [r'a']}"), "{}"), "`a.x[0]` is a regular expression, which a document cannot hold");
    assert_eq!(failure(&remap(".a = to_float!(\"1e308\") * 10.0"), "{}"), "`a` is infinite, which JSON cannot express");
}

#[test]
fn a_failed_program_changes_nothing() {
    for source in [".a = 1\n.b = to_int!(.x)", ".a = 1\n.b = r'x'", "del(.x)\n. = [1]"] {
        let stage = format!(r#"{{"onError": "Continue", {}"#, &remap(source)[1..]);
        assert_eq!(transform(&stage, r#"{"x":"text","a":0}"#), r#"{"x":"text","a":0}"#, "{source}");
    }
}

#[test]
fn errors_name_the_line_of_the_program() {
    assert_eq!(
        failure(&remap("# first\n.x = 1\n  .n = parse_json!(.t)\n"), r#"{"t":"{"}"#),
        "line 3 of the program, `.n = parse_json!(.t)`: \"parse_json\": unable to parse json: EOF while parsing an object at line 1 column 1"
    );
    let reason = failure(&remap(".x = 1\nassert!(.a == 1, \"a must be one\")"), r#"{"a":2}"#);
    assert!(reason.starts_with("line 2 of the program, `assert!") && reason.contains("a must be one"), "{reason}");
}

#[test]
fn abort_drops_with_its_reason() {
    let stage = remap("if .a == 1 { abort \"no ones\" } else if .a == 2 { abort }");
    let reason = |a: u8| run(&stage, document("d", &format!(r#"{{"a":{a}}}"#))).dropped.pop().map(|dropped| dropped.3);
    assert_eq!((reason(1).as_deref(), reason(2).as_deref(), reason(3)), (Some("no ones"), Some("aborted"), None));
}

#[test]
fn ids_can_be_read_and_not_written() {
    let stages =
        r#"[{"explode": {"source": "v", "target": "v"}}, {"remap": {"source": ".id = %id\n.up = upcase(%id)\n.parent = %parent_id"}}]"#;
    let recording = run(stages, document("p", r#"{"v":[1]}"#));
    assert_eq!(to_json(&recording.forwarded[0].0), r##"{"v":1,"id":"p#0","up":"P#0","parent":"p"}"##);
    assert_eq!(to_json(&recording.forwarded[1].0), r#"{"v":[1],"id":"p","up":"P","parent":null}"#);
    for source in ["%id = \"x\"", "%other = 1", "del(%id)", "% = {}"] {
        assert_eq!(problems(&remap(source)).len(), 1, "{source}");
    }
}

#[test]
fn documents_do_not_see_each_others_variables_or_fields() {
    let mut lane = lane(&remap("if .set == true { x = 1; .y = .a }\n.seen = exists(.a)"));
    let mut sink = sink();
    for before in [r#"{"set":true,"a":5}"#, r#"{"set":false}"#] {
        lane.process(document("d", before), 1, &mut sink).expect("open");
    }
    assert_eq!(to_json(&sink.forwarded[1].0), r#"{"set":false,"seen":false}"#);
}

#[test]
fn all_errors_of_a_program_are_one_problem_with_the_place_of_the_first() {
    let found = problems(&remap(".ok = 1\n.a = downcase(.b)\n.n = pars_json!(.sku)\n"));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].inside), ("[0].remap.source", Some((2, 6))));
    let first_line = found[0].message.lines().next().expect("line");
    assert_eq!(first_line, "the program does not compile: unhandled fallible assignment (and one more error)");
    assert!(found[0].message.contains("did you mean \"parse_json\"?"), "{}", found[0].message);
    assert!(!found[0].message.contains('\u{1b}'));
}

#[test]
fn a_broken_program_and_predicate_say_where() {
    for (stage, path, place) in
        [(remap(".x = to_float!(.y"), "[0].remap.source", (1, 18)), (r#"{"when": ".a ==", "drop": {}}"#.into(), "[0].when", (1, 6))]
    {
        let found = problems(&stage);
        assert_eq!(found.len(), 1, "{stage}");
        assert_eq!(found[0].path, path);
        let (line, column) = found[0].inside.expect("a place");
        assert!(line == place.0 && column.abs_diff(place.1) <= 1, "{line}:{column} {}", found[0].message);
    }
}

#[test]
fn a_predicate_must_be_true_or_false_and_change_nothing() {
    for when in [".a", ".a = true", "del(.a)", "\"yes\"", "exists(.a) ?? 1", ""] {
        let stage = serde_json::json!({"when": when, "drop": {}}).to_string();
        assert_eq!(problems(&stage).len(), 1, "{when}");
    }
    for when in [".a == true", "exists(.a) && .b != \"x\"", "%id == \"x\"", "bool(.a) ?? false", "match(to_string(.a) ?? \"\", r'x')"] {
        let stage = serde_json::json!({"when": when, "drop": {}}).to_string();
        assert_eq!(problems(&stage), [], "{when}");
    }
}

#[test]
fn hashes_are_there_for_ids_and_passwords() {
    let source = ".md5 = md5(\"a\")\n.sha1 = sha1(\"a\")\n.sha2 = slice!(sha2(\"a\", variant: \"SHA-256\"), 0, 8)";
    assert_eq!(
        remapped(source, "{}"),
        r#"{"md5":"0cc175b9c0f1b6a831c399e269772661","sha1":"86f7e437faa5a7fce15d1ddcb9eaeaea377667b8","sha2":"ca978112"}"#
    );
}

#[test]
fn programs_cannot_write_to_our_log_or_reach_out() {
    for source in ["log(\"x\")", ".a = get_env_var!(\"HOME\")", ".a = http_request!(\"http://x\")", ".a = dns_lookup!(\"x\")"] {
        let found = problems(&remap(source));
        assert_eq!(found.len(), 1, "{source}");
        assert!(found[0].message.contains("call to undefined function"), "{}", found[0].message);
    }
}

#[test]
fn values_nested_too_deeply_are_refused_and_cost_no_stack() {
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    assert_eq!(remapped(".a = .a", &format!(r#"{{"a":{deep}}}"#)), format!(r#"{{"a":{deep}}}"#));
    let reason = failure(&remap(".a = [[[[[[[[.a]]]]]]]]"), &format!(r#"{{"a":{deep}}}"#));
    assert!(reason.starts_with("`a[0][0]") && reason.ends_with("is nested too deeply, more than 128 levels"), "{reason}");
}

#[test]
fn programs_nested_too_deeply_are_refused_and_cost_no_stack() {
    let forms: [fn(usize) -> String; 5] = [
        |n| format!(".a = {}1{}", "(".repeat(n), ")".repeat(n)),
        |n| format!(".a = {}1", "1 + ".repeat(n)),
        |n| format!(".a = {}true", "!".repeat(n)),
        |n| format!(".a = {}true", "false || ".repeat(n)),
        |n| format!("if .a == 0 {{ .b = 0 }} {}", "else if .a == 1 { .b = 1 } ".repeat(n)),
    ];
    for form in forms {
        assert_eq!(run(&remap(&form(100)), document("d", "{}")).story, ["+d"], "{}", form(2));
        let found = problems(&remap(&form(2_000)));
        assert_eq!(found.len(), 1, "{}", form(2));
        assert!(found[0].message.contains("within each other"), "{}", found[0].message);
    }
}

#[test]
fn a_program_that_takes_too_long_is_stopped() {
    let source = "n = 0\nfor_each(array!(.l)) -> |_i, a| { for_each(array!(.l)) -> |_j, b| { n = n + 1 } }\n.n = n";
    let list = format!(r#"{{"l":[{}]}}"#, vec!["1"; 300].join(","));
    let mut program = super::Program::compile(source, "source", &mut crate::problem::Problems::new("", &mut Vec::new())).expect("program");
    let mut slow = document("d", &list);
    program.lane.limits.time = std::time::Duration::ZERO;
    let ended = program.run(&mut slow).expect_err("stopped");
    assert_eq!(ended, super::Ended::Failed(super::StageError("the program was stopped: it took more than 0ns".into())));
    assert_eq!(to_json(&slow), list);
    program.lane.limits = super::Limits::STANDARD;
    program.run(&mut slow).expect("time enough");
    assert!(to_json(&slow).ends_with(r#","n":90000}"#));
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        proptest::num::f64::NORMAL.prop_map(Into::into),
        ".{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map("[a-d.]{0,3}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_survives_the_way_through_a_program(a in json_value(), b in json_value()) {
        let before = serde_json::json!({"b": b, "a": a}).to_string();
        let before = to_json(&document("d", &before));
        prop_assert_eq!(remapped(". = .", &before), before.clone());
        prop_assert_eq!(remapped(".a = .a", &before), before);
    }
}
