//! The table in memory: what codegen fills, reads back and prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use capstan_api::builtin::text::{Absent, EMBEDDED, Field, TypeHead, UNION, is_zero};

/// The whole table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Of which release: `v1.36.3`.
    pub(crate) version: String,
    /// Group versions in the order of discovery, each with the package of its types: `apps/v1`, `apps.v1`.
    pub(crate) groups: Vec<(String, String)>,
    /// Resources by group version and name; each is its block's lines.
    pub(crate) resources: BTreeMap<(String, String), Vec<String>>,
    /// Types by name.
    pub(crate) types: BTreeMap<String, Type>,
}

/// A type.
#[derive(Debug, Default)]
pub(crate) struct Type {
    pub(crate) kind: bool,
    pub(crate) atomic: bool,
    pub(crate) defaults: bool,
    /// Structs that Go embeds: place in protobuf, Go's name.
    pub(crate) embedded: BTreeMap<String, String>,
    /// Unions, as printed.
    pub(crate) unions: Vec<String>,
    pub(crate) fields: BTreeMap<&'static str, Field<'static>>,
}

const HEADER: &str = "# Facts about the kinds of Kubernetes ";
const HEADER_END: &str = ", made by `cargo xtask codegen`. The grammar is in text.rs.";

impl Table {
    /// Reads a table; anything that is not in canonical form prints differently.
    pub(crate) fn parse(text: &'static str) -> Result<Table, String> {
        let mut lines = text.lines().enumerate().peekable();
        let header = lines.next().and_then(|(_, line)| line.strip_prefix(HEADER)?.strip_suffix(HEADER_END));
        let version = header.ok_or("the first line is not the table's header")?.to_owned();
        let mut table = Table { version, ..Table::default() };
        while let Some((at, head)) = lines.next() {
            let wrong = |line: &str, at: usize| format!("line {}: {line}", at + 1);
            let mut block = Vec::new();
            while let Some((at, line)) = lines.next_if(|(_, line)| line.starts_with(' ')) {
                block.push((at, line));
            }
            if let Some(head) = TypeHead::parse(head) {
                let mut ty = Type { kind: head.kind, atomic: head.atomic, defaults: head.defaults, ..Type::default() };
                for (at, line) in block {
                    ty.line(line).ok_or_else(|| wrong(line, at))?;
                }
                table.types.insert(head.name.to_owned(), ty);
                continue;
            }
            match head.split(' ').collect::<Vec<_>>()[..] {
                ["group", group_version, package] => table.groups.push((group_version.into(), package.into())),
                ["resource", group_version, resource, ..] => {
                    let lines = [head].into_iter().chain(block.iter().map(|(_, line)| *line));
                    let key = (group_version.to_owned(), resource.to_owned());
                    table.resources.insert(key, lines.map(str::to_owned).collect());
                }
                _ => return Err(wrong(head, at)),
            }
        }
        table.check()?;
        Ok(table)
    }

    /// Whether everything that is named is there.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, ty) in &self.types {
            for field in ty.fields.values() {
                let element = element(field.ty);
                if element.contains('.') && !self.types.contains_key(element) {
                    return Err(format!("{name}.{} is of the unknown type {element}", field.name));
                }
                let spaced = [field.default, field.go, field.list].into_iter().flatten().any(|word| word.contains(' '));
                if spaced {
                    return Err(format!("{name}.{} has a space where none can be", field.name));
                }
            }
        }
        Ok(())
    }

    /// Marks the types that have a default somewhere at or below them.
    pub(crate) fn mark_defaults(&mut self) {
        let own = |field: &Field<'_>| match field.absent {
            Absent::Dropped => field.default.is_some_and(|default| !is_zero(default)),
            Absent::Pointer => field.default.is_some(),
            Absent::Zero | Absent::Null => true,
        };
        let mut marked: BTreeSet<String> = BTreeSet::new();
        loop {
            let before = marked.len();
            for (name, ty) in &self.types {
                if ty.fields.values().any(|field| own(field) || marked.contains(element(field.ty))) {
                    marked.insert(name.clone());
                }
            }
            if marked.len() == before {
                break;
            }
        }
        self.types.iter_mut().for_each(|(name, ty)| ty.defaults = marked.contains(name));
    }
}

impl Type {
    fn line(&mut self, line: &'static str) -> Option<()> {
        if let Some(embedded) = line.strip_prefix(EMBEDDED) {
            let (place, name) = embedded.split_once(' ')?;
            self.embedded.insert(place.to_owned(), name.to_owned());
        } else if let Some(union) = line.strip_prefix(UNION) {
            self.unions.push(union.to_owned());
        } else {
            let field = Field::parse(line)?;
            self.fields.insert(field.name, field);
        }
        Some(())
    }
}

/// What is in the lists and maps of a type.
pub(crate) fn element(mut ty: &str) -> &str {
    while let Some(rest) = ty.strip_prefix("[]").or(ty.strip_prefix("{}")).or(ty.strip_prefix('*')) {
        ty = rest;
    }
    ty
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}{}{HEADER_END}", self.version)?;
        self.groups.iter().try_for_each(|(group_version, package)| writeln!(f, "group {group_version} {package}"))?;
        self.resources.values().flatten().try_for_each(|line| writeln!(f, "{line}"))?;
        for (name, ty) in &self.types {
            writeln!(f, "{}", TypeHead { name, kind: ty.kind, atomic: ty.atomic, defaults: ty.defaults })?;
            ty.embedded.iter().try_for_each(|(place, name)| writeln!(f, "{EMBEDDED}{place} {name}"))?;
            ty.unions.iter().try_for_each(|union| writeln!(f, "{UNION}{union}"))?;
            ty.fields.values().try_for_each(|field| writeln!(f, "{field}"))?;
        }
        Ok(())
    }
}
