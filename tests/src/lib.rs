//! The harness of the suites: it starts the real things that Penstock works with.

pub mod api_proxy;
pub mod chaos;
pub mod cluster;
pub mod contract;
pub mod control;
pub mod indexing;
pub mod operator;
pub mod over_kafka;
pub mod penstock;
pub mod recorder;
pub mod services;
pub mod small_disk;
