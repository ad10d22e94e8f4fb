//! The fields that objects of a resource can be selected by, taken out of their JSON once.

use capstan_api::{
    Name, Str,
    json::{Reader, Token},
};

/// Takes the selectable fields out of an object, beside `metadata.name` and `metadata.namespace`, which all have.
///
/// Called once an object, when it comes from the store; what is left out counts as empty.
pub trait SelectableFields: Send + Sync + 'static {
    /// The fields of the object whose JSON `object` is.
    fn extract(&self, object: &[u8]) -> Vec<(Name, Str)>;

    /// The object as it is served, where that is other than it is stored.
    fn normalize(&self, _object: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Fields that are where their names say: `spec.nodeName`. Strings as they are, numbers and booleans as they are
/// written.
#[derive(Clone, Debug, Default)]
pub struct FieldPaths {
    paths: Vec<Name>,
}

impl FieldPaths {
    /// The fields at these paths.
    pub fn new<N: Into<Name>>(paths: impl IntoIterator<Item = N>) -> Self {
        FieldPaths { paths: paths.into_iter().map(Into::into).collect() }
    }

    /// What of the paths `path` is: one of them, the way to one of them, or neither.
    fn step(&self, path: &str) -> Step<'_> {
        if let Some(name) = self.paths.iter().find(|name| name.as_str() == path) {
            return Step::Field(name);
        }
        let leads = |name: &Name| name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        if self.paths.iter().any(leads) { Step::Inward } else { Step::Past }
    }
}

enum Step<'a> {
    Field(&'a Name),
    Inward,
    Past,
}

impl SelectableFields for FieldPaths {
    fn extract(&self, object: &[u8]) -> Vec<(Name, Str)> {
        let mut found = Vec::new();
        let mut reader = Reader::new(object);
        // The dotted path of the object that is being read, and the lengths of those around it.
        let (mut path, mut around) = (String::new(), Vec::new());
        if self.paths.is_empty() || !matches!(reader.next(), Ok(Token::BeginObject)) {
            return found;
        }
        loop {
            match reader.next() {
                Ok(Token::Key(key)) => {
                    let outer = path.len();
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&key);
                    match self.step(&path) {
                        Step::Field(name) => found.extend(scalar(&mut reader).map(|value| (name.clone(), value))),
                        Step::Inward if matches!(reader.clone().next(), Ok(Token::BeginObject)) => {
                            drop(reader.next());
                            around.push(outer);
                            continue;
                        }
                        Step::Inward | Step::Past => drop(reader.skip()),
                    }
                    path.truncate(outer);
                }
                Ok(Token::EndObject) => match around.pop() {
                    Some(outer) => path.truncate(outer),
                    None => return found,
                },
                _ => return found,
            }
        }
    }
}

fn scalar(reader: &mut Reader<'_>) -> Option<Str> {
    let raw = reader.skip().ok()?;
    match Reader::new(raw).next().ok()? {
        Token::String(text) => Some(Str::from(&*text)),
        Token::Bool(_) | Token::Number(_) => str::from_utf8(raw).ok().map(|text| Str::from(text.trim_ascii_end())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_path() {
        fn check(text: &str, expected: &[(&str, &str)]) {
            let fields = FieldPaths::new(["type", "spec.nodeName", "spec.on", "status.a.n"]);
            let found = fields.extract(text.as_bytes());
            let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        }
        check(
            r#"{"type":"T","spec":{"nodeName":"n","on":true}}"#,
            &[("type", "T"), ("spec.nodeName", "n"), ("spec.on", "true")],
        );
        check(
            r#"{"spec":{"x":{"nodeName":"no"},"y":[{"on":1}]},"status":{"a":{"n": 1.50 },"n":2}}"#,
            &[("status.a.n", "1.50")],
        );
        check(r#"{"spec":[{"nodeName":"no"}],"status":{"a":null},"type":{"type":"no"}}"#, &[]);
        check(r#"{"spec":{},"nodeName":"no","type":"\u0041"}"#, &[("type", "A")]);
        for broken in ["", "[]", "null", r#"{"spec":{"nodeName""#, r#"{"spec":{"#] {
            check(broken, &[]);
        }
    }
}
