//! What changed between two structs, in the words of a unified diff, which upstream adds to messages about fields that
//! must not change.

use std::{collections::HashMap, fmt::Write};

use crate::pretty;

/// How many lines around a change are shown.
const CONTEXT: usize = 3;
/// Structs with more lines are not compared, for that can take the third power of the lines.
const MAX_LINES: usize = 3000;
/// From so many lines on, those that are more than one in a hundred begin no run of equal lines.
const MANY_LINES: usize = 200;

/// A unified diff of compact JSON, indented by one space.
pub(super) fn diff(old: &str, new: &str) -> String {
    let [old, new] = [old, new].map(lines);
    if old.len() > MAX_LINES || new.len() > MAX_LINES {
        return String::new();
    }
    let mut out = String::new();
    for group in groups(&operations(&old, &new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |start: usize, end: usize| match end - start {
            1 => format!("{}", start + 1),
            0 => format!("{start},0"),
            length => format!("{},{length}", start + 1),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "@@ -{} +{} @@", range(first.old.0, last.old.1), range(first.new.0, last.new.1));
        for op in group {
            let (mark_old, mark_new) = if op.same { (" ", None) } else { ("-", Some("+")) };
            for line in old.get(op.old.0..op.old.1).into_iter().flatten() {
                let _ = writeln!(out, "{mark_old}{line}");
            }
            for line in mark_new.and(new.get(op.new.0..op.new.1)).into_iter().flatten() {
                let _ = writeln!(out, "+{line}");
            }
        }
    }
    out
}

fn lines(json: &str) -> Vec<String> {
    let indented = pretty::indent(json.as_bytes());
    let text = String::from_utf8_lossy(&indented);
    let halved = |line: &str| {
        let rest = line.trim_start_matches(' ');
        format!("{}{rest}", " ".repeat((line.len() - rest.len()) / 2))
    };
    text.lines().map(halved).collect()
}

/// Lines of the old that become lines of the new.
#[derive(Clone, Copy, Debug)]
struct Operation {
    same: bool,
    old: (usize, usize),
    new: (usize, usize),
}

/// Two texts, and where each line is in the new one.
struct Lines<'a> {
    old: &'a [String],
    new: &'a [String],
    places: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Lines<'a> {
    fn new(old: &'a [String], new: &'a [String]) -> Self {
        let mut places = HashMap::<&str, Vec<usize>>::new();
        for (j, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(j);
        }
        if new.len() >= MANY_LINES {
            places.retain(|_, at| at.len() <= new.len() / 100 + 1);
        }
        Lines { old, new, places }
    }

    /// The longest run of equal lines within the ranges, the first of them.
    fn longest(&self, a: (usize, usize), b: (usize, usize)) -> (usize, usize, usize) {
        let (mut best, mut lengths) = ((a.0, b.0, 0), HashMap::new());
        for (i, line) in self.old.iter().enumerate().take(a.1).skip(a.0) {
            let mut next = HashMap::new();
            let places = self.places.get(line.as_str()).map_or(&[][..], Vec::as_slice);
            for j in places.iter().copied().skip_while(|j| *j < b.0).take_while(|j| *j < b.1) {
                // By where a run ends, one further.
                let length = lengths.get(&j).copied().unwrap_or(0) + 1;
                next.insert(j + 1, length);
                if length > best.2 {
                    best = (i + 1 - length, j + 1 - length, length);
                }
            }
            lengths = next;
        }
        let (mut i, mut j, mut length) = best;
        while i > a.0 && j > b.0 && self.old[i - 1] == self.new[j - 1] {
            (i, j, length) = (i - 1, j - 1, length + 1);
        }
        while i + length < a.1 && j + length < b.1 && self.old[i + length] == self.new[j + length] {
            length += 1;
        }
        (i, j, length)
    }
}

fn operations(old: &[String], new: &[String]) -> Vec<Operation> {
    let (mut blocks, lines) = (Vec::new(), Lines::new(old, new));
    let mut todo = vec![((0, old.len()), (0, new.len()))];
    while let Some((a, b)) = todo.pop() {
        let (i, j, length) = lines.longest(a, b);
        if length > 0 {
            blocks.push((i, j, length));
            todo.push(((a.0, i), (b.0, j)));
            todo.push(((i + length, a.1), (j + length, b.1)));
        }
    }
    blocks.sort_unstable();
    blocks.push((old.len(), new.len(), 0));
    let (mut operations, mut i, mut j) = (Vec::<Operation>::new(), 0, 0);
    for (a, b, length) in blocks {
        if i < a || j < b {
            operations.push(Operation { same: false, old: (i, a), new: (j, b) });
        }
        (i, j) = (a + length, b + length);
        match operations.last_mut() {
            // Runs that touch are one run.
            Some(last) if last.same && last.old.1 == a && last.new.1 == b => (last.old.1, last.new.1) = (i, j),
            _ if length > 0 => operations.push(Operation { same: true, old: (a, i), new: (b, j) }),
            _ => {}
        }
    }
    operations
}

/// The changes, with what is near them.
fn groups(operations: &[Operation]) -> Vec<Vec<Operation>> {
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    let last = operations.len().saturating_sub(1);
    for (i, op) in operations.iter().enumerate() {
        let mut op = *op;
        let length = op.old.1 - op.old.0;
        if op.same {
            let head = |op: Operation, n: usize| Operation {
                old: (op.old.0, op.old.1.min(op.old.0 + n)),
                new: (op.new.0, op.new.1.min(op.new.0 + n)),
                ..op
            };
            let tail = |op: Operation| Operation {
                old: (op.old.0.max(op.old.1.saturating_sub(CONTEXT)), op.old.1),
                new: (op.new.0.max(op.new.1.saturating_sub(CONTEXT)), op.new.1),
                ..op
            };
            if i == 0 {
                op = tail(op);
            } else if i == last {
                op = head(op, CONTEXT);
            } else if length > 2 * CONTEXT {
                group.push(head(op, CONTEXT));
                groups.push(std::mem::take(&mut group));
                op = tail(op);
            }
        }
        group.push(op);
    }
    // Nothing but equal lines is no change.
    if group.iter().any(|op| !op.same) {
        groups.push(group);
    }
    groups
}
