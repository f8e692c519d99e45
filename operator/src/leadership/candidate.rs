//! The loop of a candidate: reads the Lease, writes what the rules say, and knows until when it leads.

use super::{
    Leadership,
    election::{self, Election, PAUSE, RENEWAL, Verdict},
};
use k8s_openapi::{
    api::coordination::v1::{Lease as LeaseObject, LeaseSpec},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long an answer of the API server is waited for.
const LONGEST_CALL: Duration = Duration::from_secs(4);

/// Which Lease it is about, and under which name it is held.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who holds it, other than any other process.
    pub identity: String,
}

/// Stands for election from its start to its release.
pub struct Candidate {
    leads_until: watch::Sender<Option<Instant>>,
    election: Election,
    api: Api<LeaseObject>,
    lease: Lease,
    follows: Option<String>,
}

/// Somebody else leads now, or might: the process must end.
#[derive(Debug, thiserror::Error)]
#[error("the Lease {lease} is lost: {why}; this process ends, and stands for election again when it is started again")]
pub struct Lost {
    lease: String,
    why: String,
}

impl Candidate {
    /// A candidate that does not stand yet. The client must not be held back by a [`super::Gate`].
    pub fn new(client: Client, lease: Lease) -> (Self, Leadership) {
        let (leads_until, known) = watch::channel(None);
        let api = Api::namespaced(client, &lease.namespace);
        let candidate = Self { leads_until, election: Election::new(lease.identity.clone()), api, lease, follows: None };
        (candidate, Leadership(Some(known)))
    }

    /// Stands for election until the lease is lost after it was held.
    pub async fn stand(&mut self) -> Lost {
        let mut trouble = None;
        loop {
            let leads_until = *self.leads_until.borrow();
            let left = leads_until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let why = trouble.unwrap_or_else(|| "this process stood still".into());
                return self.lost(format!("it could not be renewed for {} s: {why}", RENEWAL.as_secs()));
            }
            let longest = left.map_or(LONGEST_CALL, |left| left.min(LONGEST_CALL));
            let asked = Instant::now();
            match tokio::time::timeout(longest, self.attempt()).await {
                Ok(Ok(Verdict::Write(_))) => {
                    trouble = None;
                    self.leads(asked + RENEWAL);
                }
                Ok(Ok(Verdict::Follow(other))) if leads_until.is_some() => return self.lost(format!("{other} holds it")),
                Ok(Ok(Verdict::Follow(other))) => {
                    trouble = None;
                    self.follow(other);
                }
                Ok(Err(error)) => trouble = self.note(trouble, error.to_string()),
                Err(_) => trouble = self.note(trouble, "the API server does not answer".into()),
            }
            tokio::time::sleep(left.map_or(PAUSE, |left| left.min(PAUSE))).await;
        }
    }

    /// Gives the lease back, if it is held, so that the next one need not wait.
    pub async fn release(self) {
        if self.leads_until.send_replace(None).is_none() {
            return;
        }
        match tokio::time::timeout(LONGEST_CALL, self.give_back()).await {
            Ok(Ok(())) => tracing::info!(lease = self.path(), "the lease is given back"),
            Ok(Err(error)) => tracing::warn!(lease = self.path(), %error, "the lease could not be given back; it runs out by itself"),
            Err(_) => tracing::warn!(lease = self.path(), "the lease could not be given back in time; it runs out by itself"),
        }
    }

    async fn give_back(&self) -> kube::Result<()> {
        let Some(mut lease) = self.api.get_opt(&self.lease.name).await? else { return Ok(()) };
        let spec = lease.spec.take().unwrap_or_default();
        if spec.holder_identity.as_deref() == Some(self.election.identity()) {
            lease.spec = Some(election::released(&spec));
            self.api.replace(&self.lease.name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }

    /// One look at the lease, and one write if the rules say so. It names the version that was read: who is late is refused.
    async fn attempt(&mut self) -> kube::Result<Verdict> {
        let there = self.api.get_opt(&self.lease.name).await?;
        let spec = there.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let verdict = self.election.decide(&spec, Instant::now(), Timestamp::now());
        if let Verdict::Write(spec) = &verdict {
            self.write(there, spec.clone()).await?;
        }
        Ok(verdict)
    }

    async fn write(&self, there: Option<LeaseObject>, spec: LeaseSpec) -> kube::Result<()> {
        match there {
            Some(lease) => {
                let lease = LeaseObject { metadata: lease.metadata, spec: Some(spec) };
                self.api.replace(&self.lease.name, &PostParams::default(), &lease).await?;
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.lease.name.clone()), ..ObjectMeta::default() };
                self.api.create(&PostParams::default(), &LeaseObject { metadata, spec: Some(spec) }).await?;
            }
        }
        Ok(())
    }

    fn leads(&mut self, until: Instant) {
        if self.leads_until.send_replace(Some(until)).is_none() {
            tracing::info!(lease = self.path(), identity = self.lease.identity, "this process leads");
        }
    }

    fn follow(&mut self, other: String) {
        if self.follows.as_ref() != Some(&other) {
            tracing::info!(lease = self.path(), leader = other, "another process leads; this one waits, and keeps up with what happens");
            self.follows = Some(other);
        }
    }

    fn note(&self, before: Option<String>, trouble: String) -> Option<String> {
        if before.as_ref() != Some(&trouble) {
            tracing::warn!(lease = self.path(), error = trouble, "the lease could not be read or written; it is tried again");
        }
        Some(trouble)
    }

    fn lost(&self, why: String) -> Lost {
        self.leads_until.send_replace(None);
        Lost { lease: self.path(), why }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.lease.namespace, self.lease.name)
    }
}
