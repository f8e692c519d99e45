//! `penstock search`: finds documents in an index that a run has written.

use super::Exit;
use crate::{
    document::{Fields, Value},
    indexers::embedded::{Found, Hit, QueryError, Search as Index, SearchError},
};
use anyhow::Context;
use clap::Args;
use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

const EXAMPLES: &str = "\
Examples:
  penstock search ./out/index kettle
  penstock search ./out/index 'name:kettle price:>20'
  penstock search ./out/index 'category:garden -hose' --json --limit 100

Queries:
  steel kettle            all of these words, in any field, in upper or lower case
  steel OR iron           one of them; AND, NOT and ( ) work as well; -word leaves out
  \"steel kettle\"          the words next to each other; \"steel ket\"* for a beginning
  ket*                    words that begin like this
  name:kettle             a word in a field; author.name:x below another; maker\\ name:x
  name: IN [rake hoe]     one of these words
  price:12  new:true      a number or a boolean
  price:>12  price:[10 TO 20}   a range: [ ] with its ends, { } without; > >= < <= ; * is no bound
                          (of numbers: a pipeline makes them of texts, `.price = to_float!(.price)`)
  at:>=2024-05-01         a day, or a point in time: 2024-05-01T10:00:00Z
  price:*                 the field is there
  id:p-1  id:p-*          the document of that id, or of ids that begin like this
  *                       all documents
  name:kettle^2           counts double for the order of the hits

The exit code is 0 also if nothing was found, 2 for a query without sense, 69 if there is no index.";

/// Characters of a value that are shown.
const SHOWN: usize = 160;

/// Arguments of `penstock search`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Search {
    /// Directory of the index: the `path` of an `embedded` indexer.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// What to look for.
    #[arg(allow_hyphen_values = true)]
    query: String,
    /// How many documents are shown at most, best first.
    #[arg(long, short = 'n', default_value_t = 10)]
    limit: usize,
    /// Print one JSON object a document: id, score and document.
    #[arg(long)]
    json: bool,
    /// Print nothing but the number of documents.
    #[arg(long, conflicts_with = "json")]
    count: bool,
}

