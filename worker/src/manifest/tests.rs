//! Whole manifests: every trap has its problem at its place, and nothing is reported that is right.

use super::*;
use proptest::prelude::*;

fn variables(name: &str) -> Option<String> {
    match name {
        "PARTITIONS" => Some("6".into()),
        "NAME" => Some("from-env".into()),
        _ => None,
    }
}

fn check(files: &[(&str, &str)]) -> Result<Manifests, Report> {
    let source = |(name, text): &(&str, &str)| Source { name: (*name).into(), base_dir: "/base".into(), text: (*text).into() };
    let sources: Vec<Source> = files.iter().map(source).collect();
    check_and_read(&sources, Vec::new(), &variables)
}

/// The problems of one file, as they are printed.
fn problems(text: &str) -> Vec<String> {
    match check(&[("f.yaml", text)]) {
        Ok(_) => Vec::new(),
        Err(report) => report.problems.iter().map(ToString::to_string).collect(),
    }
}

fn pipeline(spec: &str) -> String {
    format!("apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata:\n  name: p\nspec:\n{spec}")
}

fn run(spec: &str) -> String {
    format!("apiVersion: penstock.io/v1alpha1\nkind: IngestRun\nmetadata:\n  name: r\nspec:\n{spec}")
}

const NOP: &str = "  indexer: {nop: {}}\n";

#[test]
fn a_good_manifest_becomes_typed_objects() {
    let text = pipeline("  stages:\n    - name: ${NAME}\n      rename: {fields: {a: b}}\n  indexer: {nop: {}}\n")
        + "---\n# nothing here\n---\n"
        + &run("  connectors:\n    - {name: c, pipeline: p, sequence: {count: 10}}\n")
        + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ny: ${NOT_LOOKED_AT}\n";
    let manifests = check(&[("f.yaml", &text)]).expect("valid");
    assert_eq!((manifests.pipelines.len(), manifests.runs.len(), manifests.foreign), (1, 1, 1));
    let pipeline = manifests.pipeline(DEFAULT_NAMESPACE, "p").expect("the pipeline");
    assert_eq!((pipeline.file.as_str(), pipeline.place.line, pipeline.base_dir.as_path()), ("f.yaml", 1, Path::new("/base")));
    assert_eq!(pipeline.spec.stages[0].name.as_deref(), Some("from-env"));
    assert_eq!(manifests.runs[0].place.line, 13);
    assert_eq!(manifests.summary(), "1 pipeline and 1 run");
}

