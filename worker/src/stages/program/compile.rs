//! Compiling VRL: what a program may do, which fields it touches, and how its errors are told.

use super::{depth::depth, functions, indexes::largest_index, rewrite::with_guards};
use crate::problem::Problems;
use std::collections::BTreeMap;
use vrl::{
    compiler::{CompileConfig, Compiler, ExpressionError, Program, TypeState, compile_with_external, state::ExternalEnv},
    diagnostic::{Diagnostic, DiagnosticList, DiagnosticMessage, Formatter, Label},
    path::{OwnedSegment, OwnedTargetPath, PathPrefix},
    value::{KeyString, Kind, kind::Collection},
};

/// Brackets, operators and `else` within each other. Each level costs stack, here and in every lane.
const DEEPEST_NESTING: usize = 250;

/// The compiler and the runtime make all elements up to an index that a program names.
pub(super) const LARGEST_INDEX: u64 = 9_999;

/// The compiler needs many times the stack that the program needs when it runs.
const COMPILER_STACK: usize = 64 << 20;

/// A program, with what must be known to run it.
pub(super) struct Compiled {
    pub(super) program: Program,
    pub(super) scope: Scope,
    source: String,
}

/// Which part of a document a program touches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scope {
    pub(super) fields: Fields,
    /// It asks for `%id` or `%parent_id`.
    pub(super) asks_for_ids: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fields {
    /// These top level fields.
    Named(Vec<KeyString>),
    /// The document as a whole.
    All,
}

#[derive(Clone, Copy, PartialEq)]
enum ProgramKind {
    Program,
    Predicate,
}

/// Why a text is no program.
#[derive(Debug, PartialEq)]
pub(super) struct ProgramFault {
    pub(super) message: String,
    pub(super) inside: Option<(usize, usize)>,
}

impl ProgramFault {
    pub(super) fn report(self, field: &str, problems: &mut Problems<'_>) {
        match self.inside {
            Some(place) => problems.add_inside(field, place, self.message),
            None => problems.add(field, self.message),
        }
    }
}

impl Compiled {
    /// A program that may change the document's fields, but not its ids.
    pub(super) fn program(source: &str) -> Result<Self, ProgramFault> {
        compile(source, ProgramKind::Program)
    }

    /// A program that changes nothing and gives true or false.
    pub(super) fn predicate(source: &str) -> Result<Self, ProgramFault> {
        compile(source, ProgramKind::Predicate)
    }

    /// An error at run time, with the line of the program in which it happened.
    pub(super) fn explain(&self, error: &ExpressionError) -> String {
        let mut message = error.message();
        let labels = error.labels();
        let labelled = labels.iter().find(|label| label.primary).or(labels.first()).map(|label| label.span.start());
        let mut start = labelled;
        // a call within a call tells of both
        while let Some((at, text)) = split_span(&message) {
            start = start.or(Some(at));
            message = text;
        }
        let Some(start) = start.filter(|start| self.source.is_char_boundary(*start)) else { return message };
        let (line, _) = place(&self.source, start);
        let text = self.source.lines().nth(line - 1).unwrap_or_default().trim();
        let text: String = if text.chars().count() > 80 { text.chars().take(79).chain(['…']).collect() } else { text.to_owned() };
        format!("line {line} of the program, `{text}`: {message}")
    }
}

/// Takes the span out of `function call error for "to_float" at (9:26): …`.
fn split_span(message: &str) -> Option<(usize, String)> {
    let (before, rest) = message.split_once(" at (")?;
    let (span, after) = rest.split_once(')')?;
    let (start, end) = span.split_once(':')?;
    end.parse::<usize>().ok()?;
    Some((start.parse().ok()?, format!("{}{after}", before.replacen("function call error for ", "", 1))))
}

fn compile(source: &str, kind: ProgramKind) -> Result<Compiled, ProgramFault> {
    if depth(source) > DEEPEST_NESTING {
        let message = format!(
            "more than {DEEPEST_NESTING} brackets, operators or branches within each other; use an object as a table, or several stages"
        );
        return Err(ProgramFault { message, inside: None });
    }
    if let Some((index, at)) = largest_index(source).filter(|(index, _)| *index > LARGEST_INDEX) {
        let message =
            format!("the index {index} is beyond {LARGEST_INDEX}: a list would be filled up to it; use an object, or a smaller index");
        return Err(ProgramFault { message, inside: Some(place(source, at)) });
    }
    std::thread::scope(|scope| {
        let compiler = std::thread::Builder::new().name("compiler".into()).stack_size(COMPILER_STACK);
        match compiler.spawn_scoped(scope, || compile_here(source, kind)).map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(compiled)) => compiled,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(ProgramFault { message: format!("failed to start a thread for the compiler: {error}"), inside: None }),
        }
    })
}

