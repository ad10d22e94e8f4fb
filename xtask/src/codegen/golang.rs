//! Go's own types, out of its source: the names that messages use, and what is encoded of a field that was never set.
//!
//! This reads declarations line by line, as gofmt writes them; it is no parser of Go.

use std::{collections::BTreeMap, fs, path::Path};

use capstan_api::builtin::text::{Absent, full_name, go_type, is_zero};

use super::{
    model::{Table, element},
    openapi::leak,
};

/// The types of a package: what stands behind the name, and the fields if that is a struct.
type Package = BTreeMap<String, Declared>;

#[derive(Debug, Default)]
struct Declared {
    /// `struct`, `string`, `[]string`, `map[string]Quantity` …
    underlying: String,
    /// Fields by the name in JSON.
    fields: BTreeMap<String, GoField>,
    /// Embedded structs of the same package.
    embedded: Vec<String>,
}

#[derive(Clone, Debug)]
struct GoField {
    ty: String,
    omit_empty: bool,
    omit_zero: bool,
}

/// Adds what Go's source in `folder` says: `folder` has the modules `api@v0.36.3`, `apimachinery@v0.36.3` …
pub(crate) fn read(folder: &Path, table: &mut Table) -> Result<(), String> {
    let modules = format!("@v0.{}", table.version.trim_start_matches("v1."));
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    for (name, ty) in &mut table.types {
        let (package, kind) = name.rsplit_once('.').ok_or("a type without package")?;
        if !packages.contains_key(package) {
            packages.insert(package.to_owned(), read_package(&folder.join(directory(package, &modules)))?);
        }
        let declared = &packages[package];
        for field in ty.fields.values_mut().filter(|field| !is_type_meta(field.name, ty.kind)) {
            let found = find(declared, kind, field.name);
            let go = found.ok_or_else(|| format!("{name}.{} is not in Go's source", field.name))?;
            let version = package.rsplit('.').next().unwrap_or_default();
            let printed = reflected(go.ty.trim_start_matches('*'), version);
            field.go = (printed != go_type(field.ty)).then(|| leak(printed));
            (field.absent, field.default) = said(absent(&go, field.ty, declared), field.default);
        }
    }
    Ok(())
}

/// Takes from `present` what only Go knows.
pub(crate) fn keep(present: &Table, table: &mut Table) {
    for (name, ty) in &mut table.types {
        let known = present.types.get(name);
        for field in ty.fields.values_mut() {
            let known = known.and_then(|known| known.fields.get(field.name)).filter(|known| known.ty == field.ty);
            field.go = known.and_then(|known| known.go);
            let published = field.default;
            (field.absent, field.default) = match known {
                Some(known)
                    if known.default == published
                        || (known.absent == Absent::Zero && published.is_some_and(is_zero)) =>
                {
                    (known.absent, known.default)
                }
                _ => said(if published.is_some_and(is_zero) { Absent::Zero } else { Absent::Dropped }, published),
            };
        }
    }
}

/// What the table says of a field that Go encodes as `absent` when it was never set.
fn said(absent: Absent, default: Option<&'static str>) -> (Absent, Option<&'static str>) {
    match absent {
        Absent::Zero if default.is_some_and(is_zero) => (Absent::Zero, None),
        absent => (absent, default),
    }
}

fn is_type_meta(field: &str, kind: bool) -> bool {
    kind && matches!(field, "apiVersion" | "kind")
}

/// `api@v0.36.3/core/v1` for `core.v1`.
fn directory(package: &str, modules: &str) -> String {
    let path = full_name(package).replacen("io.k8s.", "", 1).replace('.', "/");
    let (module, rest) = path.split_once('/').unwrap_or((&path, ""));
    format!("{module}{modules}/{rest}")
}

