//! The clauses of an `Accept` header, best first, read as upstream's library reads them.

use std::cmp::Ordering;

/// What a client would take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Clause<'a> {
    /// `application`, or `*`.
    pub(crate) ty: &'a str,
    /// `json`, or `*`.
    pub(crate) subtype: &'a str,
    quality: f32,
    /// All parameters but `q`; of one that comes twice the last counts.
    parameters: &'a str,
}

/// Up to how many clauses are sorted as Go sorts so few: by insertion. The order is not a proper one, so the way
/// matters.
const FEW: usize = 12;

/// The clauses of a header, best first. What cannot be read is left out.
pub(crate) fn parse(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = header.split(',').filter_map(clause).collect();
    if clauses.len() > FEW {
        let stars = |clause: &Clause<'_>| (clause.ty == "*", clause.subtype == "*");
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then_with(|| stars(a).cmp(&stars(b))));
        return clauses;
    }
    for end in 1..clauses.len() {
        let mut at = end;
        while at > 0 && is_better(&clauses[at], &clauses[at - 1]) {
            clauses.swap(at, at - 1);
            at -= 1;
        }
    }
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let (media, parameters) = text.split_once(';').unwrap_or((text, ""));
    let (ty, subtype) = media.split_once('/').unwrap_or((media, ""));
    let (ty, mut subtype) = (trim(ty), subtype);
    if subtype.is_empty() {
        if ty != "*" {
            return None;
        }
        subtype = "*";
    }
    // A slash at the very end is forgiven.
    let subtype = subtype.strip_suffix('/').unwrap_or(subtype);
    if subtype.contains('/') {
        return None;
    }
    let mut clause = Clause { ty, subtype: trim(subtype), quality: 1.0, parameters };
    clause.quality = pairs(parameters).filter(|(key, _)| *key == "q").last().map_or(1.0, |(_, value)| {
        // What is not a number counts as 0.
        value.parse().unwrap_or_default()
    });
    Some(clause)
}

/// Keys and values of parameters; the values with their spaces.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = value.strip_suffix('=').unwrap_or(value);
        (!value.is_empty() && !value.contains('=')).then_some((trim(key), value))
    })
}

impl<'a> Clause<'a> {
    /// The parameters, in order.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        pairs(self.parameters).filter(|(key, _)| *key != "q").map(|(key, value)| (key, trim(value)))
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

fn is_better(a: &Clause<'_>, b: &Clause<'_>) -> bool {
    let quality = a.quality.partial_cmp(&b.quality) == Some(Ordering::Greater);
    quality || a.ty != "*" && b.ty == "*" || a.subtype != "*" && b.subtype == "*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_upstream() {
        fn check(header: &str, expected: &[&str]) {
            let shown: Vec<_> = parse(header)
                .iter()
                .map(|clause| {
                    let parameters: String =
                        clause.parameters().map(|(key, value)| format!(";{key}={value}")).collect();
                    format!("{}/{}{parameters}", clause.ty, clause.subtype)
                })
                .collect();
            assert_eq!(shown, expected, "{header}");
        }
        check("", &[]);
        check("application", &[]);
        check("a/b/c,a/", &[]);
        check("*", &["*/*"]);
        check("a/b, c/d ;x = 1; y=2;z;w=1=2", &["a/b", "c/d;x=1;y=2"]);
        check("a/b;q=0.1,c/d;q=0.5,e/f", &["e/f", "c/d", "a/b"]);
        check("a/b;q=x,c/d;q=0.5", &["c/d", "a/b"]);
        check("*/*,a/*,a/b", &["a/b", "a/*", "*/*"]);
        // A wildcard goes behind what it covers, even if it is wanted more.
        check("a/b;q=0.1,*/*", &["*/*", "a/b"]);
        let many: Vec<_> = (0..20).map(|n| format!("a/b{n};q=0.{n:02}")).collect();
        assert_eq!(parse(&many.join(",")).first().map(|clause| clause.subtype), Some("b19"));
    }
}
