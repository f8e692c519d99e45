//! The names of topics and consumer groups, and which of them Kafka takes.

use penstock_crds::topics::{Topic, Topics};

/// Kafka's own limit for the name of a topic.
const LONGEST_NAME: usize = 249;
/// A run id is the name of a run, a dash and a uid.
const LONGEST_RUN_ID: usize = 63 + 1 + 36;

/// The names that belong to a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineNames {
    /// The topic that connectors write to.
    pub source: String,
    /// The topic between workers and indexers.
    pub dest: String,
    /// The dead letter topic.
    pub fail: String,
    /// The consumer group of the workers; also of paired workers and indexers.
    pub workers_group: String,
    /// The consumer group of the indexers.
    pub indexers_group: String,
    /// What stands in front of the run id in the name of an event topic.
    event_prefix: String,
}

/// A name that Kafka does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is too long.
    #[error("the name `{name}` has {} characters, Kafka takes {LONGEST_NAME}; shorten the name of the Pipeline or namePrefix", name.len())]
    TooLong {
        /// The name.
        name: String,
    },
    /// It has a character that Kafka does not take.
    #[error("the name `{name}` has `{character}`; Kafka takes letters, digits and the signs . _ - only")]
    Character {
        /// The name.
        name: String,
        /// The first such character.
        character: char,
    },
    /// It means something else, or nothing.
    #[error("`{name}` cannot be the name of a topic")]
    Reserved {
        /// The name.
        name: String,
    },
}

impl PipelineNames {
    /// The names of a pipeline: those that its manifest gives, literally, else `{prefix}{pipeline}_source` and so on.
    /// The prefix is that of the connection, its `{namespace}` replaced.
    pub fn new(pipeline: &str, topics: &Topics, prefix: &str) -> Self {
        let base = format!("{prefix}{pipeline}");
        let named = |topic: &Option<Topic>, role: &str| {
            topic.as_ref().and_then(|topic| topic.name.clone()).unwrap_or_else(|| format!("{base}_{role}"))
        };
        Self {
            source: named(&topics.source, "source"),
            dest: named(&topics.dest, "dest"),
            fail: named(&topics.fail, "fail"),
            workers_group: format!("{base}-workers"),
            indexers_group: format!("{base}-indexers"),
            event_prefix: format!("{base}_event_"),
        }
    }

    /// The name of the event topic of a run.
    ///
    /// # Errors
    /// With this run id it is none that Kafka takes.
    pub fn event(&self, run_id: &str) -> Result<String, NameError> {
        let name = format!("{}{run_id}", self.event_prefix);
        if run_id.is_empty() {
            return Err(NameError::Reserved { name });
        }
        check_name(&name)?;
        Ok(name)
    }

    /// The id of the run whose event topic this is; nothing if it is another topic.
    pub fn run_of<'a>(&self, topic: &'a str) -> Option<&'a str> {
        topic.strip_prefix(&self.event_prefix).filter(|run_id| !run_id.is_empty())
    }

    /// Whether Kafka takes all of these names, with the longest run id that a cluster makes.
    ///
    /// # Errors
    /// The first one that it does not take.
    pub fn check(&self) -> Result<(), NameError> {
        for name in [&self.source, &self.dest, &self.fail, &self.workers_group, &self.indexers_group] {
            check_name(name)?;
        }
        self.event(&"x".repeat(LONGEST_RUN_ID)).map(drop)
    }
}

fn check_name(name: &str) -> Result<(), NameError> {
    let legal = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    match name.chars().find(|character| !legal(*character)) {
        Some(character) => Err(NameError::Character { name: name.to_owned(), character }),
        None if name.len() > LONGEST_NAME => Err(NameError::TooLong { name: name.to_owned() }),
        None if ["", ".", ".."].contains(&name) => Err(NameError::Reserved { name: name.to_owned() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn literal(name: &str) -> Option<Topic> {
        Some(Topic { name: Some(name.into()), ..Topic::default() })
    }

    #[test]
    fn names_follow_from_the_pipeline_and_given_ones_stay_as_they_are() {
        let topics = Topics { fail: literal("failures"), ..Topics::default() };
        let names = PipelineNames::new("books", &topics, "shop.");
        assert_eq!([&*names.source, &*names.dest, &*names.fail], ["shop.books_source", "shop.books_dest", "failures"]);
        assert_eq!([&*names.workers_group, &*names.indexers_group], ["shop.books-workers", "shop.books-indexers"]);
        assert_eq!(names.event("nightly-1").as_deref(), Ok("shop.books_event_nightly-1"));
        assert_eq!(names.run_of("shop.books_event_nightly-1"), Some("nightly-1"));
        assert_eq!(names.run_of("shop.books_source"), None);
    }

    #[test]
    fn names_that_kafka_does_not_take_are_refused() {
        let check = |pipeline: &str, prefix: &str| PipelineNames::new(pipeline, &Topics::default(), prefix).check();
        assert_eq!(check("books", "shop."), Ok(()));
        assert!(matches!(check("bücher", ""), Err(NameError::Character { character: 'ü', .. })));
        assert!(matches!(check(&"b".repeat(63), &"x".repeat(128)), Err(NameError::TooLong { .. })), "its event topics are too long");
        assert!(matches!(PipelineNames::new("b", &Topics::default(), "").event("a/b"), Err(NameError::Character { .. })));
        assert!(PipelineNames::new("b", &Topics::default(), "").event("").is_err());
        let dots = Topics { source: literal(".."), ..Topics::default() };
        assert!(matches!(PipelineNames::new("b", &dots, "").check(), Err(NameError::Reserved { .. })));
    }

    proptest! {
        #[test]
        fn the_run_is_found_again_in_its_topic(pipeline in "[a-z][a-z0-9-]{0,20}", prefix in "[a-z.]{0,8}", run in "[A-Za-z0-9._-]{1,100}") {
            let names = PipelineNames::new(&pipeline, &Topics::default(), &prefix);
            let topic = names.event(&run).expect("a legal name");
            prop_assert_eq!(names.run_of(&topic), Some(run.as_str()));
        }
    }
}
