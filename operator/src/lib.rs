//! The operator: manifests become topics, Deployments, gated Jobs and a true status.
//!
//! `docs/architecture.md` shows the way of a manifest through these modules.

mod apply;
mod args;
mod context;
mod error;
mod finalizer;
mod ingest_run;
mod ingest_schedule;
mod installed;
pub mod kafka;
mod kafka_connection;
mod leadership;
mod metrics;
pub mod names;
mod pipeline;
mod reconciler;
pub mod resources;
mod run;
mod scale;
mod scope;
mod server;
mod status;
mod vitals;
mod wake;

#[cfg(test)]
mod fixtures;

pub use args::Args;
pub use run::run;