impl Search {
    pub(super) fn execute(self) -> anyhow::Result<Exit> {
        let limit = if self.count { 0 } else { self.limit };
        let found = Index::open(&self.directory).map_err(SearchError::from).and_then(|index| index.find(&self.query, limit));
        match found {
            Ok(found) => {
                let mut out = BufWriter::new(io::stdout().lock());
                self.print(&found, &mut out).and_then(|()| out.flush()).context("failed to print what was found")?;
                Ok(Exit::Complete)
            }
            Err(SearchError::Query(error)) => {
                writeln!(io::stderr(), "error: {}", point_at(&self.query, &error)).context("failed to print the error")?;
                Ok(Exit::Usage)
            }
            Err(SearchError::Open(error)) => {
                writeln!(io::stderr(), "error: {:#}", anyhow::Error::from(error)).context("failed to print the error")?;
                Ok(Exit::Unreachable)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn print(&self, found: &Found, out: &mut impl Write) -> io::Result<()> {
        if self.count {
            return writeln!(out, "{}", found.count);
        }
        if self.json {
            return found.hits.iter().try_for_each(|hit| print_json(hit, out));
        }
        let documents = if found.count == 1 { "document" } else { "documents" };
        match found.hits.len() < found.count {
            true => writeln!(out, "{} {documents}, the best {}:", found.count, found.hits.len())?,
            false => writeln!(out, "{} {documents}", found.count)?,
        }
        found.hits.iter().try_for_each(|hit| print_hit(hit, &found.words, out))
    }
}

/// The message, with a mark below the place in the query.
fn point_at(query: &str, error: &QueryError) -> String {
    let Some(at) = error.at else { return format!("query: {error}") };
    let before = query
        .chars()
        .scan(0, |bytes, char| {
            *bytes += char.len_utf8();
            Some(*bytes)
        })
        .take_while(|end| *end <= at)
        .count();
    format!("query, at character {}: {error}\n  {query}\n  {}^", before + 1, " ".repeat(before))
}

fn print_json(hit: &Hit, out: &mut impl Write) -> io::Result<()> {
    let line = serde_json::json!({"id": hit.id, "score": hit.score, "document": hit.fields});
    writeln!(out, "{line}")
}

fn print_hit(hit: &Hit, words: &[String], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{}  (score {:.2})", one_line(&hit.id), hit.score)?;
    print_fields("", &hit.fields, words, out)
}

fn print_fields(path: &str, fields: &Fields, words: &[String], out: &mut impl Write) -> io::Result<()> {
    for (key, value) in fields.iter() {
        let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
        let text = match value {
            Value::Object(fields) => {
                print_fields(&path, fields, words, out)?;
                continue;
            }
            Value::Text(text) => text.to_string(),
            value => serde_json::to_string(value)?,
        };
        writeln!(out, "  {}: {}", one_line(&path), snippet(&one_line(&text), words))?;
    }
    Ok(())
}

/// Line breaks and what else would disturb a terminal become spaces.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A long text around the first word of the query in it.
fn snippet(text: &str, words: &[String]) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= SHOWN {
        return text.to_owned();
    }
    // one lower case character for each, so that positions stay what they are
    let lower: Vec<char> = chars.iter().map(|char| char.to_lowercase().next().unwrap_or(*char)).collect();
    let position = |word: &String| {
        let word: Vec<char> = word.chars().collect();
        lower.windows(word.len().max(1)).position(|window| window == word)
    };
    let first = words.iter().filter_map(position).min().unwrap_or(0);
    let begin = first.saturating_sub(SHOWN / 3).min(chars.len() - SHOWN);
    let end = begin + SHOWN;
    let shown: String = chars[begin..end].iter().collect();
    let (before, after) = (if begin > 0 { "…" } else { "" }, if end < chars.len() { "…" } else { "" });
    format!("{before}{}{after}", shown.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(json: bool, count: bool) -> Search {
        Search { directory: PathBuf::new(), query: String::new(), limit: 10, json, count }
    }

    fn printed(command: &Search, count: usize) -> String {
        let fields = Fields::from_json(br#"{"name":"Steel\nKettle","price":39.9,"author":{"name":"Ann"},"tags":["a",1]}"#).expect("fields");
        let found = Found { count, hits: vec![Hit { id: "p-1".into(), score: 1.2345, fields }], words: vec!["kettle".into()] };
        let mut out = Vec::new();
        command.print(&found, &mut out).expect("printed");
        String::from_utf8(out).expect("utf-8")
    }

    #[test]
    fn hits_are_shown_with_their_fields() {
        let hit = "\np-1  (score 1.23)\n  name: Steel Kettle\n  price: 39.9\n  author.name: Ann\n  tags: [\"a\",1]\n";
        assert_eq!(printed(&command(false, false), 1), format!("1 document\n{hit}"));
        assert_eq!(printed(&command(false, false), 12), format!("12 documents, the best 1:\n{hit}"));
        assert_eq!(printed(&command(false, true), 12), "12\n");
    }

    #[test]
    fn json_has_one_line_a_document() {
        let text = printed(&command(true, false), 12);
        let hit: serde_json::Value = serde_json::from_str(&text).expect("one line of JSON");
        assert_eq!((&hit["id"], &hit["document"]["author"]["name"]), (&"p-1".into(), &"Ann".into()));
    }

    #[test]
    fn a_bad_query_is_marked_at_its_place() {
        let error = QueryError { message: "expected word".into(), at: Some(7) };
        assert_eq!(point_at("nämé:", &error), "query, at character 6: expected word\n  nämé:\n       ^");
    }

    #[test]
    fn a_long_text_is_shown_around_the_word_that_was_found() {
        let text = format!("{}Kettle{}", "ä ".repeat(500), " ö".repeat(500));
        let shown = snippet(&text, &["kettle".into(), "zz".into()]);
        assert!(shown.contains("Kettle") && shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        assert!(shown.chars().count() <= SHOWN + 2);
        assert_eq!(snippet("short", &[]), "short");
        assert!(snippet(&text, &[]).starts_with('ä'));
    }
}
