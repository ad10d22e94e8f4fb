//! JSONPath as printer columns use it: fields, indexes, slices, unions, wildcards, recursive descent and filters.

use std::{borrow::Cow, cmp::Ordering, fmt};

use capstan_api::{Map, Value};

/// How deep filters and unions are nested at most.
const MAX_DEPTH: usize = 16;

/// How many values a step may find: recursive descents multiply.
const MAX_FOUND: usize = 100_000;

/// Why a path cannot be read, or finds nothing that could be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError(String);

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PathError {}

fn error<T>(words: impl Into<String>) -> Result<T, PathError> {
    Err(PathError(words.into()))
}

/// A path that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<JsonPath>),
    Filter(JsonPath, Option<(Operator, JsonPath)>),
    Constant(Value),
}

/// Which elements of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    start: i64,
    /// The end; without one, the end of the list.
    end: Option<i64>,
    /// The end was not said: the element at the start is meant.
    single: bool,
    step: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Less,
    Greater,
    Equal,
    NotEqual,
    LessEqual,
    GreaterEqual,
}

/// What a path finds; constants are its own.
pub type Found<'v> = Vec<Cow<'v, Value>>;

impl JsonPath {
    /// Reads a path such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        parse(text, 0)
    }

    /// The values that the path leads to. What is missing on the way leads nowhere.
    ///
    /// # Errors
    /// When a step makes no sense for the value that it is taken at.
    pub fn find<'v>(&self, value: &'v Value) -> Result<Found<'v>, PathError> {
        follow(&self.steps, vec![Cow::Borrowed(value)])
    }

    /// The same for the fields of an object.
    ///
    /// # Errors
    /// See [`find`](JsonPath::find).
    pub fn find_in<'v>(&self, object: &'v Map) -> Result<Found<'v>, PathError> {
        match &self.steps[..] {
            [Step::Field(name), rest @ ..] => follow(rest, object.get(name).map(Cow::Borrowed).into_iter().collect()),
            steps => follow(steps, vec![Cow::Owned(Value::Object(object.clone()))]),
        }
    }

    fn follow<'v>(&self, at: Found<'v>) -> Result<Found<'v>, PathError> {
        follow(&self.steps, at)
    }
}

fn follow<'v>(steps: &[Step], mut at: Found<'v>) -> Result<Found<'v>, PathError> {
    for step in steps {
        at = step.take(at)?;
        if at.len() > MAX_FOUND {
            return error("too many values");
        }
    }
    Ok(at)
}

fn parse(text: &str, depth: usize) -> Result<JsonPath, PathError> {
    if depth > MAX_DEPTH {
        return error("nested too deep");
    }
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("[?(") {
            let (filter, after) = cut_filter(after)?;
            steps.push(filter_step(filter, depth)?);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Recursive) {
                return error("invalid multiple recursive descent");
            }
            steps.push(Step::Recursive);
            rest = after;
            if after.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                rest = field(after, &mut steps);
            }
        } else {
            rest = match first {
                ' ' | '@' | '$' => &rest[1..],
                '[' => array(rest, depth, &mut steps)?,
                '"' | '\'' => quoted(rest, first, &mut steps)?,
                '.' => field(&rest[1..], &mut steps),
                '+' | '-' | '0'..='9' => number(rest, &mut steps)?,
                c if c == '_' || c.is_alphanumeric() => identifier(rest, &mut steps)?,
                c => return error(format!("unrecognized character in action: {c:?}")),
            };
        }
    }
    Ok(JsonPath { steps })
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// A field up to the next sign that is not escaped; what follows is returned.
fn field<'t>(text: &'t str, steps: &mut Vec<Step>) -> &'t str {
    let mut escaped = false;
    let end = text.char_indices().find(|(_, c)| {
        let ends = !escaped && is_terminator(*c);
        escaped = !escaped && *c == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.map_or(text.len(), |(at, _)| at));
    steps.push(if name == "*" { Step::Wildcard } else { Step::Field(name.replace('\\', "")) });
    rest
}

