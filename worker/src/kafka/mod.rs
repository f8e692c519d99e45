//! What publisher, workers, indexers and tools need of Kafka: what stands in records, and reading topics for a look.

pub mod dlq;
pub mod failure;
pub mod header;
pub mod letter;
pub mod scan;
