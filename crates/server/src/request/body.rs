//! In which form the request's body is.

use capstan_api::{
    codec::Format,
    status::{GenericResponse, Status},
};

use super::{
    MediaType,
    negotiate::{MEDIA_TYPES, Protobuf},
};

/// What a patch is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// A JSON patch: a list of operations.
    Json,
    /// A merge patch: a partial object.
    Merge,
    /// A strategic merge patch: a partial object, merged by what the kind says of its lists.
    StrategicMerge,
    /// An applied configuration.
    Apply,
}

/// All patches, in the order in which refusals name them.
const PATCH_TYPES: [PatchType; 4] = [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge, PatchType::Apply];

impl PatchType {
    /// The content type: `application/json-patch+json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::StrategicMerge => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }

    /// The format of the patch.
    #[must_use]
    pub const fn format(self) -> Format {
        match self {
            PatchType::Apply => Format::Yaml,
            _ => Format::Json,
        }
    }

    /// Reads the content type of a patch on a built-in kind.
    ///
    /// # Errors
    /// 415. As with answers, the route refuses in other words than the handler, and is less exact.
    pub fn parse(content_type: &str) -> Result<Self, Status> {
        let bare = |part: &str| part.split(';').next().unwrap_or_default().trim_matches(' ').to_owned();
        let known = |ty: String| PATCH_TYPES.iter().any(|patch| patch.as_str() == ty);
        if !content_type.split(',').map(bare).any(known) {
            let server_message = "415: Unsupported Media Type";
            return Err(GenericResponse { code: 415, server_message, ..GenericResponse::default() }.into());
        }
        PatchType::find(content_type, &PATCH_TYPES)
    }

    /// Reads the content type of a patch on a custom resource, whose lists have no strategy.
    ///
    /// # Errors
    /// 415.
    pub fn parse_custom(content_type: &str) -> Result<Self, Status> {
        PatchType::find(content_type, &[PatchType::Json, PatchType::Merge, PatchType::Apply])
    }

    fn find(content_type: &str, patches: &[PatchType]) -> Result<Self, Status> {
        let end = content_type.find(';').filter(|&at| at > 0).unwrap_or(content_type.len());
        let found = patches.iter().find(|patch| patch.as_str() == &content_type[..end]).copied();
        let names = || patches.iter().map(|patch| patch.as_str()).collect::<Vec<_>>();
        found.ok_or_else(|| Status::unsupported_media_type(&names()))
    }
}

/// Reads the content type of an object; nothing is JSON.
///
/// # Errors
/// 415, naming what can be read.
pub fn body_media_type(content_type: &str, protobuf: Protobuf) -> Result<MediaType, Status> {
    let spoken = |ty: &MediaType| *ty != MediaType::Protobuf || protobuf != Protobuf::No;
    if content_type.is_empty() {
        return Ok(MediaType::Json);
    }
    let (base, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let base = base.trim();
    let found = MEDIA_TYPES.into_iter().filter(spoken).find(|ty| ty.as_str().eq_ignore_ascii_case(base));
    // Upstream names protobuf also where it cannot be read.
    found
        .filter(|_| parameters_are_good(parameters))
        .ok_or_else(|| Status::unsupported_media_type(&MEDIA_TYPES.map(MediaType::as_str)))
}

/// Whether Go's reader of media types takes these parameters, of which nothing more is wanted.
fn parameters_are_good(text: &str) -> bool {
    let mut seen: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((key, value, behind)) = parameter(rest) else { return false };
        match seen.iter().find(|(name, _)| *name == key) {
            // The same once more does no harm.
            Some((_, first)) if *first == value => {}
            Some(_) => return false,
            None if seen.len() == MAX_PARAMETERS => return false,
            None => seen.push((key, value)),
        }
        let behind = behind.trim_start();
        rest = match behind.strip_prefix(';') {
            Some(next) => next.trim_start(),
            None if behind.is_empty() => "",
            None => return false,
        };
    }
    true
}

/// How many parameters of a content type are looked at; nobody sends more than one.
const MAX_PARAMETERS: usize = 100;

/// The parameter at the beginning and what is behind it.
fn parameter(text: &str) -> Option<(String, String, &str)> {
    let (key, rest) = token(text)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        None => token(rest).map(|(value, rest)| (value.to_owned(), rest))?,
        Some(quoted) => quoted_string(quoted)?,
    };
    Some((key.to_ascii_lowercase(), value, rest))
}

/// Characters that HTTP does not give a meaning to.
fn token(text: &str) -> Option<(&str, &str)> {
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    let end = text.bytes().position(|c| !is_token(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// The text up to the closing quote, without its escapes.
fn quoted_string(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            '\r' | '\n' => return None,
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects() {
        use MediaType::{Json, Protobuf as Proto, Yaml};
        for (content_type, expected) in [
            ("", Some(Json)),
            ("application/json; charset=utf-8", Some(Json)),
            ("application/JSON", Some(Json)),
            (" application/json ;", Some(Json)),
            ("application/json;a=1; A=\"1\" ; b=\"\\\"\"", Some(Json)),
            ("application/yaml", Some(Yaml)),
            ("application/vnd.kubernetes.protobuf", Some(Proto)),
            ("application/json; x", None),
            ("application/json; x=", None),
            ("application/json; x=\"", None),
            ("application/json; x=1; x=2", None),
            ("application/json; x=1 2", None),
            ("application/x-yaml", None),
            ("text/plain", None),
            ("a/b/c", None),
            ("application/cbor", None),
            (";", None),
        ] {
            assert_eq!(body_media_type(content_type, Protobuf::Yes).ok(), expected, "{content_type}");
        }
        let words = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        for (content_type, protobuf) in
            [("text/plain", Protobuf::Yes), ("application/vnd.kubernetes.protobuf", Protobuf::No)]
        {
            let refused = body_media_type(content_type, protobuf).unwrap_err();
            assert_eq!((refused.code, &*refused.message), (415, words));
        }
    }

    #[test]
    fn patches() {
        let said = |answer: Result<PatchType, Status>| match answer {
            Ok(patch) => format!("{patch:?}"),
            Err(status) => status.message,
        };
        let list = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json";
        let all = &*format!("{list}, application/strategic-merge-patch+json, application/apply-patch+yaml");
        let custom = &*format!("{list}, application/apply-patch+yaml");
        let route = "415: Unsupported Media Type";
        for (content_type, expected, expected_custom) in [
            ("application/json-patch+json", "Json", "Json"),
            ("application/merge-patch+json; charset=utf-8", "Merge", "Merge"),
            ("application/strategic-merge-patch+json", "StrategicMerge", custom),
            ("application/apply-patch+yaml", "Apply", "Apply"),
            ("application/merge-patch+json ;x", all, custom),
            ("text/x,application/merge-patch+json", all, custom),
            ("application/json", route, custom),
            ("application/Merge-Patch+json", route, custom),
            ("", route, custom),
            (";", route, custom),
        ] {
            assert_eq!(said(PatchType::parse(content_type)), expected, "{content_type}");
            assert_eq!(said(PatchType::parse_custom(content_type)), expected_custom, "{content_type}");
        }
    }
}
