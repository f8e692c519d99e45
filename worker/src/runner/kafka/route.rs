//! The way of a pipeline's documents through Kafka: connection, topics, and whether the topics are as they must be.

use crate::{
    context::StepContext,
    courier::{LetterTopic, Role},
    kafka::{
        Connection, KafkaError, PipelineNames,
        admin::{Admin, ConfigOf, End},
    },
    manifest::{Manifests, Object},
    runner::StepError,
    wording::counted,
};
use penstock_crds::{PipelineSpec, kafka_connection::TopicManagement, pipeline::Mode, topics::Topic};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long the first answer of the brokers may take.
const FIRST_ANSWER: Duration = Duration::from_secs(25);
/// How long one answer of the brokers may take.
const ANSWER: Duration = Duration::from_secs(15);
/// The largest record of a topic, where nothing else is said.
const USUAL_RECORD: usize = 1_048_588;
/// What nobody may remove before it was read.
const FOR_EVER: [(&str, &str); 3] = [("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")];
/// The same for the log of a run, whose records are sent by whoever works on it: each must know how large they may be.
const LOG: [(&str, &str); 4] = [FOR_EVER[0], FOR_EVER[1], FOR_EVER[2], ("max.message.bytes", "1048588")];
/// What a log must take: the largest batch that a client makes.
const SMALLEST_LOG: usize = 1_000_012;

/// A topic that must be there.
struct Wanted {
    name: String,
    partitions: usize,
    config: BTreeMap<String, String>,
}

/// The way of a pipeline's documents through Kafka.
#[derive(Clone)]
pub struct Route {
    /// How workers, indexers and publishers reach the brokers.
    pub connection: Arc<Connection>,
    /// Asks the brokers about topics and groups, as the same user.
    pub admin: Arc<Admin>,
    /// The user that may make and remove topics.
    administration: Arc<Connection>,
    /// The names of topics and groups.
    pub names: PipelineNames,
    /// Whether workers and indexers are processes of their own, with a topic between them.
    pub is_distributed: bool,
}

impl Route {
    /// The way of a pipeline; nothing if it flows through memory.
    ///
    /// # Errors
    /// The connection lacks a secret, or there is none of that name.
    pub fn of(manifests: &Manifests, pipeline: &Object<PipelineSpec>, context: &StepContext) -> Result<Option<Self>, StepError> {
        let Some(kafka_ref) = pipeline.spec.kafka_ref.as_ref().filter(|_| pipeline.spec.effective_mode() != Mode::Local) else {
            return Ok(None);
        };
        let connection = manifests
            .kafka_connection(&pipeline.namespace, &kafka_ref.name)
            .ok_or_else(|| StepError::NoKafkaConnection { pipeline: pipeline.name.clone(), connection: kafka_ref.name.clone() })?;
        let administration = Connection::for_administration(&connection.spec, &pipeline.namespace, &context.secrets)?;
        let connection = Arc::new(Connection::new(&connection.spec, &pipeline.namespace, &context.secrets)?);
        let names = PipelineNames::new(&pipeline.name, &pipeline.spec.topics, connection.prefix());
        let is_distributed = pipeline.spec.effective_mode() == Mode::Distributed;
        let admin = Arc::new(Admin::new(&connection, ANSWER)?);
        Ok(Some(Self { connection, admin, administration: Arc::new(administration), names, is_distributed }))
    }

