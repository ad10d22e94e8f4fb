//! Where facts come from: a folder, or a server that runs.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
};

use capstan_api::{Value, json};

use super::openapi::text;

/// The published definition of an API.
pub(crate) struct Source {
    version: Value,
    /// One document a group version.
    pub(crate) openapi: Vec<Value>,
    /// Aggregated discovery of `/api` and `/apis`.
    pub(crate) discovery: [Value; 2],
    /// Printer columns by the path of the list.
    pub(crate) columns: BTreeMap<String, Value>,
    /// Messages and their fields, if the source has them.
    pub(crate) protobuf: Option<Value>,
}

const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// How much of an answer is read at most.
const MAX_ANSWER: u64 = 64 << 20;

impl Source {
    /// The release: `v1.36.3`.
    pub(crate) fn version(&self) -> Result<String, String> {
        Ok(text(&self.version, "gitVersion").ok_or("the version has no gitVersion")?.to_owned())
    }

    /// Reads a folder.
    pub(crate) fn from_folder(folder: &Path) -> Result<Source, String> {
        let read = |path: &Path| {
            let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            json::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let openapi = folder.join("openapi-v3");
        let entries = fs::read_dir(&openapi).map_err(|error| format!("{}: {error}", openapi.display()))?;
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let columns = read(&folder.join("tables.json"))?;
        let columns = columns.as_object().ok_or("tables.json is no object")?;
        Ok(Source {
            version: read(&folder.join("version.json"))?,
            openapi: paths.iter().map(|path| read(path)).collect::<Result<_, _>>()?,
            discovery: [read(&folder.join("discovery-api.json"))?, read(&folder.join("discovery-apis.json"))?],
            columns: columns.iter().map(|(path, columns)| (path.to_owned(), columns.clone())).collect(),
            protobuf: Some(read(&folder.join("protobuf.json"))?),
        })
    }

    /// Asks the server at `address`.
    pub(crate) fn from_server(address: &str) -> Result<Source, String> {
        let plain = "application/json";
        let discovery = [get(address, "/api", DISCOVERY)?, get(address, "/apis", DISCOVERY)?];
        let groups = ["/openapi/v3/api", "/openapi/v3/apis"].map(|path| get(address, path, plain));
        let mut openapi = groups.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut columns = BTreeMap::new();
        for group in discovery.iter().filter_map(|list| list.get("items")?.as_array()).flatten() {
            let name = group.get("metadata").and_then(|metadata| text(metadata, "name")).unwrap_or_default();
            for version in group.get("versions").and_then(Value::as_array).into_iter().flatten() {
                let number = text(version, "version").unwrap_or_default();
                let path = if name.is_empty() { format!("api/{number}") } else { format!("apis/{name}/{number}") };
                openapi.push(get(address, &format!("/openapi/v3/{path}"), plain)?);
                for resource in version.get("resources").and_then(Value::as_array).into_iter().flatten() {
                    let listed = super::openapi::strings(resource, "verbs").contains(&"list");
                    let Some(resource) = text(resource, "resource").filter(|_| listed) else { continue };
                    let path = format!("/{path}/{resource}");
                    let table = get(address, &format!("{path}?limit=1"), TABLE)?;
                    let found = table.get("columnDefinitions").cloned();
                    columns.insert(path, found.ok_or("a table without columnDefinitions")?);
                }
            }
        }
        Ok(Source { version: get(address, "/version", plain)?, openapi, discovery, columns, protobuf: None })
    }
}

/// Asks for one document over plain HTTP.
fn get(address: &str, path: &str, accept: &str) -> Result<Value, String> {
    let wrong = |error: std::io::Error| format!("{address}{path}: {error}");
    let mut stream = TcpStream::connect(address).map_err(wrong)?;
    // HTTP/1.0 keeps the answer in one piece, without chunks, and ends it with the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n").map_err(wrong)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).map_err(wrong)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.ok_or_else(|| format!("{address}{path}: no answer"))? + 4);
    let status = String::from_utf8_lossy(head.split(|c| *c == b'\r').next().unwrap_or_default()).into_owned();
    if !status.contains(" 200 ") {
        return Err(format!("{address}{path}: {status}"));
    }
    json::parse(body).map_err(|error| format!("{address}{path}: {error}"))
}
