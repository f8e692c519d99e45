//! The real accounting in random schedules: publishers, workers and indexers that crash, are stopped and wake up as zombies,
//! partitions that change hands, events that come twice, late requests. After every step the invariant must hold; at the end
//! counts and index must be what one undisturbed pass over the source gives, and no run may end early or never.
//!
//! Real are the ledger, recovery, checkpoints, completion, collapse and the intake (tenures, offsets, filters, commits);
//! topics, group and backend are played by [`cluster`].
//!
//! `PENSTOCK_SIMULATION_SEEDS=500 cargo test simulation` runs more schedules; a failure names the scenario and seed.

mod cluster;
mod node;
mod publisher;
mod scenarios;

use crate::messenger::kafka::intake::Rule;
use cluster::{Cluster, Group, Hazards};
use node::{Node, NodeAct, Role};
use publisher::{Publisher, PublisherAct, Verdict};
use std::{collections::BTreeMap, time::Duration};

/// A rule that was broken.
type Violation = String;

/// Time that passes between two acts.
const STEP_TIME: Duration = Duration::from_millis(20);

struct Simulation {
    cluster: Cluster,
    publishers: Vec<Publisher>,
    nodes: Vec<Node>,
    /// The first verdict of a publisher.
    verdict: Option<Verdict>,
    healed: bool,
}

enum Act {
    Publisher(usize, PublisherAct),
    Node(usize, NodeAct),
    /// The backend carries out a request.
    Backend(usize),
}

/// What goes wrong.
#[derive(Clone, Copy)]
enum Hazard {
    CrashPublisher,
    StopPublisher,
    CrashNode(Group),
    StopNode(Group),
    Rebalance,
}

impl Simulation {
    fn new(seed: u64, hazards: Hazards, documents: usize) -> Self {
        let cluster = Cluster::new(seed, hazards, documents);
        let mut simulation = Self { cluster, publishers: vec![Publisher::new()], nodes: Vec::new(), verdict: None, healed: false };
        for _ in 0..2 {
            for group in simulation.cluster.groups() {
                simulation.start_node(*group);
            }
        }
        for group in simulation.cluster.groups() {
            for partition in 0..simulation.cluster.partitions {
                simulation.assign(*group, partition, None);
            }
        }
        simulation
    }

    /// One schedule from beginning to end.
    fn run(seed: u64, hazards: Hazards, documents: usize, hazard_steps: usize) -> Result<(), Violation> {
        let mut simulation = Self::new(seed, hazards, documents);
        for _ in 0..hazard_steps {
            simulation.step()?;
        }
        simulation.healed = true;
        for _ in 0..20_000 {
            if !simulation.step()? || (simulation.verdict.is_some() && simulation.is_quiet()) {
                break;
            }
        }
        simulation.check_end()
    }

    /// Something goes wrong, or somebody acts. False: nobody can.
    fn step(&mut self) -> Result<bool, Violation> {
        self.cluster.now += STEP_TIME;
        if !self.healed
            && let Some(hazard) = self.hazard()
        {
            self.suffer(hazard);
            return Ok(true);
        }
        let mut acts: Vec<(f64, Act)> = Vec::new();
        // who was stopped sleeps long, as long as things go wrong
        let wake = if self.healed { 1.0 } else { 0.15 };
        for (index, publisher) in self.publishers.iter().enumerate() {
            publisher.acts(&self.cluster, wake, &mut |weight, act| acts.push((weight, Act::Publisher(index, act))));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            node.acts(&self.cluster, wake, self.healed, &mut |weight, act| acts.push((weight, Act::Node(index, act))));
        }
        acts.extend((0..self.cluster.requests.len()).map(|request| (1.0, Act::Backend(request))));
        let Some(at) = self.cluster.random.weighted(acts.iter().map(|(weight, _)| *weight)) else { return Ok(false) };
        match acts.swap_remove(at).1 {
            Act::Publisher(index, act) => {
                if let Some(verdict) = self.publishers[index].act(act, &mut self.cluster)? {
                    self.cluster.check_verdict(&verdict)?;
                    self.verdict.get_or_insert(verdict);
                }
            }
            Act::Node(index, act) => self.nodes[index].act(act, &mut self.cluster),
            Act::Backend(request) => {
                let (node, answer) = self.cluster.carry_out(request);
                if let Some(answer) = answer {
                    self.nodes[node].answered(answer);
                }
            }
        }
        Ok(true)
    }

    fn hazard(&mut self) -> Option<Hazard> {
        let hazards = self.cluster.hazards;
        let publishing = self.verdict.is_none();
        let chances = [
            (hazards.publisher_crash, Hazard::CrashPublisher),
            (hazards.publisher_zombie, Hazard::StopPublisher),
            (hazards.worker_crash, Hazard::CrashNode(Group::Workers)),
            (hazards.worker_zombie, Hazard::StopNode(Group::Workers)),
            (hazards.indexer_crash, Hazard::CrashNode(Group::Indexers)),
            (hazards.indexer_zombie, Hazard::StopNode(Group::Indexers)),
            (hazards.rebalance, Hazard::Rebalance),
        ];
        let mut drawn = self.cluster.random.fraction();
        for (chance, hazard) in chances {
            if drawn < chance {
                let is_publishers = matches!(hazard, Hazard::CrashPublisher | Hazard::StopPublisher);
                return (publishing || !is_publishers).then_some(hazard);
            }
            drawn -= chance;
        }
        None
    }