fn number<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let sign = usize::from(text.starts_with(['+', '-']));
    let end = text[sign..].find(|c: char| c != '.' && !c.is_ascii_digit()).map_or(text.len(), |at| at + sign);
    let (number, rest) = text.split_at(end);
    let value = match (number.parse::<i64>(), number.parse::<f64>()) {
        (Ok(whole), _) => Value::Int(whole),
        (_, Ok(float)) => Value::Float(float),
        _ => return error(format!("cannot parse number {number}")),
    };
    steps.push(Step::Constant(value));
    Ok(rest)
}

fn identifier<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let (word, rest) = text.split_at(text.find(is_terminator).unwrap_or(text.len()));
    steps.push(match word {
        "true" => Step::Constant(Value::Bool(true)),
        "false" => Step::Constant(Value::Bool(false)),
        other => return error(format!("unrecognized identifier {other}")),
    });
    Ok(rest)
}

fn quoted<'t>(text: &'t str, quote: char, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            c if c == quote => {
                steps.push(Step::Constant(value.into()));
                return Ok(&text[at + 1..]);
            }
            c => value.push(c),
        }
    }
    error("unterminated quoted string")
}

fn array<'t>(text: &'t str, depth: usize, steps: &mut Vec<Step>) -> Result<&'t str, PathError> {
    let Some(end) = text.find(']') else { return error("unterminated array") };
    let (inner, rest) = (&text[1..end], &text[end + 1..]);
    if inner.contains(',') {
        let parts = inner.split(',').map(|part| parse(&format!("[{}]", part.trim_matches(' ')), depth + 1));
        steps.push(Step::Union(parts.collect::<Result<_, _>>()?));
        return Ok(rest);
    }
    let key = inner.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')).filter(|key| !key.contains('\''));
    if let Some(key) = key {
        steps.extend(parse(&format!(".{key}"), depth + 1)?.steps);
        return Ok(rest);
    }
    let inner = if inner == "*" { ":" } else { inner };
    let mut parts = inner.split(':');
    let number = |what: Option<&str>| match what {
        None | Some("") => Ok(None),
        Some(text) => text.parse::<i64>().map(Some).map_err(|_| PathError(format!("invalid array index {inner}"))),
    };
    let (start, said_end, step) = (number(parts.next())?, parts.next(), parts.next());
    if parts.next().is_some() {
        return error(format!("invalid array index {inner}"));
    }
    let single = said_end.is_none();
    let start = start.unwrap_or_default();
    let end = if single { Some(start.saturating_add(1)) } else { number(said_end)? };
    steps.push(Step::Slice(Slice { start, end, single, step: number(step)?.unwrap_or(1) }));
    Ok(rest)
}

/// The text of a filter, and what follows it.
fn cut_filter(text: &str) -> Result<(&str, &str), PathError> {
    let (mut quote, mut closed, mut before) = (None, false, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '\n' => break,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            '"' | '\'' if before != '\\' && quote == Some(c) => closed = true,
            ')' if quote.is_some() == closed => {
                return match text[at + 1..].strip_prefix(']') {
                    Some(rest) => Ok((&text[..at], rest)),
                    None => error("unclosed array expect ]"),
                };
            }
            _ => {}
        }
        before = c;
    }
    error("unterminated filter")
}

fn filter_step(text: &str, depth: usize) -> Result<Step, PathError> {
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let comparison = text.find(is_operator).filter(|at| *at > 0).and_then(|at| {
        let (left, rest) = text.split_at(at);
        let end = rest.find(|c| !is_operator(c))?;
        Some((left, &rest[..end], &rest[end..]))
    });
    let Some((left, operator, right)) = comparison else {
        return Ok(Step::Filter(parse(text, depth + 1)?, None));
    };
    let operator = match operator {
        "<" => Operator::Less,
        ">" => Operator::Greater,
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<=" => Operator::LessEqual,
        ">=" => Operator::GreaterEqual,
        other => return error(format!("unrecognized filter operator {other}")),
    };
    Ok(Step::Filter(parse(left, depth + 1)?, Some((operator, parse(right, depth + 1)?))))
}

