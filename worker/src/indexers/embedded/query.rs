//! The query language of `penstock search`: what people type becomes a query of the index.

use super::{
    layout::{FIELDS, ID, Layout, TEXT, analyzer},
    range,
};
use std::ops::Bound;
use tantivy::{
    Index, Term,
    query::{
        AllQuery, BooleanQuery, BoostQuery, EmptyQuery, FuzzyTermQuery, InvertedIndexRangeQuery, Occur, Query, QueryParser, RangeQuery,
        TermQuery,
    },
    query_grammar::{Delimiter, UserInputAst, UserInputBound, UserInputLeaf, UserInputLiteral, parse_query_lenient},
    schema::IndexRecordOption,
};

/// A query that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// What is wrong and how to cure it.
    pub message: String,
    /// Where, as a position in the text, if it is known.
    pub at: Option<usize>,
}

impl QueryError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), at: None }
    }
}

/// A query, and the words in it, for showing where they stand.
pub(super) struct Parsed {
    pub query: Box<dyn Query>,
    pub words: Vec<String>,
}

/// Reads a query.
pub(super) fn parse(index: &Index, layout: &Layout, text: &str) -> Result<Parsed, QueryError> {
    let (tree, errors) = parse_query_lenient(text);
    if let Some(error) = errors.first() {
        let at = Some(error.pos.min(text.len()));
        return Err(QueryError { message: format!("{}; put special characters in double quotes", error.message), at });
    }
    let mut translator = Translator { layout, parser: QueryParser::for_index(index, vec![layout.text]), words: Vec::new() };
    let query = translator.translate(tree)?.ok_or_else(|| QueryError::new("the query has no words; `*` finds all documents"))?;
    Ok(Parsed { query, words: translator.words })
}

struct Translator<'a> {
    layout: &'a Layout,
    parser: QueryParser,
    words: Vec<String>,
}

type Translated = Result<Option<Box<dyn Query>>, QueryError>;