    fn suffer(&mut self, hazard: Hazard) {
        match hazard {
            Hazard::CrashPublisher | Hazard::StopPublisher => {
                let running = self.publishers.len() - 1;
                match hazard {
                    Hazard::CrashPublisher => self.publishers[running].dead = true,
                    _ => self.publishers[running].stopped = true,
                }
                self.publishers.push(Publisher::new());
            }
            Hazard::CrashNode(group) => {
                let Some(index) = self.some_node(group) else { return };
                self.nodes[index].dead = true;
                let random = &mut self.cluster.random;
                self.cluster.requests.retain(|request| request.node != index || random.chance(0.5));
                self.start_node(group);
                self.reassign(group, index, None);
            }
            Hazard::StopNode(group) => {
                let Some(index) = self.some_node(group) else { return };
                self.start_node(group);
                // stopped, or alive and not aware that its partitions are gone
                self.nodes[index].stopped = self.cluster.random.chance(0.7);
                self.reassign(group, index, Some(index));
            }
            Hazard::Rebalance => {
                let group = *self.cluster.random.pick(self.cluster.groups());
                let Some(index) = self.some_node(group) else { return };
                let owned = self.cluster.owned_by(group, index);
                if owned.is_empty() {
                    return;
                }
                let partition = *self.cluster.random.pick(&owned);
                if self.nodes[index].revoke(partition, &mut self.cluster) {
                    self.assign(group, partition, None);
                }
            }
        }
    }

    fn start_node(&mut self, group: Group) {
        let role = match group {
            Group::Indexers => Role::Indexer,
            Group::Workers if self.cluster.hazards.hybrid => Role::Pair,
            Group::Workers => Role::Worker,
        };
        self.nodes.push(Node::new(self.nodes.len(), role, &mut self.cluster));
    }

    fn alive(&self, group: Group) -> Vec<usize> {
        let alive = |node: &&Node| node.group() == group && !node.dead && !node.stopped;
        self.nodes.iter().filter(alive).map(|node| node.index).collect()
    }

    fn some_node(&mut self, group: Group) -> Option<usize> {
        let alive = self.alive(group);
        (!alive.is_empty()).then(|| *self.cluster.random.pick(&alive))
    }

    fn reassign(&mut self, group: Group, from: usize, avoid: Option<usize>) {
        for partition in self.cluster.owned_by(group, from) {
            self.assign(group, partition, avoid);
        }
    }

    fn assign(&mut self, group: Group, partition: usize, avoid: Option<usize>) {
        let mut members = self.alive(group);
        members.retain(|index| Some(*index) != avoid);
        let member = *self.cluster.random.pick(&members);
        let generation = self.cluster.assign(group, partition, member);
        self.nodes[member].assigned(partition, generation);
    }

    fn is_quiet(&self) -> bool {
        self.cluster.requests.is_empty()
            && self.nodes.iter().all(|node| node.dead || node.is_quiet())
            && self.publishers.iter().all(|publisher| publisher.dead || publisher.is_quiet())
            && self.cluster.all_is_committed()
    }

    fn check_end(&self) -> Result<(), Violation> {
        let Some(verdict) = &self.verdict else {
            return Err(format!("never ends: {}", self.publishers[self.publishers.len() - 1].describe()));
        };
        match verdict {
            // the model lost an event on purpose: found
            Verdict::Unaccounted(_) => Ok(()),
            Verdict::Complete { counts, failed, .. } => {
                self.cluster.check_counts(counts)?;
                self.cluster.check_dead_letters(failed)?;
                self.cluster.check_index("at the end")
            }
        }
    }
}

/// Schedules of each scenario: more than 10,000 in all.
fn seeds() -> u64 {
    std::env::var("PENSTOCK_SIMULATION_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(250)
}

/// Runs many schedules of a scenario.
fn explore(name: &str, hazards: Hazards) {
    let small = (0..seeds()).filter_map(|seed| Simulation::run(seed, hazards, 6, 150).err().map(|violation| (seed, violation)));
    let large = (0..seeds() / 4)
        .filter_map(|seed| Simulation::run(seed, hazards, 10, 300).err().map(|violation| (seed, format!("10 documents: {violation}"))));
    let failures: BTreeMap<u64, Violation> = small.chain(large).collect();
    assert!(failures.is_empty(), "{name}: {failures:#?}");
}

/// Some schedule fails if a rule is left out: so the schedules do look at it.
fn breaks(off: Rule, hazards: Hazards) {
    let hazards = Hazards { off: Some(off), ..hazards };
    let shows = (0..seeds().max(250) * 20).any(|seed| Simulation::run(seed, hazards, 6, 150).is_err());
    assert!(shows, "without {off:?} nothing goes wrong");
}
