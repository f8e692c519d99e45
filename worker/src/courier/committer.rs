//! Commits of a consumer, on a thread of their own: the client tells the answer to whoever waits for it only, and the role thread
//! must not wait.

use super::membership::Membership;
use crate::messenger::kafka::intake::Commit;
use crossbeam_channel::{Receiver, Sender};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::KafkaResult,
};
use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a commit on its way is waited for at the end. A broker that is gone must not hold up the process.
const LEAVE: Duration = Duration::from_secs(2);

/// Sends commits, and hears of their answers.
pub(super) struct Committer {
    jobs: Option<Sender<Vec<Commit>>>,
    /// Their answers.
    pub answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

/// The answer to a commit of one partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub partition: u32,
    pub number: u64,
    pub accepted: bool,
}

impl Committer {
    /// Starts the thread for a consumer of a topic.
    pub fn start(consumer: Arc<BaseConsumer<Membership>>, topic: &str) -> io::Result<Self> {
        let (jobs, work) = crossbeam_channel::unbounded::<Vec<Commit>>();
        let (tell, answers) = crossbeam_channel::unbounded();
        let topic = topic.to_owned();
        let span = tracing::Span::current();
        let run = move || {
            let _inside = span.entered();
            for commits in work {
                let accepted = match commit(&consumer, &topic, &commits) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::debug!(topic, %error, "a commit was not accepted");
                        false
                    }
                };
                for Commit { partition, number, .. } in commits {
                    // without the role thread nobody listens any more
                    let _ = tell.send(Answer { partition, number, accepted });
                }
            }
        };
        let thread = thread::Builder::new().name("committer".into()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), answers, thread: Some(thread) })
    }

    /// Sends commits.
    pub fn send(&self, commits: Vec<Commit>) {
        if let Some(jobs) = &self.jobs {
            // the thread lives as long as this
            let _ = jobs.send(commits);
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let until = Instant::now() + LEAVE;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn commit(consumer: &BaseConsumer<Membership>, topic: &str, commits: &[Commit]) -> KafkaResult<()> {
    let mut list = TopicPartitionList::with_capacity(commits.len());
    for commit in commits {
        let mut element = list.add_partition(topic, commit.partition as i32);
        element.set_metadata(&commit.metadata);
        element.set_offset(Offset::Offset(commit.offset as i64))?;
    }
    consumer.commit(&list, CommitMode::Sync)
}
