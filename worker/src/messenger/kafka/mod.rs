//! Documents over Kafka: the data path of a role process.

pub mod intake;
pub mod metadata;
