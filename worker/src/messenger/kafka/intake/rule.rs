//! The rules that keep documents, order and counts, by name, so that a test can switch one off and show what breaks.

/// A rule of the intake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A takeover raises the tenure.
    TenureGrows,
    /// No record starts before the takeover is committed.
    TakeoverFirst,
    /// Only what all records before are done with is committed.
    Contiguous,
    /// Records of lower generations are skipped.
    Filter,
    /// The filter's memory travels with the offset.
    FilterTravels,
    /// The limit is committed ahead, and no record at or beyond it starts.
    Window,
    /// A suspect starts only when its mark is committed.
    MarkFirst,
    /// Nothing runs beside a suspect.
    Alone,
    /// The commit that marks a suspect clears the mark of the one before.
    ClearWithMark,
    /// A condemned record waits aside until another one has passed.
    SetAside,
}

/// The rules that are followed: all of them, but in a test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    #[cfg(test)]
    pub off: Option<Rule>,
}

impl Rules {
    #[cfg(test)]
    pub(super) fn follows(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    #[cfg(not(test))]
    pub(super) fn follows(self, _: Rule) -> bool {
        true
    }
}
