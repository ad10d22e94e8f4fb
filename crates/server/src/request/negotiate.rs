//! In which form the answer is to be.
//!
//! Upstream asks twice, and so do we, because the words of the refusals differ: first whether the route can answer in
//! any form that the client accepts ([`Endpoint::check_accept`]), then which form it is and what is to be made of the
//! object ([`Endpoint::negotiate`]). Of several `Accept` headers only the first counts.

use capstan_api::status::{GenericResponse, Status};

use super::{
    Query,
    accept::{self, Clause},
};

/// A form in which objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' envelope around protobuf.
    Protobuf,
}

/// All forms, in the order in which they are tried and named.
pub(crate) const MEDIA_TYPES: [MediaType; 3] = [MediaType::Json, MediaType::Yaml, MediaType::Protobuf];
/// What the content type of aggregated discovery says behind the media type.
const AGGREGATED: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl MediaType {
    /// Its name: `application/json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            MediaType::Json => "application/json",
            MediaType::Yaml => "application/yaml",
            MediaType::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Its name as a stream of events, if there is such a thing.
    #[must_use]
    pub const fn as_stream(self) -> Option<&'static str> {
        match self {
            MediaType::Json => Some("application/json;stream=watch"),
            MediaType::Yaml => None,
            MediaType::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
        }
    }

    fn subtype(self) -> &'static str {
        &self.as_str()["application/".len()..]
    }
}

/// How far an endpoint speaks protobuf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protobuf {
    /// Not at all: it is as unknown as any other form.
    #[default]
    No,
    /// For what is made of objects, but not for objects. So it is with custom resources.
    Transforms,
    /// For all.
    Yes,
}

/// What may be made of an object, or of a list, before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// A table.
    Table(MetaVersion),
    /// The metadata of an object.
    PartialObjectMetadata(MetaVersion),
    /// The metadata of the objects of a list.
    PartialObjectMetadataList(MetaVersion),
    /// Discovery of everything in one document.
    AggregatedDiscovery,
}

/// The version of `meta.k8s.io` that a [`Transform`] is wanted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`, which looks the same.
    V1beta1,
}

/// What an endpoint serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// Objects, also as their metadata, and as tables if the kind has one.
    Objects {
        /// Whether there are tables. Reviews have none.
        tables: bool,
    },
    /// Documents as they are: groups and versions.
    Documents,
    /// Aggregated discovery, and nothing else.
    AggregatedDiscovery,
}

/// Where a request has arrived, as far as forms go.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// How far protobuf is spoken.
    pub protobuf: Protobuf,
    /// What is served.
    pub serves: Serves,
    /// Whether the route can watch, so that its refusals name the streams too.
    pub streams: bool,
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The form.
    pub media_type: MediaType,
    /// What is made of the object.
    pub transform: Option<Transform>,
    /// Whether the client asks for indentation by the header.
    pub pretty: bool,
}

impl Negotiated {
    /// The content type of the answer.
    #[must_use]
    pub fn content_type(&self) -> String {
        let suffix = if self.transform == Some(Transform::AggregatedDiscovery) { AGGREGATED } else { "" };
        format!("{}{suffix}", self.media_type.as_str())
    }

    /// The content type of a stream of events. For JSON it does not say that it is one.
    #[must_use]
    pub fn stream_content_type(&self) -> &'static str {
        match self.media_type {
            MediaType::Json => MediaType::Json.as_str(),
            other => other.as_stream().unwrap_or(other.as_str()),
        }
    }
}

impl Endpoint {
    /// The forms there are, in order.
    fn media_types(&self) -> impl Iterator<Item = MediaType> + use<> {
        let protobuf = self.protobuf != Protobuf::No;
        MEDIA_TYPES.into_iter().filter(move |ty| *ty != MediaType::Protobuf || protobuf)
    }

