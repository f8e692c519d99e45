//! What a schedule does, from its seed alone: the pipeline, the documents, who is hit when by what.

use crate::recorder::Fault;
use fastrand::Rng;
use serde_json::json;
use std::{fmt::Write, time::Duration};

/// The group forgets a member that was not heard of for so long: see `SHORT_SESSION`.
const SESSION: Duration = Duration::from_millis(1_500);

/// How a pipeline says that the place in the topic is the version.
pub const PLACE: &str = "External\n    versionGeneration: 7";

/// How long a request may take: so long that it never is sent again while it is carried out; or less.
pub const LONG_TIMEOUT: &str = "timeout: 60s";
pub const SHORT_TIMEOUT: &str = "timeout: 2s";

/// A process of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Publisher,
    Worker(usize),
    Indexer(usize),
    WorkerIndexer(usize),
}

/// What happens to a process, or around it.
#[derive(Clone, Debug)]
pub enum Action {
    /// SIGKILL; it is started again after the time.
    Kill(Part, Duration),
    /// SIGTERM; it is started again after the time.
    Terminate(Part, Duration),
    /// SIGSTOP, and SIGCONT after the time.
    Freeze(Part, Duration),
    /// A second publisher is started while the first is frozen.
    Supersede(Duration),
    /// The search engine misbehaves.
    Misbehave(Vec<Fault>),
    /// The broker is killed, and started again after the time.
    RestartBroker(Duration),
}

/// An action, and when it happens.
#[derive(Clone, Debug)]
pub struct Move {
    pub at: Duration,
    pub action: Action,
}

/// What the search engine is told to keep late requests out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Nothing: late requests do harm.
    None,
    /// A field of the document.
    Field,
    /// The place in the topic.
    Place,
}

/// A schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub is_distributed: bool,
    pub partitions: i32,
    /// How many lanes a process has.
    pub threads: usize,
    pub versions: Versions,
    /// Consecutive documents of one id become one.
    pub collapses: bool,
    /// Documents a second.
    pub rate: u64,
    /// The processes besides the publisher.
    pub roles: Vec<Part>,
    /// The source, as JSON lines.
    pub input: String,
    pub moves: Vec<Move>,
}

