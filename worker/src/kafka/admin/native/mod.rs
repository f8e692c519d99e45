//! The calls of librdkafka that administer a cluster. The one place with unsafe code.
//!
//! All calls go the same way: objects that describe the request are made and filled, handed over together with a queue of
//! our own, and the answer is awaited on that queue. librdkafka copies what it is handed, so the objects are freed here, by
//! [`Owned`], as soon as the call has returned. Everything that is read out of an answer belongs to the [`Event`] and is
//! copied while that lives. The client outlives all of them, since every call borrows it.
#![allow(unsafe_code)]

mod answers;

use super::{ConfigEntry, ConfigOf, End, GroupDescription, GroupOffset, TopicDescription};
use crate::kafka::context::KafkaContext;
use answers::{
    ResultOf, is_done, list, member_of, no_error, of_group, of_resource, of_topic, owned, partition, partitions, result, topic_of,
};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode as Code,
    producer::{Producer, ThreadedProducer},
};
use rdkafka_sys::{
    rd_kafka_AlterConfigOpType_t as AlterOperation, rd_kafka_OffsetSpec_t as OffsetSpec, rd_kafka_ResourceType_t as ResourceType,
    rd_kafka_admin_op_t as Operation, *,
};
use std::{
    collections::BTreeMap,
    ffi::{CString, c_char, c_int},
    ptr::{self, NonNull},
    time::{Duration, Instant},
};

/// How often it is seen, while an answer is awaited, whether it can still come.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// An answer that says that the time is over comes a little later than that.
const GRACE: Duration = Duration::from_secs(2);

/// What the broker, or the client in its place, did not do.
#[derive(Debug)]
pub struct Refusal {
    pub code: Code,
    pub detail: Option<String>,
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, detail: None }
    }
}

impl Refusal {
    /// What does not even reach a broker.
    fn of_request(detail: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, detail: Some(detail.into()) }
    }
}

/// A partition of an answer; one that was refused with its topic.
type PartitionAnswer = Result<GroupOffset, (String, Refusal)>;

/// A topic of an answer, by name.
type TopicAnswer = (String, Result<TopicDescription, Refusal>);

/// An object of librdkafka that is ours, and freed with this.
struct Owned<T> {
    object: NonNull<T>,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Takes over an object, which must be freed by `free` and by nobody else.
    fn new(object: *mut T, free: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        Some(Self { object: NonNull::new(object)?, free })
    }

    fn pointer(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the object was made for us, and nobody else frees it
        unsafe { (self.free)(self.object.as_ptr()) }
    }
}

/// An answer.
type Event = Owned<rd_kafka_event_t>;

/// A client that makes the calls.
pub struct Native {
    /// A producer only in name: its thread serves what the client has to tell, tokens and troubles.
    client: ThreadedProducer<KafkaContext>,
}

impl Native {
    pub fn new(client: ThreadedProducer<KafkaContext>) -> Self {
        Self { client }
    }

    /// The client itself, for what it can do without us.
    pub fn client(&self) -> &rdkafka::client::Client<KafkaContext> {
        self.client.client()
    }

