//! What publisher, workers, indexers and tools need of Kafka: what stands in records.

pub mod header;
pub mod letter;
