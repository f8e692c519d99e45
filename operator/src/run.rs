//! The operator from its start to its end.

use crate::{
    apply::Applier,
    args::Args,
    context::Shared,
    leadership::Leadership,
    metrics::Metrics,
    names::FIELD_MANAGER,
    reconciler::History,
    resources::Settings,
    scope::Scope,
    server::{self, Health},
    status,
};
use anyhow::Context;
use kube::{
    Client,
    runtime::events::{Recorder, Reporter},
};
use penstock_crds::conditions::ConditionType;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long reconciles at work may take to end.
const GRACE: Duration = Duration::from_secs(20);

/// Runs until a signal, or until the lease is lost.
///
/// # Errors
/// The cluster cannot be reached, or the address for metrics cannot be had.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, namespaces = ?args.namespaces, image = args.worker_image, "the operator begins");
    let client = Client::try_default().await.context("failed to find the cluster; set KUBECONFIG, or run with a service account")?;
    let end = CancellationToken::new();
    end_on_signal(&end)?;
    let identity =
        std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME")).unwrap_or_else(|_| format!("process-{}", std::process::id()));
    let metrics = Arc::new(Metrics::new().context("failed to set up metrics")?);
    let leadership = match args.leader_election {
        false => Leadership::alone(),
        true => Leadership::by_lease(client.clone(), &args.lease_namespace, &args.lease_name, &identity, end.clone()).await?,
    };
    let counted = Arc::clone(&metrics);
    let shared = Arc::new(Shared {
        applier: Applier::new(client.clone(), move |kind| counted.applied(kind)),
        recorder: Recorder::new(client.clone(), Reporter { controller: FIELD_MANAGER.into(), instance: Some(identity) }),
        settings: Settings {
            image: args.worker_image.clone(),
            image_pull_policy: args.image_pull_policy.clone(),
            image_pull_secrets: args.image_pull_secrets.clone(),
            network_policies: args.network_policies,
        },
        client,
        leadership,
        metrics: Arc::clone(&metrics),
        history: History::default(),
    });
    let namespaces: Vec<Option<&str>> = match args.namespaces.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let every = Duration::from_secs(args.kafka_interval);
    let scopes: Arc<Vec<Scope>> = Arc::new(
        namespaces.into_iter().map(|namespace| Scope::start(Arc::clone(&shared), namespace, every, args.concurrency, &end)).collect(),
    );
    let (shown, figures) = (Arc::clone(&scopes), Arc::clone(&metrics));
    let health = Health::new(metrics, move || count_objects(&shown, &figures));
    server::start(args.metrics_addr, health.clone()).await?;
    tokio::select! {
        () = async { for scope in scopes.iter() { scope.synced().await } } => {
            tracing::info!("everything in the cluster is known");
            health.ready();
        }
        () = end.cancelled() => {}
    }
    end.cancelled().await;
    health.unready("ending".into());
    drop(health);
    tracing::info!("ending: what is at work is finished");
    tokio::time::timeout(GRACE, finished(scopes)).await.ok();
    Ok(())
}

async fn finished(scopes: Arc<Vec<Scope>>) {
    // the metrics server may still hold them for a moment
    if let Ok(scopes) = Arc::try_unwrap(scopes) {
        for scope in scopes {
            scope.finish(GRACE).await;
        }
    }
}

/// How many objects there are, by state.
fn count_objects(scopes: &[Scope], metrics: &Metrics) {
    let mut runs: HashMap<String, i64> = HashMap::new();
    let mut pipelines: HashMap<String, i64> = HashMap::new();
    for scope in scopes {
        for run in scope.context.stores.runs.state() {
            let phase = run.0.as_ref().ok().and_then(|run| run.status.as_ref()?.phase);
            *runs.entry(phase.map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"))).or_default() += 1;
        }
        for pipeline in scope.context.stores.pipelines.state() {
            let conditions =
                pipeline.0.as_ref().ok().and_then(|pipeline| pipeline.status.as_ref()).map(|status| status.conditions.as_slice());
            let state = if status::holds(conditions.unwrap_or_default(), ConditionType::Ready) { "Ready" } else { "NotReady" };
            *pipelines.entry(state.to_owned()).or_default() += 1;
        }
    }
    metrics.forget_objects();
    metrics.set_objects("IngestRun", &runs);
    metrics.set_objects("Pipeline", &pipelines);
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
