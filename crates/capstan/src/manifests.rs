//! `capstan validate` and `capstan default`: manifests against the rules of the built-in kinds, without a server.

use std::{
    fs,
    io::{self, Read as _},
};

use capstan_api::{
    GroupVersionKind, Value, builtin,
    codec::{self, Format},
    field::ErrorList,
    json, yaml,
};

/// A document of a file, for messages.
struct Document {
    place: String,
    text: Vec<u8>,
}

/// Says for each object whether it fits, and what is wrong with it.
pub(crate) fn validate(arguments: &[&str]) -> Result<(), String> {
    let (mut checked, mut wrong) = (0, 0);
    for document in documents(arguments)? {
        checked += 1;
        if let Err(problems) = load(&document.text).and_then(Object::check) {
            wrong += 1;
            for problem in problems {
                println!("{}: {problem}", document.place);
            }
        }
    }
    if wrong > 0 {
        return Err(format!("{wrong} of {checked} objects are wrong"));
    }
    println!("{checked} objects, nothing wrong");
    Ok(())
}

/// Prints each object with what the server would fill in.
pub(crate) fn default(arguments: &[&str]) -> Result<(), String> {
    for (at, document) in documents(arguments)?.iter().enumerate() {
        let object = load(&document.text).map_err(|problems| format!("{}: {}", document.place, problems.join(", ")))?;
        if at > 0 {
            println!("---");
        }
        print!("{}", yaml::to_string(&object.value));
    }
    Ok(())
}

/// An object of a built-in kind, decoded and defaulted.
struct Object {
    value: Value,
    strict: codec::StrictErrors,
    wrong: ErrorList,
}

impl Object {
    fn check(self) -> Result<(), Vec<String>> {
        let strict = self.strict.as_slice().iter().map(ToString::to_string);
        let problems: Vec<String> = strict.chain(self.wrong.iter().map(ToString::to_string)).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

fn load(text: &[u8]) -> Result<Object, Vec<String>> {
    let one = |error: String| vec![error];
    let format = Format::guess(text);
    let (raw, duplicates) = codec::decode_strict(text, format).map_err(|error| one(error.to_string()))?;
    let field = |name: &str| raw.get(name).and_then(Value::as_str).unwrap_or_default();
    let gvk = GroupVersionKind::from_api_version_and_kind(field("apiVersion"), field("kind"));
    if gvk.kind.is_empty() || gvk.version.is_empty() {
        return Err(one("apiVersion and kind must be set".to_owned()));
    }
    let Some(schema) = builtin::schema(&gvk) else {
        return Err(one(format!("no kind {:?} is registered for version {:?}", gvk.kind.as_str(), gvk.api_version())));
    };
    // Decoding by type goes over JSON; YAML is turned into that first, and its duplicates are kept.
    let json = match format {
        Format::Json => text.to_vec(),
        Format::Yaml => json::to_string(&raw).into_bytes(),
    };
    let mut decoded = schema.decode(&json).map_err(|error| one(error.to_string()))?;
    if matches!(format, Format::Yaml) {
        decoded.strict.extend(duplicates);
    }
    let wrong = builtin::check(&schema, &decoded.value);
    builtin::default(&schema, &mut decoded.value);
    Ok(Object { value: decoded.value, strict: decoded.strict, wrong })
}

fn documents(arguments: &[&str]) -> Result<Vec<Document>, String> {
    let files = match arguments {
        ["-f", files @ ..] if !files.is_empty() => files,
        _ => return Err("name the files with -f; `-` is standard input".to_owned()),
    };
    let mut documents = Vec::new();
    for file in files {
        let text = read(file).map_err(|error| format!("{file}: {error}"))?;
        if Format::guess(&text) == Format::Json {
            documents.push(Document { place: (*file).to_owned(), text });
            continue;
        }
        for (at, part) in yaml::documents(&text).enumerate() {
            let part = part.map_err(|error| format!("{file}: {error}"))?;
            documents.push(Document { place: format!("{file}, document {}", at + 1), text: part.to_vec() });
        }
    }
    Ok(documents)
}

/// The longest file that is read; each of its documents has the limit of the codec.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Reads a file or standard input whole.
fn read(file: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if file == "-" {
        io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    } else {
        fs::File::open(file)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    }
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}
