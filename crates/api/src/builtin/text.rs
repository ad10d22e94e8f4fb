//! The table's grammar: how a line says what it says, read and printed.
//!
//! The table is text so that a change of the API is a readable difference. Lines at the margin open a block, lines with
//! a space before them belong to it:
//!
//! ```text
//! group apps/v1 apps.v1
//! resource apps/v1 deployments Deployment Namespaced deployment
//!  short deploy
//!  verbs create delete
//!  column string - 0 Up-to-date
//!  sub scale autoscaling/v1 Scale get patch update
//! type core.v1.Container
//!  name! 1 string zero
//!  ports 6 []core.v1.ContainerPort list=map:containerPort,protocol patch=merge key=containerPort
//! ```
//!
//! A type is `string`, `bool`, `int32`, `int64`, `double`, `bytes`, `time`, `micro-time`, `quantity`, `int-or-string`,
//! `raw`, `json`, `schema-or-bool`, `schema-or-list`, `schema-or-strings`, the name of another type, or one of those
//! behind `[]` (a list), `{}` (a map from strings) or `*` (in protobuf a message that has the list as its field 1).

use std::fmt;

/// What stands in the JSON of a field that was never set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absent {
    /// Nothing; nor if it is a scalar, list or map that was set to the zero value or to nothing, so that a default of
    /// that never shows.
    #[default]
    Dropped,
    /// Nothing, but a zero value that was set is encoded. Said of scalars and lists alone: objects that are not `Zero`
    /// are so.
    Pointer,
    /// The zero value of its type, `{}` if that is an object.
    Zero,
    /// `null`.
    Null,
}

/// A field of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a str,
    /// It must be there.
    pub required: bool,
    /// Its number in protobuf, behind the numbers of the messages that JSON does not show: `1/2`. `-` if it has none.
    pub number: &'a str,
    /// Its type.
    pub ty: &'a str,
    /// What is encoded when it was never set.
    pub absent: Absent,
    /// Its default, as JSON without spaces.
    pub default: Option<&'a str>,
    /// `atomic`, `set`, or `map:` and the keys.
    pub list: Option<&'a str>,
    /// `atomic`, or nothing.
    pub map: Option<&'a str>,
    /// The strategies of a strategic merge patch: `merge`, `merge,retainKeys` …
    pub patch: Option<&'a str>,
    /// The merge key of a strategic merge patch.
    pub key: Option<&'a str>,
    /// The Go type that messages name, if it is not the one that follows from the type.
    pub go: Option<&'a str>,
    /// All values there are, as a JSON list; those of the elements if it is a list or a map.
    pub enumeration: Option<&'a str>,
}

impl<'a> Field<'a> {
    /// Reads a line of a type's block.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let (line, enumeration) = match line.split_once(" enum=") {
            Some((line, values)) => (line, Some(values)),
            None => (line, None),
        };
        let mut words = line.strip_prefix(' ')?.split(' ');
        let name = words.next()?;
        let (name, required) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
        let mut field =
            Field { name, required, number: words.next()?, ty: words.next()?, enumeration, ..Field::default() };
        for word in words {
            match word.split_once('=') {
                None if word == "zero" => field.absent = Absent::Zero,
                None if word == "null" => field.absent = Absent::Null,
                None if word == "pointer" => field.absent = Absent::Pointer,
                Some(("default", value)) => field.default = Some(value),
                Some(("list", value)) => field.list = Some(value),
                Some(("map", value)) => field.map = Some(value),
                Some(("patch", value)) => field.patch = Some(value),
                Some(("key", value)) => field.key = Some(value),
                Some(("go", value)) => field.go = Some(value),
                _ => return None,
            }
        }
        Some(field)
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let required = if self.required { "!" } else { "" };
        write!(f, " {}{required} {} {}", self.name, self.number, self.ty)?;
        f.write_str(match self.absent {
            Absent::Dropped => "",
            Absent::Zero => " zero",
            Absent::Null => " null",
            Absent::Pointer => " pointer",
        })?;
        let words = [
            ("default", self.default),
            ("list", self.list),
            ("map", self.map),
            ("patch", self.patch),
            ("key", self.key),
            ("go", self.go),
            ("enum", self.enumeration),
        ];
        words.iter().try_for_each(|(word, value)| value.map_or(Ok(()), |value| write!(f, " {word}={value}")))
    }
}

/// Whether the JSON is the zero value of a type.
#[must_use]
pub fn is_zero(json: &str) -> bool {
    matches!(json, "\"\"" | "{}" | "0" | "false")
}

/// The first line of a type's block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeHead<'a> {
    /// The type's name: `core.v1.Pod`.
    pub name: &'a str,
    /// It is a kind: of its group and version, or of all of them if it belongs to `meta.v1`.
    pub kind: bool,
    /// Its fields belong together as one value.
    pub atomic: bool,
    /// Some field of it, or below it, has a default or is encoded although it was never set.
    pub defaults: bool,
}

