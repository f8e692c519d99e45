//! What is wrong with a connection or its rights, as commands say it: soon, in words, and with the exit code for it.

use anyhow::{Context, Result};
use penstock_tests::{
    over_kafka::books,
    penstock::Workdir,
    recorder::Recorder,
    services::kafka::{
        Kafka,
        secured::{Security, USER},
    },
};
use std::time::{Duration, Instant};

/// Everything that is wrong is said within this time.
const LIMIT: Duration = Duration::from_secs(30);
const UNREACHABLE: Option<i32> = Some(69);
const COMMANDS: [&[&str]; 3] = [&["run"], &["publish", "--connector", "books", "--run-id", "r-1"], &["worker"]];

/// A folder with manifests of a pipeline over a secured broker, and with the secrets.
struct Place {
    workdir: Workdir,
    recorder: Recorder,
}

impl Place {
    fn new(security: &Security, prefix: &str) -> Result<Self> {
        let recorder = Recorder::start()?;
        let workdir = Workdir::new()?;
        let place = Self { workdir, recorder };
        for (key, value) in [("ca", security.pem("ca")?.as_str()), ("user", USER.0), ("password", USER.1)] {
            place.set(key, value)?;
        }
        let secret = |key: &str| format!("{{valueFrom: {{secretKeyRef: {{name: kafka, key: {key}}}}}}}");
        let connection = format!(
            "apiVersion: penstock.io/v1alpha1
kind: KafkaConnection
metadata: {{name: main}}
spec:
  bootstrapServers: {}
  topics: {{namePrefix: \"{prefix}\"}}
  tls: {{ca: {}}}
  sasl: {{mechanism: SCRAM-SHA-512, username: {}, password: {}}}
---
",
            security.sasl(),
            secret("ca"),
            secret("user"),
            secret("password"),
        );
        let pipeline = books("Distributed", place.recorder.url(), "  partitions: 2", "");
        place.workdir.write("kafka.yaml", connection + &pipeline)?.write("books.jsonl", "{\"id\":\"b-1\"}\n")?;
        Ok(place)
    }

    fn set(&self, key: &str, value: &str) -> Result<()> {
        self.workdir.write(&format!("secrets/kafka/{key}"), value).map(drop)
    }

    fn change(&self, from: &str, to: &str) -> Result<()> {
        let text = self.workdir.read("kafka.yaml")?;
        assert!(text.contains(from), "{text}");
        self.workdir.write("kafka.yaml", text.replace(from, to)).map(drop)
    }

    /// All commands, side by side, end with 69, and say all of this.
    fn assert_all_say(&self, commands: &[&[&str]], parts: &[&str]) -> Result<()> {
        let began = Instant::now();
        let start = |command: &&[&str]| {
            let arguments = [&command[..1], &["kafka.yaml", "--secrets-dir", "secrets"], &command[1..]].concat();
            self.workdir.start(arguments, &[])
        };
        let running = commands.iter().map(start).collect::<Result<Vec<_>>>()?;
        for (command, running) in commands.iter().zip(running) {
            let answer = running.wait()?;
            assert!(began.elapsed() < LIMIT, "{command:?} took {:?}: {answer:?}", began.elapsed());
            assert_eq!(answer.code, UNREACHABLE, "{command:?}: {answer:?}");
            for part in parts {
                assert!(answer.err.contains(part), "{command:?} does not say `{part}`: {answer:?}");
            }
            assert!(!answer.err.contains("wrong-word") && !answer.err.contains(USER.1), "{command:?}: {answer:?}");
        }
        Ok(())
    }
}

#[test]
fn every_command_says_that_a_password_is_wrong() -> Result<()> {
    let security = Kafka::shared_secured()?.security()?;
    let place = Place::new(security, "")?;
    place.set("password", "wrong-word")?;
    place.assert_all_say(&COMMANDS, &[&security.sasl(), "do not take these credentials; correct the Secret"])
}

#[test]
fn every_command_says_that_an_authority_is_not_known() -> Result<()> {
    let security = Kafka::shared_secured()?.security()?;
    let place = Place::new(security, "")?;
    place.set("ca", &security.pem("other-ca")?)?;
    place.assert_all_say(&COMMANDS, &["signed by nobody whom we trust; put its authority into tls.ca"])
}

#[test]
fn every_command_says_that_nobody_listens() -> Result<()> {
    let security = Kafka::shared_secured()?.security()?;
    let place = Place::new(security, "")?;
    place.change(&security.sasl(), "127.0.0.1:9")?;
    place.assert_all_say(&COMMANDS, &["Kafka at 127.0.0.1:9 cannot be used"])
}

#[test]
fn every_command_names_the_right_that_is_missing() -> Result<()> {
    let kafka = Kafka::shared_secured()?;
    let place = Place::new(kafka.security()?, "rights.")?;
    for topic in ["books_source", "books_dest", "books_fail", "books_event_r-1"] {
        kafka.create_topic(&format!("rights.{topic}"), if topic.len() > 12 || topic == "books_fail" { 1 } else { 2 })?;
    }
    let source = "rights.books_source";
    place.assert_all_say(&COMMANDS[1..], &["does not allow", source])?;

    for topic in ["books_source", "books_dest", "books_fail", "books_event_r-1"] {
        kafka.allow(USER.0, "Describe", "--topic", &format!("rights.{topic}"))?;
    }
    for operation in ["Read", "Write"] {
        kafka.allow(USER.0, operation, "--topic", "rights.books_event")?;
        kafka.allow(USER.0, operation, "--topic", "rights.books_fail")?;
    }
    place.assert_all_say(&[COMMANDS[1]], &["does not allow `Write` on topic `rights.books_source`; give the user"])?;
    place.assert_all_say(&[COMMANDS[2]], &["does not allow `Read` on consumer group `rights.books-workers`; give the user"])?;

    kafka.allow(USER.0, "Read", "--group", "rights.books-workers")?;
    place.assert_all_say(&[COMMANDS[2]], &["does not allow `Read` on topic `rights.books_source`; give the user"])
}

#[test]
fn validation_refuses_properties_that_would_cost_documents_with_place_and_cure() -> Result<()> {
    let place = Place::new(Kafka::shared_secured()?.security()?, "")?;
    place.change("  tls: {ca", "  properties:\n    acks: \"1\"\n    enable.auto.commit: \"true\"\n    linger.mss: \"5\"\n  tls: {ca")?;
    let answer = place.workdir.penstock(["validate", "kafka.yaml"])?;
    assert_eq!(answer.code, Some(64), "{answer:?}");
    let line = |property: &str| answer.out.lines().chain(answer.err.lines()).find(|line| line.contains(property)).map(str::to_owned);
    for (property, place, cure) in [
        ("`acks`", "kafka.yaml:8:", "every record is acknowledged by all replicas"),
        ("`enable.auto.commit`", "kafka.yaml:9:", "offsets are committed once"),
        ("`linger.mss`", "kafka.yaml:10:", "linger.ms"),
    ] {
        let line = line(property).with_context(|| format!("{property}: {answer:?}"))?;
        assert!(line.contains(place) && line.contains(cure), "{line}");
    }
    Ok(())
}