    pub fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        replication: i32,
        config: &BTreeMap<String, String>,
        limit: Duration,
    ) -> Result<(), Refusal> {
        let name = text(name)?;
        // SAFETY: the name is a C string that lives longer than the call, which copies it
        let topic = described(|why, size| unsafe { rd_kafka_NewTopic_new(name.as_ptr(), partitions, replication, why, size) });
        let topic = Owned::new(topic?, rd_kafka_NewTopic_destroy).ok_or(Code::Fail)?;
        for (key, value) in config {
            let (key, value) = (text(key)?, text(value)?);
            // SAFETY: all three live longer than the call, which copies the texts
            unsafe { is_done(rd_kafka_NewTopic_set_config(topic.pointer(), key.as_ptr(), value.as_ptr()), ptr::null()) }?;
        }
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_CREATETOPICS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_CreateTopics(client, &mut topic.pointer(), 1, options, queue) }
        })?;
        of_topic(&event, rd_kafka_event_CreateTopics_result, rd_kafka_CreateTopics_result_topics)
    }

    pub fn create_partitions(&self, topic: &str, total: usize, limit: Duration) -> Result<(), Refusal> {
        let topic = text(topic)?;
        // SAFETY: the name is a C string that lives longer than the call, which copies it
        let more = described(|why, size| unsafe { rd_kafka_NewPartitions_new(topic.as_ptr(), total, why, size) });
        let more = Owned::new(more?, rd_kafka_NewPartitions_destroy).ok_or(Code::Fail)?;
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_CREATEPARTITIONS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_CreatePartitions(client, &mut more.pointer(), 1, options, queue) }
        })?;
        of_topic(&event, rd_kafka_event_CreatePartitions_result, rd_kafka_CreatePartitions_result_topics)
    }

    pub fn delete_topic(&self, name: &str, limit: Duration) -> Result<(), Refusal> {
        let name = text(name)?;
        // SAFETY: the name is a C string that lives longer than the call, which copies it
        let topic = Owned::new(unsafe { rd_kafka_DeleteTopic_new(name.as_ptr()) }, rd_kafka_DeleteTopic_destroy).ok_or(Code::Fail)?;
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_DELETETOPICS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_DeleteTopics(client, &mut topic.pointer(), 1, options, queue) }
        })?;
        of_topic(&event, rd_kafka_event_DeleteTopics_result, rd_kafka_DeleteTopics_result_topics)
    }

    pub fn delete_records(&self, before: &TopicPartitionList, limit: Duration) -> Result<Vec<PartitionAnswer>, Refusal> {
        // SAFETY: the list lives longer than the call, which copies it
        let records = Owned::new(unsafe { rd_kafka_DeleteRecords_new(before.ptr()) }, rd_kafka_DeleteRecords_destroy).ok_or(Code::Fail)?;
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_DELETERECORDS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_DeleteRecords(client, &mut records.pointer(), 1, options, queue) }
        })?;
        let result = result(&event, rd_kafka_event_DeleteRecords_result)?;
        // SAFETY: the result and its list belong to the event, which lives
        Ok(unsafe { partitions(rd_kafka_DeleteRecords_result_offsets(result)) })
    }

    pub fn describe_config(&self, of: ConfigOf<'_>, limit: Duration) -> Result<BTreeMap<String, ConfigEntry>, Refusal> {
        let resource = match of {
            ConfigOf::Topic(name) => config_resource(ResourceType::RD_KAFKA_RESOURCE_TOPIC, name)?,
            ConfigOf::Broker(number) => config_resource(ResourceType::RD_KAFKA_RESOURCE_BROKER, &number.to_string())?,
        };
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_DescribeConfigs(client, &mut resource.pointer(), 1, options, queue) }
        })?;
        let described = of_resource(&event, rd_kafka_event_DescribeConfigs_result, rd_kafka_DescribeConfigs_result_resources)?;
        let entry = |entry: *const rd_kafka_ConfigEntry_t| {
            // SAFETY: entries and their texts belong to the event, which lives
            let (name, value, default) =
                unsafe { (rd_kafka_ConfigEntry_name(entry), rd_kafka_ConfigEntry_value(entry), rd_kafka_ConfigEntry_is_default(entry)) };
            Some((unsafe { owned(name) }?, ConfigEntry { value: unsafe { owned(value) }, is_default: default == 1 }))
        };
        // SAFETY: the resource belongs to the event, which lives
        Ok(unsafe { list(described, rd_kafka_ConfigResource_configs) }.into_iter().filter_map(entry).collect())
    }

    pub fn alter_topic_config(&self, name: &str, changes: &[(&str, Option<&str>)], limit: Duration) -> Result<(), Refusal> {
        let resource = config_resource(ResourceType::RD_KAFKA_RESOURCE_TOPIC, name)?;
        for (key, value) in changes {
            let (key, value) = (text(key)?, value.map(text).transpose()?);
            let (operation, value) = match &value {
                Some(value) => (AlterOperation::RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET, value.as_ptr()),
                None => (AlterOperation::RD_KAFKA_ALTER_CONFIG_OP_TYPE_DELETE, ptr::null()),
            };
            // SAFETY: all of them live longer than the call, which copies the texts; without a value null is what it expects
            let error = unsafe { rd_kafka_ConfigResource_add_incremental_config(resource.pointer(), key.as_ptr(), operation, value) };
            let error = Owned::new(error, rd_kafka_error_destroy);
            // SAFETY: the error is ours and lives
            error.map_or(Ok(()), |error| unsafe { no_error(error.pointer()) })?;
        }
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_IncrementalAlterConfigs(client, &mut resource.pointer(), 1, options, queue) }
        })?;
        let of = (rd_kafka_event_IncrementalAlterConfigs_result as ResultOf, rd_kafka_IncrementalAlterConfigs_result_resources);
        of_resource(&event, of.0, of.1).map(drop)
    }

    pub fn describe_topics(&self, names: &[&str], limit: Duration) -> Result<Vec<TopicAnswer>, Refusal> {
        let names: Vec<CString> = names.iter().map(|name| text(name)).collect::<Result<_, _>>()?;
        let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: the array has as many elements as is said; it and the names live longer than the call, which copies them
        let wanted = unsafe { rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len()) };
        let wanted = Owned::new(wanted, rd_kafka_TopicCollection_destroy).ok_or(Code::Fail)?;
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, limit, |client, options, queue| {
            // SAFETY: see `call`
            unsafe { rd_kafka_DescribeTopics(client, wanted.pointer(), options, queue) }
        })?;
        let result = result(&event, rd_kafka_event_DescribeTopics_result)?;
        // SAFETY: the result and the descriptions belong to the event, which lives
        Ok(unsafe { list(result, rd_kafka_DescribeTopics_result_topics) }
            .into_iter()
            .filter_map(|topic| unsafe { topic_of(topic) })
            .collect())
    }

    pub fn list_offsets(&self, wanted: &TopicPartitionList, limit: Duration) -> Result<Vec<PartitionAnswer>, Refusal> {
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_LISTOFFSETS, limit, |client, options, queue| {
            // SAFETY: see `call`; the list is copied
            unsafe { rd_kafka_ListOffsets(client, wanted.ptr(), options, queue) }
        })?;
        let result = result(&event, rd_kafka_event_ListOffsets_result)?;
        // SAFETY: the result, its entries and their partitions belong to the event, which lives
        let found = unsafe { list(result, rd_kafka_ListOffsets_result_infos) };
        Ok(found.into_iter().filter_map(|found| unsafe { partition(rd_kafka_ListOffsetsResultInfo_topic_partition(found)) }).collect())
    }

    pub fn alter_group_offsets(&self, group: &str, to: &TopicPartitionList, limit: Duration) -> Result<Vec<PartitionAnswer>, Refusal> {
        let group = text(group)?;
        // SAFETY: name and list live longer than the call, which copies them
        let wanted = unsafe { rd_kafka_AlterConsumerGroupOffsets_new(group.as_ptr(), to.ptr()) };
        let wanted = Owned::new(wanted, rd_kafka_AlterConsumerGroupOffsets_destroy).ok_or(Code::Fail)?;
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_AlterConsumerGroupOffsets(client, &mut wanted.pointer(), 1, options, queue) }
        })?;
        let of = (rd_kafka_event_AlterConsumerGroupOffsets_result as ResultOf, rd_kafka_AlterConsumerGroupOffsets_result_groups);
        of_group(&event, of.0, of.1)
    }

    pub fn describe_group(&self, group: &str, limit: Duration) -> Result<GroupDescription, Refusal> {
        let group = text(group)?;
        let event = self.call(Operation::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, limit, |client, options, queue| {
            // SAFETY: see `call`; the array has one element, and the name is copied
            unsafe { rd_kafka_DescribeConsumerGroups(client, &mut group.as_ptr(), 1, options, queue) }
        })?;
        let result = result(&event, rd_kafka_event_DescribeConsumerGroups_result)?;
        // SAFETY: the result, the group and its members belong to the event, which lives
        unsafe {
            let group = *list(result, rd_kafka_DescribeConsumerGroups_result_groups).first().ok_or(Code::Fail)?;
            no_error(rd_kafka_ConsumerGroupDescription_error(group))?;
            let state = owned(rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(group))).unwrap_or_default();
            let members = 0..rd_kafka_ConsumerGroupDescription_member_count(group);
            let members = members.map(|index| member_of(rd_kafka_ConsumerGroupDescription_member(group, index)));
            Ok(GroupDescription { state, members: members.collect() })
        }
    }

    fn call(&self, operation: Operation, limit: Duration, start: impl FnOnce(Client, Options, Queue)) -> Result<Event, Refusal> {
        call(self.client.client(), || (), operation, limit, start)
    }
}

