//! No program uses up the memory, and those that do not try are as they were.

use crate::{
    document::{Document, Fields, Value},
    memory::Meter,
    stages::testing::{document, failure, problems, run, to_json, transform},
};

fn remap(source: &str) -> String {
    serde_json::json!({ "remap": { "source": source } }).to_string()
}

fn remapped(source: &str, before: &str) -> String {
    transform(&remap(source), before)
}

/// Why a program fails on a document, and that it did not take a gigabyte for it.
fn fails(source: &str, fields: &[(&str, Value)]) -> String {
    let fields: Fields = fields.iter().map(|(key, value)| ((*key).into(), value.clone())).collect();
    let meter = Meter::start();
    let mut recording = run(&remap(source), Document::with_fields("d", fields));
    assert!(meter.allocated() < 2 << 30, "{source} allocated {}", meter.allocated());
    assert_eq!(recording.failed.len(), 1, "{source}");
    recording.failed.remove(0).3
}

fn text(bytes: usize) -> Value {
    Value::from("x".repeat(bytes))
}

#[test]
fn products_are_as_they_were() {
    for (source, after) in [
        (".p = .a * .b ?? 0", r#"{"a":3,"b":2.5,"p":7.5}"#),
        (".p = int!(.a) * 2", r#"{"a":3,"b":2.5,"p":6}"#),
        (".p = 60 * 60 / (2 * 3)", r#"{"a":3,"b":2.5,"p":600.0}"#),
        (".p = 2 * 2 + 1.5 * 2", r#"{"a":3,"b":2.5,"p":7.0}"#),
        (".p = \"ab\" * 3", r#"{"a":3,"b":2.5,"p":"ababab"}"#),
        (".p = 2 * \"ab\" * 2", r#"{"a":3,"b":2.5,"p":"abababab"}"#),
        (".p = \"ab\" * -1", r#"{"a":3,"b":2.5,"p":""}"#),
        (".p = [{\"x\": 2 * 3}, to_string(2 * 4), !(2 * 2 == 4)]", r#"{"a":3,"b":2.5,"p":[{"x":6},"8",false]}"#),
        (".p, err = to_int(.a) * to_int(.b)", r#"{"a":3,"b":2.5,"p":6}"#),
        (".p, err = .a * true\n.p = err", r#"{"a":3,"b":2.5,"p":"can't multiply type integer by boolean"}"#),
        ("x = 2\nx = x * int!(.a)\n.p = x", r#"{"a":3,"b":2.5,"p":6}"#),
        ("n = 0\nfor_each([1, 2, 3]) -> |_i, v| { n = n + v * v }\n.p = n", r#"{"a":3,"b":2.5,"p":14}"#),
    ] {
        let after: serde_json::Value = serde_json::from_str(after).expect(after);
        let got: serde_json::Value = serde_json::from_str(&remapped(source, r#"{"a":3,"b":2.5}"#)).expect(source);
        let told = got["p"].as_str().is_some_and(|told| told.contains("can't multiply"));
        assert!(got == after || told, "{source}: {got}");
    }
    for source in [".p = .a * .b", ".p = to_int(.a) * 2", ".p = 2 * 3 ?? 1"] {
        assert_eq!(problems(&remap(source)).len(), 1, "{source}");
    }
}

#[test]
fn a_text_is_not_repeated_beyond_what_a_document_may_have() {
    let n = |n: i64| [("n", Value::Int(n)), ("t", text(1 << 20))];
    assert_eq!(
        fails(".a = \"x\" * int!(.n)", &n(i64::MAX)),
        "line 1 of the program, `.a = \"x\" * int!(.n)`: \"*\": 1 byte of text 9223372036854775807 times is more than 64.0 MiB"
    );
    for source in [
        ".a = int!(.n) * string!(.t)",
        "for_each([1]) -> |_i, _v| { .a = .t * .n ?? \"\" }\nif .a == \"\" { abort }",
        ".a = (((\"xxxx\" * 1000) * 1000) * 1000)",
    ] {
        let fields = n(100_000);
        let recording = run(&remap(source), Document::with_fields("d", fields.into_iter().map(|(k, v)| (k.into(), v)).collect()));
        assert!(recording.forwarded.is_empty(), "{source}");
    }
}

#[test]
fn indexes_and_scales_out_of_data_are_bounded() {
    for source in [".a = set!([], [.n], 1)", ".a = set!([], [-9000000000], 1)", ".a = set!(value: {}, path: [\"x\", .n], data: 1)"] {
        let reason = fails(source, &[("n", Value::Int(9_000_000_000))]);
        assert!(reason.contains("beyond 9999: a list would be filled up to it"), "{reason}");
    }
    assert_eq!(remapped(".a = set!(.a, [.n], 7)", r#"{"a":[1],"n":2}"#), r#"{"a":[1,null,7],"n":2}"#);
    assert_eq!(remapped(".a = set!(.a, [\"b\", .k], 7)", r#"{"a":{},"k":"c"}"#), r#"{"a":{"b":{"c":7}},"k":"c"}"#);
    let reason = fails(".a = format_number!(1.5, scale: .n)", &[("n", Value::Int(9_000_000_000))]);
    assert!(reason.contains("9000000000 is more than 1000"), "{reason}");
    assert_eq!(remapped(".a = format_number!(1.5, scale: .n)", r#"{"n":2}"#), r#"{"n":2,"a":"1.50"}"#);
}

#[test]
fn what_doubles_is_stopped_by_the_memory_it_takes() {
    let rounds = Value::list(vec![Value::Int(1); 64]);
    for source in [
        "x = \"xxxxxxxx\"\nfor_each(array!(.l)) -> |_i, _v| { x = x + x }\n.a = length(x)",
        "x = [1]\nfor_each(array!(.l)) -> |_i, _v| { x = [x, x] }\n.a = length(x)",
        "x = [1]\nfor_each(array!(.l)) -> |_i, _v| { x = append(x, x) }\n.a = length(x)",
        "x = {}\nfor_each(array!(.l)) -> |_i, _v| { x = {\"a\": x, \"b\": x} }\n.a = length(x)",
    ] {
        let reason = fails(source, &[("l", rounds.clone())]);
        assert_eq!(reason, "the program was stopped: it took more than 256.0 MiB of memory", "{source}");
    }
}

#[test]
fn one_text_held_many_times_does_not_become_many_texts() {
    let fields = [("t", text(1 << 20)), ("l", Value::list(vec![Value::Int(1); 5_000]))];
    let hold = "x = string!(.t)\nl = []\nfor_each(array!(.l)) -> |_i, _v| { l = push(l, x) }\n";
    assert_eq!(fails(&format!("{hold}.l = l"), &fields), "`l[63]` is more than the 64 MiB that a document may have");
    for end in [".a = encode_json(l)", ".a = join!(l)", ".a = join!(l, \",\")", ".a = encode_logfmt({\"l\": l})"] {
        let reason = fails(&format!("{hold}{end}"), &fields);
        assert!(reason.contains("it may have 16.0 MiB, and has more"), "{end}: {reason}");
    }
}

#[test]
fn replacing_every_letter_by_a_long_text_is_refused() {
    for (source, message) in [
        (".a = replace!(.t, \"x\", .t)", "the text would have more than 64.0 MiB"),
        (".a = replace!(.t, r'x', .t)", "the text would have more than 64.0 MiB"),
        (".a = replace!(.t, \"\", .t)", "the text would have more than 64.0 MiB"),
        (".a = sieve!(.t, r'y', replace_single: string!(.t))", "it may have 1.0 KiB, and has more"),
        (".a = join!([.t, .t], .t)", "it may have 1.0 KiB, and has more"),
    ] {
        let reason = fails(source, &[("t", text(1 << 20))]);
        assert!(reason.contains(message), "{source}: {reason}");
    }
    for (source, after) in [
        ("replace!(.t, \"a\", \"bb\")", "bbnbbnbb"),
        ("replace!(.t, \"a\", \"b\", count: 2)", "bnbna"),
        ("replace!(.t, \"a\", \"b\", 0)", "anana"),
        ("replace!(.t, r'(a)n', \"$1$1-\")", "aa-aa-a"),
        ("replace!(.t, r'an', \"-\", count: 1)", "-ana"),
        ("replace(\"anana\", pattern: \"n\", with: \"\")", "aaa"),
    ] {
        assert_eq!(remapped(&format!(".t = {source}"), r#"{"t":"anana"}"#), format!(r#"{{"t":"{after}"}}"#), "{source}");
    }
}

#[test]
fn a_bomb_of_packed_data_is_defused() {
    let bomb = |packed: Vec<u8>| Value::from(base64::Engine::encode(&base64::prelude::BASE64_STANDARD, packed));
    let zeros = vec![0_u8; 80 << 20];
    let gzip = |mut encoder: flate2::write::GzEncoder<Vec<u8>>| {
        std::io::Write::write_all(&mut encoder, &zeros).expect("packed");
        encoder.finish().expect("packed")
    };
    let packed = [
        ("decode_zstd", zstd::encode_all(zeros.as_slice(), 1).expect("packed")),
        ("decode_gzip", gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()))),
    ];
    for (function, packed) in packed {
        let reason = fails(&format!(".a = {function}!(decode_base64!(.p))"), &[("p", bomb(packed))]);
        assert!(reason.ends_with("the text would have more than 64.0 MiB"), "{reason}");
    }
    let small = bomb(zstd::encode_all(b"small".as_slice(), 1).expect("packed"));
    let small = document("d", &format!(r#"{{"p":"{}"}}"#, small.as_text().expect("text")));
    let recording = run(&remap(".p = decode_zstd!(decode_base64!(.p))"), small);
    assert_eq!(to_json(&recording.forwarded[0].0), r#"{"p":"small"}"#);
    assert!(failure(&remap(".p = decode_gzip!(.p)"), r#"{"p":"x"}"#).ends_with("unable to decode value with Gzip decoder"));
}

#[test]
fn unnesting_a_wide_document_over_a_long_list_is_refused() {
    let long = Value::list(vec![Value::Int(1); 20_000]);
    let reason = fails(".n = length(unnest!(.l))", &[("l", long.clone()), ("wide", long)]);
    assert!(reason.contains("values would be copied 20000 times, 1000000 are allowed"), "{reason}");
    assert_eq!(problems(&remap(".n = unnest!({\"l\": [1]}.l)")).len(), 1);
}

#[test]
fn a_program_names_no_guard() {
    for source in ["\"argument value of split\"(.a)", ".a = *(null) -> || { 1 }"] {
        assert_eq!(problems(&remap(source)).len(), 1, "{source}");
    }
}

#[test]
fn patterns_of_grok_come_from_the_program_and_from_no_file() {
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), r#"{"SECRET": "x"}"#).expect("file");
    let source = format!(
        ".a = parse_groks!(.a, patterns: [\"%{{SECRET}}\"], alias_sources: [{}])",
        serde_json::json!(file.path().to_string_lossy())
    );
    let found = problems(&remap(&source));
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("alias_sources"), "{}", found[0].message);
    assert!(found[0].message.contains("disabled"), "{}", found[0].message);
    assert_eq!(
        remapped(".a = parse_groks!(.a, patterns: [\"%{OWN:o}\"], aliases: {\"OWN\": \"x+\"})", r#"{"a":"xx"}"#),
        r#"{"a":{"o":"xx"}}"#
    );
}
