//! The port for machines that watch: `/healthz`, `/readyz`, `/metrics`.

use crate::{metrics::Metrics, vitals::Vitals};
use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Instant};
use tokio::net::TcpListener;

/// What is told. Clones tell the same.
#[derive(Clone)]
pub struct Health {
    metrics: Arc<Metrics>,
    vitals: Vitals,
    unready: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Health {
    /// Ready, as long as nobody says why not.
    pub fn new(metrics: Arc<Metrics>, vitals: Vitals) -> Self {
        Self { metrics, vitals, unready: Arc::default() }
    }

    /// What is called so is not ready, and why.
    pub fn unready(&self, what: &'static str, why: impl Into<String>) {
        self.unready.lock().insert(what, why.into());
    }

    /// What is called so is ready.
    pub fn ready(&self, what: &'static str) {
        self.unready.lock().remove(what);
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be had.
pub async fn start(address: SocketAddr, health: Health) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("failed to listen on {address}; choose another --metrics-addr"))?;
    let alive = health.vitals.task("metrics server");
    let router = router(health);
    tokio::spawn(async move {
        let _alive = alive;
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the metrics server ended");
        }
    });
    Ok(())
}

fn router(health: Health) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).route("/metrics", get(metrics)).with_state(health)
}

async fn healthz(State(health): State<Health>) -> impl IntoResponse {
    verdict(health.vitals.trouble(Instant::now()).into_iter().collect())
}

async fn readyz(State(health): State<Health>) -> impl IntoResponse {
    verdict(health.unready.lock().iter().map(|(what, why)| format!("{what}: {why}")).collect())
}

/// All is well, or everything that is not, a line each.
fn verdict(troubles: Vec<String>) -> (StatusCode, String) {
    if troubles.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    (StatusCode::SERVICE_UNAVAILABLE, troubles.join("\n") + "\n")
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    match health.metrics.text() {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, "text/plain; version=0.0.4")], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "text/plain")], format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server on a port of its own, and how to ask it.
    async fn served(health: Health) -> impl AsyncFn(&str) -> (u16, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router(health)).await });
        async move |path: &str| {
            let answer = reqwest::get(format!("http://{address}{path}")).await.expect("an answer");
            (answer.status().as_u16(), answer.text().await.expect("text"))
        }
    }

    #[tokio::test]
    async fn readiness_names_everything_that_is_missing() {
        let health = Health::new(Arc::new(Metrics::new().expect("metrics")), Vitals::default());
        let get = served(health.clone()).await;
        assert_eq!(get("/readyz").await, (200, "ok\n".into()));
        health.unready("caches", "filling");
        health.unready("CRDs", "pipelines.penstock.io is not installed");
        assert_eq!(get("/readyz").await, (503, "CRDs: pipelines.penstock.io is not installed\ncaches: filling\n".into()));
        health.ready("caches");
        assert_eq!(get("/readyz").await.0, 503);
        health.ready("CRDs");
        assert_eq!(get("/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn a_dead_task_makes_it_unhealthy_and_figures_are_still_there() {
        let (metrics, vitals) = (Arc::new(Metrics::new().expect("metrics")), Vitals::default());
        metrics.applied("Job");
        let get = served(Health::new(metrics, vitals.clone())).await;
        assert_eq!(get("/healthz").await, (200, "ok\n".into()));
        drop(vitals.task("controller of Pipeline"));
        assert_eq!(get("/healthz").await, (503, "ended by itself: controller of Pipeline\n".into()));
        let (status, text) = get("/metrics").await;
        assert!(status == 200 && text.contains("penstock_operator_applied_total{kind=\"Job\"} 1"), "{text}");
    }
}
