//! How deep a program nests, told from its text.
//!
//! The compiler and the runtime of VRL call themselves for each level, and no guard of theirs stops a program that uses up
//! the stack. So it is refused before that: an estimate on the safe side, from brackets, chains of operators and of `else`.

/// The deepest nesting of a program: brackets within brackets, and in each of them the operators of one statement.
pub(super) fn depth(source: &str) -> usize {
    let mut scan = Scan { rest: source, before: ' ', follows_else: false, levels: vec![Level::default()], deepest: 0 };
    while scan.step() {}
    scan.deepest
}

struct Scan<'a> {
    rest: &'a str,
    /// The character before the rest.
    before: char,
    follows_else: bool,
    /// The statement at hand, and those around the brackets that are open.
    levels: Vec<Level>,
    deepest: usize,
}

/// One statement so far.
#[derive(Default)]
struct Level {
    /// How many `else` are behind its `if`.
    branches: usize,
    /// How many operators are in the branch at hand.
    operators: usize,
}

impl Scan<'_> {
    /// Passes over one token; says whether there was one.
    fn step(&mut self) -> bool {
        let Some(c) = self.rest.chars().next() else { return false };
        match c {
            '#' => self.skip(self.rest.find('\n').unwrap_or(self.rest.len())),
            '"' => self.skip(literal_end(self.rest, '"')),
            '\'' if matches!(self.before, 'r' | 's' | 't') => self.skip(literal_end(self.rest, '\'')),
            '(' | '[' | '{' => {
                self.levels.push(Level::default());
                self.skip(1);
            }
            ')' | ']' | '}' => {
                if self.levels.len() > 1 {
                    self.levels.pop();
                }
                self.skip(1);
            }
            ';' => self.begin_statement(1),
            '=' if !self.rest.starts_with("==") => self.begin_statement(1),
            // the mark of a call that may fail, as in `to_int!(.a)`
            '!' if is_word(self.before) && !self.rest.starts_with("!=") => self.skip(1),
            '=' | '!' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '|' | '&' | '?' => self.operator(c),
            c if is_word(c) => self.word(),
            c => self.skip(c.len_utf8()),
        }
        true
    }

    fn word(&mut self) {
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        match &self.rest[..end] {
            "else" => self.change(|level| *level = Level { branches: level.branches + 1, operators: 0 }),
            "if" if !self.follows_else => self.change(|level| *level = Level::default()),
            _ => {}
        }
        self.follows_else = &self.rest[..end] == "else";
        self.skip(end);
    }

    fn operator(&mut self, c: char) {
        self.change(|level| level.operators += 1);
        let is_double = self.rest[1..].starts_with([c, '=']) && c != '!' && c != '-';
        self.skip(if is_double || self.rest.starts_with("!=") { 2 } else { 1 });
    }

    fn begin_statement(&mut self, length: usize) {
        self.change(|level| *level = Level::default());
        self.skip(length);
    }

    fn change(&mut self, change: impl FnOnce(&mut Level)) {
        if let Some(level) = self.levels.last_mut() {
            change(level);
        }
    }

    fn skip(&mut self, length: usize) {
        let (passed, rest) = self.rest.split_at(length);
        self.before = passed.chars().next_back().unwrap_or(self.before);
        self.rest = rest;
        let depth = self.levels.len() - 1 + self.levels.iter().map(|level| level.branches + level.operators).sum::<usize>();
        self.deepest = self.deepest.max(depth);
    }
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the literal ends that begins the text: behind the next quote that is not escaped.
pub(super) fn literal_end(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_operators_and_else_add_up_within_one_statement() {
        for (source, expected) in [
            ("", 0),
            (".a = ((1))", 2),
            (".a = 1 + 2 + 3", 2),
            (".a = !!true", 2),
            ("if .a == 1 { .b = 1 } else if .a == 2 { .b = 2 } else { .b = 3 }", 3),
            (".a = to_int!(.b)", 1),
            (".a = \"((((\" # ((((\n.b = r'\\((((\\'('", 0),
        ] {
            assert_eq!(depth(source), expected, "{source}");
        }
    }

    #[test]
    fn statements_one_after_the_other_do_not_add_up() {
        for statement in [".a = .b + 1\n", "del(.x); ", "if .a == 1 { .b = 2 }\n", ".a, err = to_int(.b)\n", ".a = .a ?? 1\n"] {
            assert!(depth(&statement.repeat(500)) < 6, "{statement} {}", depth(&statement.repeat(500)));
        }
    }

    #[test]
    fn chains_are_as_deep_as_they_are_long() {
        for (head, link) in [(".a = ", "1 + "), (".a = ", "!"), (".a = ", "true || "), ("if .a == 1 {} ", "else if .a == 2 { .b = 2 } ")] {
            assert!(depth(&format!("{head}{}", link.repeat(1000))) >= 1000, "{link}");
        }
    }
}
