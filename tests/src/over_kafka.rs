//! Manifests over Kafka in a folder of their own, and the processes that work on them.

use crate::{
    penstock::{Answer, Running, Workdir},
    services::{
        kafka::{Kafka, Record},
        poll_until,
    },
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// The file with all manifests.
const MANIFESTS: &str = "kafka.yaml";
/// How long a role may take to begin reading.
const BEGIN: Duration = Duration::from_secs(60);

/// A folder with manifests, and the broker that they name.
pub struct Site<'k> {
    /// The folder.
    pub workdir: Workdir,
    /// The broker.
    pub kafka: &'k Kafka,
    /// What stands in front of the names of topics and groups.
    pub prefix: String,
}

impl<'k> Site<'k> {
    /// The manifests of the contract. With a prefix they have topics of their own; without one they stay as they are.
    pub fn contract(kafka: &'k Kafka, prefix: &str) -> Result<Self> {
        let workdir = Workdir::with_fixture("contract")?;
        if !prefix.is_empty() {
            let servers = "bootstrapServers: ${KAFKA:-127.0.0.1:9092}";
            let text = workdir.read(MANIFESTS)?.replace(servers, &format!("{servers}\n  topics: {{namePrefix: \"{prefix}\"}}"));
            workdir.write(MANIFESTS, text)?;
        }
        Ok(Self { workdir, kafka, prefix: prefix.into() })
    }

    /// Manifests of one's own; the KafkaConnection `main` is put in front. `properties` are those of the client, in YAML.
    pub fn with_manifests(kafka: &'k Kafka, prefix: &str, properties: &str, manifests: &str) -> Result<Self> {
        let workdir = Workdir::new()?;
        let connection = format!(
            "apiVersion: penstock.io/v1alpha1\nkind: KafkaConnection\nmetadata: {{name: main}}\n\
             spec: {{bootstrapServers: \"${{KAFKA}}\", topics: {{namePrefix: \"{prefix}\"}}, properties: {{{properties}}}}}\n---\n"
        );
        workdir.write(MANIFESTS, connection + manifests)?;
        Ok(Self { workdir, kafka, prefix: prefix.into() })
    }

    /// Changes the manifests.
    pub fn change(&self, from: &str, to: &str) -> Result<()> {
        let text = self.workdir.read(MANIFESTS)?;
        anyhow::ensure!(text.contains(from), "the manifests hold no `{from}`");
        self.workdir.write(MANIFESTS, text.replace(from, to)).map(drop)
    }

    /// Starts a command on the manifests.
    pub fn start(&self, command: &str, arguments: &[&str]) -> Result<Running> {
        let arguments = [command, MANIFESTS].into_iter().chain(arguments.iter().copied());
        self.workdir.start(arguments, &[("KAFKA", &self.kafka.bootstrap())])
    }

    /// Starts `penstock run`, with a summary for programs.
    pub fn run(&self, arguments: &[&str]) -> Result<Running> {
        self.start("run", &[&["--summary", "json"], arguments].concat())
    }

    /// Starts the publisher of a step.
    pub fn publish(&self, connector: &str, run_id: &str) -> Result<Running> {
        self.start("publish", &["--connector", connector, "--run-id", run_id, "--create-topics"])
    }

    /// Starts a role, and waits until it has its partitions.
    pub fn role(&self, role: &str) -> Result<Running> {
        let mut running = self.start(role, &[])?;
        let mut ended = false;
        poll_until("the role reads", BEGIN, || {
            ended = !running.runs().unwrap_or(false);
            ended || running.err().is_ok_and(|said| said.contains("partitions taken over"))
        })
        .with_context(|| running.err().unwrap_or_default())?;
        anyhow::ensure!(!ended, "the role has ended: {}", running.err()?);
        Ok(running)
    }

    /// The full name of a topic or a group.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Makes the topics of a pipeline, as an operator would.
    pub fn create_topics(&self, pipeline: &str, partitions: i32) -> Result<()> {
        self.kafka.create_topic(&self.name(&format!("{pipeline}_source")), partitions)?;
        self.kafka.create_topic(&self.name(&format!("{pipeline}_dest")), partitions)?;
        self.kafka.create_topic(&self.name(&format!("{pipeline}_fail")), 1)
    }

    /// How many records stand in a topic; none where it does not exist.
    pub fn records(&self, topic: &str) -> Result<usize> {
        let topic = self.name(topic);
        if self.kafka.partitions(&topic)? == 0 { Ok(0) } else { Ok(self.kafka.read(&topic)?.len()) }
    }

    /// Whether there is such a topic.
    pub fn has_topic(&self, topic: &str) -> Result<bool> {
        Ok(self.kafka.partitions(&self.name(topic))? > 0)
    }

    /// The letters of a pipeline, one for each document: repeats are left out, as readers of the topic do.
    pub fn letters(&self, pipeline: &str) -> Result<Vec<Record>> {
        let letters = self.kafka.read(&self.name(&format!("{pipeline}_fail")))?;
        let reference =
            |letter: &Record| ["run", "step", "epoch", "seq", "ordinal"].map(|part| header(letter, &format!("penstock-{part}")));
        let distinct: BTreeMap<_, _> = letters.into_iter().map(|letter| (reference(&letter), letter)).collect();
        Ok(distinct.into_values().collect())
    }
}

/// A header of a record, as text.
pub fn header(record: &Record, name: &str) -> String {
    let found = record.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

/// The result that `penstock publish` prints.
pub fn result(answer: &Answer) -> Result<Value> {
    answer.summary()
}
