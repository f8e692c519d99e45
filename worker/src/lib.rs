//! Penstock brings documents into search engines and proves that none got lost.
//!
//! `docs/architecture.md` shows the way of a document and of a manifest through these modules.

pub mod actions;
pub mod cli;
pub mod connectors;
pub mod context;
pub mod courier;
pub mod dead_letter;
pub mod document;
pub mod event;
pub mod health;
pub mod http;
pub mod indexers;
pub mod kafka;
pub mod manifest;
mod memory;
pub mod messenger;
pub mod metrics;
pub mod pipeline;
pub mod problem;
pub mod publisher;
pub mod reference;
pub mod runner;
pub mod secrets;
pub mod stages;
pub mod suggest;
pub mod telemetry;
mod wording;
pub mod worker_lane;
