//! Random schedules of crashes, over real processes and a real broker: whatever happens, a run ends with exactly the counts, the
//! documents and the failures of an undisturbed run over memory, and no id steps back but where work is repeated.
//!
//! A seed decides what is done and when. What the processes make of it depends on the machine, so a seed that failed may have to
//! be tried several times.

mod cast;
pub mod order;
mod plan;
mod story;

use crate::{
    over_kafka::{MANIFESTS, SHORT_SESSION, Site, check_documents, header},
    recorder::Recorder,
    services::kafka::Kafka,
};
use anyhow::{Context, Result, bail, ensure};
use cast::{Cast, RUN};
use penstock::{
    kafka::{
        Connection,
        admin::{Admin, End},
    },
    secrets::Secrets,
};
use plan::{LONG_TIMEOUT, PLACE, Plan, SHORT_TIMEOUT, Versions};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, OnceLock, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};
use story::Story;

/// How long a schedule may take from its start to the publisher's end.
const LIMIT: Duration = Duration::from_secs(100);
/// A schedule that takes longer tells its story.
const SLOW: Duration = Duration::from_secs(30);
/// How long it may take until nothing is left over.
const CALM: Duration = Duration::from_secs(40);

/// A broker that is killed now and then.
pub struct Broker {
    kafka: Kafka,
    /// It did not start again, and why.
    end: OnceLock<String>,
    /// Read by who needs it to answer.
    calm: RwLock<()>,
}

/// What must come out: taken from a run over memory.
struct Reference {
    counts: Value,
    documents: BTreeMap<String, Value>,
    history: BTreeMap<String, Vec<Option<Value>>>,
    /// Id, stage, and what is kept of the document.
    failed: BTreeSet<(String, String, String)>,
}

impl Broker {
    /// Starts one with its data in a folder.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(folder: &Path) -> Result<Self> {
        Ok(Self { kafka: Kafka::start(folder)?, end: OnceLock::new(), calm: RwLock::new(()) })
    }

    fn restart(&self, pause: Duration) {
        let _storm = self.calm.write().unwrap_or_else(PoisonError::into_inner);
        self.kafka.kill();
        thread::sleep(pause);
        if let Err(error) = self.kafka.start_again() {
            self.end.get_or_init(|| format!("{error:#}"));
        }
    }

    fn ensure_it_lives(&self) -> Result<()> {
        self.end.get().map_or(Ok(()), |why| bail!("the broker does not start again: {why}"))
    }

    fn calmly<T>(&self, work: impl FnOnce() -> T) -> T {
        let _calm = self.calm.read().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}

/// Runs so many schedules from a seed on, some at a time.
///
/// # Errors
/// The stories of all that failed.
pub fn run_all(seed: u64, schedules: u64, at_a_time: usize) -> Result<()> {
    let folder = tempfile::tempdir().context("failed to create a folder for Kafka")?;
    let (broker, recorder) = (Broker::start(folder.path())?, Recorder::start()?);
    let (next, failures) = (Mutex::new(seed..seed + schedules), Mutex::new(Vec::new()));
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                // the lock must not be held while the schedule runs
                let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(seed) = take() {
                    let begun = Instant::now();
                    let mut story = Story::new();
                    let ended = run(&broker, &recorder, seed, &mut story);
                    eprintln!("schedule {seed}: {} in {:.1?}", if ended.is_ok() { "ok" } else { "FAILED" }, begun.elapsed());
                    // what takes long is worth a look
                    if ended.is_err() || begun.elapsed() > SLOW {
                        eprintln!("{story}");
                    }
                    if let Err(error) = ended {
                        eprintln!("schedule {seed}: {error:#}");
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(seed);
                    }
                }
            });
        }
    });
    eprintln!("{schedules} schedules in {:.0?}", begun.elapsed());
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failures.is_empty(), "{} of {schedules} schedules failed, those of the seeds {failures:?}: see above", failures.len());
    Ok(())
}

/// Runs the schedule of a seed.
fn run(broker: &Broker, recorder: &Recorder, seed: u64, story: &mut Story) -> Result<()> {
    let plan = Plan::new(seed);
    let outline = Plan { input: format!("{} lines", plan.input.lines().count()), ..plan.clone() };
    story.add(format!("{outline:?}"));
    play(broker, recorder, &plan, story)
}

fn play(broker: &Broker, recorder: &Recorder, plan: &Plan, story: &mut Story) -> Result<()> {
    let index = plan.index();
    let site = broker.calmly(|| site(broker, recorder, plan, &index))?;
    let reference = reference(&site, recorder, plan).context("the run over memory")?;
    let mut cast = Cast::new(&site, broker, recorder, plan);
    let answer = match cast.play(&plan.moves, LIMIT, story) {
        Ok(answer) => answer,
        Err(error) => {
            cast.say(story);
            return Err(error);
        }
    };
    story.add("the publisher is done");
    recorder.behave(&index);
    check_counts(&answer.summary()?, &reference)?;
    check_documents(&recorder.documents(&index), &reference.documents).context("when the publisher was done")?;
    let calm = broker.calmly(|| {
        let admin = admin(&site)?;
        // a broker that has just started may not know everything yet
        cast.calm_down("nothing is left over", CALM, story, || nothing_is_left(&site, &admin, plan).unwrap_or(false))
    });
    if let Err(error) = calm {
        cast.say(story);
        return Err(error);
    }
    broker.calmly(|| cast.end(story))?;
    check_documents(&recorder.documents(&index), &reference.documents).context("at last")?;
    check_order(recorder, &index, plan, &reference)?;
    broker.calmly(|| {
        check_letters(&site, &reference)?;
        remove_topics(&site)
    })
}

