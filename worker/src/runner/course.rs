//! The course of a step while its threads work: takes what they report, looks at clocks, and says how it all ended.

use super::{
    accounting::Accounting,
    deadlines::{Deadlines, check_failed},
    outcome::StepError,
    step::{Flow, Step},
    threads::{ConnectorEnd, Message, Threads},
};
use crate::{
    publisher::{
        PublisherEnd,
        completion::{self, End, Facts, Next, Source},
    },
    worker_lane::LaneError,
};
use penstock_crds::{conditions::ConnectorState, ingest_run::Counts};
use std::time::{Duration, Instant};

/// How often the accounting looks at clocks and requests.
const TICK: Duration = Duration::from_millis(50);
/// How long threads may take to end once the step was aborted.
const ABORT_GRACE: Duration = Duration::from_secs(5);

/// A step that was asked to end, or cancelled: since when, and how long it may take.
struct Ending {
    since: Instant,
    grace: Duration,
}

impl Ending {
    /// Whether its time is over. If all that is left is a source that does not answer, such as a pipe into which nobody writes, it
    /// is over soon.
    fn is_over(&self, now: Instant, is_idle: bool) -> bool {
        now >= self.since + if is_idle { self.grace.min(ABORT_GRACE) } else { self.grace }
    }
}

/// The course of a step while its threads work.
pub(super) struct Course<'a> {
    step: &'a Step<'a>,
    threads: Threads,
    error: Option<StepError>,
    connector_end: Option<ConnectorEnd>,
    lanes_left: usize,
    deadlines: Deadlines,
    drain: Option<Ending>,
    cancel: Option<Ending>,
    abort_until: Option<Instant>,
}

impl<'a> Course<'a> {
    pub(super) fn new(step: &'a Step<'a>, threads: Threads) -> Self {
        let (lanes_left, deadlines) = (threads.lanes, Deadlines::new(Instant::now()));
        let (error, connector_end, drain, cancel, abort_until) = (None, None, None, None, None);
        Self { step, threads, error, connector_end, lanes_left, deadlines, drain, cancel, abort_until }
    }

    pub(super) fn run(mut self, accounting: &mut Accounting) -> Flow {
        loop {
            if let Ok(message) = self.threads.messages.recv_timeout(TICK) {
                self.take(message, accounting);
                while let Ok(message) = self.threads.messages.try_recv() {
                    self.take(message, accounting);
                }
            }
            let counts = accounting.show();
            self.check_failed(counts.failed);
            let ended = self.connector_end.is_some() && self.lanes_left == 0 && self.threads.messages.is_empty();
            if !ended {
                self.check_clocks(&counts);
            }
            if ended || self.abort_until.is_some_and(|until| until <= Instant::now()) {
                return self.conclude(accounting);
            }
        }
    }

    fn take(&mut self, message: Message, accounting: &mut Accounting) {
        match message {
            Message::Events(events) => accounting.enter(&events),
            Message::ConnectorEnded(end) => self.connector_ended(end),
            Message::LaneEnded(Ok(())) => self.lanes_left -= 1,
            Message::LaneEnded(Err(error)) => {
                self.lanes_left -= 1;
                // a lane that was closed because of an abort is no reason of its own
                if self.abort_until.is_none() || !matches!(error, StepError::Lane(LaneError::Closed)) {
                    self.fail(error);
                }
            }
            Message::Fatal(error) => self.fail(error.into()),
        }
    }

    /// A structural failure: everything ends at once, what is in work stays pending.
    fn fail(&mut self, error: StepError) {
        // the first error is the cause; a closed lane only says that there is another
        match &self.error {
            None | Some(StepError::Lane(LaneError::Closed)) => self.error = Some(error),
            Some(cause) => tracing::warn!(%cause, error = error.chain(), "while the step was ending"),
        }
        self.abort();
    }

    fn abort(&mut self) {
        self.step.state.stop_publishing();
        self.step.context.stop.cancel();
        self.threads.abort.abort();
        self.abort_until.get_or_insert_with(|| Instant::now() + ABORT_GRACE);
    }

    fn connector_ended(&mut self, end: ConnectorEnd) {
        if let ConnectorEnd::Returned(None | Some(PublisherEnd::Limit)) = &end {
            self.step.state.enter(ConnectorState::Draining);
        }
        let error = match &end {
            ConnectorEnd::Returned(Some(PublisherEnd::DeadLetter(error))) => {
                Some(StepError::DeadLetter(std::io::Error::new(error.kind(), error.to_string())))
            }
            ConnectorEnd::Returned(_) => None,
            ConnectorEnd::Failed(_) | ConnectorEnd::Panicked(_) => None,
        };
        if let Some(error) = error {
            self.error.get_or_insert(error);
        }
        self.connector_end = Some(end);
    }

    /// More failed documents than are allowed end the step; what was accepted is still finished.
    fn check_failed(&mut self, failed: u64) {
        if self.error.is_none()
            && let Err(error) = check_failed(self.step, failed)
        {
            self.error = Some(error);
            self.step.state.stop_publishing();
        }
    }

