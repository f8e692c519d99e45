//! The processes of a schedule: started, hit, started again, until the publisher has ended well.

use super::{
    Broker,
    plan::{Action, Move, Part, Plan},
    story::Story,
};
use crate::{
    over_kafka::Site,
    penstock::{Answer, Running},
    recorder::Recorder,
};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(10);
/// The id of the run.
pub const RUN: &str = "r-1";
/// A publisher that another one has taken over from.
const SUPERSEDED: Option<i32> = Some(76);

/// A process, running or not.
struct Actor {
    part: Part,
    running: Option<Running>,
    start_at: Option<Instant>,
    frozen_until: Option<Instant>,
}

/// All processes of a schedule.
pub struct Cast<'a> {
    site: &'a Site<'a>,
    broker: &'a Broker,
    recorder: &'a Recorder,
    index: String,
    actors: Vec<Actor>,
}

impl<'a> Cast<'a> {
    /// The processes of a plan; none is started yet.
    pub fn new(site: &'a Site<'a>, broker: &'a Broker, recorder: &'a Recorder, plan: &Plan) -> Self {
        let parts = plan.roles.iter().copied().chain([Part::Publisher]);
        Self { site, broker, recorder, index: plan.index(), actors: parts.map(Actor::new).collect() }
    }

    /// Plays the moves until the publisher has ended with 0: its answer.
    pub fn play(&mut self, moves: &[Move], limit: Duration, story: &mut Story) -> Result<Answer> {
        let (begun, broker) = (Instant::now(), self.broker);
        let mut moves = moves.iter().peekable();
        thread::scope(|scope| {
            loop {
                broker.ensure_it_lives()?;
                while let Some(due) = moves.next_if(|next| next.at <= begun.elapsed()) {
                    story.add(format!("{:?}", due.action));
                    if let Action::RestartBroker(pause) = due.action {
                        scope.spawn(move || broker.restart(pause));
                    }
                    self.act(&due.action)?;
                }
                if let Some(answer) = self.look(story)? {
                    return Ok(answer);
                }
                ensure!(begun.elapsed() < limit, "the run is not done within {limit:?}");
                thread::sleep(LOOK);
            }
        })
    }

