//! Which revision the pods are to have. Pure.

use super::observed::Observed;
use crate::resources::{BuildError, Revision, RevisionContent, Settings, pipeline_revision};
use penstock_crds::{
    Pipeline,
    pipeline::{Mode, PipelineStatus, Revision as RevisionStatus, RolloutPolicy},
};

/// The revision that the pods are to have.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// Its name.
    pub revision: String,
    /// What it is made of.
    pub content: RevisionContent,
    /// What the status says of it.
    pub status: RevisionStatus,
    /// It has to be written down first.
    pub new_revision: Option<Revision>,
    /// What another one waits for.
    pub why: String,
}

/// Decides: the revision of the spec if it is valid and its time has come, else the one in use, else none.
///
/// # Errors
/// The spec cannot be made into what pods read.
pub fn decide(
    pipeline: &Pipeline,
    observed: &Observed,
    old: &PipelineStatus,
    version_generation: Option<i64>,
    can_work: bool,
    is_idle: bool,
    settings: &Settings,
) -> Result<Option<Rollout>, BuildError> {
    if pipeline.spec.effective_mode() == Mode::Local {
        // its pods are those of runs, which take what they find
        return Ok(None);
    }
    let in_use = observed.in_use.as_ref().zip(old.revision.as_ref().and_then(|revision| revision.current.clone()));
    let keep = |update: Option<String>, why: &str| {
        in_use.clone().map(|(content, revision)| Rollout {
            status: RevisionStatus { current: Some(revision.clone()), update },
            revision,
            content: content.clone(),
            new_revision: None,
            why: why.to_owned(),
        })
    };
    if !can_work {
        return Ok(keep(None, ""));
    }
    let wanted = pipeline_revision(pipeline, observed.connection.as_ref(), version_generation, &settings.image)?;
    if in_use.as_ref().is_some_and(|(_, revision)| *revision == wanted.name) {
        return Ok(keep(None, ""));
    }
    let waits = pipeline.spec.rollout.policy == RolloutPolicy::WhenIdle && !is_idle && !pipeline.spec.suspend;
    if let (true, Some(kept)) = (waits, keep(Some(wanted.name.clone()), "a change waits until no run is at work and nothing is unread")) {
        return Ok(Some(kept));
    }
    Ok(Some(Rollout {
        revision: wanted.name.clone(),
        content: wanted.content.clone(),
        status: RevisionStatus { current: Some(wanted.name.clone()), update: None },
        new_revision: Some(wanted),
        why: String::new(),
    }))
}
