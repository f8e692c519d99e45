//! A problem in a manifest: where, what is wrong, how to cure it. Components report many at once.

/// A problem of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Path of the field, for example `spec.stages[2].remap.source`.
    pub path: String,
    /// Line and column inside the text value, from 1, where the fault is inside a longer text such as a program.
    pub inside: Option<(usize, usize)>,
    /// What is wrong and how to cure it. May have several lines.
    pub message: String,
}

/// Collects problems below a path.
#[derive(Debug)]
pub struct Problems<'a> {
    prefix: String,
    found: &'a mut Vec<FieldProblem>,
}

impl<'a> Problems<'a> {
    /// Collects into `found`, for fields below `path`.
    pub fn new(path: impl Into<String>, found: &'a mut Vec<FieldProblem>) -> Self {
        Self { prefix: path.into(), found }
    }

    /// The same collection for the fields below another one: `stages[2]`, `remap`.
    pub fn below(&mut self, field: &str) -> Problems<'_> {
        Problems { prefix: join(&self.prefix, field), found: self.found }
    }

    /// Reports a problem of a field; an empty name means the object itself.
    pub fn add(&mut self, field: &str, message: impl Into<String>) {
        self.found.push(FieldProblem { path: join(&self.prefix, field), inside: None, message: message.into() });
    }

    /// Reports a problem at a line and column inside the text of a field, both from 1.
    pub fn add_inside(&mut self, field: &str, inside: (usize, usize), message: impl Into<String>) {
        self.found.push(FieldProblem { path: join(&self.prefix, field), inside: Some(inside), message: message.into() });
    }
}

fn join(prefix: &str, field: &str) -> String {
    match (prefix, field) {
        (prefix, "") => prefix.to_owned(),
        ("", field) => field.to_owned(),
        (prefix, field) if field.starts_with('[') => format!("{prefix}{field}"),
        (prefix, field) => format!("{prefix}.{field}"),
    }
}