fn read_package(folder: &Path) -> Result<Package, String> {
    let mut package = Package::new();
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.ends_with(".go") || name.ends_with("_test.go") || name.contains("generated") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(wrong)?;
        let mut open: Option<(String, Declared)> = None;
        for line in text.lines() {
            if let Some((name, declared)) = &mut open {
                if line == "}" {
                    package.insert(std::mem::take(name), std::mem::take(declared));
                    open = None;
                } else {
                    read_field(line, declared);
                }
            } else if let Some(declaration) = line.strip_prefix("type ") {
                let declaration = declaration.split("//").next().unwrap_or_default().trim();
                let Some((name, underlying)) = declaration.split_once(' ') else { continue };
                let declared = Declared { underlying: underlying.to_owned(), ..Declared::default() };
                match underlying {
                    "struct {" => open = Some((name.to_owned(), declared)),
                    _ => drop(package.insert(name.to_owned(), declared)),
                }
            }
        }
    }
    Ok(package)
}

/// Reads a line like ``Name string `json:"name,omitempty"` ``.
fn read_field(line: &str, declared: &mut Declared) {
    let Some((before, tag)) = line.trim().split_once(" `json:\"") else { return };
    let Some((json, _)) = tag.split_once('"') else { return };
    let mut options = json.split(',');
    let name = options.next().unwrap_or_default();
    let options: Vec<&str> = options.collect();
    match before.split_whitespace().collect::<Vec<_>>()[..] {
        [embedded] if name.is_empty() => declared.embedded.push(embedded.to_owned()),
        // An embedded struct that has a name in JSON is a field like any other; types with spaces in them do not occur.
        [ty] | [_, ty] => {
            let (omit_empty, omit_zero) = (options.contains(&"omitempty"), options.contains(&"omitzero"));
            declared.fields.insert(name.to_owned(), GoField { ty: ty.to_owned(), omit_empty, omit_zero });
        }
        _ => {}
    }
}

/// The field `name` of `kind`, or of a struct that it embeds, or of the type that it is another name for.
fn find(package: &Package, kind: &str, name: &str) -> Option<GoField> {
    let declared = package.get(kind)?;
    let own = declared.fields.get(name).cloned();
    own.or_else(|| declared.embedded.iter().find_map(|embedded| find(package, embedded, name)))
        .or_else(|| package.contains_key(&declared.underlying).then(|| find(package, &declared.underlying, name))?)
}

/// A type as Go's reflection prints it: packages by their own names, not by those of the import.
fn reflected(ty: &str, version: &str) -> String {
    if let Some(rest) = ty.strip_prefix("[]") {
        return format!("[]{}", reflected(rest, version));
    }
    if let Some((key, value)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", reflected(key, version), reflected(value, version));
    }
    if let Some(rest) = ty.strip_prefix('*') {
        return format!("*{}", reflected(rest, version));
    }
    match ty.split_once('.') {
        // Imports are called after the group: metav1, corev1, apiv1.
        Some((package, name)) => {
            let package = package.find("v1").or(package.find("v2")).map_or(package, |at| &package[at..]);
            format!("{package}.{name}")
        }
        None if ty == "byte" => "uint8".to_owned(),
        None if ty.starts_with(char::is_lowercase) => ty.to_owned(),
        None => format!("{version}.{ty}"),
    }
}

/// What Go encodes of a field that was never set.
fn absent(go: &GoField, ty: &str, package: &Package) -> Absent {
    let underlying = package.get(&go.ty).map_or(go.ty.as_str(), |declared| &declared.underlying);
    let pointer = underlying.starts_with('*');
    let nil = pointer || underlying.starts_with("[]") || underlying.starts_with("map[") || ty.starts_with(['[', '{']);
    let by_itself_null = matches!(ty, "time" | "micro-time" | "raw" | "json");
    let is_struct = element(ty) == ty && ty.contains('.');
    let object = is_struct || by_itself_null || matches!(ty, "quantity" | "int-or-string");
    if go.omit_zero || (go.omit_empty && (nil || !object)) {
        if pointer && !is_struct { Absent::Pointer } else { Absent::Dropped }
    } else if nil || by_itself_null {
        Absent::Null
    } else {
        Absent::Zero
    }
}
