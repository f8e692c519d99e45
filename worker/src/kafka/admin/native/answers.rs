//! Reading answers: everything is copied out of the event that it belongs to.

use super::{
    super::{GroupMember, GroupOffset, PartitionDescription, TopicDescription},
    Event, PartitionAnswer, Refusal, TopicAnswer,
};
use crate::kafka::error::Access;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka_sys::{rd_kafka_AclOperation_t as AclOperation, *};
use std::{
    ffi::{CStr, c_char},
    ptr,
};

/// How the result is got out of an event. Its type has a name for each call, all for the same thing.
pub type ResultOf = unsafe extern "C" fn(*mut rd_kafka_event_t) -> *const rd_kafka_event_t;
/// How the entries are got out of a result or of something in it: a pointer to the first one, and how many there are.
pub type ListOf<R, T> = unsafe extern "C" fn(*const R, *mut usize) -> *mut *const T;

pub fn result(event: &Event, of: ResultOf) -> Result<*const rd_kafka_event_t, Refusal> {
    // SAFETY: the event lives; what it is not for gives null
    let result = unsafe { of(event.pointer()) };
    if result.is_null() { Err(Refusal::from(Code::Fail)) } else { Ok(result) }
}

/// # Safety
/// `of` belongs to an event that lives.
pub unsafe fn list<R, T>(of: *const R, entries: ListOf<R, T>) -> Vec<*const T> {
    let mut count = 0;
    // SAFETY: said above; there are as many entries as was said
    unsafe {
        let first = entries(of, &mut count);
        if first.is_null() { Vec::new() } else { std::slice::from_raw_parts(first.cast_const(), count).to_vec() }
    }
}

/// The only topic of an answer.
pub fn of_topic(event: &Event, of: ResultOf, topics: ListOf<rd_kafka_event_t, rd_kafka_topic_result_t>) -> Result<(), Refusal> {
    let result = result(event, of)?;
    // SAFETY: the result, its topics and their texts belong to the event, which lives
    unsafe {
        let topic = *list(result, topics).first().ok_or(Code::Fail)?;
        is_done(rd_kafka_topic_result_error(topic), rd_kafka_topic_result_error_string(topic))
    }
}

/// The only topic or broker of an answer about settings. It belongs to the event.
pub fn of_resource(
    event: &Event,
    of: ResultOf,
    resources: ListOf<rd_kafka_event_t, rd_kafka_ConfigResource_t>,
) -> Result<*const rd_kafka_ConfigResource_t, Refusal> {
    let result = result(event, of)?;
    // SAFETY: the result, its resources and their texts belong to the event, which lives
    unsafe {
        let resource = *list(result, resources).first().ok_or(Code::Fail)?;
        is_done(rd_kafka_ConfigResource_error(resource), rd_kafka_ConfigResource_error_string(resource))?;
        Ok(resource)
    }
}

/// The partitions of the only group of an answer.
pub fn of_group(
    event: &Event,
    of: ResultOf,
    groups: ListOf<rd_kafka_event_t, rd_kafka_group_result_t>,
) -> Result<Vec<PartitionAnswer>, Refusal> {
    let result = result(event, of)?;
    // SAFETY: the result, its groups and their partitions belong to the event, which lives
    unsafe {
        let group = *list(result, groups).first().ok_or(Code::Fail)?;
        no_error(rd_kafka_group_result_error(group))?;
        Ok(partitions(rd_kafka_group_result_partitions(group)))
    }
}

/// # Safety
/// `topic` belongs to an event that lives.
pub unsafe fn topic_of(topic: *const rd_kafka_TopicDescription_t) -> Option<TopicAnswer> {
    // SAFETY: said above; so do its texts, id, partitions and operations
    unsafe {
        let name = owned(rd_kafka_TopicDescription_name(topic))?;
        if let Err(refusal) = no_error(rd_kafka_TopicDescription_error(topic)) {
            return Some((name, Err(refusal)));
        }
        let id = owned(rd_kafka_Uuid_base64str(rd_kafka_TopicDescription_topic_id(topic))).unwrap_or_default();
        let partitions = list(topic, rd_kafka_TopicDescription_partitions);
        let mut partitions: Vec<_> = partitions.into_iter().map(|partition| partition_of(partition)).collect();
        partitions.sort_by_key(|partition| partition.number);
        let mut count = 0;
        let operations = rd_kafka_TopicDescription_authorized_operations(topic, &mut count);
        let operations = if operations.is_null() { &[] } else { std::slice::from_raw_parts(operations, count) };
        let allowed = operations.iter().filter_map(|operation| access(*operation)).collect();
        Some((name.clone(), Ok(TopicDescription { name, id, partitions, allowed })))
    }
}

