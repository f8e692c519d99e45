//! The process that brings a cluster up and takes it down (`tests/cluster/keep.sh`).

use super::{Mode, free_ports, programs, run, scripts};
use crate::services::program;
use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;
use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Child, ChildStdout, Command, Stdio},
};

/// What takes the cluster down when this is dropped, and when the tests end without dropping anything.
pub struct Keeper {
    process: Child,
    state: PathBuf,
    _output: BufReader<ChildStdout>, // open, so that it can speak
}

impl Keeper {
    /// Starts a cluster, and waits until it works.
    pub fn start(mode: Mode) -> Result<Self> {
        for tool in ["openssl", "curl", "flock"] {
            program(tool)?;
        }
        let running = programs::cache()?.join("running");
        fs::create_dir_all(&running).with_context(|| format!("failed to create {}", running.display()))?;
        take_down_forgotten(&running)?;
        let (word, name) = match mode {
            Mode::Api => ("api", format!("api-{}", process::id())),
            Mode::Control => ("control", format!("control-{}", process::id())),
            Mode::Node => ("node", "node".to_owned()), // the same for all: there can be one
        };
        let state = running.join(&name);
        let mut keep = script("keep.sh", &state)?;
        keep.arg(word).arg(running.join(format!("{name}.lock")));
        let [api, etcd, etcd_peer, manager, scheduler] = free_ports()?;
        for (port, number) in [("ETCD_PORT", etcd), ("ETCD_PEER_PORT", etcd_peer), ("MANAGER_PORT", manager), ("SCHEDULER_PORT", scheduler)]
        {
            keep.env(port, number.to_string());
        }
        if mode == Mode::Node {
            prepare_node(&mut keep)?;
        } else {
            keep.env("API_PORT", api.to_string());
        }
        keep.env("CRDS", Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/generated"));
        Self::spawn(keep, state)
    }

    fn spawn(mut keep: Command, state: PathBuf) -> Result<Self> {
        // in a group of its own: Ctrl-C ends the tests, and their end is what it waits for
        let mut process =
            keep.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("failed to run tests/cluster/keep.sh")?;
        let mut output = BufReader::new(process.stdout.take().context("the keeper of the cluster has an output")?);
        let mut said = String::new();
        while !said.ends_with("ready\n") {
            let before = said.len();
            if output.read_line(&mut said).context("failed to read what the cluster says")? == 0 {
                process.wait().context("failed to wait for the keeper of the cluster")?;
                bail!("the cluster did not start:\n{said}");
            }
            if said[before..].starts_with("waiting") {
                eprint!("{}", &said[before..]);
            }
        }
        Ok(Self { process, state, _output: output })
    }

    /// Where all state of the cluster is, as long as it runs.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig/admin")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        match self.process.wait() {
            Ok(status) if status.success() => {}
            ended => eprintln!("the cluster in {} was not taken down: {ended:?}", self.state.display()),
        }
    }
}

/// What a node needs beside what the control plane needs.
fn prepare_node(keep: &mut Command) -> Result<()> {
    ensure!(Uid::effective().is_root(), "a node needs root; run the suites as root: sudo -E cargo test --workspace");
    for tool in ["containerd", "ctr", "runc", "iptables", "ip", "conntrack", "socat", "ethtool", "ipset"] {
        program(tool)?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    keep.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    keep.env("COREDNS", programs::coredns()?.join("coredns")).env("CLUSTER_IMAGES", programs::pause()?);
    Ok(())
}

/// Ends what is left of tests that were killed together with their keepers: nobody holds its lock.
fn take_down_forgotten(running: &Path) -> Result<()> {
    for entry in fs::read_dir(running).context("failed to list forgotten clusters")? {
        let lock = entry.context("failed to list forgotten clusters")?.path();
        let state = lock.with_extension("");
        if lock.extension().is_none() || state.ends_with("node") {
            continue; // the next keeper of a node looks after the last one itself
        }
        let held = match fs::File::open(&lock) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("failed to open {}", lock.display())),
        };
        let owner = state.to_string_lossy().rsplit_once('-').map(|(_, owner)| owner.to_owned()).unwrap_or_default();
        if held.try_lock().is_err() || Path::new("/proc").join(owner).exists() {
            continue;
        }
        let answer = run(script("down.sh", &state)?.arg("--purge"))?;
        ensure!(answer.success, "the forgotten cluster in {} was not taken down: {}", state.display(), answer.stderr);
        fs::remove_file(&lock).with_context(|| format!("failed to remove {}", lock.display()))?;
    }
    Ok(())
}

fn script(name: &str, state: &Path) -> Result<Command> {
    let mut script = Command::new(scripts().join(name));
    script.env("CLUSTER_BIN", programs::kubernetes()?).env("CLUSTER_STATE", state);
    Ok(script)
}