/// Where a group stands. The client must be a consumer of that group: with any other librdkafka 2.12 crashes when the
/// coordinator of the group has just changed.
pub fn group_offsets(consumer: &BaseConsumer<KafkaContext>, group: &str, limit: Duration) -> Result<Vec<PartitionAnswer>, Refusal> {
    let group = text(group)?;
    // SAFETY: the name lives longer than the call, which copies it; null asks for all partitions
    let wanted = unsafe { rd_kafka_ListConsumerGroupOffsets_new(group.as_ptr(), ptr::null()) };
    let wanted = Owned::new(wanted, rd_kafka_ListConsumerGroupOffsets_destroy).ok_or(Code::Fail)?;
    let operation = Operation::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS;
    // it has no subscription: what it polls are its troubles and tokens
    let event = call(
        consumer.client(),
        || drop(consumer.poll(Duration::ZERO)),
        operation,
        limit,
        |client, options, queue| {
            // SAFETY: see `call`; the array has one element
            unsafe { rd_kafka_ListConsumerGroupOffsets(client, &mut wanted.pointer(), 1, options, queue) }
        },
    )?;
    let of = (rd_kafka_event_ListConsumerGroupOffsets_result as ResultOf, rd_kafka_ListConsumerGroupOffsets_result_groups);
    of_group(&event, of.0, of.1)
}