#[test]
fn a_variable_without_quotes_in_a_flow_map_is_a_problem_with_the_cure() {
    for name in ["{v: ${NAME}}", "{v: $${NAME}}", "[${NAME}]", "{v: ${NAME:-a}, w: 1}", "{v: [x, ${NAME}]}"] {
        let found = problems(&pipeline(&format!("  stages:\n    - set: {{values: {name}}}\n{NOP}")));
        assert!(!found.is_empty(), "{name}");
        assert!(found[0].contains("a variable inside of { } or [ ] needs quotes: \"${NAME}\""), "{name}: {found:?}");
    }
    for name in ["{v: \"${NAME}\"}", "{v: '$${NAME}'}"] {
        assert_eq!(problems(&pipeline(&format!("  stages:\n    - set: {{values: {name}}}\n{NOP}"))), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_secret_is_named_and_not_found_by_a_path() {
    let cluster = |name: &str, key: &str| {
        pipeline(&format!(
            "  indexer:\n    opensearch:\n      urls: [http://s:9200]\n      index: i\n      apiKey: {{valueFrom: {{secretKeyRef: {{name: {name}, key: {key}}}}}}}\n"
        ))
    };
    let place = "spec.indexer.opensearch.apiKey.valueFrom.secretKeyRef";
    for (name, key, field, cure) in [
        ("../other", "k", "name", "write the name, not a path"),
        ("a/b", "k", "name", "write the name, not a path"),
        ("a..b", "k", "name", "single dots"),
        ("s", "../k", "key", "write the key, not a path"),
        ("s", "a/b", "key", "write the key, not a path"),
        ("s", "'..'", "key", "write the key, not a path"),
    ] {
        let found = problems(&cluster(name, key));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&format!("{place}.{field}: ")) && found[0].contains(cure), "{found:?}");
    }
    assert_eq!(problems(&cluster("my.search-login", "api_key.v1")), Vec::<String>::new());
}

#[test]
fn yaml_that_kubectl_reads_otherwise_is_reported() {
    for (text, want) in [
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: n}\nspec: {indexer: {nop: {}}}\n",
            "f.yaml:3:18: metadata.name: must be text, is a boolean (n); write \"n\" in quotes".to_owned(),
        ),
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p, labels: {n: x}}\nspec: {indexer: {nop: {}}}\n",
            "f.yaml:3:30: metadata.labels.n: kubectl reads the key `n` as `false`; put it in quotes".to_owned(),
        ),
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p, labels: {version: 1.0}}\nspec: {indexer: {nop: {}}}\n",
            "f.yaml:3:39: metadata.labels.version: must be text, is a number (1.0); write \"1.0\" in quotes".to_owned(),
        ),
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p, lables: {}}\nspec: {indexer: {nop: {}}}\n",
            "f.yaml:3:21: metadata.lables: unknown field `lables`, did you mean `labels`?".to_owned(),
        ),
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  indexer: {nop: {}}\n  stages: []\n  stages: []\n",
            "f.yaml:7:3: spec.stages: the key `stages` is set already in line 6; remove one of them".to_owned(),
        ),
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n\tindexer: {nop: {}}\n",
            "f.yaml:5:2: not YAML: tabs disallowed within this context (block indentation)".to_owned(),
        ),
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  indexer: {nop: {}}\n  ? [a]\n  : b\n",
            "f.yaml:6:5: spec: a key must be text, not a list or a map".to_owned(),
        ),
        (
            "apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {name: p}\nspec:\n  indexer: !Custom {nop: {}}\n",
            "f.yaml:5:20: spec.indexer: the tag `!Custom` has no meaning here; remove it".to_owned(),
        ),
    ] {
        assert_eq!(problems(text), [want], "{text}");
    }
}

#[test]
fn integers_that_kubectl_knows_are_integers_here() {
    for count in ["3.0", "1e3", "0o17", "1_000", "!!int '5'"] {
        let text =
            pipeline(NOP) + "---\n" + &run(&format!("  connectors:\n    - {{name: c, pipeline: p, sequence: {{count: {count}}}}}\n"));
        assert_eq!(problems(&text), Vec::<String>::new(), "{count}");
    }
}

#[test]
fn aliases_and_merge_keys_are_resolved_as_kubectl_does() {
    let manifest = |stage: &str| {
        pipeline(&format!(
            "  indexer: {{nop: {{}}}}\n  stages:\n    - name: one\n      rename: &r {{fields: {{a: b}}}}\n    - name: two\n{stage}"
        ))
    };
    assert_eq!(problems(&manifest("      rename: *r\n")), Vec::<String>::new());
    let merged = check(&[("f.yaml", &manifest("      rename:\n        <<: *r\n        fields: {c: d}\n"))]).expect("valid");
    assert_eq!(serde_json::to_value(&merged.pipelines[0].spec.stages[1]).expect("JSON")["rename"]["fields"], serde_json::json!({"c": "d"}));
    assert_eq!(
        problems(&manifest("      rename:\n        fields: {c: d}\n        <<: *r\n")),
        ["f.yaml:13:9: spec.stages[1].rename.<<: `<<` also sets `fields`, and kubectl lets the later win; write `<<` first"]
    );
    assert_eq!(
        problems(&manifest("      rename:\n        <<: text\n        fields: {c: d}\n")),
        ["f.yaml:12:9: spec.stages[1].rename.<<: `<<` takes an alias of a map, or a list of them"]
    );
}

