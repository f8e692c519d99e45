//! The parts of a pipeline that a process can do.

use crate::kafka::PipelineNames;

/// Which part of a pipeline a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Stages: from the source topic to the dest topic.
    Worker,
    /// Backend: from the dest topic.
    Indexer,
    /// Both, paired: from the source topic to the backend.
    WorkerIndexer,
}

impl Role {
    /// The topic that it reads.
    pub fn topic(self, names: &PipelineNames) -> &str {
        match self {
            Self::Worker | Self::WorkerIndexer => &names.source,
            Self::Indexer => &names.dest,
        }
    }

    /// The consumer group that shares the partitions of that topic.
    pub fn group(self, names: &PipelineNames) -> &str {
        match self {
            Self::Worker | Self::WorkerIndexer => &names.workers_group,
            Self::Indexer => &names.indexers_group,
        }
    }

    /// Whether it hands documents to a backend.
    pub fn has_backend(self) -> bool {
        self != Self::Worker
    }

    /// The word for people and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Indexer => "indexer",
            Self::WorkerIndexer => "worker-indexer",
        }
    }
}
