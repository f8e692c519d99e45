//! Asks publishers at work how far they are, and tells them what is wanted: one small task for each run.
//!
//! Pods have no way to the API server; so the operator repeats what it wants with every question, and a replaced pod learns it too.

use parking_lot::Mutex;
use penstock::secrets::SecretText;
use penstock_crds::report::{ControlRequest, ProgressReport, StepReport, Wanted};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

/// How often a publisher is asked.
const EVERY: Duration = Duration::from_secs(2);
/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Counts alone wake a run at most so often, and more seldom if many are at work.
const COUNTS_EVERY: Duration = Duration::from_secs(5);
/// So many runs may wake a second for their counts alone.
const WAKES_A_SECOND: usize = 20;

/// Whom to ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Name of the Job: another one begins anew.
    pub job: String,
    /// Address of the pod.
    pub address: IpAddr,
    /// Port of the pod.
    pub port: u16,
    /// What the publisher knows us by.
    pub token: SecretText,
    /// What it is to do.
    pub wanted: Wanted,
}

/// What a publisher said.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The Job that it belongs to.
    pub job: String,
    /// What it said last.
    pub report: StepReport,
    /// Since when nothing has moved.
    pub moved: Instant,
}

/// Hears of a run, by namespace and name.
type WakeRun = Arc<dyn Fn(&str, &str) + Send + Sync>;
type Latest = Arc<Mutex<Option<Heard>>>;

struct Poller {
    target: watch::Sender<Target>,
    latest: Latest,
    task: AbortHandle,
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The pollers of all runs of a scope.
pub struct Pollers {
    client: reqwest::Client,
    /// By namespace and name of the run.
    running: Arc<Mutex<HashMap<(String, String), Poller>>>,
    wake: WakeRun,
}

impl Pollers {
    /// None runs yet; `wake` hears of runs whose publisher has something new to say.
    pub fn new(wake: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        // pods answer directly or not at all
        let client = reqwest::Client::builder().no_proxy().timeout(LIMIT).build().unwrap_or_default();
        Self { client, running: Arc::default(), wake: Arc::new(wake) }
    }

    /// Has a publisher asked from now on.
    pub fn ask(&self, namespace: &str, run: &str, target: Target) {
        let mut running = self.running.lock();
        let key = (namespace.to_owned(), run.to_owned());
        if let Some(poller) = running.get(&key) {
            poller.target.send_if_modified(|former| {
                let differs = *former != target;
                *former = target;
                differs
            });
            return;
        }
        let (sender, receiver) = watch::channel(target);
        let latest = Latest::default();
        let task = self.spawn(key.clone(), receiver, Arc::clone(&latest)).abort_handle();
        running.insert(key, Poller { target: sender, latest, task });
    }

    /// What the publisher of a Job said last.
    pub fn heard(&self, namespace: &str, run: &str, job: &str) -> Option<Heard> {
        let running = self.running.lock();
        let heard = running.get(&(namespace.to_owned(), run.to_owned()))?.latest.lock().clone();
        heard.filter(|heard| heard.job == job)
    }

    /// A run needs no poller any more.
    pub fn stop(&self, namespace: &str, run: &str) {
        self.running.lock().remove(&(namespace.to_owned(), run.to_owned()));
    }

    /// Stops the pollers of runs that are gone.
    pub fn keep(&self, is_there: impl Fn(&str, &str) -> bool) {
        self.running.lock().retain(|(namespace, run), _| is_there(namespace, run));
    }

    fn spawn(&self, key: (String, String), mut target: watch::Receiver<Target>, latest: Latest) -> JoinHandle<()> {
        let (client, wake, running) = (self.client.clone(), Arc::clone(&self.wake), Arc::clone(&self.running));
        tokio::spawn(async move {
            let mut told = Instant::now();
            loop {
                let now = target.borrow_and_update().clone();
                match ask(&client, &now).await {
                    Ok(Some(report)) => {
                        let cadence = COUNTS_EVERY.max(Duration::from_secs((running.lock().len() / WAKES_A_SECOND) as u64));
                        if enter(&latest, now.job, report, told.elapsed() >= cadence) {
                            told = Instant::now();
                            wake(&key.0, &key.1);
                        }
                    }
                    Ok(None) => {}
                    Err(error) => tracing::debug!(run = key.1, job = now.job, %error, "the publisher does not answer"),
                }
                // another target is asked at once
                let _ = tokio::time::timeout(EVERY, target.changed()).await;
                if target.has_changed().is_err() {
                    return;
                }
            }
        })
    }
}

/// Enters what was said. Whether the run has to be woken.
fn enter(latest: &Latest, job: String, report: StepReport, is_due: bool) -> bool {
    let mut latest = latest.lock();
    let former = latest.as_ref().filter(|former| former.job == job);
    let moved = match former {
        Some(former) if former.report.counts == report.counts && former.report.state == report.state => former.moved,
        _ => Instant::now(),
    };
    let is_news = former.is_none_or(|former| {
        former.report.state != report.state || former.report.message != report.message || (is_due && former.report != report)
    });
    if is_news || is_due {
        *latest = Some(Heard { job, report, moved });
    } else if let Some(former) = latest.as_mut() {
        former.moved = moved;
    }
    is_news
}

async fn ask(client: &reqwest::Client, target: &Target) -> Result<Option<StepReport>, reqwest::Error> {
    let url = match target.address {
        IpAddr::V4(address) => format!("http://{address}:{}/control", target.port),
        IpAddr::V6(address) => format!("http://[{address}]:{}/control", target.port),
    };
    let order = ControlRequest { wanted: target.wanted };
    let answer = client.put(url).bearer_auth(target.token.expose()).json(&order).send().await?.error_for_status()?;
    // a publisher has one step
    Ok(answer.json::<ProgressReport>().await?.connectors.pop())
}