impl Plan {
    /// The schedule of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let is_distributed = rng.u32(..3) > 0;
        let collapses = rng.u32(..6) == 0;
        let versions = match rng.u32(..4) {
            // merged fields are lists, and no versions any more
            0 | 1 if !collapses => Versions::Field,
            2 => Versions::Place,
            _ => Versions::None,
        };
        let documents = rng.u64(150..900);
        let rate = documents * 1_000 / rng.u64(800..2_500);
        let mut plan = Self {
            seed,
            is_distributed,
            partitions: rng.i32(1..=4),
            threads: rng.usize(1..=2),
            versions,
            collapses,
            rate,
            roles: roles(&mut rng, is_distributed),
            input: input(&mut rng, documents),
            moves: Vec::new(),
        };
        for _ in 0..rng.usize(1..=5) {
            let at = Duration::from_millis(rng.u64(100..3_000));
            let action = plan.action(&mut rng);
            plan.moves.push(Move { at, action });
        }
        plan.moves.sort_by_key(|one| one.at);
        plan
    }

    /// The index that the documents go to.
    pub fn index(&self) -> String {
        format!("chaos-{}", self.seed)
    }

    fn action(&self, rng: &mut Rng) -> Action {
        let pause = Duration::from_millis(rng.u64(0..800));
        let part = if rng.u32(..3) == 0 { Part::Publisher } else { self.roles[rng.usize(..self.roles.len())] };
        match rng.u32(..20) {
            0..=7 => Action::Kill(part, pause),
            8..=11 => Action::Terminate(part, pause),
            12..=14 if self.may_freeze(part) => Action::Freeze(part, SESSION + Duration::from_millis(rng.u64(300..2_500))),
            15 => Action::Supersede(Duration::from_millis(rng.u64(500..2_500))),
            16..=18 => Action::Misbehave((0..rng.usize(1..6)).map(|_| self.fault(rng)).collect()),
            19 => Action::RestartBroker(Duration::from_millis(rng.u64(0..3_000))),
            _ => Action::Kill(part, pause),
        }
    }

    /// A frozen indexer has a request ready that it sends when it wakes, behind newer ones. Only versions keep it out.
    fn may_freeze(&self, part: Part) -> bool {
        self.versions != Versions::None || matches!(part, Part::Publisher | Part::Worker(_))
    }

    fn fault(&self, rng: &mut Rng) -> Fault {
        match rng.u32(..6) {
            0 => Fault::Refuse(503),
            1 => Fault::Refuse(429),
            2 => Fault::Busy,
            3 if self.versions != Versions::None => Fault::Late(Duration::from_millis(rng.u64(50..1_500))),
            4 if self.versions != Versions::None => Fault::Hang,
            _ => Fault::Slow(Duration::from_millis(rng.u64(10..400))),
        }
    }

    /// The manifests, with documents going to that index.
    pub fn manifests(&self, url: &str, index: &str) -> String {
        let (mode, partitions, threads, rate) =
            (if self.is_distributed { "Distributed" } else { "WorkerIndexer" }, self.partitions, self.threads, self.rate);
        let versioning = match self.versions {
            Versions::None => "None",
            Versions::Field => "External\n    versionField: version",
            Versions::Place => PLACE,
        };
        // what takes longer may be carried out after it was given up
        let timeout = if self.versions == Versions::None { LONG_TIMEOUT } else { SHORT_TIMEOUT };
        let collapse = if self.collapses { "      collapse: true\n" } else { "" };
        format!(
            r#"apiVersion: penstock.io/v1alpha1
kind: Pipeline
metadata: {{name: p}}
spec:
  mode: {mode}
  kafkaRef: {{name: main}}
  partitions: {partitions}
  workers: {{threads: {threads}}}
  stages:
    - name: unwanted
      when: .kind == "unwanted"
      drop: {{}}
    - name: broken
      when: .kind == "broken"
      remap: {{source: 'assert!(false, "broken")'}}
    - name: family
      when: is_array(.family)
      explode: {{source: family, target: member, copyFields: [version]}}
  indexer:
    batch: {{maxDocuments: 40, maxAge: 100ms}}
    retry: {{maxRetries: 50, initialBackoff: 50ms, maxBackoff: 200ms}}
    deletion: {{field: gone, value: "true"}}
    versioning: {versioning}
    opensearch: {{urls: ["{url}"], index: {index}, {timeout}}}
---
apiVersion: penstock.io/v1alpha1
kind: IngestRun
metadata: {{name: r}}
spec:
  connectors:
    - name: c
      pipeline: p
      maxRate: {rate}
{collapse}      file:
        paths: [input.jsonl]
        format: {{jsonLines: {{id: [id]}}}}
"#
        )
    }
}

fn roles(rng: &mut Rng, is_distributed: bool) -> Vec<Part> {
    if is_distributed {
        let (workers, indexers) = (rng.usize(1..=2), rng.usize(1..=2));
        (0..workers).map(Part::Worker).chain((0..indexers).map(Part::Indexer)).collect()
    } else {
        (0..rng.usize(1..=2)).map(Part::WorkerIndexer).collect()
    }
}

/// Versions of few ids, numbered; some have children, some are dropped, fail in a stage or at the search engine, delete.
fn input(rng: &mut Rng, documents: u64) -> String {
    let ids = rng.u64(5..documents.max(6));
    let mut text = String::new();
    let mut id = 0;
    for version in 1..=documents {
        // now and then the same again: these are merged where that is asked for
        if rng.u32(..4) > 0 {
            id = rng.u64(..ids);
        }
        let mut document = json!({"id": format!("d{id}"), "version": version});
        match rng.u32(..40) {
            0 => {
                text.push_str("{\"id\": \"unreadable\n");
                continue;
            }
            1..=2 => document["kind"] = "unwanted".into(),
            3..=4 => document["kind"] = "broken".into(),
            5 => document["refuse"] = true.into(),
            6..=9 => document["gone"] = "true".into(),
            10..=15 => document["family"] = (0..rng.u32(1..4)).map(|member| json!(member)).collect(),
            _ => {}
        }
        // writing into a string cannot fail
        let _ = writeln!(text, "{document}");
    }
    text
}