#[test]
fn one_document_that_is_not_yaml_does_not_hide_the_others() {
    let text = format!("a: [1\n---\n{}---\nb: : c\n", pipeline("  indexer: {nop: {}, nopp: {}}\n"));
    let found = problems(&text);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert_eq!(found[0], "f.yaml:1:4: not YAML: unclosed bracket '['");
    assert_eq!(found[1], "f.yaml:8:22: spec.indexer.nopp: unknown field `nopp`, did you mean `nop`?");
    assert!(found[2].starts_with("f.yaml:10:"), "{}", found[2]);
}

#[test]
fn a_mistyped_key_is_one_problem() {
    assert_eq!(
        problems(&pipeline("  indexer: {nop: {}}\n  stages:\n    - renam: {fields: {a: b}}\n")),
        ["f.yaml:8:7: spec.stages[0].renam: unknown field `renam`, did you mean `rename`?"]
    );
}

#[test]
fn rules_of_the_schema_are_run_with_their_place() {
    let found = problems(&pipeline(
        "  indexer:\n    includeFields: [a]\n    excludeFields: [b]\n    nop: {}\n    csv: {path: x, columns: [a]}\n  stages:\n    - name: x\n    - chunk: {source: a, size: 5, overlap: 5}\n",
    ));
    let places: Vec<&str> = found.iter().map(|problem| problem.split(": ").next().unwrap_or_default()).collect();
    assert_eq!(found.len(), 4, "{found:#?}");
    assert_eq!(places, ["f.yaml:6:3", "f.yaml:8:5", "f.yaml:12:7", "f.yaml:13:44"], "{found:#?}");
    assert!(found[0].contains("cannot be set together"), "{}", found[0]);
    assert!(found[1].contains("set includeFields or excludeFields, not both"), "{}", found[1]);
    assert!(found[2].contains("set exactly one of: "), "{}", found[2]);
    assert!(found[3].contains("overlap must be smaller than size"), "{}", found[3]);
}

#[test]
fn rules_are_also_run_where_the_shape_is_wrong() {
    let found =
        problems(&pipeline("  indexer: {batch: {maxAge: 90 sec, maxDocuments: none}, nop: {}}\n  workers: {maxProcessing: 5 min}\n"));
    assert_eq!(
        found,
        [
            "f.yaml:6:29: spec.indexer.batch.maxAge: \"90 sec\" is not a duration; write for example 500ms, 30s, 5m or 1h30m",
            "f.yaml:6:51: spec.indexer.batch.maxDocuments: must be a whole number, is text (`none`)",
            "f.yaml:7:28: spec.workers.maxProcessing: \"5 min\" is not a duration; write for example 500ms, 30s, 5m or 1h30m",
        ]
    );
}

#[test]
fn what_serde_alone_refuses_is_reported_at_its_component() {
    // The rule allows any number of digits, the type does not.
    let found = problems(&pipeline(&format!("  indexer: {{nop: {{}}}}\n  workers: {{maxProcessing: {}h}}\n", "9".repeat(20))));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("f.yaml:5:1: spec: ") && found[0].contains("duration"), "{}", found[0]);
}

#[test]
fn references_lead_somewhere_s31() {
    let pipelines = pipeline(NOP);
    for (connector, want) in [
        ("pipeline: p", None),
        ("pipeline: pp", Some("f.yaml:14:29: spec.connectors[0].pipeline: there is no Pipeline `pp`, did you mean `p`?")),
        ("pipeline: products", Some("f.yaml:14:29: spec.connectors[0].pipeline: there is no Pipeline `products`; there is p")),
    ] {
        let text =
            format!("{pipelines}---\n{}", run(&format!("  connectors:\n    - {{name: one, {connector}, sequence: {{count: 1}}}}\n")));
        assert_eq!(problems(&text), want.into_iter().collect::<Vec<_>>(), "{connector}");
    }
    assert_eq!(
        problems(&run("  connectors:\n    - {name: one, pipeline: p, sequence: {count: 1}}\n")),
        [
            "f.yaml:7:29: spec.connectors[0].pipeline: there is no Pipeline `p`; these files hold no Pipeline: name the file that does as well"
        ]
    );
    assert_eq!(
        problems(&pipeline("  kafkaRef: {name: main}\n  mode: Distributed\n  partitions: 3\n  indexer: {nop: {}}\n")),
        [
            "f.yaml:6:20: spec.kafkaRef.name: there is no KafkaConnection `main`; these files hold no KafkaConnection: name the file that does as well"
        ]
    );
}

