//! The audit policy: which requests are recorded, and how much of them.

use std::fmt;

use capstan_api::{
    Map, Str, Value,
    field::{Error, ErrorList, Path, aggregate},
    validation::name_is_dns_subdomain,
    yaml,
};

use crate::{authorization::Attributes, validation::read};

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what and when.
    Metadata,
    /// And what the client sent.
    Request,
    /// And what it got.
    RequestResponse,
}

impl Level {
    /// All of them, in their order.
    pub const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    /// As the policy writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// When an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The request is here.
    RequestReceived,
    /// The answer has begun and has no end yet, as that of a watch.
    ResponseStarted,
    /// The answer is sent.
    ResponseComplete,
    /// There was a panic instead of an answer.
    Panic,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Stage; 4] = [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    /// As the policy and the events write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Whether a stage is one of them.
    #[must_use]
    pub fn has(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    fn read(map: &Map) -> Self {
        let names = read::list(map, "omitStages").iter().filter_map(Value::as_str);
        let stages = names.filter_map(|name| Stage::ALL.into_iter().find(|stage| stage.name() == name));
        Stages(stages.fold(0, |set, stage| set | 1 << stage as u8))
    }
}

/// What the policy says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How much is recorded.
    pub level: Level,
    /// The stages at which nothing is written.
    pub omit_stages: Stages,
    /// Whether objects are recorded without their managed fields.
    pub omit_managed_fields: bool,
}

/// Rules, of which the first that matches decides.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    otherwise: Config,
}

#[derive(Clone, Debug)]
struct Rule {
    config: Config,
    users: Vec<Str>,
    groups: Vec<Str>,
    verbs: Vec<Str>,
    resources: Vec<GroupResources>,
    namespaces: Vec<Str>,
    paths: Vec<Str>,
}

#[derive(Clone, Debug)]
struct GroupResources {
    group: Str,
    resources: Vec<Str>,
    names: Vec<Str>,
}

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyError {
    /// It is neither YAML nor JSON.
    Decode(String),
    /// It is something else than a policy.
    Kind(String),
    /// Some fields are wrong.
    Invalid(ErrorList),
    /// It has no rules.
    Empty,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Decode(error) => write!(f, "failed decoding: {error}"),
            PolicyError::Kind(kind) => write!(f, "unknown group version field {kind} in policy"),
            PolicyError::Invalid(errors) => f.write_str(&aggregate(errors)),
            PolicyError::Empty => f.write_str("loaded illegal policy with 0 rules"),
        }
    }
}

impl std::error::Error for PolicyError {}

fn texts(map: &Map, key: &str) -> Vec<Str> {
    read::list(map, key).iter().filter_map(Value::as_str).map(Str::from).collect()
}

impl Policy {
    /// Reads a policy file. Unknown fields are left alone, as upstream leaves them with a word in its log.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn parse(text: &[u8]) -> Result<Self, PolicyError> {
        let value = yaml::parse(text).map_err(|error| PolicyError::Decode(error.to_string()))?;
        let policy = value.as_object().unwrap_or(read::empty());
        let (version, kind) = (read::text(policy, "apiVersion"), read::text(policy, "kind"));
        if (version, kind) != ("audit.k8s.io/v1", "Policy") {
            return Err(PolicyError::Kind(format!("{version}, Kind={kind}")));
        }
        let errors = validate(policy);
        if !errors.is_empty() {
            return Err(PolicyError::Invalid(errors));
        }
        let otherwise = Config {
            level: Level::None,
            omit_stages: Stages::read(policy),
            omit_managed_fields: read::flag(policy, "omitManagedFields"),
        };
        let rules: Vec<_> = read::objects(policy, "rules").map(|(_, rule)| Rule::read(rule, otherwise)).collect();
        if rules.is_empty() { Err(PolicyError::Empty) } else { Ok(Policy { rules, otherwise }) }
    }

    /// What it says about a request.
    #[must_use]
    pub fn evaluate(&self, request: &Attributes<'_>) -> Config {
        self.rules.iter().find(|rule| rule.matches(request)).map_or(self.otherwise, |rule| rule.config)
    }
}

