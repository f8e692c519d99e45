//! The port for machines that watch: `/metrics`, `/healthz`, `/readyz`, `/progress`; where it is allowed, also `/control`.

use crate::{
    health::Health,
    metrics::{RunFigures, prometheus_text},
};
use anyhow::Context;
use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use penstock_crds::report::ProgressReport;
use std::{net::SocketAddr, sync::Arc};
use tokio::net::TcpListener;

#[derive(Clone)]
struct Shared {
    figures: Arc<RunFigures>,
    health: Arc<Health>,
}

/// Serves until the process ends; `more` is served as well.
pub(super) async fn start(address: SocketAddr, figures: Arc<RunFigures>, health: Arc<Health>, more: Router) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}; choose another --metrics-addr"))?;
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/progress", get(progress))
        .with_state(Shared { figures, health })
        .merge(more);
    tracing::info!(address = %listener.local_addr().unwrap_or(address), "serving metrics");
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the metrics server ended");
        }
    });
    Ok(())
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    match prometheus_text(&shared.figures, &shared.health) {
        Ok(text) => (StatusCode::OK, [("content-type", "text/plain; version=0.0.4")], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [("content-type", "text/plain")], error.to_string()),
    }
}

async fn healthz(State(shared): State<Shared>) -> impl IntoResponse {
    match shared.health.stuck().first() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(stuck) => {
            let text = format!("lane {} does not return from stage {} for document `{}`\n", stuck.lane, stuck.stage + 1, stuck.id);
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

/// Whether every part of the process that reads from Kafka is a member of its group.
async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    let couriers = shared.figures.couriers();
    match couriers.iter().find(|courier| !courier.has_joined()) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(courier) => {
            let text = format!("the {} of pipeline `{}` has not joined its consumer group\n", courier.role.as_str(), courier.pipeline);
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

/// What the run is doing.
async fn progress(State(shared): State<Shared>) -> Json<ProgressReport> {
    Json(shared.figures.report())
}
