//! Processes over the topics of one pipeline.

use super::{
    job::{self, FIVE_STAGES, Taken},
    topics,
};
use anyhow::{Context, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// How long a role may take until it has its partitions.
const JOIN_LIMIT: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 4;

/// The mode of the pipeline.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Distributed,
    WorkerIndexer,
}

/// A pipeline with its topics, and where its manifest lies.
pub struct Setting {
    pub broker: String,
    pub name: String,
    pub folder: PathBuf,
    pub manifest: PathBuf,
}

impl Setting {
    /// The pipeline of the job, with a backend that takes everything.
    pub fn new(broker: &str, folder: &Path, name: &str, mode: Mode) -> Result<Self> {
        Self::with_indexer(broker, folder, name, mode, "{nop: {}}")
    }

    /// The pipeline of the job.
    pub fn with_indexer(broker: &str, folder: &Path, name: &str, mode: Mode, indexer: &str) -> Result<Self> {
        let manifest = folder.join(format!("{name}.yaml"));
        let text = format!(
            "apiVersion: penstock.io/v1alpha1\nkind: KafkaConnection\nmetadata: {{name: main}}\nspec: {{bootstrapServers: \"{broker}\"}}\n---\n\
             apiVersion: penstock.io/v1alpha1\nkind: Pipeline\nmetadata: {{name: {name}}}\nspec:\n  mode: {mode:?}\n  kafkaRef: {{name: main}}\n  partitions: {PARTITIONS}\n  workers: {{threads: 2}}\n  stages:{FIVE_STAGES}  indexer: {indexer}\n---\n{}",
            job::run_manifest(name)
        );
        fs::write(&manifest, text)?;
        let setting = Self { broker: broker.into(), name: name.into(), folder: folder.into(), manifest };
        let topics = ["source", "dest", "fail"].map(|role| (setting.topic(role), if role == "fail" { 1 } else { PARTITIONS }));
        topics::create(broker, &topics)?;
        Ok(setting)
    }

    /// A topic of the pipeline.
    pub fn topic(&self, role: &str) -> String {
        format!("{}_{role}", self.name)
    }

    /// Removes the topics.
    pub fn remove(&self) -> Result<()> {
        let names = ["source", "dest", "fail", "relayed", "event_run"].map(|role| self.topic(role));
        topics::delete(&self.broker, &names.each_ref().map(String::as_str))
    }

    fn command(&self, verb: &str) -> Command {
        let program = env::var("PENSTOCK_BENCH_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_penstock").to_owned());
        let mut command = Command::new(program);
        command.arg(verb).arg(&self.manifest).env("ROWS", self.folder.join("rows.csv")).current_dir(&self.folder);
        command
    }

    /// Starts the publisher, or all in one.
    pub fn start_publisher(&self, verb: &str) -> Result<Child> {
        let mut command = self.command(verb);
        match verb {
            "publish" => command.args(["--connector", "rows", "--create-topics"]),
            _ => command.args(["--summary", "none"]),
        };
        command.args(["--run-id", "run", "--progress", "none"]).env("PENSTOCK_LOG", "error").stdout(Stdio::null());
        command.spawn().with_context(|| format!("failed to start penstock {verb}"))
    }

    /// Starts a role and waits until it has its partitions.
    pub fn start_role(&self, role: &str) -> Result<Child> {
        let mut command = self.command(role);
        command.env("PENSTOCK_LOG", "info").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("failed to start penstock {role}"))?;
        let lines = BufReader::new(child.stderr.take().context("it has no standard error")?).lines();
        let (tell, joined) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains("partitions taken over") {
                    let _ = tell.send(());
                } else if line.contains("ERROR") || line.contains("error") {
                    eprintln!("{line}");
                }
            }
        });
        joined.recv_timeout(JOIN_LIMIT).with_context(|| format!("penstock {role} has got no partitions"))?;
        Ok(child)
    }
}

/// Runs the publisher with roles beside it: what each took, the publisher first.
pub fn run(setting: &Setting, roles: &[&'static str], publisher: &'static str) -> Result<Vec<(&'static str, Taken)>> {
    let mut beside = roles.iter().map(|role| Ok((*role, setting.start_role(role)?))).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let mut taken = vec![(publisher, job::measure(&mut setting.start_publisher(publisher)?, begun)?)];
    for (role, child) in &mut beside {
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).context("failed to end a role")?;
        taken.push((role, job::measure(child, Instant::now())?));
    }
    Ok(taken)
}

/// The relay over the source topic, into a topic of its own.
pub fn relay(setting: &Setting, rows: u64) -> Result<Taken> {
    let (from, to) = (setting.topic("source"), setting.topic("relayed"));
    topics::create(&setting.broker, &[(to.clone(), PARTITIONS)])?;
    let begun = Instant::now();
    let mut child =
        Command::new(env::current_exe()?).args(["--relay", &from, &to, &rows.to_string()]).spawn().context("failed to start the relay")?;
    job::measure(&mut child, begun)
}
