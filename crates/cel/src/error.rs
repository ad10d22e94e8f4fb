//! What is wrong with an expression, where, and how that is shown: a line of text and a pointer into it.

use std::fmt::{self, Write as _};

/// How many errors are kept and shown; the rest is counted.
pub const MAX_ERRORS: usize = 100;

/// The longest line that is shown with an error.
const MAX_SNIPPET: usize = 16_384;

/// Where something stands in an expression: characters from its beginning, or nowhere.
pub(crate) type Offset = Option<u32>;

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// What is wrong.
    pub message: String,
    /// The line, from 1 on; -1 when it belongs to no place.
    pub line: i64,
    /// The column, from 0 on; -1 when it belongs to no place.
    pub column: i64,
}

/// All that is wrong with an expression. It prints as upstream's compilers print it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    issues: Vec<Issue>,
    total: usize,
    lines: Vec<String>,
}

impl Errors {
    pub(crate) fn new(text: &str) -> Self {
        Errors { issues: Vec::new(), total: 0, lines: text.split('\n').map(str::to_owned).collect() }
    }

    pub(crate) fn report(&mut self, at: Offset, message: impl Into<String>) {
        self.total += 1;
        if self.issues.len() < MAX_ERRORS {
            let (line, column) = at.map_or((-1, -1), |at| self.place(at));
            self.issues.push(Issue { message: message.into(), line, column });
        }
    }

    fn place(&self, offset: u32) -> (i64, i64) {
        // Upstream finds no place in a text without characters.
        if self.lines.iter().all(String::is_empty) && self.lines.len() <= 1 {
            return (1, -1);
        }
        let mut rest = i64::from(offset);
        for (index, line) in (1_i64..).zip(&self.lines) {
            let length = i64::try_from(line.chars().count()).unwrap_or(i64::MAX);
            if rest <= length {
                return (index, rest);
            }
            rest -= length + 1;
        }
        (i64::try_from(self.lines.len()).unwrap_or(i64::MAX), 0)
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The errors, in the order in which they were found.
    #[must_use]
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }

    fn show(&self, issue: &Issue, out: &mut String) {
        write!(out, "ERROR: <input>:{}:{}: {}", issue.line, issue.column + 1, issue.message).expect("memory takes all");
        let line = usize::try_from(issue.line - 1).ok().and_then(|line| self.lines.get(line));
        let Some(line) = line.filter(|line| line.len() <= MAX_SNIPPET && issue.column >= 0) else { return };
        let line = line.replace('\t', " ");
        let mut pointer = String::new();
        let mut rest = line.chars();
        for _ in 0..issue.column {
            let Some(c) = rest.next() else { break };
            pointer.push(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
        }
        pointer.push(if rest.next().is_some_and(|c| c.len_utf8() > 1) { '\u{ff3e}' } else { '^' });
        write!(out, "\n | {line}\n | {pointer}").expect("memory takes all");
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Issue> = self.issues.iter().collect();
        sorted.sort_by_key(|issue| (issue.line, issue.column));
        let mut out = String::new();
        for (index, issue) in sorted.into_iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            self.show(issue, &mut out);
        }
        if self.total > MAX_ERRORS {
            write!(out, "\n{} more errors were truncated", self.total - MAX_ERRORS)?;
        }
        f.write_str(&out)
    }
}

impl std::error::Error for Errors {}
