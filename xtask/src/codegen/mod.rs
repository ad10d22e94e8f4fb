//! `cargo xtask codegen`: turns the published definition of the API into the committed table of facts.
//!
//! ```text
//! cargo xtask codegen --from DIR             a folder with openapi-v3/, discovery-api.json, discovery-apis.json,
//!                                            tables.json, protobuf.json and version.json, as read from a server
//! cargo xtask codegen --from-server ADDR     a running server behind `kubectl proxy --port=8001`: 127.0.0.1:8001
//!                     --go DIR               also read Go's types from k8s.io modules in DIR: ~/go/pkg/mod/k8s.io
//!                     --check                change nothing, fail if something would change
//! cargo xtask codegen --check                without a source: the committed table must be in canonical form
//! ```
//!
//! Not every source knows everything: protobuf numbers cannot be asked from a server, Go's types are known to Go's
//! source alone. What a source lacks is taken from the present table.

mod golang;
mod model;
mod openapi;
mod protobuf;
mod resources;
mod source;

use std::{collections::BTreeMap, fs, path::Path};

use model::Table;
use source::Source;

/// Where the table is, from the root of the repository.
const TABLE: &str = "crates/api/src/builtin/table.txt";

/// Runs the command.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut options, mut check) = (BTreeMap::new(), false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--check" => check = true,
            "--from" | "--from-server" | "--go" => {
                options.insert(argument.as_str(), rest.next().ok_or_else(|| format!("{argument} needs a value"))?);
            }
            other => return Err(format!("codegen does not know {other}")),
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(TABLE);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let present = if text.is_empty() { Table::default() } else { Table::parse(text.clone().leak())? };
    let source = match (options.get("--from"), options.get("--from-server")) {
        (Some(folder), None) => Some(Source::from_folder(Path::new(folder))?),
        (None, Some(address)) => Some(Source::from_server(address)?),
        (None, None) => None,
        _ => return Err("--from and --from-server exclude each other".into()),
    };
    let made = match source {
        Some(source) => make(&source, options.get("--go").map(Path::new), &present)?.to_string(),
        None if check => present.to_string(),
        None => return Err("say --from DIR or --from-server ADDR, or --check".into()),
    };
    if made == text {
        return Ok(());
    }
    if check {
        return Err(format!("{TABLE} is not what codegen makes: {}", first_difference(&text, &made)));
    }
    fs::write(&path, made).map_err(|error| format!("{}: {error}", path.display()))
}

fn make(source: &Source, go: Option<&Path>, present: &Table) -> Result<Table, String> {
    let mut table = Table { version: source.version()?, ..Table::default() };
    openapi::read(source, &mut table)?;
    match &source.protobuf {
        Some(messages) => protobuf::read(messages, &mut table)?,
        None => protobuf::keep(present, &mut table),
    }
    match go {
        Some(folder) => golang::read(folder, &mut table)?,
        None => golang::keep(present, &mut table),
    }
    resources::read(source, &mut table)?;
    table.mark_defaults();
    table.check()?;
    Ok(table)
}

fn first_difference(present: &str, made: &str) -> String {
    let mut lines = present.lines().zip(made.lines()).enumerate().filter(|(_, (a, b))| a != b);
    lines
        .next()
        .map_or_else(|| "one of them ends early".to_owned(), |(i, (a, b))| format!("line {}:\n- {a}\n+ {b}", i + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = include_str!("../../../crates/api/src/builtin/table.txt");

    #[test]
    fn the_committed_table_reads_and_prints_as_it_is() {
        let table = Table::parse(COMMITTED).unwrap();
        assert_eq!(table.groups.len(), 22);
        assert!(table.to_string() == COMMITTED, "{}", first_difference(COMMITTED, &table.to_string()));
    }

    #[test]
    fn what_is_not_canonical_is_told() {
        for (from, to) in [
            (" zero", "  zero"),
            ("type core.v1.Pod kind defaults\n", "type core.v1.Pod defaults kind\n"),
            ("group apps/v1 apps.v1\n", ""),
        ] {
            let changed: &str = COMMITTED.replacen(from, to, 1).leak();
            assert_ne!(changed, COMMITTED);
            let told = Table::parse(changed).map(|table| table.to_string() != changed || table.groups.len() != 22);
            assert!(told.unwrap_or(true), "{to}");
        }
        let unknown: &str = COMMITTED.replace("type core.v1.Affinity", "type core.v1.Affinities").leak();
        assert!(Table::parse(unknown).unwrap_err().contains("of the unknown type core.v1.Affinity"));
    }
}
