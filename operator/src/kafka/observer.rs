//! The thread that talks to one Kafka cluster: looks every few seconds at all that its users are interested in, and does what they want.

use super::{Owner, Reachable, Snapshot, Topic, TopicFacts, Trouble};
use parking_lot::{Mutex, RwLock};
use penstock::kafka::{
    Connection, KafkaError,
    admin::{Admin, ConfigOf, End},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long wishes are collected before they are looked at together.
const COLLECT: Duration = Duration::from_millis(50);
/// How often the settings of topics are read again.
const CONFIGS_EVERY: Duration = Duration::from_secs(60);

/// Something to be done with a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make it.
    Create {
        /// Its name.
        topic: String,
        /// Its partitions.
        partitions: i32,
        /// Its settings.
        config: BTreeMap<String, String>,
    },
    /// Give it more partitions.
    Grow {
        /// Its name.
        topic: String,
        /// How many there are to be.
        partitions: i32,
    },
    /// Set settings; the others stay as they are.
    Alter {
        /// Its name.
        topic: String,
        /// The settings.
        config: BTreeMap<String, String>,
    },
    /// Delete it, if it is still the one of that id.
    Delete {
        /// Its name.
        topic: String,
        /// Its id; without it whatever has the name.
        id: Option<String>,
    },
}

impl Action {
    /// The topic.
    pub fn topic(&self) -> &str {
        match self {
            Self::Create { topic, .. } | Self::Grow { topic, .. } | Self::Alter { topic, .. } | Self::Delete { topic, .. } => topic,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Grow { .. } => "grow",
            Self::Alter { .. } => "alter",
            Self::Delete { .. } => "delete",
        }
    }
}

/// What an owner wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Topics.
    pub topics: BTreeSet<String>,
    /// Groups, each with the topic that it reads.
    pub groups: BTreeSet<(String, String)>,
}

/// What an owner wants done and known.
#[derive(Clone, Debug, Default)]
pub struct Wanting {
    /// What it wants to know from now on.
    pub interest: Interest,
    /// What is to be done now.
    pub actions: Vec<Action>,
}

enum Command {
    Want(Owner, Wanting),
    Forget(Owner),
    End,
}

/// One thread at work. It ends when this is dropped.
pub struct Observer {
    commands: Sender<Command>,
    snapshot: Arc<RwLock<Arc<Snapshot>>>,
    wanted: Mutex<BTreeMap<Owner, Interest>>,
}

/// Who hears of changes, and of calls that were made.
#[derive(Clone)]
pub struct Listeners {
    /// Something that the owner is interested in changed.
    pub changed: Arc<dyn Fn(&Owner) + Send + Sync>,
    /// A call was made, and whether it went well.
    pub called: Arc<dyn Fn(&'static str, bool) + Send + Sync>,
}

impl Observer {
    /// Begins to look, every so often.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(connection: Connection, every: Duration, listeners: Listeners) -> std::io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let snapshot = Arc::new(RwLock::new(Arc::new(Snapshot::default())));
        let work = Work {
            connection,
            admin: None,
            every,
            listeners,
            interests: BTreeMap::new(),
            snapshot: Arc::clone(&snapshot),
            configs_read: None,
            settled: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        std::thread::Builder::new().name("kafka-observer".into()).spawn(move || work.run(&inbox))?;
        Ok(Self { commands, snapshot, wanted: Mutex::default() })
    }

    /// What was seen last.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// Says what an owner wants. Costs nothing if it wants what it wanted before and nothing is to be done.
    pub fn want(&self, owner: Owner, wanting: Wanting) {
        {
            let mut wanted = self.wanted.lock();
            if wanting.actions.is_empty() && wanted.get(&owner) == Some(&wanting.interest) {
                return;
            }
            wanted.insert(owner.clone(), wanting.interest.clone());
        }
        // it ends with the process only
        let _ = self.commands.send(Command::Want(owner, wanting));
    }

    /// An owner is gone.
    pub fn forget(&self, owner: &Owner) {
        if self.wanted.lock().remove(owner).is_some() {
            let _ = self.commands.send(Command::Forget(owner.clone()));
        }
    }

    fn owners(&self) -> Vec<Owner> {
        self.wanted.lock().keys().cloned().collect()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::End);
    }
}