type Client = *mut rd_kafka_t;
type Options = *const rd_kafka_AdminOptions_t;
type Queue = *mut rd_kafka_queue_t;

/// Makes a call and waits for its answer. What `start` is handed is good while it runs; librdkafka keeps what it needs longer.
/// `serve` takes what the client has to tell meanwhile, if nobody else does.
fn call(
    client: &rdkafka::client::Client<KafkaContext>,
    serve: impl Fn(),
    operation: Operation,
    limit: Duration,
    start: impl FnOnce(Client, Options, Queue),
) -> Result<Event, Refusal> {
    let options = options(client.native_ptr(), operation, limit)?;
    // SAFETY: the client lives, it is borrowed
    let queue = Owned::new(unsafe { rd_kafka_queue_new(client.native_ptr()) }, rd_kafka_queue_destroy).ok_or(Code::Fail)?;
    start(client.native_ptr(), options.pointer(), queue.pointer());
    let end = Instant::now() + limit + GRACE;
    let event = loop {
        serve();
        // SAFETY: the queue lives; the event that it gives is ours
        let event = unsafe { rd_kafka_queue_poll(queue.pointer(), millis(LOOK_AGAIN)) };
        if let Some(event) = Owned::new(event, rd_kafka_event_destroy) {
            break event;
        }
        let hopeless = client.context().trouble().is_some_and(|trouble| trouble.fault.is_final());
        if hopeless || Instant::now() >= end {
            return Err(Refusal::from(Code::OperationTimedOut));
        }
    };
    // SAFETY: the event lives, and its text belongs to it
    unsafe { is_done(rd_kafka_event_error(event.pointer()), rd_kafka_event_error_string(event.pointer())) }?;
    Ok(event)
}