#[test]
fn references_are_looked_up_in_all_files_and_in_the_same_namespace() {
    let here = run("  connectors:\n    - {name: one, pipeline: p, sequence: {count: 1}}\n");
    assert!(check(&[("a.yaml", &here), ("b.yaml", &pipeline(NOP))]).is_ok());
    let elsewhere = pipeline(NOP).replace("name: p", "name: p\n  namespace: prod");
    let report = check(&[("a.yaml", &here), ("b.yaml", &elsewhere)]).expect_err("another namespace");
    assert_eq!(
        report.problems[0].to_string(),
        "a.yaml:7:29: spec.connectors[0].pipeline: the Pipeline `p` is in the namespace `prod`, this object in `default`; they must be in the same"
    );
}

#[test]
fn what_may_be_in_an_unreadable_part_is_not_called_missing() {
    let text = format!("a: [\n---\n{}", run("  connectors:\n    - {name: one, pipeline: p, sequence: {count: 1}}\n"));
    assert_eq!(problems(&text).len(), 1, "{:#?}", problems(&text));
}

#[test]
fn an_object_defined_twice_is_reported_at_the_second() {
    let report = check(&[("a.yaml", &pipeline(NOP)), ("b.yaml", &pipeline(NOP))]).expect_err("twice");
    assert_eq!(
        report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["b.yaml:4:9: metadata.name: Pipeline `p` is defined already at a.yaml:1:1; remove one of them"]
    );
}

#[test]
fn names_of_connectors_are_unique_s35() {
    let connector = "    - {name: one, pipeline: p, sequence: {count: 1}}\n";
    let text = format!("{}---\n{}", pipeline(NOP), run(&format!("  connectors:\n{connector}{connector}")));
    assert_eq!(
        problems(&text),
        ["f.yaml:15:14: spec.connectors[1].name: the name `one` is taken by connector 1; give each connector a name of its own"]
    );
}

#[test]
fn a_variable_without_value_is_one_problem() {
    let text = pipeline("  partitions: ${NOPE}\n  workers: {maxProcessing: '${NOPE}'}\n  indexer: {nop: {}}\n");
    let found = problems(&text);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("f.yaml:6:15: spec.partitions: the variable NOPE is not set; "), "{}", found[0]);
    assert!(found[1].starts_with("f.yaml:7:28: spec.workers.maxProcessing: the variable NOPE is not set; "), "{}", found[1]);
}

#[test]
fn a_password_in_clear_text_is_not_repeated() {
    let found = problems(&pipeline(
        "  indexer:\n    opensearch:\n      urls: [\"https://search:9200\"]\n      index: products\n      username: admin\n      password: hunter2\n",
    ));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|problem| problem.contains("a credential is never written into a manifest")), "{found:#?}");
    assert!(!found.iter().any(|problem| problem.contains("hunter2")), "{found:#?}");
}

#[test]
fn a_name_that_is_wrong_is_one_problem_and_a_generated_one_is_none() {
    let long = pipeline(NOP).replace("name: p", &format!("name: {}", "a".repeat(64)));
    let found = problems(&long);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("f.yaml:4:9: metadata.name: has 64 characters"), "{}", found[0]);
    let manifests = check(&[("f.yaml", &pipeline(NOP).replace("name: p", "generateName: p-"))]).expect("valid");
    assert_eq!(manifests.pipelines[0].name, "p");
}

