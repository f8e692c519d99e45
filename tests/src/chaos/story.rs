//! What happened in a schedule, for who has to understand a failure.

use super::plan::Part;
use crate::penstock::Answer;
use std::{fmt, time::Instant};

/// Lines of a process that are kept.
const LINES: usize = 60;

/// What happened, in order.
pub struct Story {
    begun: Instant,
    lines: Vec<String>,
}

impl Story {
    /// It begins now.
    pub fn new() -> Self {
        Self { begun: Instant::now(), lines: Vec::new() }
    }

    /// Something happened.
    pub fn add(&mut self, what: impl fmt::Display) {
        self.lines.push(format!("{:7.3} {what}", self.begun.elapsed().as_secs_f64()));
    }

    /// A process has ended.
    pub fn ended(&mut self, part: Part, answer: &Answer) {
        self.said(part, &format!("ended with {:?}", answer.code), &answer.err);
    }

    /// A process said something.
    pub fn said(&mut self, part: Part, how: &str, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let last: Vec<String> = lines[lines.len().saturating_sub(LINES)..].iter().map(|line| format!("\n          | {line}")).collect();
        self.add(format!("{part:?} {how}{}", last.concat()));
    }
}

impl Default for Story {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}
