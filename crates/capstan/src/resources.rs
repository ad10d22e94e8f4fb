//! `capstan api-resources`: the built-in kinds, as kubectl lists what a server has.

use std::io::{self, Write as _};

use capstan_api::{Name, builtin};

/// Prints the kinds as a table.
pub(crate) fn print() -> Result<(), String> {
    let mut rows = vec![["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"].map(str::to_owned)];
    rows.extend(builtin::kinds().map(|kind| {
        let short: Vec<&str> = kind.short_names.iter().map(Name::as_str).collect();
        let (name, version) = (kind.resource.to_string(), kind.group_version.to_string());
        [name, short.join(","), version, kind.namespaced.to_string(), kind.kind.to_string()]
    }));
    let widths = [0, 1, 2, 3].map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut out = io::stdout().lock();
    for [name, short, version, namespaced, kind] in rows {
        let [a, b, c, d] = widths;
        let line = writeln!(out, "{name:a$}   {short:b$}   {version:c$}   {namespaced:d$}   {kind}");
        match line {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(|error| error.to_string())?,
        }
    }
    Ok(())
}