/// The part of a value, which stays as long as the value does.
fn part<'v>(value: &Cow<'v, Value>, of: impl for<'a> Fn(&'a Value) -> Option<&'a Value>) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(value) => of(value).map(Cow::Borrowed),
        Cow::Owned(value) => of(value).cloned().map(Cow::Owned),
    }
}

fn children<'v>(value: &Cow<'v, Value>) -> Found<'v> {
    let count = match &**value {
        Value::Object(map) => map.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    (0..count).filter_map(|at| part(value, |value| nth(value, at))).collect()
}

fn nth(value: &Value, at: usize) -> Option<&Value> {
    match value {
        Value::Object(map) => map.entries().get(at).map(|(_, value)| value),
        Value::Array(items) => items.get(at),
        _ => None,
    }
}

impl Step {
    fn take<'v>(&self, at: Found<'v>) -> Result<Found<'v>, PathError> {
        let filled = at.into_iter().filter(|value| !value.is_null());
        Ok(match self {
            Step::Field(name) => filled.filter_map(|value| part(&value, |value| value.get(name))).collect(),
            Step::Wildcard => filled.flat_map(|value| children(&value)).collect(),
            Step::Recursive => {
                let mut found = Vec::new();
                let mut waiting: Found<'v> = filled.collect();
                waiting.reverse();
                while let Some(value) = waiting.pop() {
                    let inner = children(&value);
                    if !inner.is_empty() {
                        found.push(value);
                        waiting.extend(inner.into_iter().rev());
                    }
                    if found.len() > MAX_FOUND {
                        return error("too many values");
                    }
                }
                found
            }
            Step::Slice(slice) => {
                let mut found = Vec::new();
                for value in filled {
                    slice.take(value, &mut found)?;
                }
                found
            }
            Step::Union(paths) => {
                let at: Found<'v> = filled.collect();
                let mut found = Vec::new();
                for path in paths {
                    found.extend(path.follow(at.clone())?);
                }
                found
            }
            Step::Filter(left, comparison) => {
                let mut found = Vec::new();
                for value in filled {
                    if value.as_array().is_none() {
                        return error("what is not a list cannot be filtered");
                    }
                    for item in children(&value) {
                        if passes(left, comparison.as_ref(), item.clone())? {
                            found.push(item);
                        }
                    }
                }
                found
            }
            Step::Constant(value) => filled.map(|_| Cow::Owned(value.clone())).collect(),
        })
    }
}

impl Slice {
    fn take<'v>(self, value: Cow<'v, Value>, found: &mut Found<'v>) -> Result<(), PathError> {
        let Value::Array(items) = &*value else { return error("not a list") };
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let start = if self.start < 0 { self.start.saturating_add(length) } else { self.start };
        let end = match self.end {
            None => length,
            Some(end) if end < 0 || (end == 0 && self.single) => end.saturating_add(length),
            Some(end) => end,
        };
        if start == end {
            return Ok(());
        }
        if start < 0 || start >= length || end < 0 || end > length {
            return error("array index out of bounds");
        }
        if start > end || self.step <= 0 {
            return error("the slice is empty");
        }
        let mut at = start;
        while at < end {
            found.extend(usize::try_from(at).ok().and_then(|at| part(&value, |value| nth(value, at))));
            at = at.saturating_add(self.step);
        }
        Ok(())
    }
}

