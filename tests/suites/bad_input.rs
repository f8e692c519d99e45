//! Bad input: every record ends in the output or in the dead letter with its place and reason, or the run says why it ended.

use anyhow::Result;
use penstock_tests::penstock::{Answer, Workdir};
use serde_json::Value;
use std::io::Write;

/// How a case ends.
struct End {
    code: i32,
    finished: u64,
    failed: u64,
    /// Part of the message of the step, or of the first dead letter's reason.
    said: &'static str,
}

const fn end(code: i32, finished: u64, failed: u64, said: &'static str) -> End {
    End { code, finished, failed, said }
}

/// A pipeline and a run over the file `in`.
fn manifest(stages: &str, indexer: &str, file: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: p}}\nspec:\n  mode: Local\n  workers: {{threads: 2}}\n  stages: {stages}\n  indexer: {indexer}\n---\n\
         apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata: {{name: r}}\nspec:\n  connectors:\n    - {{name: c, pipeline: p, file: {{{file}}}}}\n"
    )
}

const CSV: &str = "paths: [in], format: {csv: {id: [id]}}";
const JSON: &str = "paths: [in], format: {jsonLines: {id: [id]}}";
const OUT: &str = "{jsonLines: {path: out.jsonl}}";

/// Runs one case and checks what always holds.
fn assert_end(name: &str, input: &[u8], manifest: &str, wanted: &End) -> Result<(Workdir, Value, Answer)> {
    let workdir = Workdir::new()?;
    workdir.write("in", input)?.write("m.yaml", manifest)?;
    let (summary, answer) = workdir.run(["m.yaml"])?;
    let count = |name: &str| summary["totals"][name].as_u64().expect("a count");
    assert_eq!(answer.code, Some(wanted.code), "{name}: {answer:?}");
    assert_eq!((count("finished"), count("failed")), (wanted.finished, wanted.failed), "{name}: {answer:?}");
    assert_eq!(count("published") + count("created"), count("finished") + count("failed") + count("dropped") + count("pending"), "{name}");
    let dead = if workdir.has("r_fail.jsonl") { workdir.read_json_lines("r_fail.jsonl")? } else { Vec::new() };
    assert_eq!(dead.len() as u64, wanted.failed, "{name}");
    let message = summary["connectors"][0]["message"].as_str().or(dead.first().and_then(|letter| letter["reason"].as_str()));
    assert!(message.unwrap_or_default().contains(wanted.said), "{name}: {message:?}");
    if wanted.code == 0 && manifest.contains("out.jsonl") {
        assert_eq!(workdir.read_json_lines("out.jsonl")?.len() as u64, wanted.finished, "{name}");
    } else {
        assert!(!workdir.has("out.jsonl"), "{name}: what is not done is not shown");
    }
    Ok((workdir, summary, answer))
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("write");
    encoder.finish().expect("finish")
}

fn utf_16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn csv_that_is_not_as_it_should_be() -> Result<()> {
    let long_id = format!("id,a\n{},1\n{},2\n", "x".repeat(3_072), "x".repeat(40_000));
    let wide = format!("id,{}\n1,{}\n", (1..10_000).map(|n| format!("c{n}")).collect::<Vec<_>>().join(","), ["x"; 9_999].join(","));
    let cases: Vec<(&str, Vec<u8>, End)> = vec![
        ("nothing", b"".into(), end(0, 0, 0, "")),
        ("nothing but a mark", b"\xef\xbb\xbf".into(), end(0, 0, 0, "")),
        ("nothing but a header", b"id,a\n".into(), end(0, 0, 0, "")),
        ("a mark", b"\xef\xbb\xbfid,a\n1,2\n".into(), end(0, 1, 0, "")),
        ("a mark and quotes", b"\xef\xbb\xbf\"id\",\"a\"\n\"1\",\"2\"\n".into(), end(0, 1, 0, "")),
        ("quotes in quotes", b"id,a\n1,\"a \"\"b\"\"\"\n2,\"x\"y\"\n3,a\"b\n".into(), end(0, 2, 1, "in:3: text follows a closing quote")),
        ("an open quote", b"id,a\n1,\"abc\n2,d\n3,e\n".into(), end(0, 2, 1, "in:2: a quote is opened and never closed")),
        ("names twice", b"id,a,a\n1,2,3\n".into(), end(1, 0, 0, "columns 2 and 3 are both called `a`")),
        ("no id column", b"a,b\n1,2\n".into(), end(1, 0, 0, "there is no column `id`")),
        ("no id", b"id,a\n,2\n3,4\n".into(), end(0, 1, 1, "in:2: column `id` is empty")),
        ("long ids", long_id.into(), end(0, 1, 1, "in:3: the id has 40000 bytes")),
        ("a line end in an id", b"id,a\n\"x\ny\",2\n".into(), end(0, 1, 0, "")),
        ("broken UTF-8", b"id,a\n1,\xff\n2,ok\n\xff,3\n".into(), end(0, 1, 2, "in:2: not valid UTF-8")),
        ("UTF-16 with a mark", utf_16("\u{feff}id,a\n1,ü\n"), end(0, 1, 0, "")),
        ("UTF-16 without", utf_16("id,a\n1,ü\n"), end(1, 0, 0, "utf-16le")),
        ("NUL", b"id,a\n1,\0\n".into(), end(0, 1, 0, "")),
        ("many columns", wide.into(), end(0, 1, 0, "")),
    ];
    for (name, input, wanted) in cases {
        assert_end(name, &input, &manifest("[]", OUT, CSV), &wanted)?;
    }
    Ok(())
}

