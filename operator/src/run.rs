//! The operator from its start to its end.

use crate::{
    apply::Applier,
    args::Args,
    context::Shared,
    installed,
    leadership::{Candidate, Gate, Leadership, Lease},
    metrics::{Metrics, ObjectCounts},
    names::FIELD_MANAGER,
    reconciler::History,
    resources::Settings,
    scope::Scope,
    server::{self, Health},
    vitals::Vitals,
};
use anyhow::Context;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client, Config,
    client::ClientBuilder,
    runtime::events::{Recorder, Reporter},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// How long reconciles at work may take to end.
const GRACE: Duration = Duration::from_secs(20);
/// What `/readyz` calls what is known of the cluster.
const CACHES: &str = "caches";
/// What it calls the process itself.
const PROCESS: &str = "operator";

/// Runs until a signal, or until the lease is lost.
///
/// # Errors
/// The cluster cannot be reached, the address for metrics cannot be had, or the lease is lost.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, namespaces = ?args.namespaces, image = args.worker_image, "penstock-operator begins");
    let config = Config::infer().await.context("failed to find the cluster; set KUBECONFIG, or run with a service account")?;
    let end = CancellationToken::new();
    end_on_signal(&end)?;
    let (leadership, election) = stand(&args, &config, &end)?;
    let shared = share(&args, config, leadership)?;
    let health = Health::new(Arc::clone(&shared.metrics), shared.vitals.clone());
    health.unready(CACHES, "what is in the cluster is being read");
    server::start(args.metrics_addr, health.clone()).await?;
    let fits = tokio::spawn(installed::check(shared.client.clone(), health.clone()));

    let scopes = begin_scopes(&args, &shared, &end);
    count_objects(&shared, &scopes)?;
    tokio::select! {
        () = async { for scope in &scopes { scope.synced().await } } => {
            tracing::info!("everything in the cluster is known");
            health.ready(CACHES);
            end.cancelled().await;
        }
        () = end.cancelled() => {}
    }

    tracing::info!("ending: what is at work is finished");
    health.unready(PROCESS, "ending");
    fits.abort();
    let finished = async {
        for scope in scopes {
            scope.finish().await
        }
    };
    if tokio::time::timeout(GRACE, finished).await.is_err() {
        tracing::warn!("not all reconciles ended within {} s; they are left", GRACE.as_secs());
    }
    election.end().await
}

/// What all scopes share.
fn share(args: &Args, config: Config, leadership: Leadership) -> anyhow::Result<Arc<Shared>> {
    let client = ClientBuilder::try_from(config).context("failed to set up a client")?.with_layer(&Gate(leadership.clone())).build();
    let metrics = Arc::new(Metrics::new().context("failed to set up metrics")?);
    let counted = Arc::clone(&metrics);
    Ok(Arc::new(Shared {
        applier: Applier::new(client.clone(), move |kind| counted.applied(kind)),
        recorder: Recorder::new(client.clone(), Reporter { controller: FIELD_MANAGER.into(), instance: Some(host()) }),
        settings: Settings {
            image: args.worker_image.clone(),
            image_pull_policy: args.image_pull_policy.clone(),
            image_pull_secrets: args.image_pull_secrets.clone(),
            network_policies: args.network_policies,
        },
        client,
        leadership,
        metrics,
        vitals: Vitals::default(),
        history: History::default(),
    }))
}

/// One scope a namespace, or one for all.
fn begin_scopes(args: &Args, shared: &Arc<Shared>, end: &CancellationToken) -> Vec<Scope> {
    let namespaces: Vec<Option<&str>> = match args.namespaces.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let every = Duration::from_secs(args.kafka_interval);
    namespaces.into_iter().map(|namespace| Scope::start(Arc::clone(shared), namespace, every, args.concurrency, end)).collect()
}

/// Has objects counted whenever metrics are read.
fn count_objects(shared: &Shared, scopes: &[Scope]) -> anyhow::Result<()> {
    let stores: Vec<_> = scopes.iter().map(|scope| scope.context.stores.clone()).collect();
    let leadership = shared.leadership.clone();
    let count = move || {
        let mut counts = ObjectCounts::new();
        stores.iter().for_each(|stores| stores.count(&mut counts));
        counts
    };
    shared.metrics.watch(count, move || leadership.is_leader()).context("failed to set up metrics")
}

/// The part of the election that must outlive the reconciles.
struct Standing {
    candidate: Option<JoinHandle<anyhow::Result<()>>>,
    release: CancellationToken,
}

impl Standing {
    /// Gives the lease back.
    async fn end(self) -> anyhow::Result<()> {
        self.release.cancel();
        match self.candidate {
            Some(candidate) => candidate.await.context("the election ended by itself")?,
            None => Ok(()),
        }
    }
}

/// Stands for election, if there is one. Who loses the lease ends.
fn stand(args: &Args, config: &Config, end: &CancellationToken) -> anyhow::Result<(Leadership, Standing)> {
    let release = CancellationToken::new();
    if !args.leader_election {
        return Ok((Leadership::alone(), Standing { candidate: None, release }));
    }
    let lease = Lease {
        namespace: args.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone()),
        name: args.lease_name.clone(),
        identity: format!("{}_{}_{}", host(), std::process::id(), Timestamp::now().as_millisecond()),
    };
    let client = Client::try_from(config.clone()).context("failed to set up a client")?;
    let (mut candidate, leadership) = Candidate::new(client, lease);
    let (end, released) = (end.clone(), release.clone());
    let task = tokio::spawn(async move {
        tokio::select! {
            lost = candidate.stand() => {
                end.cancel();
                Err(lost.into())
            }
            () = released.cancelled() => {
                candidate.release().await;
                Ok(())
            }
        }
    });
    Ok((leadership, Standing { candidate: Some(task), release }))
}

/// The name of the pod, or of the machine.
fn host() -> String {
    ["POD_NAME", "HOSTNAME"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "penstock-operator".into())
}

fn end_on_signal(end: &CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let end = end.clone();
    tokio::spawn(async move {
        loop {
            let code = tokio::select! {
                _ = terminate.recv() => 143,
                _ = interrupt.recv() => 130,
            };
            if end.is_cancelled() {
                std::process::exit(code);
            }
            end.cancel();
        }
    });
    Ok(())
}
