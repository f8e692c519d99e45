//! The harness of the suites: it starts the real things that Penstock works with.

pub mod cluster;
pub mod indexing;
pub mod penstock;
pub mod services;
pub mod small_disk;
