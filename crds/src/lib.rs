//! The words of the Penstock API (`penstock.io/v1alpha1`): the four kinds, the typed components inside them,
//! and the checks that belong to them. No IO, no async: the operator, the worker and the tests share this crate.

pub mod conditions;
pub mod connectors;
pub mod indexers;
pub mod ingest_run;
pub mod ingest_schedule;
pub mod kafka_connection;
pub mod pipeline;
pub mod pool;
pub mod report;
pub mod schema;
pub mod stages;
pub mod topics;
pub mod values;

pub use ingest_run::{IngestRun, IngestRunSpec};
pub use ingest_schedule::{IngestSchedule, IngestScheduleSpec};
pub use kafka_connection::{KafkaConnection, KafkaConnectionSpec};
pub use pipeline::{Pipeline, PipelineSpec};

/// The API group of all kinds.
pub const GROUP: &str = "penstock.io";
/// The only served version.
pub const VERSION: &str = "v1alpha1";
