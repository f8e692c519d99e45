//! Interim.
#![allow(missing_docs)]
use super::{Access, Connection, KafkaError, Resource};
use futures::executor::block_on;
use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic as New, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    types::RDKafkaErrorCode,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub struct NewTopic {
    pub name: String,
    pub partitions: u32,
    pub config: BTreeMap<String, String>,
}
pub struct Described {
    pub partitions: u32,
}
pub struct Admin {
    connection: Arc<Connection>,
    client: AdminClient<DefaultClientContext>,
}
impl Admin {
    pub fn new(connection: Arc<Connection>) -> Result<Self, KafkaError> {
        let client = connection.client_of(|config| config.clone().set("statistics.interval.ms", "0").create())?;
        Ok(Self { connection, client })
    }
    pub fn create_topics(&self, topics: &[NewTopic], limit: Duration) -> Result<(), KafkaError> {
        let new: Vec<New<'_>> = topics
            .iter()
            .map(|topic| New {
                name: &topic.name,
                num_partitions: topic.partitions as i32,
                replication: TopicReplication::Fixed(self.connection.replication_factor().unwrap_or(1)),
                config: topic.config.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
            })
            .collect();
        let made = block_on(self.client.create_topics(&new, &AdminOptions::new().operation_timeout(Some(limit))))
            .map_err(|e| self.connection.error(&e, Access::Create, Resource::Cluster))?;
        for result in made {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => return Err(self.connection.error_of(code, None, Access::Create, Resource::topic(&name))),
            }
        }
        Ok(())
    }
    pub fn delete_topics(&self, names: &[&str], limit: Duration) -> Result<(), KafkaError> {
        block_on(self.client.delete_topics(names, &AdminOptions::new().operation_timeout(Some(limit))))
            .map_err(|e| self.connection.error(&e, Access::Delete, Resource::Cluster))?;
        Ok(())
    }
    pub fn describe_topics(&self, names: &[&str], limit: Duration) -> Result<BTreeMap<String, Described>, KafkaError> {
        let consumer = self.consumer("penstock-admin")?;
        let all = consumer.fetch_metadata(None, limit).map_err(|e| self.connection.error(&e, Access::Describe, Resource::Cluster))?;
        Ok(all
            .topics()
            .iter()
            .filter(|t| names.contains(&t.name()) && t.error().is_none())
            .map(|t| (t.name().to_owned(), Described { partitions: t.partitions().len() as u32 }))
            .collect())
    }
    pub fn committed(&self, group: &str, topic: &str, limit: Duration) -> Result<BTreeMap<u32, u64>, KafkaError> {
        let found = self.describe_topics(&[topic], limit)?;
        let consumer = self.consumer(group)?;
        let mut list = TopicPartitionList::new();
        for partition in 0..found.get(topic).map_or(0, |f| f.partitions) {
            list.add_partition(topic, partition as i32);
        }
        let list = consumer.committed_offsets(list, limit).map_err(|e| self.connection.error(&e, Access::Read, Resource::group(group)))?;
        Ok(list
            .elements()
            .iter()
            .filter_map(|e| match e.offset() {
                Offset::Offset(o) => Some((e.partition() as u32, o as u64)),
                _ => None,
            })
            .collect())
    }
    pub fn end_offsets(&self, topic: &str, limit: Duration) -> Result<BTreeMap<u32, u64>, KafkaError> {
        let found = self.describe_topics(&[topic], limit)?;
        let consumer = self.consumer("penstock-admin")?;
        let mut ends = BTreeMap::new();
        for partition in 0..found.get(topic).map_or(0, |f| f.partitions) {
            let (_, end) = consumer
                .fetch_watermarks(topic, partition as i32, limit)
                .map_err(|e| self.connection.error(&e, Access::Describe, Resource::topic(topic)))?;
            ends.insert(partition, end as u64);
        }
        Ok(ends)
    }
    fn consumer(&self, group: &str) -> Result<BaseConsumer, KafkaError> {
        self.connection.client_of(|config| {
            let mut config = config.clone();
            config.set("group.id", group).set("statistics.interval.ms", "0");
            config.create()
        })
    }
}
