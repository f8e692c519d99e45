//! The contract: manifests that must run as they are, with the results that they must give.

use anyhow::Result;
use penstock_tests::{
    contract::{assert_quickstart, counts},
    penstock::Workdir,
};
use serde_json::json;

#[test]
fn quickstart_gives_its_results_and_can_be_searched() -> Result<()> {
    let workdir = Workdir::with_fixture("contract")?;
    let (summary, answer) = workdir.run(["quickstart.yaml"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_quickstart(&summary);
    let found = workdir.penstock(["search", "./out/index", "name:kettle"])?;
    assert_eq!(found.code, Some(0));
    assert!(found.out.starts_with("1 document\n"), "{}", found.out);
    let dead = workdir.read_json_lines("quickstart_fail.jsonl")?;
    assert_eq!(dead.len(), 2);
    assert_eq!(dead[0]["raw"], "p-8,Broken row,Office");
    assert_eq!(
        (&dead[1]["id"], &dead[1]["document"]["title"], &dead[1]["document"]["price"]),
        (&json!("p-11"), &json!("Stove"), &json!("n/a"))
    );
    Ok(())
}

#[test]
fn quickstart_again_replaces_documents_and_keeps_the_dead_letters_of_both_runs() -> Result<()> {
    let workdir = Workdir::with_fixture("contract")?;
    workdir.run(["quickstart.yaml"])?;
    let (summary, _) = workdir.run(["quickstart.yaml"])?;
    assert_quickstart(&summary);
    let all = workdir.penstock(["search", "out/index", "*", "--count"])?;
    assert_eq!(all.out.trim(), "15", "{all:?}");
    let dead = workdir.read_json_lines("quickstart_fail.jsonl")?;
    assert_eq!(dead.len(), 4);
    assert_ne!(dead[0]["runId"], dead[2]["runId"]);
    Ok(())
}

#[test]
fn the_kafka_manifest_gives_the_same_counts_over_memory() -> Result<()> {
    let workdir = Workdir::with_fixture("contract")?;
    let (summary, answer) = workdir.run(["kafka.yaml", "--messaging", "local"])?;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_quickstart(&summary);
    let products = workdir.read_json_lines("out/products.jsonl")?;
    assert_eq!(products.len(), 11);
    assert!(products.contains(&json!({"id": "p-2#sharp", "tag": "sharp"})), "{products:?}");
    assert_eq!(workdir.read_json_lines("out/categories.jsonl")?.len(), 4);
    Ok(())
}

#[test]
fn the_bench_manifest_reads_rows_named_by_the_environment() -> Result<()> {
    let workdir = Workdir::with_fixture("contract")?;
    let mut rows = String::from("id,title,author,category,price,sku,email,summary\n");
    for id in 1..=1000 {
        rows.push_str(&format!("{id},Title {id},Author,Books,1.00,SKU-{id:06}-GO,a@example.org,Text\n"));
    }
    workdir.write("rows.csv", rows)?;
    let path = workdir.path().join("rows.csv").display().to_string();
    let answer = workdir.start(["run", "bench.yaml", "--summary", "json"], &[("ROWS", &path)])?.wait()?;
    assert_eq!(answer.summary()?["totals"], counts(1000, 0, 1000, 0, 0));
    let unset = workdir.penstock(["run", "bench.yaml"])?;
    assert_eq!(unset.code, Some(64), "{unset:?}");
    Ok(())
}

#[test]
fn the_broken_manifest_has_ten_problems_and_makes_nothing_x13() -> Result<()> {
    let workdir = Workdir::with_fixture("contract")?;
    for command in [vec!["validate", "broken.yaml"], vec!["run", "broken.yaml"]] {
        let answer = workdir.penstock(command)?;
        assert_eq!(answer.code, Some(64));
        let places: Vec<&str> = answer.out.lines().filter(|line| line.starts_with("broken.yaml:")).collect();
        assert_eq!(places.len(), 10, "{}", answer.out);
        assert!(!workdir.has("out") && !workdir.has("broken_fail.jsonl"));
    }
    Ok(())
}
