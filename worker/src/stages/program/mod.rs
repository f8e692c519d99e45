//! Programs and predicates in VRL: compiled once, run by each lane over the fields that they touch and no others.

mod allowance;
mod compile;
mod convert;
mod depth;
mod functions;
mod indexes;
mod product;
mod rewrite;
mod target;
mod watch;

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod tests;

use self::{
    compile::Compiled,
    target::Touched,
    watch::{Limits, Watch},
};
use super::StageError;
use crate::{document::Document, problem::Problems};
use std::sync::Arc;
use vrl::{
    compiler::{
        ExpressionError, TimeZone,
        runtime::{Runtime, Terminate},
    },
    value::Value as VrlValue,
};

/// A program that changes documents.
pub(super) struct Program {
    lane: Lane,
}

/// Why a program came to no end of its own.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    /// `abort`, with the reason it gave.
    Aborted(String),
    /// An error, or it took too long or too much.
    Failed(StageError),
}

impl Program {
    /// Compiles a program, or reports all of its errors as one problem.
    pub(super) fn compile(source: &str, field: &str, problems: &mut Problems<'_>) -> Option<Self> {
        let compiled = Compiled::program(source).map_err(|fault| fault.report(field, problems)).ok()?;
        Some(Self { lane: Lane::new(Arc::new(compiled)) })
    }

    /// Runs over a document. Unless it came to its end, the document is as it was.
    pub(super) fn run(&mut self, document: &mut Document) -> Result<(), Ended> {
        self.lane.run(document)?;
        self.lane.touched.put_back(document).map_err(Ended::Failed)
    }
}

impl Clone for Program {
    fn clone(&self) -> Self {
        Self { lane: Lane::new(Arc::clone(&self.lane.compiled)) }
    }
}

/// A program that says whether something holds for a document.
pub(crate) struct Predicate {
    lane: Lane,
}

impl Predicate {
    /// Compiles a predicate, or reports all of its errors as one problem.
    pub(crate) fn compile(source: &str, field: &str, problems: &mut Problems<'_>) -> Option<Self> {
        let compiled = Compiled::predicate(source).map_err(|fault| fault.report(field, problems)).ok()?;
        Some(Self { lane: Lane::new(Arc::new(compiled)) })
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// The predicate failed at run time.
    pub(crate) fn holds(&mut self, document: &Document) -> Result<bool, StageError> {
        match self.lane.run(document) {
            Ok(VrlValue::Boolean(yes)) => Ok(yes),
            Ok(other) => Err(StageError(format!("`when` gave {other}, neither true nor false"))),
            Err(Ended::Aborted(reason)) => Err(StageError(format!("`when` was aborted: {reason}"))),
            Err(Ended::Failed(error)) => Err(StageError(format!("`when`: {error}"))),
        }
    }
}

impl Clone for Predicate {
    fn clone(&self) -> Self {
        Self { lane: Lane::new(Arc::clone(&self.lane.compiled)) }
    }
}

/// What one lane needs to run a compiled program.
struct Lane {
    compiled: Arc<Compiled>,
    runtime: Runtime,
    touched: Touched,
    limits: Limits,
    /// The zone in which times without one are read: UTC, so that a program gives the same on every machine.
    zone: TimeZone,
}

impl Lane {
    fn new(compiled: Arc<Compiled>) -> Self {
        Self {
            touched: Touched::new(&compiled.scope),
            compiled,
            runtime: Runtime::default(),
            limits: Limits::STANDARD,
            zone: TimeZone::parse("UTC").unwrap_or_default(),
        }
    }

    fn run(&mut self, document: &Document) -> Result<VrlValue, Ended> {
        self.touched.take_from(document);
        let mut watch = Watch::start(self.limits);
        let result = self.runtime.resolve_with_control(&mut self.touched, &self.compiled.program, &self.zone, &mut watch);
        self.runtime.clear();
        result.map_err(|end| self.ended(end, watch))
    }

    fn ended(&self, end: Terminate, watch: Watch) -> Ended {
        match end {
            Terminate::Abort(ExpressionError::Abort { message, .. }) => Ended::Aborted(message.unwrap_or_else(|| "aborted".into())),
            Terminate::Interrupted => Ended::Failed(StageError(watch.reason())),
            Terminate::Abort(error) | Terminate::Error(error) => Ended::Failed(StageError(self.compiled.explain(&error))),
        }
    }
}
