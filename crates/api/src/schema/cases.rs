//! Reading the tables of cases that the tests check.

/// A group of cases: what follows `= ` on a line, and the lines below it.
pub(super) struct Group {
    pub(super) head: &'static str,
    pub(super) lines: Vec<&'static str>,
}

/// Splits a table at its lines that begin with `mark`; lines of comment are left out.
fn split(lines: impl Iterator<Item = &'static str>, mark: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for line in lines.filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix(mark), groups.last_mut()) {
            (Some(head), _) => groups.push(Group { head, lines: Vec::new() }),
            (None, Some(group)) => group.lines.push(line),
            (None, None) => panic!("a case before the first {mark:?}: {line}"),
        }
    }
    groups
}

/// The groups of a table.
pub(super) fn groups(table: &'static str) -> Vec<Group> {
    split(table.lines(), "= ")
}

impl Group {
    /// The cases of the group: what follows `- ` on a line, and the lines below it.
    pub(super) fn cases(&self) -> Vec<Group> {
        split(self.lines.iter().copied(), "- ")
    }

    /// Lines of `yes` or `no` and a text in JSON.
    pub(super) fn answers(&self) -> impl Iterator<Item = (bool, String)> {
        self.lines.iter().map(|line| {
            let (answer, text) = line.split_at(4);
            let text = crate::json::parse(text.as_bytes()).unwrap();
            (answer == "yes ", text.as_str().unwrap().to_owned())
        })
    }
}