#[test]
fn nothing_to_read_is_a_problem() {
    for text in ["", "# only a comment\n", "---\n---\n", "\u{feff}", "apiVersion: v1\nkind: Secret\n"] {
        assert_eq!(problems(text), ["f.yaml: holds no object of penstock.io/v1alpha1"], "{text:?}");
    }
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let text = pipeline("  indexer: {nopp: {}}\n");
    let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(problems(&windows), problems(&text));
    assert_eq!(problems(&text), ["f.yaml:6:13: spec.indexer.nopp: unknown field `nopp`, did you mean `nop`?"]);
}

#[test]
fn nesting_without_end_is_refused() {
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000), (0..3000).map(|n| " ".repeat(n) + "a:\n").collect()] {
        let found = problems(&text);
        assert!(found.iter().any(|problem| problem.contains("not YAML")), "{found:?}");
    }
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut bomb = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..30 {
        let below = format!("*a{}, ", level - 1).repeat(9);
        bomb += &format!("a{level}: &a{level} [{below}]\n");
    }
    let mut deep = String::from("a0: &a0 [x]\n");
    for level in 1..400 {
        deep += &format!("a{level}: &a{level} [[[*a{}]]]\n", level - 1);
    }
    for text in [bomb, deep] {
        let text = format!("apiVersion: penstock.io/v1alpha1\nkind: Pipeline\n{text}");
        assert!(problems(&text).iter().any(|problem| problem.contains("multiply beyond all measure")));
    }
}

#[test]
fn an_alias_within_its_own_value_is_refused() {
    let found = problems(&pipeline("  indexer: &i {nop: *i}\n"));
    assert!(found[0].contains("alias"), "{found:#?}");
}

/// The manifests that are also tried on a real API server: the verdict must be the same.
fn fixtures(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/manifests").join(folder);
    let files = folder.read_dir().expect("fixtures").map(|entry| entry.expect("a file").path());
    let mut texts: Vec<(String, String)> =
        files.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("text"))).collect();
    texts.sort();
    assert!(!texts.is_empty());
    texts
}

/// The problems of a fixture, without those about objects that stand in no fixture.
fn own_problems(name: &str, text: &str) -> Vec<Problem> {
    let problems = check(&[(name, text)]).err().map(|report| report.problems).unwrap_or_default();
    let foreign = ["there is no KafkaConnection `main`", "there is no Pipeline `products`"];
    problems.into_iter().filter(|problem| !foreign.iter().any(|text| problem.message.starts_with(text))).collect()
}

#[test]
fn what_the_api_server_takes_is_valid_here() {
    for (name, text) in fixtures("good") {
        assert_eq!(own_problems(&name, &text), [], "{name}");
    }
}

