//! The publisher: numbers, counts and sends what a connector reads, and knows when all of it is accounted for.

pub mod checkpoint;
pub mod collapse;
pub mod completion;
pub mod ledger;
pub mod log;
pub mod recovery;
#[cfg(test)]
mod simulation;