/// Hundreds of schedules share the broker, which keeps files of each topic open.
fn remove_topics(site: &Site<'_>) -> Result<()> {
    let admin = admin(site)?;
    for topic in ["p_source", "p_dest", "p_fail", &format!("p_event_{RUN}")] {
        let topic = site.name(topic);
        admin.delete_topic(&topic).with_context(|| format!("failed to remove {topic}"))?;
    }
    Ok(())
}

fn site<'k>(broker: &'k Broker, recorder: &Recorder, plan: &Plan, index: &str) -> Result<Site<'k>> {
    let manifests = plan.manifests(recorder.url(), index);
    let site = Site::with_manifests(&broker.kafka, &format!("s{}.", plan.seed), SHORT_SESSION, &manifests)?;
    site.workdir.write("input.jsonl", &plan.input)?;
    site.create_topics("p", plan.partitions)?;
    Ok(site)
}

/// The same over memory, undisturbed, into an index of its own.
fn reference(site: &Site<'_>, recorder: &Recorder, plan: &Plan) -> Result<Reference> {
    let (live, memory) = (format!("index: {}", plan.index()), format!("memory-{}", plan.seed));
    let over_kafka = site.workdir.read(MANIFESTS)?;
    // over memory there are no places in topics
    let over_memory = over_kafka.replace(&live, &format!("index: {memory}")).replace(PLACE, "None");
    // on a busy machine a request may take longer than some seconds: sent again, it would be taken for two operations
    let over_memory = over_memory.replace(SHORT_TIMEOUT, LONG_TIMEOUT);
    site.workdir.write(MANIFESTS, over_memory)?;
    let answer = site.run(&["--messaging", "local"])?.wait()?;
    site.workdir.write(MANIFESTS, over_kafka)?;
    ensure!(answer.code == Some(0), "{answer:?}");
    let kept = if site.workdir.has("r_fail.jsonl") { site.workdir.read_json_lines("r_fail.jsonl")? } else { Vec::new() };
    let failed = kept.iter().map(|line| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let content = if line["document"].is_object() { line["document"].to_string() } else { text("raw") };
        (text("id"), text("stage"), content)
    });
    Ok(Reference {
        counts: answer.summary()?["totals"].clone(),
        documents: recorder.documents(&memory),
        history: recorder.history(&memory),
        failed: failed.collect(),
    })
}

fn admin(site: &Site<'_>) -> Result<Admin> {
    let spec = serde_json::from_value(json!({"bootstrapServers": site.kafka.bootstrap()}))?;
    let connection = Connection::new(&spec, "default", &Secrets::default())?;
    Ok(Admin::new(&connection, Duration::from_secs(20))?)
}

/// Whether everything that was written was read, and committed.
fn nothing_is_left(site: &Site<'_>, admin: &Admin, plan: &Plan) -> Result<bool> {
    let groups = [("p_source", "p-workers"), ("p_dest", "p-indexers")];
    for (topic, group) in &groups[..if plan.is_distributed { 2 } else { 1 }] {
        let (topic, group) = (site.name(topic), site.name(group));
        let ends = admin.offsets((0..plan.partitions).map(|partition| (topic.as_str(), partition)), End::Latest)?;
        let committed = admin.committed(&group, &topic, 0..plan.partitions as u32)?;
        if ends.iter().any(|((_, partition), end)| *end > 0 && committed.get(&(*partition as u32)).is_none_or(|at| (*at as i64) < *end)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check_counts(result: &Value, reference: &Reference) -> Result<()> {
    ensure!(result["state"] == "Succeeded", "the publisher ended with 0, but: {result}");
    ensure!(result["counts"] == reference.counts, "counts\n  {}, but over memory\n  {}", result["counts"], reference.counts);
    Ok(())
}

fn check_order(recorder: &Recorder, index: &str, plan: &Plan, reference: &Reference) -> Result<()> {
    let history = recorder.history(index);
    for (id, accepted) in &reference.history {
        let done = history.get(id).map(Vec::as_slice).unwrap_or_default();
        order::check(accepted, done)
            .map_err(|fault| anyhow::anyhow!("the order of {id}: {fault};\n  {done:?}, accepted\n  {accepted:?}"))?;
        // a search engine that knows the document's own version takes each once
        ensure!(plan.versions != Versions::Field || done == accepted, "{id} was done twice in spite of its version:\n  {done:?}");
    }
    match history.keys().find(|id| !reference.history.contains_key(*id)) {
        Some(id) => bail!("{id} should not be in the index"),
        None => Ok(()),
    }
}

fn check_letters(site: &Site<'_>, reference: &Reference) -> Result<()> {
    let letters = site.letters("p")?;
    let found: BTreeSet<_> = letters
        .iter()
        .map(|letter| {
            let content = serde_json::from_slice(letter.value.as_deref().unwrap_or_default()).map(|value: Value| value.to_string());
            (letter.key_text(), header(letter, "penstock-stage"), content.unwrap_or_else(|_| letter.value_text()))
        })
        .collect();
    let missing: Vec<_> = reference.failed.difference(&found).collect();
    let strange: Vec<_> = found.difference(&reference.failed).collect();
    ensure!(missing.is_empty() && strange.is_empty(), "the dead letter of run {RUN} lacks {missing:?}, and has {strange:?}");
    Ok(())
}