    fn names(&self) -> Vec<&'static str> {
        self.media_types().map(MediaType::as_str).collect()
    }

    fn stream_names(&self) -> Vec<&'static str> {
        self.media_types().filter_map(MediaType::as_stream).collect()
    }

    /// Whether the route can answer at all: the client must name a form or take all. Parameters and `application/*` do
    /// not count.
    ///
    /// # Errors
    /// 406, naming what is available.
    pub fn check_accept(&self, accept: &str) -> Result<(), Status> {
        let mut available = self.names();
        if self.streams {
            available.extend(self.stream_names());
        }
        check_route(accept, &available)
    }

    /// Settles the form of the answer.
    ///
    /// # Errors
    /// 406, naming what is accepted.
    pub fn negotiate(&self, accept: &str) -> Result<Negotiated, Status> {
        self.best(accept).ok_or_else(|| Status::not_acceptable(&self.names()))
    }

    /// Settles the form of a stream of events.
    ///
    /// # Errors
    /// 406, naming the streams; also if the best form is one that has no stream, even when another has.
    pub fn negotiate_stream(&self, accept: &str) -> Result<Negotiated, Status> {
        let best = self.best(accept).filter(|found| found.media_type.as_stream().is_some());
        best.ok_or_else(|| Status::not_acceptable(&self.stream_names()))
    }

    fn best(&self, accept: &str) -> Option<Negotiated> {
        if accept.is_empty() {
            let plain = Negotiated { media_type: MediaType::Json, transform: None, pretty: false };
            return (self.serves != Serves::AggregatedDiscovery).then_some(plain);
        }
        accept::parse(accept).iter().find_map(|clause| {
            let fits = |ty: &MediaType| match (clause.ty, clause.subtype) {
                ("*", "*") | ("application", "*") => true,
                ("application", subtype) => subtype == ty.subtype(),
                _ => false,
            };
            self.media_types().filter(fits).find_map(|ty| self.settle(clause, ty))
        })
    }

    /// What is agreed on if this clause is met in this form, or nothing if the endpoint does not do what its parameters
    /// ask for.
    fn settle(&self, clause: &Clause<'_>, media_type: MediaType) -> Option<Negotiated> {
        let (mut kind, mut group, mut version, mut pretty) = (None, None, None, false);
        let (mut stream, mut server_version) = ("", "");
        for (key, value) in clause.parameters() {
            match key {
                "as" => kind = Some(value),
                "g" => group = Some(value),
                "v" => version = Some(value),
                "pretty" => pretty = value == "1",
                "stream" => stream = value,
                "sv" => server_version = value,
                _ => {}
            }
        }
        let streams = stream == "watch" && media_type.as_stream().is_some();
        let versioned = server_version == "v1" && matches!(self.serves, Serves::Objects { .. });
        if !(stream.is_empty() || streams) || !(server_version.is_empty() || versioned) {
            return None;
        }
        let wanted = [kind, group, version];
        let transform = if wanted == [None; 3] {
            let serves = self.serves != Serves::AggregatedDiscovery;
            let speaks = media_type != MediaType::Protobuf || self.protobuf == Protobuf::Yes;
            (serves && speaks).then_some(None)?
        } else {
            Some(self.transform(wanted.map(Option::unwrap_or_default), media_type)?)
        };
        Some(Negotiated { media_type, transform, pretty })
    }

    fn transform(&self, [kind, group, version]: [&str; 3], media_type: MediaType) -> Option<Transform> {
        match self.serves {
            Serves::Documents => None,
            Serves::AggregatedDiscovery => {
                let right = [kind, group, version] == ["APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"];
                right.then_some(Transform::AggregatedDiscovery)
            }
            Serves::Objects { tables } => {
                let version = match (group, version) {
                    ("meta.k8s.io", "v1") => MetaVersion::V1,
                    ("meta.k8s.io", "v1beta1") => MetaVersion::V1beta1,
                    _ => return None,
                };
                match kind {
                    "Table" if tables && media_type != MediaType::Protobuf => Some(Transform::Table(version)),
                    "PartialObjectMetadata" => Some(Transform::PartialObjectMetadata(version)),
                    "PartialObjectMetadataList" => Some(Transform::PartialObjectMetadataList(version)),
                    _ => None,
                }
            }
        }
    }
}

/// Whether a route that answers in these forms can answer this client. Parameters and `application/*` do not count.
///
/// # Errors
/// 406, naming what is available.
pub fn check_route(accept: &str, available: &[&str]) -> Result<(), Status> {
    let bare = |part: &str| part.split(';').next().unwrap_or_default().trim_matches(' ').to_owned();
    if accept.is_empty() || accept.split(',').map(bare).any(|ty| ty == "*/*" || available.contains(&&*ty)) {
        return Ok(());
    }
    let server_message = &*format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
    Err(GenericResponse { code: 406, server_message, ..GenericResponse::default() }.into())
}

/// Whether the answer is indented for people: by the query if it says so, else by the user agent. The `Accept` header
/// may ask for it too: [`Negotiated::pretty`].
#[must_use]
pub fn is_pretty(raw_query: &str, query: &Query<'_>, user_agent: &str) -> bool {
    // Upstream looks for the word before it reads the query.
    if raw_query.contains("pretty")
        && let Some(wanted) = query.get("pretty").filter(|wanted| !wanted.is_empty())
    {
        return matches!(wanted, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| user_agent.starts_with(person))
}

#[cfg(test)]
#[path = "negotiate_tests.rs"]
mod tests;
