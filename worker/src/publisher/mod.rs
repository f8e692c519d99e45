//! The publisher: numbers, counts and sends what a connector reads, and knows when all of it is accounted for.

pub mod ledger;
