//! The queues of a consumer's partitions. Each is read by itself, so that a partition whose records may not start yet is just not
//! read: it keeps nobody waiting, and what was fetched for it stays where it is.

use super::membership::Membership;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use rdkafka::consumer::{BaseConsumer, base_consumer::PartitionQueue};
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

/// The queue of one partition.
pub(super) type Queue = Rc<PartitionQueue<Membership>>;

/// The queues of the partitions that are assigned.
pub(super) struct Queues {
    topic: String,
    queues: BTreeMap<u32, Queue>,
    wake: Sender<()>,
    /// Says that a queue that was empty has something; at most one word waits.
    pub(super) woken: Receiver<()>,
}

impl Queues {
    /// No partitions yet. Wakes for what the consumer itself has to say as well.
    pub fn new(consumer: &mut BaseConsumer<Membership>, topic: &str) -> Self {
        let (wake, woken) = crossbeam_channel::bounded(1);
        consumer.set_nonempty_callback(waker(&wake));
        Self { topic: topic.into(), queues: BTreeMap::new(), wake, woken }
    }

    /// Opens the queue of a partition, before it is assigned: its records come there only. False if the client does not know the
    /// partition yet.
    pub fn open(&mut self, consumer: &Arc<BaseConsumer<Membership>>, partition: u32) -> bool {
        let Some(mut queue) = consumer.split_partition_queue(&self.topic, partition as i32) else { return false };
        queue.set_nonempty_callback(waker(&self.wake));
        self.queues.insert(partition, Rc::new(queue));
        true
    }

    /// Closes the queue of a partition that is no longer assigned. What it still holds is dropped.
    pub fn close(&mut self, partition: u32) {
        let Some(queue) = self.queues.remove(&partition) else { return };
        while queue.poll(Duration::ZERO).is_some() {}
    }

    /// The queues by partition.
    pub fn all(&self) -> Vec<(u32, Queue)> {
        self.queues.iter().map(|(partition, queue)| (*partition, Rc::clone(queue))).collect()
    }
}

fn waker(wake: &Sender<()>) -> impl Fn() + Send + Sync + 'static {
    let wake = wake.clone();
    move || match wake.try_send(()) {
        // a word that waits already is enough
        Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
    }
}