/// # Safety
/// `partition` belongs to an event that lives.
unsafe fn partition_of(partition: *const rd_kafka_TopicPartitionInfo_t) -> PartitionDescription {
    // SAFETY: said above; so do its leader and replicas
    unsafe {
        let leader = rd_kafka_TopicPartitionInfo_leader(partition);
        PartitionDescription {
            number: rd_kafka_TopicPartitionInfo_partition(partition),
            has_leader: !leader.is_null() && rd_kafka_Node_id(leader) >= 0,
            replicas: list(partition, rd_kafka_TopicPartitionInfo_replicas).len(),
            in_sync: list(partition, rd_kafka_TopicPartitionInfo_isr).len(),
        }
    }
}

fn access(operation: AclOperation) -> Option<Access> {
    Some(match operation {
        AclOperation::RD_KAFKA_ACL_OPERATION_READ => Access::Read,
        AclOperation::RD_KAFKA_ACL_OPERATION_WRITE => Access::Write,
        AclOperation::RD_KAFKA_ACL_OPERATION_CREATE => Access::Create,
        AclOperation::RD_KAFKA_ACL_OPERATION_DELETE => Access::Delete,
        AclOperation::RD_KAFKA_ACL_OPERATION_ALTER => Access::Alter,
        AclOperation::RD_KAFKA_ACL_OPERATION_DESCRIBE => Access::Describe,
        AclOperation::RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS => Access::DescribeConfigs,
        AclOperation::RD_KAFKA_ACL_OPERATION_ALTER_CONFIGS => Access::AlterConfigs,
        _ => return None,
    })
}

/// # Safety
/// `member` belongs to an event that lives.
pub unsafe fn member_of(member: *const rd_kafka_MemberDescription_t) -> GroupMember {
    // SAFETY: said above; so do its texts and its assignment
    unsafe {
        let assignment = rd_kafka_MemberDescription_assignment(member);
        let assigned = if assignment.is_null() { Vec::new() } else { partitions(rd_kafka_MemberAssignment_partitions(assignment)) };
        GroupMember {
            id: owned(rd_kafka_MemberDescription_consumer_id(member)).unwrap_or_default(),
            client: owned(rd_kafka_MemberDescription_client_id(member)).unwrap_or_default(),
            host: owned(rd_kafka_MemberDescription_host(member)).unwrap_or_default(),
            partitions: assigned.into_iter().flatten().map(|assigned| (assigned.topic, assigned.partition)).collect(),
        }
    }
}

/// # Safety
/// `list` is null, or belongs to an event that lives.
pub unsafe fn partitions(list: *const rd_kafka_topic_partition_list_t) -> Vec<PartitionAnswer> {
    // SAFETY: said above; there are `cnt` elements
    unsafe {
        let Some(list) = list.as_ref() else { return Vec::new() };
        let count = usize::try_from(list.cnt).unwrap_or_default();
        (0..count).filter_map(|index| partition(list.elems.add(index))).collect()
    }
}

/// # Safety
/// `of` is null, or belongs to an event that lives.
pub unsafe fn partition(of: *const rd_kafka_topic_partition_t) -> Option<PartitionAnswer> {
    // SAFETY: said above; metadata has the size that is said
    let (of, metadata) = unsafe {
        let of = of.as_ref()?;
        let metadata = of.metadata.cast::<u8>().cast_const();
        (of, if metadata.is_null() { &[] } else { std::slice::from_raw_parts(metadata, of.metadata_size) })
    };
    // SAFETY: the name belongs to the partition
    let topic = unsafe { owned(of.topic) }?;
    // SAFETY: there is no text
    if let Err(refusal) = unsafe { is_done(of.err, ptr::null()) } {
        return Some(Err((topic, refusal)));
    }
    Some(Ok(GroupOffset { topic, partition: of.partition, offset: of.offset, metadata: String::from_utf8_lossy(metadata).into_owned() }))
}

/// A text, copied; nothing if it is null.
///
/// # Safety
/// It is null, or a C string of something that lives.
pub unsafe fn owned(text: *const c_char) -> Option<String> {
    // SAFETY: said above
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Nothing if a code says that all is well, else the code with the text that belongs to it.
///
/// # Safety
/// The text is null, or a C string of something that lives.
pub unsafe fn is_done(code: rd_kafka_resp_err_t, detail: *const c_char) -> Result<(), Refusal> {
    match code {
        rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        // SAFETY: said above
        code => Err(Refusal { code: code.into(), detail: unsafe { owned(detail) }.filter(|detail| !detail.is_empty()) }),
    }
}

/// The same for an error object.
///
/// # Safety
/// It is null, or lives.
pub unsafe fn no_error(error: *const rd_kafka_error_t) -> Result<(), Refusal> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: said above
    unsafe { is_done(rd_kafka_error_code(error), rd_kafka_error_string(error)) }
}