#[test]
fn json_that_is_not_as_it_should_be() -> Result<()> {
    let deep = format!("{{\"id\":\"1\",\"a\":{}{}}}\n{{\"id\":\"2\"}}\n", "[".repeat(10_000), "]".repeat(10_000));
    let cases: Vec<(&str, Vec<u8>, End)> = vec![
        (
            "ids",
            br#"{"id":""}
{"id":7}
{"id":1.5}
{"id":null}
{"a":1}
{"id":true}
{"id":[1]}
{"id":"a\nb"}"#
                .into(),
            end(0, 3, 5, "in:1: field `id` is empty"),
        ),
        ("no objects", b"[]\n1\nnull\n\"x\"\n\n{\"id\":\"1\"} x\n{id:5}\n".into(), end(0, 0, 6, "in:1:1: not a JSON object")),
        ("keys twice", b"{\"id\":\"1\",\"a\":1,\"a\":2}\n{\"id\":\"2\"}\n".into(), end(0, 1, 1, "the name `a` stands twice")),
        (
            "large numbers",
            b"{\"id\":1,\"a\":18446744073709551615}\n{\"id\":2,\"a\":18446744073709551616}\n{\"id\":3,\"a\":1e400}\n".into(),
            end(0, 1, 2, "in:2:13: a whole number beyond 64 bits"),
        ),
        ("no numbers", b"{\"id\":1,\"a\":NaN}\n{\"id\":2,\"a\":Infinity}\n{\"id\":3,\"a\":01}\n".into(), end(0, 0, 3, "in:1:13")),
        ("deep", deep.into(), end(0, 1, 1, "nested deeper than 128 levels")),
        ("half a character", b"{\"id\":1,\"a\":\"\\ud800\"}\n{\"id\":2,\"a\":\"\xff\"}\n".into(), end(0, 0, 2, "in:1:")),
    ];
    for (name, input, wanted) in cases {
        assert_end(name, &input, &manifest("[]", OUT, JSON), &wanted)?;
    }
    Ok(())
}

#[test]
fn a_document_that_would_take_all_memory_fails_alone() -> Result<()> {
    let input = b"{\"id\":\"1\",\"n\":9000000000000}\n{\"id\":\"2\",\"n\":3}\n";
    for (name, program, said) in [
        ("product", ".a = \"x\" * int!(.n)", "is more than 64.0 MiB"),
        ("set", ".a = set!([], [.n], 1)", "the index 9000000000000 is beyond 9999"),
        ("doubling", "if int!(.n) > 3 { x = [1]\n for_each(range!(0, 64)) -> |_i, _v| { x = [x, x] } }", "256.0 MiB of memory"),
    ] {
        let stages = serde_json::json!([{"remap": {"source": program}}]).to_string();
        assert_end(name, input, &manifest(&stages, OUT, JSON), &end(0, 1, 1, said))?;
    }
    Ok(())
}

#[test]
fn a_line_of_50_megabytes_is_one_failed_document() -> Result<()> {
    let mut line = b"1,".to_vec();
    line.resize(50_000_000, b'x');
    let csv = [b"id,a\n", &line[..], b"\n2,b\n"].concat();
    assert_end("csv", &csv, &manifest("[]", OUT, CSV), &end(0, 1, 1, "in:2: the record is larger than `maxRecordSize`"))?;
    let json = [&line[..], b"\n{\"id\":2}\n"].concat();
    assert_end("json", &json, &manifest("[]", OUT, JSON), &end(0, 1, 1, "in:1: the line is longer than `maxRecordSize`"))?;
    Ok(())
}

