//! What the reader of a report sees.

use super::yaml::Place;
use crate::wording::counted;
use serde::Serialize;
use std::fmt;

/// One problem: where, which field, what is wrong and how to cure it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, as it was given.
    pub file: String,
    /// Line and column. Nothing if the file as a whole is meant.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// Path of the field; empty if the document as a whole is meant.
    pub path: String,
    /// What is wrong and how to cure it. May have several lines.
    pub message: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub fn of_file(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), place: None, path: String::new(), message: message.into() }
    }

    /// `FILE:LINE:COLUMN`, without what is not known.
    pub fn location(&self) -> String {
        match self.place {
            Some(Place { line, column }) => format!("{}:{line}:{column}", self.file),
            None => self.file.clone(),
        }
    }
}

/// `FILE:LINE:COLUMN: PATH: MESSAGE`; further lines of the message are indented.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location())?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message.trim_end().replace('\n', "\n    "))
    }
}

/// All problems of all files, in the order of files and lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The problems; at least one.
    pub problems: Vec<Problem>,
}

impl Report {
    /// `10 problems in 1 file`.
    pub fn summary(&self) -> String {
        let mut files: Vec<&str> = self.problems.iter().map(|problem| problem.file.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        format!("{} in {}", counted(self.problems.len() as u64, "problem"), counted(files.len() as u64, "file"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        f.write_str(&self.summary())
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_lines_of_a_message_are_indented() {
        let place = Some(Place { line: 3, column: 7 });
        let problem = Problem { file: "a.yaml".into(), place, path: "spec.x".into(), message: "wrong\nhere\n".into() };
        assert_eq!(problem.to_string(), "a.yaml:3:7: spec.x: wrong\n    here");
        assert_eq!(Problem::of_file("a.yaml", "is empty").to_string(), "a.yaml: is empty");
    }

    #[test]
    fn the_summary_counts_problems_and_files() {
        let of = |file: &str| Problem::of_file(file, "x");
        assert_eq!(Report { problems: vec![of("a"), of("b"), of("a")] }.summary(), "3 problems in 2 files");
        assert_eq!(Report { problems: vec![of("a")] }.summary(), "1 problem in 1 file");
    }
}
