//! A consumer's membership in its group. What the client calls back is only noted here; the role thread acts on it between two
//! polls, so that giving a partition away can wait until its work is done and its offset committed.

use crate::kafka::KafkaContext;
use parking_lot::Mutex;
use rdkafka::{
    ClientContext, Statistics, TopicPartitionList,
    client::OAuthToken,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult},
    types::RDKafkaRespErr,
};
use std::{
    collections::VecDeque,
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

/// The context of a consumer that is a member of a group.
pub(super) struct Membership {
    context: KafkaContext,
    changes: Mutex<VecDeque<Change>>,
    commits: Mutex<Vec<(u32, bool)>>,
    leaving: AtomicBool,
}

/// What the group decided. It waits until the client is told to do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Partitions are ours from now on.
    Assigned(Vec<u32>),
    /// Partitions are to be given away.
    Revoked(Vec<u32>),
    /// Partitions are gone already: somebody else may have them.
    Lost(Vec<u32>),
}

impl Membership {
    pub fn new(context: KafkaContext) -> Self {
        Self { context, changes: Mutex::default(), commits: Mutex::default(), leaving: AtomicBool::new(false) }
    }

    /// The next change that nobody has acted on.
    pub fn next_change(&self) -> Option<Change> {
        self.changes.lock().pop_front()
    }

    /// Partitions whose commit was answered, and whether it was accepted.
    pub fn take_commits(&self) -> Vec<(u32, bool)> {
        std::mem::take(&mut *self.commits.lock())
    }

    /// From now on changes are followed at once: nothing is in work any more.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }
}

impl ClientContext for Membership {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn stats(&self, statistics: Statistics) {
        self.context.stats(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.context.generate_oauth_token(config)
    }
}

impl ConsumerContext for Membership {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let partitions: Vec<u32> = list.elements().iter().map(|element| element.partition() as u32).collect();
        let is_assignment = code == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.leaving.load(Ordering::Acquire) {
            let followed = if is_assignment { consumer.incremental_assign(list) } else { consumer.incremental_unassign(list) };
            if let Err(error) = followed {
                tracing::warn!(%error, "failed to leave the consumer group in order");
            }
            return;
        }
        let change = match is_assignment {
            true => Change::Assigned(partitions),
            false if consumer.assignment_lost() => Change::Lost(partitions),
            false => Change::Revoked(partitions),
        };
        self.changes.lock().push_back(change);
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let mut commits = self.commits.lock();
        for element in offsets.elements() {
            commits.push((element.partition() as u32, result.is_ok() && element.error().is_ok()));
        }
    }
}