/// What a connection was made of, and its observer.
type Running = (String, Arc<Observer>);
/// The first offset and the one behind the last, by topic and partition.
type Ends = BTreeMap<String, BTreeMap<i32, (i64, i64)>>;

/// The observers of all connections of a scope.
pub struct Observers {
    every: Duration,
    listeners: Listeners,
    /// By namespace and name.
    running: Mutex<BTreeMap<(String, String), Running>>,
}

impl Observers {
    /// None runs yet.
    pub fn new(every: Duration, listeners: Listeners) -> Self {
        Self { every, listeners, running: Mutex::default() }
    }

    /// The observer of a connection, if it runs.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Observer>> {
        self.running.lock().get(&(namespace.to_owned(), name.to_owned())).map(|(_, observer)| Arc::clone(observer))
    }

    /// Has a connection observed; anew if it is made of something else than before.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn ensure(&self, namespace: &str, name: &str, made_of: &str, connection: Connection) -> std::io::Result<Arc<Observer>> {
        let mut running = self.running.lock();
        let key = (namespace.to_owned(), name.to_owned());
        if let Some((former, observer)) = running.get(&key).filter(|(former, _)| former == made_of) {
            debug_assert_eq!(former, made_of);
            return Ok(Arc::clone(observer));
        }
        let observer = Arc::new(Observer::start(connection, self.every, self.listeners.clone())?);
        let former = running.insert(key, (made_of.to_owned(), Arc::clone(&observer)));
        // users say again what they want
        for owner in former.iter().flat_map(|(_, former)| former.owners()) {
            (self.listeners.changed)(&owner);
        }
        Ok(observer)
    }

    /// Ends the observer of a connection that is gone.
    pub fn remove(&self, namespace: &str, name: &str) {
        self.running.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Ends the observers of connections that are gone.
    pub fn keep_connections(&self, is_there: impl Fn(&str, &str) -> bool) {
        self.running.lock().retain(|(namespace, name), _| is_there(namespace, name));
    }

    /// Forgets owners that are gone.
    pub fn keep(&self, is_there: impl Fn(&Owner) -> bool) {
        let observers: Vec<Arc<Observer>> = self.running.lock().values().map(|(_, observer)| Arc::clone(observer)).collect();
        for observer in observers {
            observer.owners().iter().filter(|owner| !is_there(owner)).for_each(|owner| observer.forget(owner));
        }
    }
}

