//! The harness of the suites: it starts the real things that Penstock works with.

pub mod cluster;
