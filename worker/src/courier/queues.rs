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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kafka::Connection, secrets::Secrets};
    use rdkafka::{TopicPartitionList, consumer::Consumer};
    use std::time::Instant;

    /// A client of brokers that nobody answers for.
    fn consumer() -> BaseConsumer<Membership> {
        let spec = serde_json::from_value(serde_json::json!({"bootstrapServers": "127.0.0.1:1"})).expect("a connection");
        let connection = Connection::new(&spec, "default", &Secrets::default()).expect("no secrets");
        connection.start(&connection.consumer("g"), Membership::new(connection.context())).expect("a client")
    }

    #[test]
    fn a_queue_is_there_from_its_opening_to_its_closing() {
        let mut consumer = consumer();
        let mut queues = Queues::new(&mut consumer, "t");
        let consumer = Arc::new(consumer);
        let partitions = |queues: &Queues| queues.all().into_iter().map(|(partition, _)| partition).collect::<Vec<_>>();
        assert!(queues.open(&consumer, 3) && queues.open(&consumer, 1));
        assert_eq!(partitions(&queues), [1, 3], "in order");
        assert!(queues.open(&consumer, 3), "given away and taken over again");
        assert_eq!(partitions(&queues), [1, 3]);
        queues.close(3);
        queues.close(7);
        assert_eq!(partitions(&queues), [1]);
        drop(queues);
        assert_eq!(Arc::strong_count(&consumer), 1, "the client outlives its queues, and nothing else keeps it");
    }

    #[test]
    fn what_the_client_has_to_say_ends_a_wait() {
        let mut consumer = consumer();
        let queues = Queues::new(&mut consumer, "t");
        let mut assigned = TopicPartitionList::new();
        assigned.add_partition("t", 0);
        consumer.assign(&assigned).expect("assigned");
        // an error: nobody answers
        assert!(queues.woken.recv_deadline(Instant::now() + Duration::from_secs(20)).is_ok());
    }

    #[test]
    fn one_word_is_enough_however_often_it_is_said() {
        let (wake, woken) = crossbeam_channel::bounded(1);
        let say = waker(&wake);
        (0..3).for_each(|_| say());
        assert_eq!((woken.try_recv().is_ok(), woken.try_recv().is_ok()), (true, false));
        say();
        assert!(woken.try_recv().is_ok(), "and it may be said again");
        drop(woken);
        say();
    }
}