/// What the thread has.
struct Work {
    connection: Connection,
    admin: Option<Admin>,
    every: Duration,
    listeners: Listeners,
    interests: BTreeMap<Owner, Interest>,
    snapshot: Arc<RwLock<Arc<Snapshot>>>,
    configs_read: Option<Instant>,
    /// By group and topic: the ends up to which everything was finished. Nobody is asked again before they move.
    settled: BTreeMap<(String, String), BTreeMap<i32, i64>>,
    /// What was to be done with a topic and failed, by its name.
    failures: BTreeMap<String, Trouble>,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Command>) {
        loop {
            self.look();
            let mut actions = Vec::new();
            match inbox.recv_timeout(self.every) {
                Ok(command) => {
                    if !self.take(command, &mut actions) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let until = Instant::now() + COLLECT;
            while let Ok(command) = inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                if !self.take(command, &mut actions) {
                    return;
                }
            }
            self.act(actions);
        }
    }

    fn take(&mut self, command: Command, actions: &mut Vec<Action>) -> bool {
        match command {
            Command::Want(owner, wanting) => {
                for action in wanting.actions {
                    if !actions.contains(&action) {
                        actions.push(action);
                    }
                }
                self.interests.insert(owner, wanting.interest);
            }
            Command::Forget(owner) => drop(self.interests.remove(&owner)),
            Command::End => return false,
        }
        true
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match self.do_one(&action) {
                Ok(()) => drop(self.failures.remove(action.topic())),
                Err(error) => {
                    tracing::warn!(topic = action.topic(), action = action.name(), %error, "a topic is not as it is meant to be");
                    self.failures.insert(action.topic().to_owned(), Trouble::from(&error));
                }
            }
        }
    }

    fn do_one(&mut self, action: &Action) -> Result<(), KafkaError> {
        let admin = self.admin()?;
        let done = match action {
            Action::Create { topic, partitions, config } => admin.create_topic(topic, *partitions, config).map(drop),
            Action::Grow { topic, partitions } => admin.grow_topic(topic, *partitions as usize),
            Action::Alter { topic, config } => {
                let changes: Vec<(&str, Option<&str>)> = config.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))).collect();
                admin.alter_topic_config(topic, &changes)
            }
            Action::Delete { topic, id } => match admin.topic(topic) {
                Ok(Some(there)) if id.as_ref().is_none_or(|id| *id == there.id) => admin.delete_topic(topic).map(drop),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            },
        };
        (self.listeners.called)(action.name(), done.is_ok());
        if matches!(action, Action::Create { .. } | Action::Alter { .. }) {
            self.configs_read = None;
        }
        done
    }

    fn admin(&mut self) -> Result<&Admin, KafkaError> {
        let admin = match self.admin.take() {
            Some(admin) => admin,
            None => Admin::new(&self.connection, LIMIT)?,
        };
        Ok(self.admin.insert(admin))
    }

    /// Looks at everything, and says to whom it makes a difference.
    fn look(&mut self) {
        let before = Arc::clone(&self.snapshot.read());
        let seen = match self.see(&before) {
            Ok(seen) => seen,
            Err(error) => Snapshot { reachable: Reachable::No(Trouble::from(&error)), ..(*before).clone() },
        };
        let seen = Arc::new(seen);
        *self.snapshot.write() = Arc::clone(&seen);
        for (owner, interest) in &self.interests {
            if differs(interest, &before, &seen) {
                (self.listeners.changed)(owner);
            }
        }
    }

    fn see(&mut self, before: &Snapshot) -> Result<Snapshot, KafkaError> {
        let cluster = self.admin()?.cluster();
        (self.listeners.called)("metadata", cluster.is_ok());
        let cluster = cluster?;
        let reachable = Reachable::Yes { cluster_id: cluster.id, brokers: cluster.brokers };
        let names: BTreeSet<String> = self.interests.values().flat_map(|interest| interest.topics.iter().cloned()).collect();
        let mut topics = self.describe(&names)?;
        self.add_configs(&mut topics, before);
        let ends = self.add_retained(&mut topics)?;
        let lags = self.lags(&ends, before)?;
        self.failures.retain(|topic, _| names.contains(topic));
        Ok(Snapshot { reachable, topics, lags, failures: self.failures.clone() })
    }

    fn describe(&mut self, names: &BTreeSet<String>) -> Result<BTreeMap<String, Topic>, KafkaError> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        let described = self.admin()?.describe_topics(&wanted);
        (self.listeners.called)("describe", described.is_ok());
        let topic = |described: Result<penstock::kafka::admin::TopicDescription, KafkaError>| match described {
            Ok(topic) => Topic::There(TopicFacts {
                id: topic.id,
                partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
                replication_factor: topic.partitions.first().map_or(0, |partition| i32::try_from(partition.replicas).unwrap_or(i32::MAX)),
                config: None,
                retained: None,
            }),
            Err(KafkaError::TopicMissing { .. }) => Topic::Missing,
            Err(error) => Topic::Hidden(Trouble::from(&error)),
        };
        Ok(names.iter().cloned().zip(described?.into_iter().map(topic)).collect())
    }

    /// Settings are read for new topics at once, for all now and then.
    fn add_configs(&mut self, topics: &mut BTreeMap<String, Topic>, before: &Snapshot) {
        let now = Instant::now();
        let all = self.configs_read.is_none_or(|read| now.saturating_duration_since(read) >= CONFIGS_EVERY);
        for (name, topic) in topics {
            let Topic::There(facts) = topic else { continue };
            let former = before.topic(name).filter(|former| former.id == facts.id).and_then(|former| former.config.clone());
            facts.config = match former {
                Some(former) if !all => Some(former),
                former => self.config(name).or(former),
            };
        }
        if all {
            self.configs_read = Some(now);
        }
    }

    fn config(&mut self, name: &str) -> Option<BTreeMap<String, String>> {
        let found = self.admin().and_then(|admin| admin.config(ConfigOf::Topic(name)));
        (self.listeners.called)("config", found.is_ok());
        match found {
            Ok(entries) => Some(entries.into_iter().filter_map(|(key, entry)| Some((key, entry.value?))).collect()),
            Err(error) => {
                tracing::debug!(topic = name, %error, "the settings of a topic cannot be read");
                None
            }
        }
    }

    /// Fills in how many records there are. The ends of all partitions, by topic.
    fn add_retained(&mut self, topics: &mut BTreeMap<String, Topic>) -> Result<Ends, KafkaError> {
        let there = |topics: &BTreeMap<String, Topic>| -> Vec<(String, i32)> {
            let facts = topics.iter().filter_map(|(name, topic)| match topic {
                Topic::There(facts) => Some((name.clone(), facts.partitions)),
                _ => None,
            });
            facts.flat_map(|(name, partitions)| (0..partitions).map(move |partition| (name.clone(), partition))).collect()
        };
        let partitions = there(topics);
        let asked = || partitions.iter().map(|(name, partition)| (name.as_str(), *partition));
        let admin = self.admin()?;
        let found = admin.offsets(asked(), End::Earliest).and_then(|first| Ok((first, admin.offsets(asked(), End::Latest)?)));
        (self.listeners.called)("offsets", found.is_ok());
        let (first, last) = match found {
            Ok(found) => found,
            // a topic went away in between: next time
            Err(KafkaError::TopicMissing { .. }) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let mut ends: Ends = BTreeMap::new();
        for (key, last) in last {
            let first = first.get(&key).copied().unwrap_or(last);
            ends.entry(key.0).or_default().insert(key.1, (first, last));
        }
        for (name, topic) in topics {
            if let (Topic::There(facts), Some(ends)) = (topic, ends.get(name)) {
                facts.retained = Some(ends.values().map(|(first, last)| last - first).sum());
            }
        }
        Ok(ends)
    }

    /// What groups have not finished. A group that had finished everything is asked again only when the ends have moved.
    fn lags(&mut self, ends: &Ends, before: &Snapshot) -> Result<BTreeMap<(String, String), i64>, KafkaError> {
        let wanted: BTreeSet<(String, String)> = self.interests.values().flat_map(|interest| interest.groups.iter().cloned()).collect();
        self.settled.retain(|key, _| wanted.contains(key));
        let mut lags = BTreeMap::new();
        for key in wanted {
            let Some(ends) = ends.get(&key.1) else { continue };
            let last: BTreeMap<i32, i64> = ends.iter().map(|(partition, (_, last))| (*partition, *last)).collect();
            if self.settled.get(&key) == Some(&last) {
                lags.insert(key, 0);
                continue;
            }
            let partitions: Vec<u32> = ends.keys().filter_map(|partition| u32::try_from(*partition).ok()).collect();
            let committed = self.admin()?.committed(&key.0, &key.1, partitions);
            (self.listeners.called)("committed", committed.is_ok());
            let committed = match committed {
                Ok(committed) => committed,
                Err(error) if error.is_unreachable() => return Err(error),
                // a coordinator that moves: what was known is not known now
                Err(error) => {
                    tracing::debug!(group = key.0, %error, "the offsets of a group cannot be read");
                    continue;
                }
            };
            let unread = |(partition, (first, last)): (&i32, &(i64, i64))| {
                let at = committed.get(&(*partition as u32)).map_or(*first, |at| i64::try_from(*at).unwrap_or(*last));
                (last - at.max(*first)).max(0)
            };
            let lag: i64 = ends.iter().map(unread).sum();
            if lag == 0 {
                self.settled.insert(key.clone(), last);
                if before.lags.get(&key) == Some(&0)
                    && let Ok(admin) = self.admin()
                {
                    admin.forget(&key.0);
                }
            } else {
                self.settled.remove(&key);
            }
            lags.insert(key, lag);
        }
        Ok(lags)
    }
}

/// Whether what an owner is interested in is another one.
fn differs(interest: &Interest, before: &Snapshot, seen: &Snapshot) -> bool {
    before.reachable != seen.reachable
        || interest
            .topics
            .iter()
            .any(|topic| before.topics.get(topic) != seen.topics.get(topic) || before.failures.get(topic) != seen.failures.get(topic))
        || interest.groups.iter().any(|group| before.lags.get(group) != seen.lags.get(group))
}
