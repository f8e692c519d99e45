//! Runs that can be told what to do: their control folder, and requests to their port.

use crate::{penstock::Workdir, services::poll_until};
use anyhow::{Context, Result, ensure};
use penstock_crds::report::{ProgressReport, StepReport, Wanted};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Who has it may tell a run of a test what to do.
pub const TOKEN: &str = "t0p-s3cret-t0ken";
/// The folder, in that of the manifests.
const FOLDER: &str = "control";
/// How long a state may take to come.
const LIMIT: Duration = Duration::from_secs(60);

/// A run that can be told what to do.
pub struct Remote {
    address: String,
    runtime: Runtime,
}

impl Remote {
    /// Makes the control folder, and finds a port that is free.
    ///
    /// # Errors
    /// The system gives neither.
    pub fn new(workdir: &Workdir) -> Result<Self> {
        workdir.write(&format!("{FOLDER}/token"), TOKEN)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0").context("no port is free")?.local_addr()?.port();
        let runtime = Builder::new_current_thread().enable_all().build().context("failed to start a runtime")?;
        Ok(Self { address: format!("127.0.0.1:{port}"), runtime })
    }

    /// What the run finds in the folder when it starts.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_state(&self, workdir: &Workdir, wanted: Wanted) -> Result<()> {
        workdir.write(&format!("{FOLDER}/state"), wanted.as_str()).map(drop)
    }

    /// The arguments that let a run take orders.
    pub fn arguments(&self) -> [&str; 4] {
        ["--control-dir", FOLDER, "--metrics-addr", &self.address]
    }

    /// Sends an order: the status and the answer.
    ///
    /// # Errors
    /// Nobody answers, or not with JSON.
    pub fn send(&self, token: Option<&str>, body: &Value) -> Result<(u16, Value)> {
        let url = format!("http://{}/control", self.address);
        self.runtime.block_on(async {
            let request = reqwest::Client::new().put(&url).body(body.to_string());
            let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
            let answer = request.send().await.context("nobody answers")?;
            let status = answer.status().as_u16();
            let text = answer.text().await?;
            Ok((status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).with_context(|| text)? }))
        })
    }

    /// Tells the run what to do; answers with what it does by then.
    ///
    /// # Errors
    /// It does not take the order.
    pub fn want(&self, wanted: Wanted) -> Result<StepReport> {
        let (status, answer) = self.send(Some(TOKEN), &json!({"wanted": wanted}))?;
        ensure!(status == 200, "answered {status}: {answer}");
        last(serde_json::from_value(answer)?)
    }

    /// What the run is doing.
    ///
    /// # Errors
    /// Nobody answers, or no connector has begun.
    pub fn report(&self) -> Result<StepReport> {
        let url = format!("http://{}/progress", self.address);
        last(self.runtime.block_on(async { reqwest::get(url).await?.error_for_status()?.json::<ProgressReport>().await })?)
    }

    /// Waits until the connector at work is as it should be; answers with how it is then.
    ///
    /// # Errors
    /// It does not come to that.
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&StepReport) -> bool) -> Result<StepReport> {
        let mut seen = None;
        poll_until(what, LIMIT, || {
            seen = self.report().ok();
            seen.as_ref().is_some_and(&is_so)
        })
        .with_context(|| format!("{seen:?}"))?;
        seen.context("a report was seen")
    }

    /// Looks at the run for a second: nothing is published, and all the while it is as it should be.
    ///
    /// # Errors
    /// Something was published, or it is not.
    pub fn stands_still(&self, is_so: impl Fn(&StepReport) -> bool) -> Result<StepReport> {
        let first = self.report()?;
        for _ in 0..20 {
            let now = self.report()?;
            ensure!(now.counts.published == first.counts.published && is_so(&now), "at first {first:?}, then {now:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(first)
    }
}

fn last(progress: ProgressReport) -> Result<StepReport> {
    progress.connectors.into_iter().next_back().context("no connector has begun")
}
