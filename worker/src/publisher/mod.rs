//! The publisher: numbers, counts and sends what a connector reads, and knows when all of it is accounted for.

<<<<<<< HEAD
pub mod checkpoint;
pub mod collapse;
pub mod completion;
pub mod ledger;
pub mod log;
pub mod recovery;
#[cfg(test)]
mod simulation;
=======
mod gate;
mod handle;
pub mod ledger;
mod state;

pub use handle::{Publisher, PublisherEnd, PublisherSettings};
pub use state::StepState;
>>>>>>> 013a7b7 (Runs from manifests in one process: publisher, lanes, accounting, steps in sequence, progress, metrics, preview)
