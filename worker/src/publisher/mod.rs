//! The publisher: numbers, counts and sends what a connector reads, and knows when all of it is accounted for.

pub mod checkpoint;
pub mod collapse;
pub mod completion;
mod gate;
mod handle;
#[cfg(test)]
mod handle_tests;
pub mod ledger;
pub mod log;
mod progress;
pub mod recovery;
#[cfg(test)]
mod simulation;
pub mod snapshot;
mod state;
pub mod topic_log;

pub use handle::{Publisher, PublisherEnd, PublisherSettings};
pub use state::StepState;
