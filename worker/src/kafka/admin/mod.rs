//! Administration: topics, their settings, offsets of topics and of groups.
//!
//! Why not the `AdminClient` of rdkafka: it lacks half of these calls, and nobody serves the events of its client, so there
//! would be neither a token for OAUTHBEARER nor a word why a broker cannot be reached. [`native`] makes all calls alike.

mod native;

use super::{
    connection::{Cluster, Connection},
    context::KafkaContext,
    error::{Access, KafkaError, Resource},
};
use native::{Native, Refusal};
use parking_lot::Mutex;
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode as Code,
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::{Duration, Instant},
};

/// How often it is seen whether all brokers know of a change.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Time for one question that is asked again.
const LONGEST_QUESTION: Duration = Duration::from_secs(2);

/// Who administers a cluster. Every call waits for its answer, up to the limit.
pub struct Admin {
    native: Native,
    /// By group: who asks where it stands.
    consumers: Mutex<BTreeMap<String, BaseConsumer<KafkaContext>>>,
    connection: Connection,
    limit: Duration,
}

/// What became of a topic that was to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was created.
    New,
    /// There was one of that name. It is as it was.
    Existed,
}

/// What a topic is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// The name.
    pub name: String,
    /// The id that Kafka gave it: a topic that is made again gets another one.
    pub id: String,
    /// The partitions, by number.
    pub partitions: Vec<PartitionDescription>,
    /// What our user may do with it.
    pub allowed: Vec<Access>,
}

/// What a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// The number.
    pub number: i32,
    /// Whether a broker leads it; without one it can neither be read nor written.
    pub has_leader: bool,
    /// Copies that there should be.
    pub replicas: usize,
    /// Copies that are up to date.
    pub in_sync: usize,
}

/// A setting of a topic or broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The value; nothing if it is secret.
    pub value: Option<String>,
    /// Whether nobody has set it for this topic or broker.
    pub is_default: bool,
}

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOf<'a> {
    /// A topic, by name.
    Topic(&'a str),
    /// A broker, by number.
    Broker(i32),
}

/// Which end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The oldest record that is still there.
    Earliest,
    /// Behind the newest record.
    Latest,
}

/// Where a group stands in a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The next record to be read.
    pub offset: i64,
    /// What was committed along with it.
    pub metadata: String,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Its state in Kafka's words: `Stable`, `Empty`, `PreparingRebalance`, `Dead` if there is no such group.
    pub state: String,
    /// Who takes part.
    pub members: Vec<GroupMember>,
}

/// A member of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The id that the broker gave it.
    pub id: String,
    /// The `client.id` that it gave itself.
    pub client: String,
    /// Where it is connected from.
    pub host: String,
    /// The partitions that it has.
    pub partitions: Vec<(String, i32)>,
}

impl Admin {
    /// Builds the client. Nobody is asked yet.
    ///
    /// # Errors
    /// The settings of the connection are refused.
    pub fn new(connection: &Connection, limit: Duration) -> Result<Self, KafkaError> {
        let producer = connection.client_of(|config| config.create_with_context(connection.context()))?;
        Ok(Self { native: Native::new(producer), consumers: Mutex::default(), connection: connection.clone(), limit })
    }

    /// Which cluster it is, and how many brokers are known.
    ///
    /// # Errors
    /// No broker answers.
    pub fn cluster(&self) -> Result<Cluster, KafkaError> {
        let client = self.native.client();
        let failed = |error| self.connection.error(&error, Access::Describe, Resource::Cluster).after(self.limit);
        let metadata = client.fetch_metadata(None, self.limit).map_err(failed)?;
        Ok(Cluster { id: client.fetch_cluster_id(Duration::ZERO), brokers: metadata.brokers().len() })
    }

