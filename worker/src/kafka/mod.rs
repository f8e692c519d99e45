//! What publisher, workers, indexers and tools need of Kafka: connections with their credentials, names, errors in plain words,
//! what stands in records, and reading topics for a look.
//!
//! A [`Connection`] comes from a KafkaConnection and makes the settings of clients; each client gets a [`KafkaContext`], which
//! turns the flood of messages of the Kafka client into one line per change of state, brings tokens, and knows why a broker
//! cannot be reached.

pub mod admin;
mod connection;
mod context;
pub mod deliveries;
mod diagnosis;
pub mod dlq;
mod error;
pub mod failure;
pub mod header;
pub mod letter;
pub mod names;
mod on_delivery;
mod profiles;
mod properties;
pub mod scan;
mod states;
mod token;

pub use connection::{Cluster, Connection};
pub use context::KafkaContext;
pub use error::{Access, Fault, KafkaError, Resource, TlsFault};
pub use names::PipelineNames;
pub use on_delivery::OnDelivery;
pub use profiles::{Traffic, largest_value, too_large};
pub use properties::check;
pub use states::Trouble;
