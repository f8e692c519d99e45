//! Partitions come and go: a takeover begins with a tenure, a partition is given away once its work is done.

use super::{Courier, CourierError, committer::Answer, membership::Change};
use crate::messenger::kafka::intake::Commit;
use rdkafka::{Offset, TopicPartitionList, consumer::Consumer};
use std::time::{Duration, Instant};

/// How long the work on a partition may take that is to be given away. Well below the session timeout of the group.
const REVOKE_DRAIN: Duration = Duration::from_secs(15);
/// How long one question to the broker may take; it is asked again.
const QUESTION: Duration = Duration::from_secs(5);

/// Partitions that are to be given away, until then.
pub(super) struct Leaving {
    partitions: Vec<u32>,
    until: Instant,
    /// The last commits are sent.
    is_released: bool,
}

impl Courier {
    /// Follows what the group has decided, one change after the other.
    pub(super) fn follow_changes(&mut self, now: Instant) -> Result<(), CourierError> {
        self.give_away(now)?;
        while self.leaving.is_none()
            && let Some(change) = self.unfollowed.take().or_else(|| self.consumer.context().next_change())
        {
            match change {
                // whoever is next has them soon
                Change::Assigned(_) if self.is_draining => drop(self.take_over(&[])?),
                Change::Assigned(partitions) => {
                    if !self.take_over(&partitions)? {
                        // the broker did not answer: the same again in the next round
                        self.unfollowed = Some(Change::Assigned(partitions));
                        return Ok(());
                    }
                }
                Change::Revoked(partitions) => {
                    partitions.iter().for_each(|partition| self.intake.begin_revoke(*partition));
                    self.lanes.hurry();
                    self.leaving = Some(Leaving { partitions, until: now + REVOKE_DRAIN, is_released: false });
                    self.give_away(now)?;
                }
                Change::Lost(partitions) => {
                    tracing::warn!(
                        topic = self.topic,
                        ?partitions,
                        "partitions were lost: the group has not heard of this process in time; whoever has them next repeats what was not committed"
                    );
                    partitions.iter().for_each(|partition| self.intake.lost(*partition));
                    // no rejoining before all commits are answered: a late one would be taken for one of the new membership
                    self.leaving = Some(Leaving { partitions, until: now + REVOKE_DRAIN, is_released: true });
                    self.give_away(now)?;
                }
            }
        }
        Ok(())
    }

    /// Takes partitions over, from where they were committed. False if the broker does not answer.
    fn take_over(&mut self, partitions: &[u32]) -> Result<bool, CourierError> {
        if partitions.is_empty() {
            let none = TopicPartitionList::new();
            self.consumer.incremental_assign(&none).map_err(|error| self.error(&error))?;
            self.settings.figures.set_assigned(self.owned.len());
            return Ok(true);
        }
        let mut asked = self.list(partitions);
        asked = match self.consumer.committed_offsets(asked, QUESTION) {
            Ok(answered) => answered,
            Err(error) => return self.not_yet(&error, "failed to read committed offsets"),
        };
        let mut assigned = TopicPartitionList::new();
        let mut begun = Vec::new();
        for element in asked.elements() {
            let partition = element.partition() as u32;
            if let Err(error) = element.error() {
                return self.not_yet(&error, "failed to read a committed offset");
            }
            let (first, end) = match self.consumer.fetch_watermarks(&self.topic, element.partition(), QUESTION) {
                Ok((first, end)) => (first as u64, end as u64),
                Err(error) => return self.not_yet(&error, "failed to read the offsets of a partition"),
            };
            let committed = match element.offset() {
                Offset::Offset(offset) => Some((offset as u64, element.metadata().to_owned())),
                _ => None,
            };
            let start = committed.as_ref().map_or(first, |(offset, _)| *offset);
            if start < first || start > end {
                return Err(CourierError::Truncated { topic: self.topic.clone(), partition, committed: start, first, end });
            }
            assigned
                .add_partition_offset(&self.topic, element.partition(), Offset::Offset(start as i64))
                .map_err(|error| self.error(&error))?;
            begun.push((partition, committed, first..end));
        }
        for (partition, ..) in &begun {
            if !self.queues.open(&self.consumer, *partition) {
                tracing::warn!(topic = self.topic, partition, "the client does not know the partition yet; trying again");
                return Ok(false);
            }
        }
        self.consumer.incremental_assign(&assigned).map_err(|error| self.error(&error))?;
        let now = Instant::now();
        for (partition, committed, log) in begun {
            let committed = committed.as_ref().map(|(offset, metadata)| (*offset, metadata.as_str()));
            let taken = self.intake.take_over(partition, committed, log, now);
            if let Some(fault) = taken.unreadable {
                tracing::warn!(topic = self.topic, partition, %fault, "the metadata of a committed offset is not understood");
            }
            if taken.suspects > 0 {
                tracing::warn!(
                    topic = self.topic,
                    partition,
                    suspects = taken.suspects,
                    "its last reader died: what it was at is tried one by one"
                );
            }
            self.owned.insert(partition, taken.tenure);
        }
        self.settings.figures.set_assigned(self.owned.len());
        tracing::info!(topic = self.topic, ?partitions, "partitions taken over");
        Ok(true)
    }

