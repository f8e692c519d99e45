//! A consumer's membership in its group. What the client calls back is only noted here; the role thread acts on it between two
//! polls, so that giving a partition away can wait until its work is done and its offset committed.

use crate::kafka::KafkaContext;
use parking_lot::Mutex;
use rdkafka::{
    ClientContext, TopicPartitionList,
    client::OAuthToken,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
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
        Self { context, changes: Mutex::default(), leaving: AtomicBool::new(false) }
    }

    /// The next change that nobody has acted on.
    pub fn next_change(&self) -> Option<Change> {
        self.changes.lock().pop_front()
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

    fn stats_raw(&self, statistics: &[u8]) {
        self.context.stats_raw(statistics);
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
}
