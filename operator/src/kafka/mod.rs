//! What the operator knows of Kafka, and does there. Nothing in here knows Kubernetes.
//!
//! One thread for each connection ([`observer`]) asks for topics, offsets and groups of all its users in few calls, and does what
//! they want done. Reconcilers read [`Snapshot`]s and never wait for a broker.

mod observer;
pub mod plan;
mod snapshot;

pub use observer::{Action, Interest, Listeners, Observer, Observers, Wanting};
pub use snapshot::{Reachable, Snapshot, Topic, TopicFacts, Trouble};

/// Who is interested in topics, and is woken when they change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// What it is.
    pub kind: OwnerKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerKind {
    /// The connection itself.
    Connection,
    /// A pipeline.
    Pipeline,
    /// A run.
    Run,
}
