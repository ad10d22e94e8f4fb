//! What is asked of an authorizer, and what it answers.

use std::collections::BTreeMap;

use capstan_api::{
    Str,
    selector::{FieldRequirement, Requirement},
};

/// The group whose members may do anything.
pub const SYSTEM_MASTERS: &str = "system:masters";

/// Somebody who has been authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The name.
    pub name: Str,
    /// Tells this user from earlier ones of the same name; may be empty.
    pub uid: Str,
    /// The groups that the user is in.
    pub groups: Vec<Str>,
    /// Whatever else the authenticator knows.
    pub extra: BTreeMap<Str, Vec<Str>>,
}

impl UserInfo {
    /// A user by name and groups.
    pub fn new<'a>(name: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        UserInfo { name: name.into(), groups: groups.into_iter().map(Str::from).collect(), ..UserInfo::default() }
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// What somebody wants to do. Texts that do not apply are empty.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who.
    pub user: &'a UserInfo,
    /// The verb of the API for resources, else the HTTP method in lower case.
    pub verb: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The version, `*` where any will do.
    pub version: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
    /// The part of the resource.
    pub subresource: &'a str,
    /// The object's name; empty for lists and creations.
    pub name: &'a str,
    /// The namespace; empty for what is in none and for requests over all.
    pub namespace: &'a str,
    /// The path of the URL.
    pub path: &'a str,
    /// Whether it is about a resource, and not just about a path.
    pub is_resource: bool,
    /// What a list or watch is limited to by fields.
    pub field_selector: &'a [FieldRequirement],
    /// What a list or watch is limited to by labels.
    pub label_selector: &'a [Requirement],
}

impl<'a> Attributes<'a> {
    /// A request about a path that is no resource's.
    #[must_use]
    pub fn non_resource(user: &'a UserInfo, verb: &'a str, path: &'a str) -> Self {
        Attributes {
            user,
            verb,
            path,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            name: "",
            namespace: "",
            is_resource: false,
            field_selector: &[],
            label_selector: &[],
        }
    }

    /// A request about a resource of any version; the rest is set by field.
    #[must_use]
    pub fn resource(user: &'a UserInfo, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Attributes { group, version: "*", resource, is_resource: true, ..Attributes::non_resource(user, verb, "") }
    }
}

/// An authorizer's answer, each with its reason, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead.
    Allow(String),
    /// Refused, whatever others say.
    Deny(String),
    /// Ask the next; refused if there is none.
    NoOpinion(String),
}

impl Decision {
    /// Whether it may be done.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &str {
        let (Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason)) = self;
        reason
    }
}
