//! Manifests over Kafka in a folder of their own, and the processes that work on them.

use crate::{
    penstock::{Answer, Running, Workdir},
    recorder::Recorder,
    services::{
        kafka::{Kafka, Record},
        poll_until,
    },
};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The file with all manifests.
pub const MANIFESTS: &str = "kafka.yaml";
/// How long a role may take to begin reading.
const BEGIN: Duration = Duration::from_secs(60);

/// Dead members of a group are forgotten soon, and a broker that is back is found soon.
pub const SHORT_SESSION: &str = "session.timeout.ms: \"1500\", heartbeat.interval.ms: \"300\", \
     reconnect.backoff.ms: \"50\", reconnect.backoff.max.ms: \"500\"";

/// What [`Site::versions`] makes.
pub struct Versions {
    /// `Distributed` or `WorkerIndexer`.
    pub mode: &'static str,
    /// Of source and dest.
    pub partitions: i32,
    /// How many documents; each seventh is a deletion.
    pub count: u64,
    /// Of how many ids, in turn.
    pub ids: u64,
    /// Documents a second.
    pub rate: u64,
    /// How long a batch waits for more.
    pub max_age: &'static str,
}

impl Default for Versions {
    fn default() -> Self {
        Self { mode: "Distributed", partitions: 4, count: 1_500, ids: 1_500, rate: 600, max_age: "100ms" }
    }
}

impl Versions {
    /// What is to be done to each id, in order.
    pub fn history(&self) -> BTreeMap<String, Vec<Option<Value>>> {
        let mut history: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for version in 0..self.count {
            let id = format!("d{}", version % self.ids);
            let operation = (version % 7 != 0).then(|| json!({"id": id, "version": version}));
            history.entry(id).or_default().push(operation);
        }
        history
    }

    /// The index, after all of it.
    pub fn documents(&self) -> BTreeMap<String, Value> {
        self.history().into_iter().filter_map(|(id, operations)| Some((id, operations.into_iter().next_back()??))).collect()
    }

    /// Whether an index of a recorder is as it must be after all of it.
    ///
    /// # Errors
    /// What is wrong, for some ids.
    pub fn check(&self, recorder: &Recorder, index: &str) -> Result<()> {
        check_documents(&recorder.documents(index), &self.documents())
    }
}

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

    /// A pipeline `p` without stages and a run `r` with the connector `c`: so many versions of so many ids, with this rate, from
    /// a file into an index of the recorder that is called as the prefix says.
    pub fn versions(kafka: &'k Kafka, recorder: &Recorder, prefix: &str, versions: &Versions) -> Result<Self> {
        let Versions { mode, partitions, count, ids, rate, max_age } = versions;
        let (url, index) = (recorder.url(), prefix.trim_end_matches('.'));
        let manifests = format!(
            "apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {{name: p}}
spec:
  mode: {mode}
  kafkaRef: {{name: main}}
  partitions: {partitions}
  indexer:
    batch: {{maxDocuments: 50, maxAge: {max_age}}}
    retry: {{maxRetries: 50, initialBackoff: 50ms, maxBackoff: 200ms}}
    deletion: {{field: gone, value: \"true\"}}
    opensearch: {{urls: [\"{url}\"], index: {index}}}
---
apiVersion: penstock.io/v1alpha1
kind: IngestRun
metadata: {{name: r}}
spec:
  connectors:
    - name: c
      pipeline: p
      maxRate: {rate}
      file: {{paths: [input.jsonl], format: {{jsonLines: {{id: [id]}}}}}}
"
        );
        let site = Self::with_manifests(kafka, prefix, SHORT_SESSION, &manifests)?;
        let line = |version| {
            let gone = if version % 7 == 0 { r#","gone":"true""# } else { "" };
            format!("{{\"id\":\"d{}\",\"version\":{version}{gone}}}\n", version % ids)
        };
        site.workdir.write("input.jsonl", (0..*count).map(line).collect::<String>())?;
        site.create_topics("p", *partitions)?;
        Ok(site)
    }

    /// Changes the manifests.
    pub fn change(&self, from: &str, to: &str) -> Result<()> {
        let text = self.workdir.read(MANIFESTS)?;
        ensure!(text.contains(from), "the manifests hold no `{from}`");
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
        ensure!(!ended, "the role has ended: {}", running.err()?);
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

/// A connection to this broker, and a pipeline over it that does nothing.
pub fn bare_pipeline(kafka: &Kafka, name: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1
kind: KafkaConnection
metadata: {{name: main}}
spec: {{bootstrapServers: '{}'}}
---
apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {{name: {name}}}
spec:
  mode: Distributed
  kafkaRef: {{name: main}}
  partitions: 4
  indexer: {{nop: {{}}}}
",
        kafka.bootstrap()
    )
}

/// Whether an index holds these documents and no others.
///
/// # Errors
/// What is wrong, for some ids.
pub fn check_documents(found: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>) -> Result<()> {
    let ids: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let wrong = ids.into_iter().filter(|id| found.get(*id) != expected.get(*id));
    let wrong: Vec<String> = wrong.map(|id| format!("{id}: {:?} instead of {:?}", found.get(id), expected.get(id))).collect();
    ensure!(wrong.is_empty(), "{} documents of the index are wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    Ok(())
}

/// A pipeline `books` into the index `books` of a search engine, and a run `books` that reads `books.jsonl`. `pipeline` and `indexer`
/// are more of their settings, in YAML.
pub fn books(mode: &str, url: &str, pipeline: &str, indexer: &str) -> String {
    format!(
        "apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {{name: books}}
spec:
  mode: {mode}
  kafkaRef: {{name: main}}
{pipeline}
  indexer:
    batch: {{maxAge: 50ms}}
{indexer}
    opensearch: {{urls: [\"{url}\"], index: books}}
---
apiVersion: penstock.io/v1alpha1
kind: IngestRun
metadata: {{name: books}}
spec:
  connectors:
    - {{name: books, pipeline: books, file: {{paths: [books.jsonl], format: {{jsonLines: {{id: [id]}}}}}}}}
"
    )
}

/// Lines of JSON for so many documents, `b-0` and on.
pub fn lines(count: usize) -> String {
    (0..count).map(|number| format!("{{\"id\":\"b-{number}\",\"n\":{number}}}\n")).collect()
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
