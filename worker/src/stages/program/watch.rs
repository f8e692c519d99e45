//! Ends a program that takes too long or too much. Asked by VRL before every expression.

use crate::{memory::Meter, wording::Bytes};
use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};
use vrl::compiler::runtime::ExecutionControl;

/// So many steps of a program pass between two looks at the clock.
const STEPS_PER_LOOK: u32 = 4096;

/// What a program may take for one document.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) time: Duration,
    /// Beside what it was given.
    pub(super) memory: u64,
}

impl Limits {
    pub(super) const STANDARD: Self = Self { time: Duration::from_secs(10), memory: 256 << 20 };
}

/// Watches one run of a program. Between two looks at the memory is one expression, and no expression can multiply what it
/// takes without bounds; the clock is read only while a program takes many steps.
pub(super) struct Watch {
    limits: Limits,
    memory: Meter,
    steps: u32,
    first_look: Option<Instant>,
    exceeded: Option<String>,
}

impl Watch {
    pub(super) fn start(limits: Limits) -> Self {
        Self { limits, memory: Meter::start(), steps: 0, first_look: None, exceeded: None }
    }

    /// Why the program was stopped.
    pub(super) fn reason(self) -> String {
        self.exceeded.unwrap_or_else(|| "the program was stopped".into())
    }

    fn stop(&mut self, limit: impl std::fmt::Display) -> ControlFlow<()> {
        self.exceeded = Some(format!("the program was stopped: it took more than {limit}"));
        ControlFlow::Break(())
    }
}

impl ExecutionControl for Watch {
    fn checkpoint(&mut self) -> ControlFlow<()> {
        if self.memory.held() > self.limits.memory {
            return self.stop(format_args!("{} of memory", Bytes(self.limits.memory as usize)));
        }
        self.steps = self.steps.wrapping_add(1);
        if !self.steps.is_multiple_of(STEPS_PER_LOOK) {
            return ControlFlow::Continue(());
        }
        let first_look = *self.first_look.get_or_insert_with(Instant::now);
        if first_look.elapsed() <= self.limits.time {
            return ControlFlow::Continue(());
        }
        let limit = self.limits.time;
        self.stop(format_args!("{limit:?}"))
    }
}
