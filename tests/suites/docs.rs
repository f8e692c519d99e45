//! The documentation, tried: every manifest in it is valid, every command gives what the page shows, every link leads somewhere.
//!
//! * A `yaml` block is a whole manifest, or the `stages:`, the `indexer:` or the `connectors:` of one.
//! * In a `console` block the lines after `$ ` are run, one after the other for the whole page, in a folder that holds a copy
//!   of `deploy/examples` at its place; `cargo run --` means the program. The lines below a command are what it prints, in
//!   order, on standard output or standard error; times may differ; `…` stands for lines left out, or for a part of a line.
//!   Below `$ echo $?` stands the exit code of the command before; without it the command must end with 0.
//!   A command that ends with `&` runs in the background as the next job of the page; `kill %1 %2` and `wait %1` are as in a shell.
//!   Pages that work over Kafka have a real broker, and topics of their own.
//! * `sh` blocks are not run.

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use penstock_tests::{
    penstock::{Answer, Running, Workdir},
    services::kafka::Kafka,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A code block of a page.
struct Block {
    language: String,
    /// Where its first line is.
    line: usize,
    text: String,
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All pages, as paths from the top of the repository.
fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).with_context(|| format!("failed to list {}", folder.display()))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "md") => pages.push(path),
                false => {}
            }
        }
    }
    pages.sort();
    ensure!(pages.len() > 10, "only these pages were found: {pages:?}");
    Ok(pages)
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(repository().join(page)).with_context(|| format!("failed to read {}", page.display()))
}

