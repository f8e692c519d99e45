//! Documents over Kafka: the publisher's way into the source topic, and which records of a topic a process may start.
//! What reads the topics is [`crate::courier`].

pub mod intake;
pub mod metadata;
mod writer;

pub use writer::{Acknowledged, Publication, SourceAcks, TooLarge, TopicWriter};