impl<'a> TypeHead<'a> {
    /// Reads the line.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.strip_prefix("type ")?.split(' ');
        let mut head = TypeHead { name: words.next()?, ..TypeHead::default() };
        for word in words {
            match word {
                "kind" => head.kind = true,
                "atomic" => head.atomic = true,
                "defaults" => head.defaults = true,
                _ => return None,
            }
        }
        Some(head)
    }
}

impl fmt::Display for TypeHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type {}", self.name)?;
        [("kind", self.kind), ("atomic", self.atomic), ("defaults", self.defaults)]
            .iter()
            .filter(|(_, said)| *said)
            .try_for_each(|(word, _)| write!(f, " {word}"))
    }
}

/// The letters that begin a line of a type's block which is not a field: an embedded struct, `> 1 ProbeHandler`, with
/// its place in protobuf and the name that Go gives it.
pub const EMBEDDED: &str = " > ";

/// The letters that begin the line of a union: ` ~ type localhostProfile:LocalhostProfile`; `-` if there is no
/// discriminator.
pub const UNION: &str = " ~ ";

/// Where the packages of types are, for their full names: everything else is `io.k8s.api.`.
const PACKAGES: [(&str, &str); 3] = [
    ("meta.", "io.k8s.apimachinery.pkg.apis.meta."),
    ("apiextensions.", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions."),
    ("apiregistration.", "io.k8s.kube-aggregator.pkg.apis.apiregistration."),
];

/// The name that OpenAPI gives a type: `io.k8s.api.core.v1.Pod` for `core.v1.Pod`.
#[must_use]
pub fn full_name(name: &str) -> String {
    let package = PACKAGES.iter().find_map(|(short, full)| Some((full, name.strip_prefix(short)?)));
    package.map_or_else(|| format!("io.k8s.api.{name}"), |(full, rest)| format!("{full}{rest}"))
}

/// The table's name of a type that OpenAPI calls `name`.
#[must_use]
pub fn short_name(name: &str) -> Option<String> {
    if let Some(rest) = name.strip_prefix("io.k8s.api.") {
        return Some(rest.to_owned());
    }
    PACKAGES.iter().find_map(|(short, full)| Some(format!("{short}{}", name.strip_prefix(full)?)))
}

/// The Go type that follows from the type of a field: `[]v1.Container` for `[]core.v1.Container`.
#[must_use]
pub fn go_type(ty: &str) -> String {
    let ty = ty.trim_start_matches('*');
    if let Some(rest) = ty.strip_prefix("[]") {
        return format!("[]{}", go_type(rest));
    }
    if let Some(rest) = ty.strip_prefix("{}") {
        return format!("map[string]{}", go_type(rest));
    }
    match ty {
        "double" => "float64".to_owned(),
        "bytes" => "[]uint8".to_owned(),
        "time" => "v1.Time".to_owned(),
        "micro-time" => "v1.MicroTime".to_owned(),
        "quantity" => "resource.Quantity".to_owned(),
        "int-or-string" => "intstr.IntOrString".to_owned(),
        "raw" => "runtime.RawExtension".to_owned(),
        "json" => "v1.JSON".to_owned(),
        "schema-or-bool" => "v1.JSONSchemaPropsOrBool".to_owned(),
        "schema-or-list" => "v1.JSONSchemaPropsOrArray".to_owned(),
        "schema-or-strings" => "v1.JSONSchemaPropsOrStringArray".to_owned(),
        _ => match ty.rsplitn(3, '.').collect::<Vec<_>>()[..] {
            [kind, version, ..] => format!("{version}.{kind}"),
            _ => ty.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_and_print() {
        for line in [
            " name! 1 string zero",
            " ports 6 []core.v1.ContainerPort list=map:containerPort,protocol patch=merge key=containerPort",
            " protocol 4 string default=\"TCP\" go=v1.Protocol enum=[\"SCTP\",\"TCP\",\"U DP\"]",
            " httpGet 1/2 core.v1.HTTPGetAction",
            " selector - meta.v1.LabelSelector null map=atomic",
            " name 1 string pointer default=\"\"",
        ] {
            assert_eq!(Field::parse(line).expect(line).to_string(), line);
        }
        for line in ["type core.v1.Pod kind defaults", "type core.v1.SecretReference atomic", "type a.v1.B"] {
            assert_eq!(TypeHead::parse(line).expect(line).to_string(), line);
        }
        for line in ["", "name 1 string", " name 1", " name 1 string foo", " name 1 string foo=1"] {
            assert_eq!(Field::parse(line), None, "{line}");
        }
        assert_eq!(TypeHead::parse("type a.v1.B foo"), None);
    }

    #[test]
    fn names() {
        for (short, full) in [
            ("core.v1.Pod", "io.k8s.api.core.v1.Pod"),
            ("meta.v1.ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
        ] {
            assert_eq!(full_name(short), full);
            assert_eq!(short_name(full).as_deref(), Some(short));
        }
        for (ty, go) in [
            ("[]core.v1.Container", "[]v1.Container"),
            ("{}*[]string", "map[string][]string"),
            ("{}bytes", "map[string][]uint8"),
            ("autoscaling.v2.MetricSpec", "v2.MetricSpec"),
        ] {
            assert_eq!(go_type(ty), go);
        }
    }
}