/// The options of a call. Those that it does not know are left out.
fn options(client: *mut rd_kafka_t, operation: Operation, limit: Duration) -> Result<Owned<rd_kafka_AdminOptions_t>, Refusal> {
    // SAFETY: the client lives, callers borrow it
    let options = Owned::new(unsafe { rd_kafka_AdminOptions_new(client, operation) }, rd_kafka_AdminOptions_destroy).ok_or(Code::Fail)?;
    let mut why = [0; 256];
    let (text, size) = (why.as_mut_ptr(), why.len());
    // SAFETY: the options live, and the text has the size that is said
    unsafe { is_done(rd_kafka_AdminOptions_set_request_timeout(options.pointer(), millis(limit), text, size), text) }?;
    let waits_for_brokers = [
        Operation::RD_KAFKA_ADMIN_OP_CREATETOPICS,
        Operation::RD_KAFKA_ADMIN_OP_CREATEPARTITIONS,
        Operation::RD_KAFKA_ADMIN_OP_DELETETOPICS,
        Operation::RD_KAFKA_ADMIN_OP_DELETERECORDS,
    ];
    if waits_for_brokers.contains(&operation) {
        // SAFETY: as above
        unsafe { is_done(rd_kafka_AdminOptions_set_operation_timeout(options.pointer(), millis(limit), text, size), text) }?;
    }
    if operation == Operation::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS {
        // SAFETY: the options live; the error that may come is ours
        let error = unsafe { rd_kafka_AdminOptions_set_include_authorized_operations(options.pointer(), 1) };
        // SAFETY: as above
        Owned::new(error, rd_kafka_error_destroy).map_or(Ok(()), |error| unsafe { no_error(error.pointer()) })?;
    }
    Ok(options)
}

/// Adds a partition to a list, with what a group commits there.
pub fn add_to(list: &mut TopicPartitionList, topic: &str, partition: i32, offset: i64, metadata: &str) -> Result<(), Refusal> {
    text(topic)?;
    let mut added = list.add_partition(topic, partition);
    added.set_offset(Offset::from_raw(offset)).map_err(|error| Refusal::of_request(error.to_string()))?;
    if !metadata.is_empty() {
        added.set_metadata(metadata);
    }
    Ok(())
}

/// What stands for an end in place of an offset.
pub fn offset_spec(end: End) -> i64 {
    match end {
        End::Earliest => OffsetSpec::RD_KAFKA_OFFSET_SPEC_EARLIEST as i64,
        End::Latest => OffsetSpec::RD_KAFKA_OFFSET_SPEC_LATEST as i64,
    }
}

fn config_resource(kind: ResourceType, name: &str) -> Result<Owned<rd_kafka_ConfigResource_t>, Refusal> {
    let name = text(name)?;
    // SAFETY: the name lives longer than the call, which copies it
    let resource = unsafe { rd_kafka_ConfigResource_new(kind, name.as_ptr()) };
    Owned::new(resource, rd_kafka_ConfigResource_destroy).ok_or(Refusal::from(Code::Fail))
}

fn text(text: &str) -> Result<CString, Refusal> {
    CString::new(text).map_err(|_| Refusal::of_request("a text has a zero byte"))
}

/// Makes an object by a call that writes into a text why it could not.
fn described<T>(make: impl FnOnce(*mut c_char, usize) -> *mut T) -> Result<*mut T, Refusal> {
    let mut why = [0; 256];
    let made = make(why.as_mut_ptr(), why.len());
    // SAFETY: what is written ends with a zero, or nothing was
    if made.is_null() { Err(Refusal::of_request(unsafe { owned(why.as_ptr()) }.unwrap_or_default())) } else { Ok(made) }
}

fn millis(duration: Duration) -> c_int {
    c_int::try_from(duration.as_millis()).unwrap_or(c_int::MAX).min(3_600_000)
}