fn compile_here(source: &str, kind: ProgramKind) -> Result<Compiled, ProgramFault> {
    let compiled = compile_with_external(source, &functions::for_users(), &environment(), config(kind));
    let program = compiled.map_err(|errors| fault(source, kind, errors))?.program;
    if kind == ProgramKind::Predicate {
        must_be_boolean(&program)?;
    }
    let program = compile_bounded(source, kind)?;
    let scope = scope(source, &program);
    Ok(Compiled { program, scope, source: source.to_owned() })
}

/// The same program with guards, so that no expression of it can use up the memory. That the user's own compiles is known.
fn compile_bounded(source: &str, kind: ProgramKind) -> Result<Program, ProgramFault> {
    let program = vrl::parser::parse(source).map_err(|error| ProgramFault { message: error.to_string(), inside: None })?;
    let state = TypeState { local: Default::default(), external: environment() };
    match Compiler::compile(&functions::bounded(), with_guards(program), &state, config(kind)) {
        Ok(compiled) => Ok(compiled.program),
        Err(errors) => Err(fault(source, kind, errors)),
    }
}

fn config(kind: ProgramKind) -> CompileConfig {
    let mut config = CompileConfig::default();
    match kind {
        ProgramKind::Program => config.set_read_only_path(OwnedTargetPath::metadata_root(), true),
        ProgramKind::Predicate => config.set_read_only(),
    }
    config
}

fn must_be_boolean(program: &Program) -> Result<(), ProgramFault> {
    let result = program.final_type_info().result;
    if result.is_boolean() {
        return Ok(());
    }
    let message = format!(
        "a predicate must give true or false for every document, this one gives {}; compare, for example .flag == true",
        result.kind()
    );
    Err(ProgramFault { message, inside: None })
}

/// The types that a program starts with: fields are JSON, `%id` is text, `%parent_id` text or null.
fn environment() -> ExternalEnv {
    let ids = BTreeMap::from([("id".into(), Kind::bytes()), ("parent_id".into(), Kind::bytes().or_null())]);
    ExternalEnv::new_with_kind(Kind::object(Collection::json()), Kind::object(Collection::from_parts(ids, Kind::undefined())))
}

fn scope(source: &str, program: &Program) -> Scope {
    let info = program.info();
    let mut names: Vec<KeyString> = Vec::new();
    // `unnest` reads the whole document, whichever path it is given
    let mut is_all = source.contains("unnest");
    let mut asks_for_ids = false;
    for path in info.target_queries.iter().chain(&info.target_assignments) {
        match (path.prefix, path.path.segments.first()) {
            (PathPrefix::Metadata, _) => asks_for_ids = true,
            (PathPrefix::Event, Some(OwnedSegment::Field(name))) if names.contains(name) => {}
            (PathPrefix::Event, Some(OwnedSegment::Field(name))) => names.push(name.clone()),
            (PathPrefix::Event, _) => is_all = true,
        }
    }
    Scope { fields: if is_all { Fields::All } else { Fields::Named(names) }, asks_for_ids }
}

fn fault(source: &str, kind: ProgramKind, errors: DiagnosticList) -> ProgramFault {
    let what = match kind {
        ProgramKind::Program => "program",
        ProgramKind::Predicate => "predicate",
    };
    let problems: Vec<Diagnostic> = errors.iter().filter(|diagnostic| diagnostic.is_problem()).cloned().collect();
    let start = |diagnostic: &Diagnostic| first_label(&diagnostic.labels).map_or(usize::MAX, |label| label.span.start());
    let first = problems.iter().min_by_key(|diagnostic| start(diagnostic));
    let headline = first.map_or("unknown error", |diagnostic| diagnostic.message());
    let more = match problems.len() {
        0 | 1 => String::new(),
        2 => " (and one more error)".into(),
        count => format!(" (and {} more errors)", count - 1),
    };
    let inside = first.and_then(|diagnostic| first_label(&diagnostic.labels)).map(|label| place(source, label.span.start()));
    let details = Formatter::new(source, problems.clone()).to_string();
    ProgramFault { message: format!("the {what} does not compile: {headline}{more}\n{}", details.trim_matches('\n')), inside }
}

fn first_label(labels: &[Label]) -> Option<&Label> {
    labels.iter().filter(|label| label.primary).min_by_key(|label| label.span.start()).or(labels.first())
}

/// Line and column of a byte, from 1; columns count characters.
fn place(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