    /// Nothing happens any more: the processes go on until it is so.
    pub fn calm_down(&mut self, what: &str, limit: Duration, story: &mut Story, mut is_so: impl FnMut() -> bool) -> Result<()> {
        let begun = Instant::now();
        for actor in &mut self.actors {
            if actor.frozen_until.take().is_some() {
                actor.signal(Signal::SIGCONT)?;
            }
        }
        // those that are started again come too late for the run
        self.actors.retain(|actor| actor.part != Part::Publisher || actor.running.is_some());
        while !is_so() {
            self.look(story)?;
            ensure!(begun.elapsed() < limit, "{what}: not within {limit:?}");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Asks all to end, and waits for it: they have nothing left to do. Who was asked before, perhaps while the broker was gone, may say
    /// that work remains.
    pub fn end(mut self, story: &mut Story) -> Result<()> {
        for actor in &mut self.actors {
            if let Some(running) = actor.running.take() {
                let was_asked = actor.start_at.is_some();
                if actor.part != Part::Publisher && !was_asked {
                    running.signal(Signal::SIGTERM)?;
                }
                let answer = running.wait()?;
                story.ended(actor.part, &answer);
                // one that was just started may hear of it before it listens
                let did_not_listen = answer.signal == Some(Signal::SIGTERM as i32) && answer.err.is_empty();
                let had_not_begun = did_not_listen || answer.code == Some(75) && answer.err.contains("ended before it had begun");
                let is_well = match answer.code {
                    Some(0) => true,
                    SUPERSEDED => actor.part == Part::Publisher,
                    Some(75) if was_asked => true,
                    _ => had_not_begun,
                };
                ensure!(is_well, "{:?} did not end well at last: {:?}", actor.part, answer.code);
            }
        }
        Ok(())
    }

    /// What the processes said that still run.
    pub fn say(&self, story: &mut Story) {
        for actor in &self.actors {
            if let Some(running) = &actor.running {
                story.said(actor.part, "still runs", &running.err().unwrap_or_default());
            }
        }
    }

    fn act(&mut self, action: &Action) -> Result<()> {
        let now = Instant::now();
        match action.clone() {
            Action::Kill(part, pause) => {
                if let Some(actor) = self.awake(part) {
                    actor.signal(Signal::SIGKILL)?;
                    actor.start_at = Some(now + pause);
                }
            }
            Action::Terminate(part, pause) => {
                if let Some(actor) = self.awake(part) {
                    actor.signal(Signal::SIGTERM)?;
                    actor.start_at = Some(now + pause);
                }
            }
            Action::Freeze(part, time) => self.freeze(part, now + time)?,
            Action::Supersede(time) => {
                self.freeze(Part::Publisher, now + time)?;
                self.actors.push(Actor::new(Part::Publisher));
            }
            Action::Misbehave(faults) => self.recorder.misbehave(&self.index, faults),
            Action::RestartBroker(_) => {}
        }
        Ok(())
    }

    fn freeze(&mut self, part: Part, until: Instant) -> Result<()> {
        let Some(actor) = self.awake(part) else { return Ok(()) };
        actor.frozen_until = Some(until);
        actor.signal(Signal::SIGSTOP)
    }

    fn awake(&mut self, part: Part) -> Option<&mut Actor> {
        self.actors.iter_mut().find(|actor| actor.part == part && actor.running.is_some() && actor.frozen_until.is_none())
    }

    /// Wakes who has slept enough, starts who is to be started, buries who has ended. The answer of the publisher that ended well.
    fn look(&mut self, story: &mut Story) -> Result<Option<Answer>> {
        let now = Instant::now();
        let mut index = 0;
        while index < self.actors.len() {
            let actor = &mut self.actors[index];
            if actor.frozen_until.is_some_and(|until| until <= now) {
                actor.frozen_until = None;
                actor.signal(Signal::SIGCONT)?;
            }
            let has_ended = match &mut actor.running {
                Some(running) => !running.runs()?,
                None => false,
            };
            if has_ended {
                let part = actor.part;
                let answer = actor.running.take().context("it ran")?.wait()?;
                actor.start_at = actor.start_at.or(Some(now));
                story.ended(part, &answer);
                // an abort is a fault of the program
                let is_killed = answer.signal.is_some_and(|signal| [Signal::SIGKILL as i32, Signal::SIGTERM as i32].contains(&signal));
                match (part, answer.code) {
                    (Part::Publisher, Some(0)) => {
                        self.actors.remove(index);
                        return Ok(Some(answer));
                    }
                    (Part::Publisher, SUPERSEDED) => {
                        self.actors.remove(index);
                        let goes_on = self.actors.iter().any(|actor| actor.part == Part::Publisher);
                        ensure!(goes_on, "the only publisher was superseded");
                        continue;
                    }
                    // killed; ended in time; the broker was gone; asked to end; asked twice
                    (_, Some(0 | 69 | 75 | 143)) => {}
                    (_, None) if is_killed => {}
                    (part, code) => bail!("{part:?} ended with {code:?}, signal {:?}", answer.signal),
                }
            }
            let actor = &mut self.actors[index];
            if actor.running.is_none() && actor.start_at.is_some_and(|at| at <= now) {
                actor.start_at = None;
                actor.running = Some(start(self.site, actor.part)?);
                story.add(format!("{:?} started", actor.part));
            }
            index += 1;
        }
        Ok(None)
    }
}

impl Actor {
    fn new(part: Part) -> Self {
        Self { part, running: None, start_at: Some(Instant::now()), frozen_until: None }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        self.running.as_ref().map_or(Ok(()), |running| running.signal(signal))
    }
}

fn start(site: &Site<'_>, part: Part) -> Result<Running> {
    match part {
        Part::Publisher => site.publish("c", RUN),
        Part::Worker(_) => site.start("worker", &[]),
        Part::Indexer(_) => site.start("indexer", &[]),
        Part::WorkerIndexer(_) => site.start("worker-indexer", &[]),
    }
}