    /// Looks at clocks and requests. Also a step that has failed and finishes its work must do so in time.
    fn check_clocks(&mut self, counts: &Counts) {
        let now = Instant::now();
        if let Err(error) = self.deadlines.look(self.step, now, counts)
            && self.abort_until.is_none()
        {
            self.fail(error);
        }
        let control = &self.step.control;
        if control.is_cancelled() {
            // what was accepted is finished, and then it is no success whatever became of it
            self.error.get_or_insert(StepError::Cancelled);
            self.step.state.stop_publishing();
            self.cancel.get_or_insert(Ending { since: now, grace: self.step.limits.cancel_grace });
        }
        if control.is_ending() {
            self.step.state.stop_publishing();
            self.drain.get_or_insert(Ending { since: now, grace: *control.grace });
        }
        let is_idle = counts.pending == 0 && self.connector_end.is_none();
        let is_over = self.drain.iter().chain(&self.cancel).any(|ending| ending.is_over(now, is_idle));
        if (control.abort.is_cancelled() || is_over) && self.abort_until.is_none() {
            self.abort();
        }
    }

    fn conclude(self, accounting: &mut Accounting) -> Flow {
        let counts = accounting.show();
        if let Some(error) = self.error {
            return Flow::Failed(error);
        }
        let source = match self.connector_end {
            Some(ConnectorEnd::Failed(error)) => return Flow::Failed(StepError::Connector(error)),
            Some(ConnectorEnd::Panicked(message)) => return Flow::Failed(StepError::ConnectorPanic(message)),
            Some(ConnectorEnd::Returned(None | Some(PublisherEnd::Limit))) => Source::Exhausted,
            Some(ConnectorEnd::Returned(Some(_))) | None => Source::Stopped,
        };
        // in memory what was handed over is safe, and no event can come once all lanes have ended
        let is_draining = self.step.control.is_ending();
        let facts = Facts {
            source,
            counts,
            end_is_safe: true,
            barrier_passed: true,
            grace_is_over: self.abort_until.is_some(),
            ..Facts::default()
        };
        match completion::next(&facts) {
            Next::WriteComplete => Flow::Complete,
            Next::End(End::Stopped { .. }) if is_draining => Flow::Interrupted,
            _ => Flow::Failed(StepError::Unaccounted { pending: counts.pending, sample: accounting.pending() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{EventBatch, Outcome, Tag},
        messenger::local,
        runner::tests::Stand,
    };
    use crossbeam_channel::Sender;
    use std::sync::Arc;

    fn threads(lanes: usize) -> (Sender<Message>, Threads) {
        let (sender, messages) = crossbeam_channel::unbounded();
        let (_, _, abort) = local::channel(lanes);
        (sender, Threads { messages, abort, lanes })
    }

    fn finished(seqs: impl IntoIterator<Item = u64>) -> Message {
        let mut events = EventBatch::new(1, 1, Outcome::Finished);
        seqs.into_iter().for_each(|seq| events.push(Tag::source(seq)));
        Message::Events(events)
    }

    #[test]
    fn all_waiting_events_are_taken_before_clocks_and_completion_are_looked_at_p15_p25() {
        let stand = Stand::new(r#"{"timeout": "1s", "sequence": {"count": 1}}"#);
        let step = stand.step();
        stand.published(1_000);
        let (sender, threads) = threads(2);
        let end = [Message::ConnectorEnded(ConnectorEnd::Returned(None)), Message::LaneEnded(Ok(())), Message::LaneEnded(Ok(()))];
        for message in [finished(1..=600), finished(601..=1_000)].into_iter().chain(end) {
            sender.send(message).expect("open");
        }
        let mut accounting = Accounting::new(1, Arc::clone(&step.state));
        let mut course = Course::new(&step, threads);
        course.deadlines = Deadlines::new(Instant::now() - Duration::from_secs(2));
        let flow = course.run(&mut accounting);
        assert!(matches!(flow, Flow::Complete), "the time was over, and so was the work: {flow:?}");
        assert_eq!(accounting.show().finished, 1_000);
    }

    #[test]
    fn documents_that_nobody_accounts_for_are_numbered_and_no_success() {
        let stand = Stand::new(r#"{"sequence": {"count": 1}}"#);
        let step = stand.step();
        stand.published(3);
        let (sender, threads) = threads(1);
        for message in [finished([1, 3]), Message::ConnectorEnded(ConnectorEnd::Returned(None)), Message::LaneEnded(Ok(()))] {
            sender.send(message).expect("open");
        }
        let flow = Course::new(&step, threads).run(&mut Accounting::new(1, Arc::clone(&step.state)));
        let Flow::Failed(error) = flow else { panic!("{flow:?}") };
        assert!(error.to_string().starts_with("1 document unaccounted for, among them number 2;"), "{error}");
    }
}
