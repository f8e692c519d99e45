//! Bad manifests: refused in no time, each with place and cure, and nothing is made.

use anyhow::Result;
use penstock_tests::penstock::Workdir;

const GOOD: &str = "\
apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {name: p}
spec:
  mode: Local
  workers: {threads: 2}
  stages: []
  indexer: {jsonLines: {path: out.jsonl}}
---
apiVersion: penstock.io/v1alpha1
kind: IngestRun
metadata: {name: r}
spec:
  connectors:
    - {name: c, pipeline: p, sequence: {count: 3}}
";

fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replace(from, to)
}

#[test]
fn manifests_that_make_no_sense_are_refused_with_place_and_cure() -> Result<()> {
    let stage = |source: &str| with("stages: []", &format!("stages: [{{remap: {{source: '{source}'}}}}]"));
    let many_connectors: String = (0..10_000).map(|n| format!("    - {{name: c{n}, pipeline: p, sequence: {{count: 1}}}}\n")).collect();
    let many_stages = format!("stages: [{}]", vec!["{set: {values: {a: 1}}}"; 10_000].join(","));
    let bomb = ["&a [x,x,x,x,x,x,x,x,x,x]".to_owned()]
        .into_iter()
        .chain(('a'..'i').zip('b'..='i').map(|(before, name)| format!("&{name} [{}]", vec![format!("*{before}"); 10].join(","))))
        .enumerate()
        .map(|(n, line)| format!("k{n}: {line}\n"))
        .collect::<String>();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".into(), "holds no object of penstock.io/v1alpha1"),
        (bomb.into(), "the aliases of this file multiply"),
        (with("stages: []", &format!("stages: {}{}", "[".repeat(20_000), "]".repeat(20_000))).into(), "m.yaml:7:"),
        (with("mode: Local", "mode: Local\n  mode: Local").into(), "the key `mode` is set already in line 5"),
        (with("mode: Local", "mode: no").into(), "write \"no\" in quotes"),
        (with("threads: 2", "threads: 99999999999999999999999").into(), "must be a whole number"),
        ([GOOD.as_bytes(), b"# \xff\n"].concat(), "m.yaml:16:3: the byte 0xFF is not UTF-8"),
        (GOOD.encode_utf16().flat_map(u16::to_le_bytes).collect(), "m.yaml"),
        (with("stages: []", &many_stages).into(), "has 10000 items, at most 256 are allowed"),
        (with("    - {name: c, pipeline: p, sequence: {count: 3}}\n", &many_connectors).into(), "has 10000 items, at most 64 are allowed"),
        (stage(".a[900000000] = 1").into(), "m.yaml:7:33: spec.stages[0].remap.source: the index 900000000 is beyond 9999"),
        (stage("x = []; x[-900000000] = 1; .a = x").into(), "the index 900000000 is beyond 9999"),
        (with("stages: []", "stages: [{extract: {source: a, pattern: \"(?P<x>((a{1000}){1000}){1000})\"}}]").into(), "exceeds size limit"),
    ];
    for (manifest, said) in cases {
        let workdir = Workdir::new()?;
        workdir.write("m.yaml", &manifest)?;
        let answer = workdir.penstock(["run", "m.yaml"])?;
        let shown: String = answer.out.chars().take(300).collect();
        assert_eq!(answer.code, Some(64), "{said}: {shown}");
        assert!(answer.out.contains(said) || answer.err.contains(said), "{said}: {shown} {}", answer.err);
        assert!(!workdir.has("out.jsonl"), "{said}");
    }
    Ok(())
}

#[test]
fn manifests_that_only_look_odd_run() -> Result<()> {
    let mark = [b"\xef\xbb\xbf", GOOD.as_bytes()].concat();
    let anchors = with("stages: []", "stages: [&s {set: {values: {a: 1}}}, *s, {<<: {set: {values: {b: 1}}}}]");
    for manifest in [mark, GOOD.replace('\n', "\r\n").into(), anchors.into(), with("threads: 2", "threads: 256").into()] {
        let workdir = Workdir::new()?;
        workdir.write("m.yaml", &manifest)?;
        let (summary, answer) = workdir.run(["m.yaml"])?;
        assert_eq!((answer.code, summary["totals"]["finished"].as_u64()), (Some(0), Some(3)), "{answer:?}");
    }
    Ok(())
}