fn passes(left: &JsonPath, comparison: Option<&(Operator, JsonPath)>, item: Cow<'_, Value>) -> Result<bool, PathError> {
    let lefts = left.follow(vec![item.clone()]);
    let Some((operator, right)) = comparison else { return Ok(lefts.is_ok_and(|found| !found.is_empty())) };
    let (lefts, rights) = (lefts?, right.follow(vec![item])?);
    let (left, right) = match (&lefts[..], &rights[..]) {
        ([], _) | (_, []) => return Ok(false),
        ([left], [right]) => (left, right),
        _ => return error("can only compare one element at a time"),
    };
    let order = match (&**left, &**right) {
        (Value::Int(left), Value::Int(right)) => left.partial_cmp(right),
        (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
        (Value::String(left), Value::String(right)) => left.as_str().partial_cmp(right.as_str()),
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, Operator::Equal | Operator::NotEqual) => {
            Some(if left == right { Ordering::Equal } else { Ordering::Less })
        }
        _ => return error("incompatible types for comparison"),
    };
    Ok(match operator {
        Operator::Less => order == Some(Ordering::Less),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::Equal => order == Some(Ordering::Equal),
        Operator::NotEqual => order != Some(Ordering::Equal),
        Operator::LessEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::GreaterEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_what_they_lead_to() {
        let object = capstan_api::json::parse(
            br#"{"a":{"b":[{"t":"x","n":1},{"t":"y","n":2},{"t":"y","n":3,"m":true}],"c.d":"dot","e":null},"f":2.5}"#,
        )
        .unwrap();
        let check = |path: &str, expected: &str| {
            let found = JsonPath::parse(path).and_then(|path| path.find(&object));
            let shown = match found {
                Ok(found) => {
                    found.iter().map(|value| capstan_api::json::to_string(value)).collect::<Vec<_>>().join(" ")
                }
                Err(error) => format!("! {error}"),
            };
            assert_eq!(shown, expected, "{path}");
            let again =
                JsonPath::parse(path).and_then(|path| path.find_in(object.as_object().unwrap()).map(|f| f.len()));
            let first = JsonPath::parse(path).and_then(|path| path.find(&object).map(|f| f.len()));
            assert_eq!(again, first, "{path}");
        };
        check(".f", "2.5");
        check(".a.b[0].t", r#""x""#);
        check(".a.b[-1].n", "3");
        check(".a.b[1:].n", "2 3");
        check(".a.b[:-1].n", "1 2");
        check(".a.b[::2].n", "1 3");
        check(".a.b[*].t", r#""x" "y" "y""#);
        check(".a.b[0,2].n", "1 3");
        check(".a.b[7].n", "! array index out of bounds");
        check(r#".a.b[?(@.t=="y")].n"#, "2 3");
        check(".a.b[?(@.t=='x')].n", "1");
        check(".a.b[?(@.n>1)].n", "2 3");
        check(".a.b[?(@.n<=1)].t", r#""x""#);
        check(".a.b[?(@.m==true)].n", "3");
        check(".a.b[?(@.m)].n", "3");
        check(".a.b[?(@.t!=\"y\")].n", "1");
        check(r".a.c\.d", r#""dot""#);
        check(r".a['c\.d']", r#""dot""#);
        check("..n", "1 2 3");
        check("$.a.e.x", "");
        check(".a.e", "null");
        check(".missing.field", "");
        check(".f[0]", "! not a list");
        check(".f[?(@.x)]", "! what is not a list cannot be filtered");
        check(".a.b[x]", "! invalid array index x");
        check(".a.b[?(@.t==\"y]", "! unterminated filter");
        check(".a.b[?(@.n==\"1\")]", "! incompatible types for comparison");
        check("....a", "! invalid multiple recursive descent");
        check(".a.b[", "! unterminated array");
    }

    #[test]
    fn hostile_paths_end() {
        let mut text = "{}".to_owned();
        for _ in 0..2000 {
            text = format!(r#"{{"a":{text}}}"#);
        }
        let object = capstan_api::json::parse(text.as_bytes()).unwrap();
        assert!(JsonPath::parse(&"..a".repeat(5)).unwrap().find(&object).is_err());
        assert!(JsonPath::parse(&"[?(".repeat(1000)).is_err());
        let nested = format!(".a{}{}", "[?(@".repeat(100), ")]".repeat(100));
        assert!(JsonPath::parse(&nested).is_err());
    }
}