#[test]
fn what_the_api_server_refuses_is_refused_here_at_the_same_field() {
    for (name, text) in fixtures("bad") {
        // The first line is `# KIND PATH: MESSAGE`.
        let told = text.lines().next().and_then(|line| line.split_once(": ")).expect("the fault").0;
        let path = match told.rsplit_once(' ').expect("a path").1 {
            "" => "metadata.name",
            path => path,
        };
        let problems = own_problems(&name, &text);
        // Where the server can only name the list, the item is named here.
        assert!(problems.iter().any(|problem| path::is_within(&problem.path, path)), "{name} at {path}: {problems:#?}");
        assert!(problems.iter().all(|problem| problem.place.is_some_and(|place| place.line > 1)), "{name}: {problems:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_is_answered(text in "\\PC{0,60}") {
        problems(&text);
    }

    #[test]
    fn anything_like_yaml_is_answered(parts in prop::collection::vec(
        prop::sample::select(vec![
            "a", "spec", "name", ": ", ":", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ", ", "&x ", "*x", "<<: ", "!!str ", "!t ",
            "|\n", ">-\n", "\"", "'", "# c", "\t", "\r\n", "---\n", "...\n", "?", "%YAML 1.2\n", "${A}", "${A:-1}", "017", "\u{feff}", "é", "\\", "\0",
        ]),
        0..40,
    )) {
        problems(&parts.concat());
    }

    #[test]
    fn a_manifest_with_a_piece_cut_out_is_answered(from in 0usize..330, length in 0usize..12, put in "[-:{}\\[\\]\n a|&*!#]{0,4}") {
        let text = pipeline("  mode: Local\n  stages:\n    - name: one\n      when: .a == 1\n      remap:\n        source: |\n          .x = 1\n    - copy: {fields: {a: [b]}}\n  indexer:\n    batch: {maxDocuments: 5, maxAge: 1s}\n    opensearch: {urls: ['http://localhost:9200'], index: products}\n");
        let characters: Vec<char> = text.chars().collect();
        let from = from.min(characters.len());
        let until = (from + length).min(characters.len());
        let cut: String = characters[..from].iter().copied().chain(put.chars()).chain(characters[until..].iter().copied()).collect();
        problems(&cut);
    }
}

fn kafka(spec: &str) -> String {
    format!("apiVersion: penstock.io/v1alpha1\nkind: KafkaConnection\nmetadata:\n  name: k\nspec:\n  bootstrapServers: k:9092\n{spec}")
}

#[test]
fn properties_of_the_kafka_client_are_checked_at_their_place() {
    let found =
        problems(&kafka("  properties:\n    linger.ms: \"5\"\n    acks: \"1\"\n    lingr.ms: \"5\"\n    socket.timeout.ms: soon\n"));
    let want = [
        "f.yaml:9:11: spec.properties.acks: `acks` cannot be set: every record is acknowledged by all replicas in sync, or documents could get lost",
        "f.yaml:10:15: spec.properties.lingr.ms: there is no property `lingr.ms` that may be set, did you mean `linger.ms`?",
        "f.yaml:11:24: spec.properties.socket.timeout.ms: the value `soon` cannot be used: ",
    ];
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (found, want) in found.iter().zip(want) {
        assert!(found.starts_with(want), "{found}\n{want}");
    }
}

#[test]
fn names_that_kafka_does_not_take_are_found_where_pipeline_and_connection_meet() {
    let both = |prefix: &str| pipeline("  kafkaRef: {name: k}\n  partitions: 1\n  indexer: {nop: {}}\n") + "---\n" + &kafka(prefix);
    assert_eq!(problems(&both("  topics: {namePrefix: \"{namespace}.\"}\n")), [""; 0]);
    let longest = format!("  topics: {{namePrefix: \"{}\"}}\n", "x".repeat(128));
    assert_eq!(problems(&both(&longest)), [""; 0], "a short name of a pipeline leaves room");
    let long = both(&longest).replacen("  name: p", &format!("  name: {}", "p".repeat(20)), 1);
    let found = problems(&long);
    assert!(
        matches!(&*found, [one] if one.starts_with("f.yaml:4:9: metadata.name: the name `xxx") && one.contains("Kafka takes 249")),
        "{found:#?}"
    );
}

#[test]
fn more_partitions_than_the_connection_allows_are_a_problem_of_the_pipeline() {
    let both = |asked: u32, most: u32| {
        let pipeline = pipeline(&format!("  kafkaRef: {{name: k}}\n  partitions: {asked}\n  indexer: {{nop: {{}}}}\n"));
        pipeline + "---\n" + &kafka(&format!("  topics: {{maxPartitions: {most}}}\n"))
    };
    assert_eq!(problems(&both(12, 12)), [""; 0]);
    let found = problems(&both(120, 12));
    let want = "f.yaml:7:15: spec.partitions: asks for 120 partitions, but the KafkaConnection `k` allows 12 (topics.maxPartitions): \
                lower it, or raise that";
    assert_eq!(found, [want]);
}