#[test]
fn a_damaged_archive_fails_the_step_and_nothing_half_done_is_shown() -> Result<()> {
    let rows: String = (0..20_000).map(|n| format!("{n},x\n")).collect();
    let whole = gz(format!("id,a\n{rows}").as_bytes());
    let file = CSV.replace("format", "compression: Gzip, format");
    let garbage = [&whole[..], b"garbage"].concat();
    for (name, input, finished) in [
        ("no archive", &b"id,a\n1,2\n"[..], 0),
        ("empty", &b""[..], 0),
        ("a header", &whole[..10], 0),
        ("garbage behind", &garbage, 20_000),
    ] {
        assert_end(name, input, &manifest("[]", OUT, &file), &end(1, finished, 0, "failed to read in behind byte"))?;
    }
    Ok(())
}

#[test]
fn what_a_document_does_to_a_stage_costs_that_document_only() -> Result<()> {
    let program = |source: &str| format!("[{{name: v, remap: {{source: '{source}'}}}}]");
    let cases = [
        (program("x = {}; for_each(array!(.l)) -> |_i, _v| { x = {\"a\": x} }; .a = x"), "nested too deeply"),
        (program(". = .id"), "must stay an object"),
        (program(".b = to_float!(\"nan\")"), "NaN"),
        ("[{name: v, set: {values: {\"b[4000000000]\": 1}}}]".to_owned(), "a list grows by one at a time"),
        ("[{name: v, explode: {source: l}}]".to_owned(), "`l[0]` is a whole number, not an object"),
    ];
    let input = format!("{{\"id\":\"1\",\"l\":[{}]}}\n", vec!["1"; 1000].join(","));
    for (stages, said) in cases {
        assert_end(&stages, input.as_bytes(), &manifest(&stages, OUT, JSON), &end(0, 0, 1, said))?;
    }
    Ok(())
}

#[test]
fn a_program_without_end_fails_its_document_and_not_the_run() -> Result<()> {
    let stages =
        "[{remap: {source: 'n = 0; for_each(array!(.l)) -> |_i, _v| { for_each(array!(.l)) -> |_j, _w| { n = n + 1 } }; .n = n'}}]";
    let input = format!("{{\"id\":\"1\",\"l\":[{}]}}\n{{\"id\":\"2\",\"l\":[1]}}\n", vec!["1"; 30_000].join(","));
    assert_end("loop", input.as_bytes(), &manifest(stages, OUT, JSON), &end(0, 1, 1, "it took more than 10s"))?;
    Ok(())
}

#[test]
fn an_expression_that_would_backtrack_does_not() -> Result<()> {
    let input = format!("{{\"id\":\"1\",\"a\":\"{}!\"}}\n", "a".repeat(50_000));
    let stages = "[{extract: {source: a, pattern: \"(?P<x>(a+)+)$\"}}, {replace: {source: a, pattern: \"^(a|aa)+$\", with: b}}]";
    assert_end("regex", input.as_bytes(), &manifest(stages, OUT, JSON), &end(0, 1, 0, ""))?;
    Ok(())
}

#[test]
fn a_long_list_and_a_long_text_become_children() -> Result<()> {
    let input = format!("{{\"id\":\"1\",\"l\":[{}]}}\n", vec!["1"; 100_000].join(","));
    let stages = "[{explode: {source: l, target: t}}]";
    assert_end("explode", input.as_bytes(), &manifest(stages, "{nop: {}}", JSON), &end(0, 100_001, 0, ""))?;
    let text = format!("{{\"id\":\"1\",\"t\":\"{}\"}}\n", "x".repeat(200_000));
    assert_end("chunk", text.as_bytes(), &manifest("[{chunk: {source: t}}]", "{nop: {}}", JSON), &end(0, 201, 0, ""))?;
    Ok(())
}

#[test]
fn children_may_have_the_id_of_another_document() -> Result<()> {
    let stages = "[{explode: {source: l, target: x, idTemplate: \"2\"}}]";
    for indexer in ["{embedded: {path: out}}", "{csv: {path: out, columns: [id, x]}}"] {
        let input = b"{\"id\":\"1\",\"l\":[1,2,3]}\n{\"id\":\"2\"}\n";
        assert_end("collision", input, &manifest(stages, indexer, JSON), &end(0, 5, 0, ""))?;
    }
    Ok(())
}

#[test]
fn what_documents_hold_does_not_steer_the_terminal() -> Result<()> {
    let workdir = Workdir::new()?;
    workdir.write("in", "{\"id\":\"\\u001b[31mred\\u0007\"}\n")?;
    workdir.write("m.yaml", manifest("[{remap: {source: 'assert!(false)'}}]", OUT, JSON))?;
    for arguments in [vec!["run", "m.yaml"], vec!["run", "m.yaml", "--preview"]] {
        let answer = workdir.penstock(arguments)?;
        assert!(answer.out.contains("[31mred") && !answer.out.contains('\x1b') && !answer.out.contains('\x07'), "{answer:?}");
    }
    Ok(())
}