fn validate(policy: &Map) -> ErrorList {
    let mut errors = ErrorList::new();
    omit_stages(policy, &Path::new("omitStages"), &mut errors);
    let rules = Path::new("rules");
    for (i, rule) in read::objects(policy, "rules") {
        let path = rules.index(i);
        match read::text(rule, "level") {
            "" => errors.push(Error::required(path.child("level"), "")),
            level if Level::ALL.iter().any(|known| known.name() == level) => {}
            level => errors.push(Error::not_supported(path.child("level"), level, &Level::ALL.map(Level::name))),
        }
        let urls = texts(rule, "nonResourceURLs");
        for (j, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let place = path.child("nonResourceURLs");
            let mut invalid = |detail| errors.push(Error::invalid(place.index(j), url.as_str(), detail));
            if !url.starts_with('/') {
                invalid("non-resource URL rules must begin with a '/' character");
            }
            if url.strip_suffix(|_: char| true).is_some_and(|rest| rest.contains('*')) {
                invalid("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        for (_, resources) in read::objects(rule, "resources") {
            let place = path.child("resources");
            let group = read::text(resources, "group");
            let messages = name_is_dns_subdomain(group, false);
            if !matches!(group, "" | "*") && !messages.is_empty() {
                errors.push(Error::invalid(place.child("group"), group, messages.join(",")));
            }
            let names =
                resources.get("resourceNames").filter(|names| names.as_array().is_some_and(|names| !names.is_empty()));
            if let Some(names) = names
                && read::list(resources, "resources").is_empty()
            {
                let detail = "using resourceNames requires at least one resource";
                errors.push(Error::invalid(place.child("resourceNames"), names.clone(), detail));
            }
        }
        omit_stages(rule, &path.child("omitStages"), &mut errors);
        let of_resources = !read::list(rule, "resources").is_empty() || !read::list(rule, "namespaces").is_empty();
        if !urls.is_empty() && of_resources {
            let value = rule.get("nonResourceURLs").cloned().unwrap_or(Value::Null);
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(Error::invalid(path.child("nonResourceURLs"), value, detail));
        }
    }
    errors
}

fn omit_stages(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for (i, stage) in texts(map, "omitStages").iter().enumerate() {
        if !Stage::ALL.iter().any(|known| known.name() == stage) {
            let detail = format!("allowed stages are {}", Stage::ALL.map(Stage::name).join(","));
            errors.push(Error::invalid(path.index(i), stage.as_str(), detail));
        }
    }
}

impl Rule {
    fn read(rule: &Map, otherwise: Config) -> Self {
        let level = read::text(rule, "level");
        let resources = read::objects(rule, "resources").map(|(_, resources)| GroupResources {
            group: read::text(resources, "group").into(),
            resources: texts(resources, "resources"),
            names: texts(resources, "resourceNames"),
        });
        let omit = rule.get("omitManagedFields").and_then(Value::as_bool);
        Rule {
            config: Config {
                level: Level::ALL.into_iter().find(|known| known.name() == level).unwrap_or(Level::None),
                omit_stages: Stages(Stages::read(rule).0 | otherwise.omit_stages.0),
                omit_managed_fields: omit.unwrap_or(otherwise.omit_managed_fields),
            },
            users: texts(rule, "users"),
            groups: texts(rule, "userGroups"),
            verbs: texts(rule, "verbs"),
            resources: resources.collect(),
            namespaces: texts(rule, "namespaces"),
            paths: texts(rule, "nonResourceURLs"),
        }
    }

    fn matches(&self, request: &Attributes<'_>) -> bool {
        let allows = |list: &[Str], text: &str| list.is_empty() || list.iter().any(|own| own == text);
        if !allows(&self.users, &request.user.name)
            || !self.groups.is_empty() && !self.groups.iter().any(|group| request.user.in_group(group))
            || !allows(&self.verbs, request.verb)
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return request.is_resource
                && allows(&self.namespaces, request.namespace)
                && (self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(request)));
        }
        self.paths.is_empty() || !request.is_resource && self.paths.iter().any(|path| has_path(path, request.path))
    }
}

impl GroupResources {
    fn matches(&self, request: &Attributes<'_>) -> bool {
        if self.group != "*" && self.group != request.group {
            return false;
        }
        let named = self.names.is_empty() || self.names.iter().any(|name| name == request.name);
        self.resources.is_empty() || named && self.resources.iter().any(|own| is_resource(own, request))
    }
}

/// `pods` is none of its subresources; `pods/*` is it and all of them, `*/status` that of every resource.
fn is_resource(own: &str, request: &Attributes<'_>) -> bool {
    let (resource, subresource) = (request.resource, request.subresource);
    match own.split_once('/') {
        _ if own == "*" => true,
        Some((own, "*")) if own == resource => true,
        Some(("*", own)) if !subresource.is_empty() && own == subresource => true,
        Some((own, part)) => !subresource.is_empty() && own == resource && part == subresource,
        None => subresource.is_empty() && own == resource,
    }
}

fn has_path(own: &str, path: &str) -> bool {
    own == "*" || own == path || own.ends_with('*') && path.starts_with(own.trim_end_matches('*'))
}