    /// Creates a topic with the replicas that the connection says, and waits until it can be used.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create_topic(&self, name: &str, partitions: i32, config: &BTreeMap<String, String>) -> Result<Created, KafkaError> {
        let replication = self.connection.replication_factor().unwrap_or(-1);
        let created = match self.native.create_topic(name, partitions, replication, config, self.limit) {
            Ok(()) => Created::New,
            Err(refusal) if refusal.code == Code::TopicAlreadyExists => Created::Existed,
            Err(refusal) => return Err(self.error(refusal, Access::Create, Resource::topic(name))),
        };
        self.wait_until(name, |topic| topic.is_some_and(|topic| topic.partitions.iter().all(|partition| partition.has_leader)))?;
        Ok(created)
    }

    /// Gives a topic more partitions, so that there are that many, and waits until they can be used.
    ///
    /// # Errors
    /// It cannot be done, for example since it has as many already.
    pub fn grow_topic(&self, name: &str, partitions: usize) -> Result<(), KafkaError> {
        let grown = self.native.create_partitions(name, partitions, self.limit);
        grown.map_err(|refusal| self.error(refusal, Access::Alter, Resource::topic(name)))?;
        let ready = |topic: &TopicDescription| topic.partitions.iter().filter(|partition| partition.has_leader).count() >= partitions;
        self.wait_until(name, |topic| topic.is_some_and(ready))
    }

    /// Deletes a topic and waits until it is gone. Whether there was one.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub fn delete_topic(&self, name: &str) -> Result<bool, KafkaError> {
        match self.native.delete_topic(name, self.limit) {
            Ok(()) => self.wait_until(name, |topic| topic.is_none()).map(|()| true),
            Err(refusal) if refusal.code == Code::UnknownTopicOrPartition => Ok(false),
            Err(refusal) => Err(self.error(refusal, Access::Delete, Resource::topic(name))),
        }
    }

    fn wait_until(&self, name: &str, is_so: impl Fn(Option<&TopicDescription>) -> bool) -> Result<(), KafkaError> {
        let end = Instant::now() + self.limit;
        while !is_so(self.topic(name)?.as_ref()) {
            if Instant::now() >= end {
                return Err(self.error(Refusal::from(Code::OperationTimedOut), Access::Describe, Resource::topic(name)));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Deletes what stands in front of the given offsets. The oldest offsets that are left, by partition.
    ///
    /// # Errors
    /// It cannot be done, for all or for some of the partitions.
    pub fn delete_records(&self, topic: &str, before: &[(i32, i64)]) -> Result<BTreeMap<i32, i64>, KafkaError> {
        let offsets = before.iter().map(|(partition, offset)| GroupOffset {
            topic: topic.to_owned(),
            partition: *partition,
            offset: *offset,
            metadata: String::new(),
        });
        let left = self.native.delete_records(&self.partition_list(offsets, Access::Delete)?, self.limit);
        let left = left.map_err(|refusal| self.error(refusal, Access::Delete, Resource::topic(topic)))?;
        Ok(self.all_of(left, Access::Delete)?.into_iter().map(|left| (left.partition, left.offset)).collect())
    }

    /// The settings of a topic or broker.
    ///
    /// # Errors
    /// They cannot be shown.
    pub fn config(&self, of: ConfigOf<'_>) -> Result<BTreeMap<String, ConfigEntry>, KafkaError> {
        let resource = match of {
            ConfigOf::Topic(name) => Resource::topic(name),
            ConfigOf::Broker(_) => Resource::Cluster,
        };
        self.native.describe_config(of, self.limit).map_err(|refusal| self.error(refusal, Access::DescribeConfigs, resource))
    }

    /// Sets settings of a topic, or, where there is no value, takes them back to the default. The others stay as they are.
    ///
    /// # Errors
    /// They cannot be altered. Then none of them is.
    pub fn alter_topic_config(&self, name: &str, changes: &[(&str, Option<&str>)]) -> Result<(), KafkaError> {
        let altered = self.native.alter_topic_config(name, changes, self.limit);
        altered.map_err(|refusal| self.error(refusal, Access::AlterConfigs, Resource::topic(name)))
    }

    /// What these topics are, in the same order.
    ///
    /// # Errors
    /// Nothing can be asked; or, for each topic, it is missing or must not be looked at.
    pub fn describe_topics(&self, names: &[&str]) -> Result<Vec<Result<TopicDescription, KafkaError>>, KafkaError> {
        let of_all = Resource::Cluster;
        let found = self.native.describe_topics(names, self.limit).map_err(|refusal| self.error(refusal, Access::Describe, of_all))?;
        let mut found: BTreeMap<String, _> = found.into_iter().collect();
        let in_order = names.iter().map(|name| {
            let answer = found.remove(*name).unwrap_or_else(|| Err(Refusal::from(Code::UnknownTopicOrPartition)));
            answer.map_err(|refusal| self.error(refusal, Access::Describe, Resource::topic(name)))
        });
        Ok(in_order.collect())
    }

    /// What a topic is; nothing if there is none of that name.
    ///
    /// # Errors
    /// It cannot be asked for, or must not be looked at.
    pub fn topic(&self, name: &str) -> Result<Option<TopicDescription>, KafkaError> {
        match self.describe_topics(&[name])?.pop() {
            Some(Ok(topic)) => Ok(Some(topic)),
            Some(Err(KafkaError::TopicMissing { .. })) | None => Ok(None),
            Some(Err(error)) => Err(error),
        }
    }

    /// One end of many partitions, in one request to each broker.
    ///
    /// # Errors
    /// It cannot be asked for, for all or for some of them.
    pub fn offsets<'a>(
        &self,
        partitions: impl IntoIterator<Item = (&'a str, i32)>,
        end: End,
    ) -> Result<BTreeMap<(String, i32), i64>, KafkaError> {
        let wanted = partitions.into_iter().map(|(topic, partition)| GroupOffset {
            topic: topic.to_owned(),
            partition,
            offset: native::offset_spec(end),
            metadata: String::new(),
        });
        let wanted = self.partition_list(wanted, Access::Describe)?;
        if wanted.count() == 0 {
            return Ok(BTreeMap::new());
        }
        let found = match self.native.list_offsets(&wanted, self.limit) {
            Ok(found) => self.all_of(found, Access::Describe)?,
            Err(refusal) => {
                // it does not say which topic is at fault
                let topics: BTreeSet<String> = wanted.elements().iter().map(|wanted| wanted.topic().to_owned()).collect();
                let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
                self.describe_topics(&topics)?.into_iter().collect::<Result<Vec<_>, _>>()?;
                return Err(self.error(refusal, Access::Describe, Resource::Cluster));
            }
        };
        Ok(found.into_iter().map(|found| ((found.topic, found.partition), found.offset)).collect())
    }

    /// Where a group stands in partitions of a topic: those where it has committed anything. To be asked often, also while
    /// brokers stop and start: it asks as a member would. [`Admin::group_offsets`] aborts the process if the connection breaks at
    /// the wrong moment, by a fault of librdkafka in calls to the coordinator of a group.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub fn committed(&self, group: &str, topic: &str, partitions: impl IntoIterator<Item = u32>) -> Result<BTreeMap<u32, u64>, KafkaError> {
        let mut consumers = self.consumers.lock();
        let consumer = match consumers.entry(group.to_owned()) {
            Entry::Occupied(consumer) => consumer.into_mut(),
            Entry::Vacant(place) => place.insert(self.consumer_of(group)?),
        };
        // it has no subscription: what it polls are its troubles and tokens
        drop(consumer.poll(Duration::ZERO));
        let mut wanted = TopicPartitionList::new();
        for partition in partitions {
            wanted.add_partition(topic, partition as i32);
        }
        if wanted.count() == 0 {
            return Ok(BTreeMap::new());
        }
        let failed = |error| self.connection.error(&error, Access::Describe, Resource::group(group));
        let found = consumer.committed_offsets(wanted, self.limit.min(LONGEST_QUESTION)).map_err(failed)?;
        let mut committed = BTreeMap::new();
        for element in found.elements() {
            element.error().map_err(failed)?;
            if let Offset::Offset(offset) = element.offset() {
                committed.insert(element.partition() as u32, offset as u64);
            }
        }
        Ok(committed)
    }

    /// Lets the client of a group go that [`Admin::committed`] keeps for the next question.
    pub fn forget(&self, group: &str) {
        self.consumers.lock().remove(group);
    }

    /// Where a group stands, in all partitions where it has committed anything.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, KafkaError> {
        let mut consumers = self.consumers.lock();
        let consumer = match consumers.entry(group.to_owned()) {
            Entry::Occupied(consumer) => consumer.into_mut(),
            Entry::Vacant(place) => place.insert(self.consumer_of(group)?),
        };
        let found = self.of_coordinator(|| native::group_offsets(consumer, group, self.limit));
        let found = found.map_err(|refusal| self.error(refusal, Access::Describe, Resource::group(group)))?;
        let mut found = self.all_of(found, Access::Describe)?;
        found.retain(|found| found.offset >= 0);
        found.sort();
        Ok(found)
    }

    /// A client that knows of a group, and takes no part in it.
    fn consumer_of(&self, group: &str) -> Result<BaseConsumer<KafkaContext>, KafkaError> {
        let build = |config: &ClientConfig| {
            let mut config = config.clone();
            config.set("group.id", group).set("enable.auto.commit", "false");
            config.create_with_context(self.connection.context())
        };
        self.connection.client_of(build)
    }

    /// Puts a group to other places. It must have no members that read these topics.
    ///
    /// # Errors
    /// It cannot be done, for all or for some of the partitions.
    pub fn alter_group_offsets(&self, group: &str, offsets: impl IntoIterator<Item = GroupOffset>) -> Result<(), KafkaError> {
        let wanted = self.partition_list(offsets, Access::Read)?;
        let altered = self.of_coordinator(|| self.native.alter_group_offsets(group, &wanted, self.limit));
        let altered = altered.map_err(|refusal| self.error(refusal, Access::Read, Resource::group(group)))?;
        self.all_of(altered, Access::Read).map(drop)
    }

    /// Who takes part in a group.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub fn group(&self, group: &str) -> Result<GroupDescription, KafkaError> {
        let found = self.of_coordinator(|| self.native.describe_group(group, self.limit));
        found.map_err(|refusal| self.error(refusal, Access::Describe, Resource::group(group)))
    }

    /// Asks the coordinator of a group, again while it is not ready: for a moment after a broker was started.
    fn of_coordinator<T>(&self, ask: impl Fn() -> Result<T, Refusal>) -> Result<T, Refusal> {
        let end = Instant::now() + self.limit;
        loop {
            let unready = [Code::CoordinatorLoadInProgress, Code::CoordinatorNotAvailable, Code::NotCoordinator];
            match ask() {
                Err(refusal) if unready.contains(&refusal.code) && Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
                answer => return answer,
            }
        }
    }

    fn error(&self, refusal: Refusal, access: Access, resource: Resource) -> KafkaError {
        self.connection.error_of(refusal.code, refusal.detail.as_deref(), access, resource).after(self.limit)
    }

    fn partition_list(&self, offsets: impl IntoIterator<Item = GroupOffset>, access: Access) -> Result<TopicPartitionList, KafkaError> {
        let mut list = TopicPartitionList::new();
        for GroupOffset { topic, partition, offset, metadata } in offsets {
            let added = native::add_to(&mut list, &topic, partition, offset, &metadata);
            added.map_err(|refusal| self.error(refusal, access, Resource::Topic(topic)))?;
        }
        Ok(list)
    }

    /// All partitions of an answer, or what is wrong with the first one that was refused.
    fn all_of(&self, answer: Vec<Result<GroupOffset, (String, Refusal)>>, access: Access) -> Result<Vec<GroupOffset>, KafkaError> {
        answer.into_iter().map(|one| one.map_err(|(topic, refusal)| self.error(refusal, access, Resource::Topic(topic)))).collect()
    }
}