    fn not_yet(&self, error: &rdkafka::error::KafkaError, what: &str) -> Result<bool, CourierError> {
        tracing::warn!(topic = self.topic, %error, "{what}; trying again");
        Ok(false)
    }

    /// Gives partitions away whose work is done, or whose time is over.
    fn give_away(&mut self, now: Instant) -> Result<(), CourierError> {
        let Some(leaving) = &self.leaving else { return Ok(()) };
        let is_over = leaving.until <= now;
        let partitions = leaving.partitions.clone();
        if !leaving.is_released {
            let is_done = partitions.iter().all(|partition| self.intake.is_drained(*partition) && !self.commits.contains_key(partition));
            if !is_done && !is_over {
                return Ok(());
            }
            if !is_done {
                tracing::warn!(topic = self.topic, ?partitions, "work was not done in time; the next owner repeats it");
            }
            self.release(&partitions, now);
            if let Some(leaving) = &mut self.leaving {
                leaving.is_released = true;
            }
        }
        if !is_over && partitions.iter().any(|partition| self.commits.contains_key(partition)) {
            return Ok(());
        }
        self.leaving = None;
        self.let_go(&partitions)
    }

    /// Sends the last commit of partitions.
    pub(super) fn release(&mut self, partitions: &[u32], now: Instant) {
        let last: Vec<Commit> = partitions.iter().filter_map(|partition| self.intake.release(*partition, now)).collect();
        self.send_commits(last);
    }

    /// The partitions are not ours any more: late work for them is dropped.
    fn let_go(&mut self, partitions: &[u32]) -> Result<(), CourierError> {
        for partition in partitions {
            self.intake.lost(*partition);
            self.tickets.forget(*partition);
            self.passages.remove(partition);
            self.held.remove(partition);
            self.owned.remove(partition);
            self.commits.remove(partition);
            self.set_aside.retain(|(of, _), _| of != partition);
        }
        self.settings.figures.set_assigned(self.owned.len());
        let list = self.list(partitions);
        self.consumer.incremental_unassign(&list).map_err(|error| self.error(&error))?;
        partitions.iter().for_each(|partition| self.queues.close(*partition));
        tracing::info!(topic = self.topic, ?partitions, "partitions given away");
        Ok(())
    }

    /// Sends the commits that are due.
    pub(super) fn commit(&mut self, now: Instant) {
        let due = self.intake.commit_due(now);
        self.send_commits(due);
    }

    fn send_commits(&mut self, commits: Vec<Commit>) {
        if commits.is_empty() {
            return;
        }
        self.commits.extend(commits.iter().map(|commit| (commit.partition, commit.number)));
        self.committer.send(commits);
    }

    /// Takes the answers to commits; whether there were some.
    pub(super) fn take_commits(&mut self) -> bool {
        let mut taken = false;
        while let Ok(answer) = self.committer.answers.try_recv() {
            taken = true;
            self.take_commit(answer);
        }
        taken
    }

    pub(super) fn take_commit(&mut self, answer: Answer) {
        let Answer { partition, number, accepted } = answer;
        if self.commits.get(&partition) == Some(&number) {
            self.commits.remove(&partition);
        }
        self.intake.commit_answered(partition, number, accepted);
    }

    pub(super) fn list(&self, partitions: &[u32]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&self.topic, *partition as i32);
        }
        list
    }
}
