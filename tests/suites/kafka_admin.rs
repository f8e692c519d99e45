//! Administration of a real broker: topics, settings, offsets, groups.

use anyhow::{Context, Result};
use penstock::{
    kafka::{
        Access, Connection, KafkaError,
        admin::{Admin, ConfigOf, Created, End, GroupOffset},
    },
    secrets::Secrets,
};
use penstock_tests::services::{
    kafka::{Kafka, Record},
    poll_until,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};

const LIMIT: Duration = Duration::from_secs(20);

fn admin(kafka: &Kafka) -> Result<Admin> {
    let spec = serde_json::from_value(json!({ "bootstrapServers": kafka.bootstrap() })).context("a spec")?;
    let connection = Connection::new(&spec, "shop", &Secrets::default()).context("a connection")?;
    Admin::new(&connection, LIMIT).context("an administrator")
}

fn settings(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
    settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn at(topic: &str, partition: i32, offset: i64, metadata: &str) -> GroupOffset {
    GroupOffset { topic: topic.into(), partition, offset, metadata: metadata.into() }
}

#[test]
fn a_topic_is_created_once_and_has_an_id_of_its_own() -> Result<()> {
    let kafka = Kafka::shared()?;
    let admin = admin(kafka)?;
    assert_eq!(admin.topic("admin-created")?, None);
    assert_eq!(admin.create_topic("admin-created", 3, &settings(&[("retention.ms", "-1")]))?, Created::New);
    assert_eq!(admin.create_topic("admin-created", 5, &settings(&[]))?, Created::Existed);

    let topic = admin.topic("admin-created")?.context("it is there")?;
    assert_eq!(topic.partitions.iter().map(|partition| partition.number).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(topic.partitions.iter().all(|partition| partition.has_leader && (partition.replicas, partition.in_sync) == (1, 1)));
    assert!([Access::Read, Access::Write, Access::Delete].iter().all(|access| topic.allowed.contains(access)), "{:?}", topic.allowed);

    assert!(admin.delete_topic("admin-created")?);
    assert!(!admin.delete_topic("admin-created")?, "there is none any more");
    admin.create_topic("admin-created", 1, &settings(&[]))?;
    let again = admin.topic("admin-created")?.context("it is there")?;
    assert_ne!((again.id.as_str(), again.id.len()), (topic.id.as_str(), 0), "it is another topic");
    Ok(())
}

#[test]
fn topics_are_described_in_order_and_a_missing_one_is_named() -> Result<()> {
    let kafka = Kafka::shared()?;
    let admin = admin(kafka)?;
    for name in ["admin-order-a", "admin-order-b"] {
        admin.create_topic(name, 1, &settings(&[]))?;
    }
    let found = admin.describe_topics(&["admin-order-b", "admin-no-such", "admin-order-a"])?;
    let names: Vec<_> = found.iter().map(|topic| topic.as_ref().map(|topic| topic.name.as_str()).map_err(ToString::to_string)).collect();
    let missing = format!("Kafka at {} has no topic `admin-no-such`; create it, or correct its name in the Pipeline", kafka.bootstrap());
    assert_eq!(names, [Ok("admin-order-b"), Err(missing), Ok("admin-order-a")]);
    Ok(())
}

#[test]
fn a_topic_that_kafka_does_not_take_is_refused_in_its_words() -> Result<()> {
    let admin = admin(Kafka::shared()?)?;
    for (name, config, want) in [
        ("admin/slash", settings(&[]), "failed to create topic `admin/slash`"),
        ("admin-bad-setting", settings(&[("retention.ms", "soon")]), "soon"),
        ("admin-bad-setting", settings(&[("no.such.setting", "1")]), "no.such.setting"),
    ] {
        let error = admin.create_topic(name, 1, &config).err().context("refused")?;
        assert!(error.to_string().contains(want) && !error.is_unreachable(), "{error}");
    }
    let error = admin.create_topic("zero\0byte", 1, &settings(&[])).err().context("refused")?;
    assert!(error.to_string().contains("zero byte"), "{error}");
    Ok(())
}

#[test]
fn topics_grow_and_never_shrink() -> Result<()> {
    let admin = admin(Kafka::shared()?)?;
    admin.create_topic("admin-grown", 1, &settings(&[]))?;
    admin.grow_topic("admin-grown", 4)?;
    assert_eq!(admin.topic("admin-grown")?.context("it is there")?.partitions.len(), 4);
    let error = admin.grow_topic("admin-grown", 2).err().context("it cannot shrink")?;
    assert!(error.to_string().contains("failed to alter topic `admin-grown`"), "{error}");
    Ok(())
}

#[test]
fn only_the_named_settings_are_altered() -> Result<()> {
    let admin = admin(Kafka::shared()?)?;
    let name = "admin-settings";
    admin.create_topic(name, 1, &settings(&[("retention.ms", "1000000"), ("segment.ms", "2000000")]))?;
    admin.alter_topic_config(name, &[("retention.ms", Some("-1")), ("max.message.bytes", Some("5000"))])?;
    let value = |key: &str| -> Result<(Option<String>, bool)> {
        let entry = admin.config(ConfigOf::Topic(name))?.remove(key).context("a setting")?;
        Ok((entry.value, entry.is_default))
    };
    assert_eq!(value("retention.ms")?, (Some("-1".into()), false));
    assert_eq!(value("segment.ms")?, (Some("2000000".into()), false), "it was not named");
    assert_eq!(value("max.message.bytes")?, (Some("5000".into()), false));
    admin.alter_topic_config(name, &[("max.message.bytes", None)])?;
    assert!(value("max.message.bytes")?.1, "it is taken back");
    let error = admin.alter_topic_config(name, &[("retention.ms", Some("soon"))]).err().context("refused")?;
    assert!(error.to_string().contains("failed to alter the settings of topic `admin-settings`"), "{error}");
    assert_eq!(value("retention.ms")?.0.as_deref(), Some("-1"));
    let broker = admin.config(ConfigOf::Broker(1))?;
    assert_eq!(broker["auto.create.topics.enable"].value.as_deref(), Some("false"));
    Ok(())
}

#[test]
fn offsets_of_many_partitions_come_in_one_answer_and_records_are_deleted_up_to_one() -> Result<()> {
    let kafka = Kafka::shared()?;
    let admin = admin(kafka)?;
    admin.create_topic("admin-offsets-a", 2, &settings(&[]))?;
    admin.create_topic("admin-offsets-b", 1, &settings(&[]))?;
    let record = |partition: i32| Record { partition, ..Record::new("key", "value") };
    kafka.produce("admin-offsets-a", &[record(0), record(0), record(0), record(1)])?;
    let all = [("admin-offsets-a", 0), ("admin-offsets-a", 1), ("admin-offsets-b", 0)];
    let ends = |end: End| -> Result<Vec<i64>> { Ok(admin.offsets(all, end)?.into_values().collect()) };
    assert_eq!((ends(End::Earliest)?, ends(End::Latest)?), (vec![0, 0, 0], vec![3, 1, 0]));

    let left = admin.delete_records("admin-offsets-a", &[(0, 2), (1, 1)])?;
    assert_eq!(left, BTreeMap::from([(0, 2), (1, 1)]));
    assert_eq!((ends(End::Earliest)?, ends(End::Latest)?), (vec![2, 1, 0], vec![3, 1, 0]));
    assert_eq!(kafka.read("admin-offsets-a")?.len(), 1);
    assert!(admin.delete_records("admin-offsets-a", &[(0, 17)]).is_err(), "there is no such record");
    assert_eq!(admin.offsets([], End::Latest)?, BTreeMap::new());

    let error = admin.offsets([("admin-offsets-none", 0)], End::Latest).err().context("there is none")?;
    assert!(matches!(error, KafkaError::TopicMissing { ref topic, .. } if topic == "admin-offsets-none"), "{error}");
    Ok(())
}

#[test]
fn a_group_is_put_elsewhere_with_its_metadata() -> Result<()> {
    let kafka = Kafka::shared()?;
    let admin = admin(kafka)?;
    admin.create_topic("admin-group", 3, &settings(&[]))?;
    kafka.produce("admin-group", &[Record { partition: 1, ..Record::new("key", "value") }])?;
    assert_eq!(admin.group_offsets("admin-readers")?, [], "a group that nobody knows stands nowhere");
    let metadata = "m".repeat(4095);
    let wanted = [at("admin-group", 0, 0, ""), at("admin-group", 1, 1, &metadata)];
    admin.alter_group_offsets("admin-readers", wanted.clone())?;
    assert_eq!(admin.group_offsets("admin-readers")?, wanted);
    assert_eq!(kafka.committed("admin-readers", "admin-group", 1)?, Some((1, metadata.clone())));
    assert_eq!(kafka.committed("admin-readers", "admin-group", 2)?, None);

    let error =
        admin.alter_group_offsets("admin-readers", [at("admin-group", 0, 0, &format!("{metadata}mm"))]).err().context("too long")?;
    assert!(error.to_string().contains("admin-group"), "{error}");
    assert_eq!(admin.group_offsets("admin-readers")?, wanted, "as it was");
    let committed = admin.committed("admin-readers", "admin-group", 0..3)?;
    assert_eq!(committed, wanted.iter().map(|at| (at.partition as u32, at.offset as u64)).collect(), "asked as a member does");
    assert_eq!(admin.committed("admin-strangers", "admin-group", 0..2)?, BTreeMap::new());
    Ok(())
}

#[test]
fn the_members_of_a_group_are_shown_with_what_they_have() -> Result<()> {
    let kafka = Kafka::shared()?;
    let admin = admin(kafka)?;
    admin.create_topic("admin-members", 2, &settings(&[]))?;
    assert_eq!(admin.group("admin-none").map(|group| (group.state, group.members.len())).unwrap_or(("Dead".into(), 0)), ("Dead".into(), 0));

    let member: BaseConsumer = kafka.client().set("group.id", "admin-members").set("client.id", "reader-7").create()?;
    member.subscribe(&["admin-members"])?;
    let mut group = None;
    poll_until("the member has its partitions", LIMIT, || {
        member.poll(Duration::from_millis(50));
        group = admin.group("admin-members").ok();
        group.as_ref().is_some_and(|group| group.members.iter().any(|member| member.partitions.len() == 2))
    })?;
    let group = group.context("a group")?;
    assert_eq!((group.state.as_str(), group.members.len()), ("Stable", 1));
    assert_eq!(group.members[0].client, "reader-7");
    let error = admin.alter_group_offsets("admin-members", [at("admin-members", 0, 0, "")]).err().context("it has a member")?;
    assert!(matches!(error, KafkaError::Failed { .. }), "{error}");
    Ok(())
}

#[test]
fn an_administrator_waits_for_a_broker_no_longer_than_the_limit() -> Result<()> {
    let spec = serde_json::from_value(json!({ "bootstrapServers": "127.0.0.1:9" })).context("a spec")?;
    let connection = Connection::new(&spec, "shop", &Secrets::default()).context("a connection")?;
    let admin = Admin::new(&connection, Duration::from_secs(2)).context("an administrator")?;
    let error = admin.topic("any").err().context("nobody listens")?;
    assert!(error.is_unreachable() && error.to_string().contains("nothing answers there"), "{error}");
    Ok(())
}
