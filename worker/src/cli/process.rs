//! What every process that works has in common: where secrets are, how it is watched, how it ends.

use super::{
    Exit,
    control::{self, Token},
    result::LastWords,
    server, signals,
};
use crate::{
    health::{Health, WATCH_INTERVAL},
    metrics::RunFigures,
    runner::{Control, FailureClass},
    secrets::Secrets,
};
use anyhow::Context;
use axum::Router;
use clap::Args;
use penstock_crds::values::Duration;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};
use tokio::runtime::Runtime;

/// Arguments of every process that works.
#[derive(Debug, Args)]
pub(super) struct ProcessArgs {
    /// Time between progress lines in the log.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub log_interval: Duration,
    /// Folder with secrets, as DIR/NAME/KEY. Without it they come from PENSTOCK_SECRET_<NAME>_<KEY>.
    #[arg(long, value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
    /// Address for /metrics, /healthz, /readyz and /progress, for example 127.0.0.1:9090.
    #[arg(long, value_name = "ADDRESS")]
    metrics_addr: Option<SocketAddr>,
    /// File that is written while the process is healthy; see `penstock health`.
    #[arg(long, value_name = "FILE")]
    heartbeat_file: Option<PathBuf>,
    /// End with exit code 70 if a stage does not return within the pipeline's maxProcessing.
    #[arg(long)]
    pub exit_on_stuck: bool,
    /// How long documents in flight may take after SIGINT or SIGTERM.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    grace_period: Duration,
}

/// A process that works.
pub(super) struct Process {
    /// How it is asked to end.
    pub control: Control,
    /// Who watches its lanes.
    pub health: Arc<Health>,
    /// It has nothing to finish yet: a signal ends it at once.
    pub is_idle: Arc<AtomicBool>,
    last_words: LastWords,
}

/// How long the end of a process may take once its grace period is over: clients of brokers that are gone wait without an end.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(8);

impl Process {
    /// From now on a signal ends the process within its grace period and a few seconds, whatever it waits for. What it had not
    /// finished is done again by the next one.
    pub fn end_in_time(&self, runtime: &Runtime) {
        let (control, last_words) = (self.control.clone(), self.last_words.clone());
        runtime.spawn(async move {
            control.grace_is_over().await;
            tokio::time::sleep(FAREWELL).await;
            tracing::warn!("the grace period is over and the process still waits: it ends now, work remains");
            last_words.say();
            std::process::exit(Exit::Interrupted.code().into());
        });
    }
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

impl ProcessArgs {
    /// Where credentials come from.
    pub fn secrets(&self) -> Secrets {
        Secrets::new(self.secrets_dir.clone())
    }

    /// Begins to watch the process, to serve its figures and to listen for signals; with a token also to take orders. Or says for
    /// people what the arguments do not allow.
    pub fn start(
        &self,
        figures: &Arc<RunFigures>,
        runtime: &Runtime,
        token: Option<Token>,
        last_words: LastWords,
    ) -> anyhow::Result<Result<Process, String>> {
        let control = Control::new(self.grace_period.get());
        let health = Health::new(self.heartbeat_file.clone());
        if let Some(file) = &self.heartbeat_file
            && let Err(error) = health.look(Instant::now())
        {
            let file = file.display();
            return Ok(Err(format!("the heartbeat file {file} cannot be written: {error}; choose another --heartbeat-file")));
        }
        watch(&health)?;
        if let Some(address) = self.metrics_addr {
            let orders = token.map_or_else(Router::new, |token| control::router(token, control.clone(), Arc::clone(figures)));
            runtime.block_on(server::start(address, Arc::clone(figures), Arc::clone(&health), orders))?;
        }
        let is_idle = Arc::new(AtomicBool::new(false));
        signals::end_on_signal(control.clone(), Arc::clone(&is_idle), last_words.clone(), runtime)?;
        Ok(Ok(Process { control, health, is_idle, last_words }))
    }
}

/// The threads for the network.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.context("failed to start the threads for the network")
}

/// The exit code of a failure.
pub(super) fn exit_of(failure: FailureClass) -> Exit {
    match failure {
        FailureClass::Failed => Exit::Failed,
        FailureClass::Unreachable => Exit::Unreachable,
        FailureClass::Internal => Exit::Internal,
        FailureClass::Superseded => Exit::Superseded,
    }
}

/// Looks after the lanes as long as the process lives.
fn watch(health: &Arc<Health>) -> anyhow::Result<()> {
    let health = Arc::clone(health);
    health.look(Instant::now()).context("failed to write the heartbeat file")?;
    std::thread::Builder::new()
        .name("watcher".into())
        .spawn(move || {
            loop {
                std::thread::sleep(WATCH_INTERVAL);
                if let Err(error) = health.look(Instant::now()) {
                    tracing::error!(%error, "failed to write the heartbeat file");
                }
            }
        })
        .context("failed to start the watcher")?;
    Ok(())
}
