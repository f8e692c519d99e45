//! The topics of a pipeline, made and removed.

use anyhow::{Context, Result, bail};
use futures::executor::block_on;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication, TopicResult},
    client::DefaultClientContext,
    types::RDKafkaErrorCode,
};

fn admin(broker: &str) -> Result<AdminClient<DefaultClientContext>> {
    ClientConfig::new().set("bootstrap.servers", broker).create().context("failed to make a client")
}

/// Makes topics of so many partitions.
pub fn create(broker: &str, topics: &[(String, i32)]) -> Result<()> {
    let new: Vec<_> = topics.iter().map(|(name, partitions)| NewTopic::new(name, *partitions, TopicReplication::Fixed(1))).collect();
    let made = block_on(admin(broker)?.create_topics(&new, &AdminOptions::new())).context("failed to make topics")?;
    all_well(made)
}

/// Removes topics; those that are not there are no fault.
pub fn delete(broker: &str, topics: &[&str]) -> Result<()> {
    let gone = block_on(admin(broker)?.delete_topics(topics, &AdminOptions::new())).context("failed to remove topics")?;
    all_well(gone)
}

fn all_well(results: Vec<TopicResult>) -> Result<()> {
    for result in results {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
            Err((topic, code)) => bail!("topic {topic}: {code}"),
        }
    }
    Ok(())
}