fn blocks(page: &Path) -> Result<Vec<Block>> {
    let text = read(page)?;
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(language), false) => {
                blocks.push(Block { language: language.trim().to_owned(), line: index + 2, text: String::new() });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => {
                let block = blocks.last_mut().context("an open block")?;
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    ensure!(!open, "{}: a block does not end", page.display());
    Ok(blocks)
}

/// A whole manifest around a part of one.
fn whole(text: &str) -> Result<String> {
    let kind =
        |kind: &str, spec: &str| format!("apiVersion: penstock.io/v1alpha1\nkind: {kind}\nmetadata: {{name: example}}\nspec:\n{spec}");
    let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
    let begins = |key: &str| text.lines().any(|line| line == key || line.starts_with(&format!("{key} ")));
    let mut pipeline = if begins("stages:") || begins("indexer:") { indented.clone() } else { String::new() };
    if !begins("indexer:") {
        pipeline.push_str("  indexer: {nop: {}}\n");
    }
    Ok(match text {
        text if text.contains("apiVersion:") => text.to_owned(),
        _ if begins("stages:") || begins("indexer:") => kind("Pipeline", &pipeline),
        _ if begins("connectors:") => kind("Pipeline", &pipeline) + "---\n" + &kind("IngestRun", &indented),
        _ => bail!("begin it with apiVersion, stages:, indexer: or connectors:"),
    })
}

#[test]
fn every_manifest_is_valid() -> Result<()> {
    let (workdir, mut names, mut faults) = (Workdir::new()?, Vec::new(), Vec::new());
    for page in pages()? {
        for block in blocks(&page)?.iter().filter(|block| block.language == "yaml") {
            let place = format!("{}:{}", page.display(), block.line);
            match whole(&block.text) {
                Ok(manifest) => {
                    names.push(format!("{}.yaml", place.replace('/', "_")));
                    workdir.write(&names[names.len() - 1], manifest)?;
                }
                Err(error) => faults.push(format!("{place}: {error}")),
            }
        }
    }
    for name in &names {
        let answer = workdir.penstock(["validate", name])?;
        if answer.code != Some(0) {
            faults.push(answer.out);
        }
    }
    assert!(names.len() > 10 && faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// A command of a console block, with what the page says that it prints.
struct Command {
    place: String,
    text: String,
    shown: Vec<String>,
}

fn commands(page: &Path) -> Result<Vec<Command>> {
    let mut commands: Vec<Command> = Vec::new();
    for block in blocks(page)?.iter().filter(|block| block.language == "console") {
        let place = format!("{}:{}", page.display(), block.line);
        ensure!(block.text.starts_with("$ "), "{place}: a console block begins with a command");
        for line in block.text.lines() {
            match line.strip_prefix("$ ") {
                Some(text) => commands.push(Command { place: place.clone(), text: text.into(), shown: Vec::new() }),
                None => commands.last_mut().context("a command")?.shown.push(line.into()),
            }
        }
    }
    Ok(commands)
}

/// How the program is called.
struct Call {
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
}

fn parse(text: &str) -> Result<Call> {
    let mut words: Vec<String> = Vec::new();
    let (mut quote, mut in_word) = (None, false);
    for char in text.chars() {
        match (quote, char) {
            (Some(open), _) if open == char => quote = None,
            (None, '\'' | '"') => {
                quote = Some(char);
                if !in_word {
                    words.push(String::new());
                    in_word = true;
                }
            }
            (None, ' ') => in_word = false,
            _ => {
                if !in_word {
                    words.push(String::new());
                    in_word = true;
                }
                words.last_mut().context("a word")?.push(char);
            }
        }
    }
    let mut variables = Vec::new();
    while let Some((name, value)) = words.first().and_then(|word| word.split_once('=')) {
        variables.push((name.to_owned(), value.to_owned()));
        words.remove(0);
    }
    let program = if words.starts_with(&["cargo".into(), "run".into(), "--".into()]) { 3 } else { 1 };
    ensure!(program == 3 || words.first().is_some_and(|word| word == "penstock"), "only penstock is run");
    Ok(Call { variables, arguments: words.split_off(program) })
}

/// A line without what differs from run to run: times, made-up ids, the width of columns.
fn steady(line: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.parse::<f64>() {
        Ok(_) if word.contains('.') => "0.0".to_owned(),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a line is what the page shows, where `…` may stand for any part of it.
fn is_as_shown(printed: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The first line of the page that is not printed in its place.
fn missing(shown: &[String], answer: &Answer) -> Option<String> {
    let printed: Vec<String> = answer.out.lines().chain(answer.err.lines()).map(steady).collect();
    let mut rest = printed.iter();
    let is_missing = |line: &&String| *line != "…" && !line.is_empty() && !rest.any(|printed| is_as_shown(printed, &steady(line)));
    shown.iter().find(is_missing).cloned()
}

#[test]
fn a_part_of_a_line_may_be_left_out() {
    assert!(is_as_shown("job 7 ends", "job 7 ends") && is_as_shown("job 7 ends", "job … ends") && is_as_shown("a b c d", "…b…d"));
    assert!(!is_as_shown("job 7 ended", "job … ends") && !is_as_shown("job 7 ends", "job 7") && !is_as_shown("a b", "…b…a…"));
}

/// A page while its commands are tried.
struct Trial {
    workdir: Workdir,
    variables: Vec<(String, String)>,
    /// What runs in the background; a job is gone once it was waited for.
    jobs: Vec<Option<Running>>,
}

impl Trial {
    fn of(page: &Path) -> Result<Self> {
        let mut variables = Vec::new();
        if commands(page)?.iter().any(|command| command.text.contains("examples/kafka")) {
            let name = page.file_stem().and_then(|name| name.to_str()).context("a page without a name")?;
            variables.push(("KAFKA".to_owned(), Kafka::shared()?.bootstrap()));
            variables.push(("TOPIC_PREFIX".to_owned(), format!("docs-{name}.")));
        }
        Ok(Self { workdir: Workdir::with_copy_of("deploy/examples")?, variables, jobs: Vec::new() })
    }

    /// Does what a line says; the answer of what has ended by it.
    fn run(&mut self, text: &str) -> Result<Option<Answer>> {
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["kill", jobs @ ..] => {
                for job in jobs {
                    self.job(job)?.as_ref().context("the job has ended")?.signal(Signal::SIGTERM)?;
                }
                Ok(None)
            }
            ["wait", job] => Ok(Some(self.job(job)?.take().context("the job has ended")?.wait()?)),
            [command @ .., "&"] => {
                let running = self.start(&command.join(" "))?;
                self.jobs.push(Some(running));
                Ok(None)
            }
            _ => Ok(Some(self.start(text)?.wait()?)),
        }
    }

    fn job(&mut self, name: &str) -> Result<&mut Option<Running>> {
        let number: usize = name.strip_prefix('%').context("a job is %1, %2, …")?.parse()?;
        self.jobs.get_mut(number.wrapping_sub(1)).context("there is no such job")
    }

    fn start(&self, text: &str) -> Result<Running> {
        let Call { variables, arguments } = parse(text)?;
        let variables: Vec<_> = self.variables.iter().chain(&variables).map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.workdir.start(arguments.iter().map(String::as_str), &variables)
    }
}

#[test]
fn every_command_gives_what_the_page_shows() -> Result<()> {
    let (mut faults, mut tried) = (Vec::new(), 0);
    for page in pages()? {
        let mut trial = Trial::of(&page)?;
        let mut before: Option<(String, Answer)> = None;
        for Command { place, text, shown } in commands(&page)? {
            if text == "echo $?" {
                let (_, answer) = before.take().with_context(|| format!("{place}: an exit code of what?"))?;
                ensure!(shown == [answer.code.unwrap_or(-1).to_string()], "{place}: the exit code is {:?}, not {shown:?}", answer.code);
                continue;
            }
            if let Some((command, answer)) = before.take().filter(|(_, answer)| answer.code != Some(0)) {
                faults.push(format!("{command}: ended with {:?}: {}{}", answer.code, answer.out, answer.err));
            }
            let Some(answer) = trial.run(&text).with_context(|| format!("{place}: {text}"))? else { continue };
            if let Some(line) = missing(&shown, &answer) {
                faults.push(format!("{place}: {text}\ndoes not print\n{line}\nbut\n{}{}", answer.out, answer.err));
            }
            tried += 1;
            before = Some((format!("{place}: {text}"), answer));
        }
        if let Some((command, answer)) = before.filter(|(_, answer)| answer.code != Some(0)) {
            faults.push(format!("{command}: ended with {:?}: {}{}", answer.code, answer.out, answer.err));
        }
    }
    assert!(tried > 5 && faults.is_empty(), "{}", faults.join("\n\n"));
    Ok(())
}

/// The targets of the links of a page that lead to files.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|after| Some(after.split_once(')')?.0));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// A heading as the fragment of a link.
fn fragment(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char)).collect::<String>().replace(' ', "-")
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() -> Result<()> {
    let mut faults = Vec::new();
    for page in pages()? {
        let text = read(&page)?;
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.parent().unwrap_or(Path::new(""));
            let target = if file.is_empty() { page.clone() } else { folder.join(file) };
            let found = repository().join(&target).exists();
            let has_heading =
                || -> Result<bool> { Ok(read(&target)?.lines().any(|line| line.starts_with('#') && fragment(line) == heading)) };
            if !found || (!heading.is_empty() && !has_heading()?) {
                faults.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
}
