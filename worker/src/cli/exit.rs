//! Exit codes: what scripts, the operator and `podFailurePolicy` rely on.

use std::process::{ExitCode, Termination};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; for a run: every document is accounted for and its failure policy is kept.
    Complete,
    /// The run failed.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// The configuration is invalid; nothing was opened, created or changed.
    Invalid,
    /// The backend or the broker cannot be reached.
    Unreachable,
    /// An error of the program itself, or it was stuck.
    Internal,
    /// Interrupted: work remains.
    Interrupted,
    /// A newer publisher has taken over.
    Superseded,
    /// A second SIGINT ended the process at once.
    SecondInterrupt,
    /// A second SIGTERM ended the process at once.
    SecondTerminate,
}

impl Exit {
    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Invalid => 64,
            Self::Unreachable => 69,
            Self::Internal => 70,
            Self::Interrupted => 75,
            Self::Superseded => 76,
            Self::SecondInterrupt => 130,
            Self::SecondTerminate => 143,
        }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.code())
    }
}
