//! The port for machines that watch: `/healthz`, `/readyz`, `/metrics`.

use crate::metrics::Metrics;
use anyhow::Context;
use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use parking_lot::Mutex;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// A reconcile that takes longer is stuck.
const LONGEST_RECONCILE: Duration = Duration::from_secs(300);

/// What is told.
#[derive(Clone)]
pub struct Health {
    metrics: Arc<Metrics>,
    unready: Arc<Mutex<Option<String>>>,
    refresh: Arc<dyn Fn() + Send + Sync>,
}

impl Health {
    /// Not ready before [`Health::ready`]. `refresh` brings figures up to date before they are read.
    pub fn new(metrics: Arc<Metrics>, refresh: impl Fn() + Send + Sync + 'static) -> Self {
        Self { metrics, unready: Arc::new(Mutex::new(Some("starting".into()))), refresh: Arc::new(refresh) }
    }

    /// From now on it can do its work.
    pub fn ready(&self) {
        *self.unready.lock() = None;
    }

    /// It cannot do its work, and why.
    pub fn unready(&self, why: String) {
        *self.unready.lock() = Some(why);
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be had.
pub async fn start(address: SocketAddr, health: Health) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}; choose another --metrics-addr"))?;
    let router =
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).route("/metrics", get(metrics)).with_state(health);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the metrics server ended");
        }
    });
    Ok(())
}

async fn healthz(State(health): State<Health>) -> impl IntoResponse {
    match health.metrics.stuck(LONGEST_RECONCILE) {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(object) => (StatusCode::SERVICE_UNAVAILABLE, format!("the reconcile of {object} does not return\n")),
    }
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    match &*health.unready.lock() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    (health.refresh)();
    match health.metrics.text() {
        Ok(text) => (StatusCode::OK, [("content-type", "text/plain; version=0.0.4")], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [("content-type", "text/plain")], error.to_string()),
    }
}