    /// The parts of the pipeline besides publishing.
    pub fn roles(&self) -> &'static [Role] {
        if self.is_distributed { &[Role::Worker, Role::Indexer] } else { &[Role::WorkerIndexer] }
    }

    /// Whether the brokers answer and take our credentials.
    ///
    /// # Errors
    /// They do not, in words.
    pub fn check(&self) -> Result<(), KafkaError> {
        self.connection.check(FIRST_ANSWER).map(|_| ())
    }

    /// Makes the topics that are missing, and the event topic of the run.
    ///
    /// # Errors
    /// The brokers refuse, or a topic that is there does not fit.
    pub fn create_topics(&self, spec: &PipelineSpec, run_id: Option<&str>) -> Result<(), StepError> {
        let admin = Admin::new(&self.administration, ANSWER)?;
        let log = run_id.map(|run_id| self.log(run_id)).transpose()?;
        // with Observe somebody else makes the pipeline's topics; the log of a run is ours in any case
        let all = self.connection.management() == TopicManagement::Create;
        let wanted = self.wanted(spec, run_id)?;
        for topic in wanted.into_iter().filter(|topic| all || log.as_ref() == Some(&topic.name)) {
            admin.create_topic(&topic.name, i32::try_from(topic.partitions).unwrap_or(i32::MAX), &topic.config)?;
        }
        self.check_topics(spec, run_id)
    }

    /// Whether all topics are there and fit.
    ///
    /// # Errors
    /// All that do not, in one message.
    pub fn check_topics(&self, spec: &PipelineSpec, run_id: Option<&str>) -> Result<(), StepError> {
        let wanted = self.wanted(spec, run_id)?;
        let names: Vec<&str> = wanted.iter().map(|topic| topic.name.as_str()).collect();
        let found: BTreeMap<String, usize> = self
            .admin
            .describe_topics(&names)?
            .into_iter()
            .zip(&names)
            .filter_map(|(found, name)| match found {
                Ok(topic) => Some(Ok(((*name).to_owned(), topic.partitions.len()))),
                Err(KafkaError::TopicMissing { .. }) => None,
                Err(error) => Some(Err(error)),
            })
            .collect::<Result<_, _>>()?;
        let log = run_id.map(|run_id| self.log(run_id)).transpose()?;
        let mut faults = Vec::new();
        let mut are_missing = false;
        for topic in &wanted {
            let is_log = log.as_ref() == Some(&topic.name);
            match found.get(&topic.name).copied() {
                None => {
                    are_missing = true;
                    faults.push(format!(
                        "topic `{}` does not exist: create it with {}, or let `penstock publish --create-topics` do it",
                        topic.name,
                        partitions(topic.partitions)
                    ));
                }
                Some(there) if is_log && there != 1 => {
                    faults.push(format!(
                        "topic `{}` has {}, but a run's event topic has exactly one: delete it",
                        topic.name,
                        partitions(there)
                    ));
                }
                Some(_) if is_log && self.largest_record(&topic.name) < SMALLEST_LOG => faults.push(format!(
                    "topic `{}` takes no more than {} bytes at once, but a run's event topic has to take {SMALLEST_LOG}: raise its \
                     max.message.bytes",
                    topic.name,
                    self.largest_record(&topic.name)
                )),
                Some(there) if there < topic.partitions => faults.push(format!(
                    "topic `{}` has {}, but the Pipeline asks for {}: add partitions while nothing is in it, or lower spec.partitions",
                    topic.name,
                    partitions(there),
                    topic.partitions
                )),
                Some(_) => {}
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(StepError::Topics { faults: faults.join("; "), are_missing }) }
    }

    /// Removes the event topic of a run.
    pub fn remove_log(&self, run_id: &str) -> Result<(), StepError> {
        Admin::new(&self.administration, ANSWER)?.delete_topic(&self.log(run_id)?)?;
        Ok(())
    }

    /// The event topic of a run.
    ///
    /// # Errors
    /// The run id cannot stand in the name of a topic.
    pub fn log(&self, run_id: &str) -> Result<String, StepError> {
        self.names.event(run_id).map_err(StepError::RunId)
    }

    /// The largest record that a topic takes; what is usual, where it may not be asked.
    pub(super) fn largest_record(&self, topic: &str) -> usize {
        match self.admin.config(ConfigOf::Topic(topic)) {
            Ok(config) => {
                let largest = config.get("max.message.bytes").and_then(|entry| entry.value.as_ref()?.parse().ok());
                largest.unwrap_or(USUAL_RECORD)
            }
            Err(error) => {
                tracing::debug!(topic, %error, "its settings cannot be shown; the usual ones are assumed");
                USUAL_RECORD
            }
        }
    }

    /// Where failed documents go.
    pub(super) fn dead_letter_topic(&self) -> LetterTopic {
        LetterTopic { name: self.names.fail.clone(), largest_record: self.largest_record(&self.names.fail) }
    }

    /// Where a group stands in partitions of a topic.
    ///
    /// # Errors
    /// The brokers do not answer.
    pub(super) fn committed(
        &self,
        group: &str,
        topic: &str,
        partitions: impl IntoIterator<Item = u32>,
    ) -> Result<BTreeMap<u32, u64>, KafkaError> {
        self.admin.committed(group, topic, partitions)
    }

    /// Where the partitions of a topic end.
    ///
    /// # Errors
    /// The brokers do not answer.
    pub(super) fn ends(&self, topic: &str) -> Result<BTreeMap<u32, u64>, KafkaError> {
        let partitions = self.admin.topic(topic)?.map_or(0, |topic| topic.partitions.len());
        let asked = (0..partitions).map(|partition| (topic, partition as i32));
        let ends = self.admin.offsets(asked, End::Latest)?;
        Ok(ends.into_iter().map(|((_, partition), end)| (partition as u32, end as u64)).collect())
    }

    fn wanted(&self, spec: &PipelineSpec, run_id: Option<&str>) -> Result<Vec<Wanted>, StepError> {
        let partitions = spec.partitions.and_then(|partitions| usize::try_from(partitions).ok()).unwrap_or(1);
        let config = |topic: &Option<Topic>, fixed: &[(&str, &str)]| -> BTreeMap<String, String> {
            let mut config: BTreeMap<String, String> = topic.as_ref().map(|topic| topic.config.clone()).unwrap_or_default();
            for (key, value) in fixed {
                config.entry((*key).to_owned()).or_insert_with(|| (*value).to_owned());
            }
            config
        };
        let topic = |name: &str, partitions: usize, config| Wanted { name: name.to_owned(), partitions, config };
        let mut wanted = vec![topic(&self.names.source, partitions, config(&spec.topics.source, &FOR_EVER[..1]))];
        if self.is_distributed {
            wanted.push(topic(&self.names.dest, partitions, config(&spec.topics.dest, &FOR_EVER[..1])));
        }
        wanted.push(topic(&self.names.fail, 1, config(&spec.topics.fail, &FOR_EVER)));
        if let Some(run_id) = run_id {
            wanted.push(topic(&self.log(run_id)?, 1, config(&None, &LOG)));
        }
        Ok(wanted)
    }
}

fn partitions(count: usize) -> String {
    counted(count as u64, "partition")
}