impl Translator<'_> {
    /// The query for a part; `None` if nothing of it can be searched for (a lone comma).
    fn translate(&mut self, tree: UserInputAst) -> Translated {
        match tree {
            UserInputAst::Boost(part, factor) => {
                let part = self.translate(*part)?;
                Ok(part.map(|query| Box::new(BoostQuery::new(query, factor.into_inner() as f32)) as Box<dyn Query>))
            }
            UserInputAst::Leaf(leaf) => self.leaf(*leaf),
            UserInputAst::Clause(parts) => {
                let mut clauses = Vec::with_capacity(parts.len());
                for (occur, part) in parts {
                    let words = self.words.len();
                    if let Some(query) = self.translate(part)? {
                        clauses.push((occur.unwrap_or(Occur::Must), query));
                    }
                    if occur == Some(Occur::MustNot) {
                        self.words.truncate(words);
                    }
                }
                if clauses.is_empty() {
                    return Ok(None);
                }
                if clauses.iter().all(|(occur, _)| *occur == Occur::MustNot) {
                    clauses.push((Occur::Must, Box::new(AllQuery)));
                }
                Ok(Some(Box::new(BooleanQuery::new(clauses))))
            }
        }
    }

    fn leaf(&mut self, leaf: UserInputLeaf) -> Translated {
        match leaf {
            UserInputLeaf::All => Ok(Some(Box::new(AllQuery))),
            UserInputLeaf::Literal(literal) => self.literal(literal),
            UserInputLeaf::Exists { field } => Ok(Some(self.exists(&field))),
            UserInputLeaf::Range { field, lower, upper } => self.range(field, lower, upper),
            UserInputLeaf::Set { field, elements } => {
                let mut choices = Vec::with_capacity(elements.len());
                for phrase in elements {
                    let literal =
                        UserInputLiteral { field_name: field.clone(), phrase, delimiter: Delimiter::None, slop: 0, prefix: false };
                    choices.extend(self.literal(literal)?);
                }
                Ok(Some(any_of(choices)))
            }
            UserInputLeaf::Regex { .. } => {
                Err(QueryError::new("regular expressions cannot be searched for; write the beginning of a word, as in `name:ket*`"))
            }
        }
    }

    fn literal(&mut self, mut literal: UserInputLiteral) -> Translated {
        self.note_words(&literal.phrase);
        let field = literal.field_name.take();
        if let (Delimiter::None, Some(begin)) = (literal.delimiter, literal.phrase.strip_suffix('*')) {
            let begin = begin.to_owned();
            return self.prefix(field.as_deref(), &begin);
        }
        if literal.delimiter == Delimiter::None && literal.phrase.contains('*') {
            let message =
                format!("in `{}` the `*` does not stand at the end; only beginnings of words can be searched for", literal.phrase);
            return Err(QueryError::new(message));
        }
        let exact_id = |phrase: &str| -> Box<dyn Query> {
            Box::new(TermQuery::new(Term::from_field_text(self.layout.id, phrase), IndexRecordOption::Basic))
        };
        match field.as_deref() {
            Some(ID) => Ok(Some(exact_id(&literal.phrase))),
            Some("id") => {
                let mut choices = vec![exact_id(&literal.phrase)];
                choices.extend(self.words(Some("id"), literal)?);
                Ok(Some(any_of(choices)))
            }
            field => self.words(field, literal),
        }
    }

    /// Words or a phrase in a field, or anywhere.
    fn words(&self, field: Option<&str>, mut literal: UserInputLiteral) -> Translated {
        literal.field_name = Some(target(field));
        self.build(UserInputLeaf::Literal(literal))
    }

    /// Words that begin like this.
    fn prefix(&self, field: Option<&str>, begin: &str) -> Translated {
        let starts_with = |term| Box::new(FuzzyTermQuery::new_prefix(term, 0, true)) as Box<dyn Query>;
        let by_id = || starts_with(Term::from_field_text(self.layout.id, begin));
        if field == Some(ID) {
            return Ok(Some(by_id()));
        }
        let words = tokens(begin);
        let in_words = match words.as_slice() {
            [] => None,
            [word] => Some(starts_with(self.term(field, word))),
            _ => {
                let literal = UserInputLiteral {
                    field_name: Some(target(field)),
                    phrase: begin.to_owned(),
                    delimiter: Delimiter::DoubleQuotes,
                    slop: 0,
                    prefix: true,
                };
                self.build(UserInputLeaf::Literal(literal))?
            }
        };
        if field == Some("id") {
            return Ok(Some(any_of(std::iter::once(by_id()).chain(in_words).collect())));
        }
        Ok(in_words)
    }

    /// Documents in which a field, or one below it, has a value.
    fn exists(&self, field: &str) -> Box<dyn Query> {
        // what is indexed of a field begins with its path and a 0, of the fields below it with its path and a 1
        let first = Term::from_field_json_path(self.layout.fields, field, true);
        let mut behind = first.clone();
        behind.truncate_value_bytes(first.len_bytes() - 1);
        behind.append_bytes(&[2]);
        Box::new(InvertedIndexRangeQuery::new(Bound::Included(first), Bound::Excluded(behind)))
    }

    fn range(&self, field: Option<String>, lower: UserInputBound, upper: UserInputBound) -> Translated {
        let Some(field) = field else {
            return Err(QueryError::new("a range needs a field, as in `price:>10` or `price:[10 TO 20}`"));
        };
        let (lower, upper) = range::alike(range::read(&field, lower)?, range::read(&field, upper)?)
            .ok_or_else(|| QueryError::new(format!("a range of `{field}` cannot go from a number to a time")))?;
        if [&lower, &upper].iter().all(|bound| matches!(bound, Bound::Unbounded)) {
            return Ok(Some(self.exists(&field)));
        }
        let path = Term::from_field_json_path(self.layout.ranges, &field, true);
        Ok(Some(Box::new(RangeQuery::new(lower.map(|value| value.term(&path)), upper.map(|value| value.term(&path))))))
    }

    /// A word in a field, or anywhere, as the index has it.
    fn term(&self, field: Option<&str>, word: &str) -> Term {
        match field {
            None => Term::from_field_text(self.layout.text, word),
            Some(path) => {
                let mut term = Term::from_field_json_path(self.layout.fields, path, true);
                term.append_type_and_str(word);
                term
            }
        }
    }

    fn build(&self, leaf: UserInputLeaf) -> Translated {
        let query = self.parser.build_query_from_user_input_ast(UserInputAst::Leaf(Box::new(leaf)));
        let query = query.map_err(|error| QueryError::new(error.to_string()))?;
        Ok((!query.is::<EmptyQuery>()).then_some(query))
    }

    fn note_words(&mut self, phrase: &str) {
        self.words.extend(tokens(phrase));
    }
}

/// The field of the index in which a field of the documents is searched.
fn target(field: Option<&str>) -> String {
    field.map_or_else(|| TEXT.to_owned(), |field| format!("{FIELDS}.{field}"))
}

fn tokens(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    analyzer().token_stream(text).process(&mut |token| words.push(token.text.clone()));
    words
}

fn any_of(mut choices: Vec<Box<dyn Query>>) -> Box<dyn Query> {
    if choices.len() == 1 { choices.remove(0) } else { Box::new(BooleanQuery::union(choices)) }
}
