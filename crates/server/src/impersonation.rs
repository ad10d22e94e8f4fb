//! Acting as somebody else: the `Impersonate-` headers.
//!
//! There are several modes, from the narrowest on: a service account as the node that it runs on, any node, any service
//! account, any other user, and the one that has always been there. The narrow ones ask two questions: may the asker do
//! this while being somebody else (`impersonate-on:user-info:list`), and may he be this somebody
//! (`impersonate:user-info`). The first mode that says yes counts; if none does, the first refusal is the answer.

use capstan_api::{Status, Str, field::Path, go, validation};
use http::HeaderMap;

use crate::{
    authentication::{
        SYSTEM_ANONYMOUS, SYSTEM_AUTHENTICATED, SYSTEM_UNAUTHENTICATED, group_names, header_text, header_texts,
        headers_with_prefix, remove_with_prefix, split_username,
    },
    authorization::{Attributes, Authorizer, SYSTEM_MASTERS, UserInfo, forbidden},
};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODE_PREFIX: &str = "system:node:";
const NODES_GROUP: &str = "system:nodes";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const ASSOCIATED_NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// From this many on, it is asked first whether all of a kind are allowed.
const MANY: usize = 4;

/// Somebody whom the asker may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    /// Who.
    pub user: UserInfo,
    /// The verb that allowed it, for the audit log; empty for the mode that has always been there.
    pub constraint: String,
}

/// Whom the headers ask to be, exactly as they say; `None` if nobody.
///
/// # Errors
/// When they ask for groups, a uid or extra without a name.
pub fn wanted_user(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    let mut user = UserInfo { name: header_text(headers, USER), uid: header_text(headers, UID), ..UserInfo::default() };
    user.groups = header_texts(headers, GROUP).collect();
    for (key, values) in headers_with_prefix(headers, EXTRA_PREFIX) {
        user.extra.entry(key).or_default().extend(values);
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if only_name(&user) {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", show(&user))))
}

/// Removes the headers, so that nothing behind this can tell.
pub fn strip(headers: &mut HeaderMap) {
    for name in [USER, UID, GROUP] {
        headers.remove(name);
    }
    remove_with_prefix(headers, EXTRA_PREFIX);
}

/// The user that `attributes.user` may be while doing what the attributes say.
///
/// # Errors
/// The answer if that is nobody.
pub fn impersonate(
    wanted: &UserInfo,
    attributes: &Attributes<'_>,
    authorizer: &dyn Authorizer,
) -> Result<Impersonated, Status> {
    let requestor = attributes.user;
    let is_node = node_name(&wanted.name).is_some();
    let is_account = split_username(&wanted.name).is_some();
    let mut refusal = None;
    // Which modes there are for this user, in the order in which they are tried.
    for (mode, applies) in [
        ("associated-node", only_name(wanted) && is_associated(requestor, &wanted.name)),
        ("arbitrary-node", only_name(wanted) && is_node),
        ("serviceaccount", only_name(wanted) && is_account),
        ("user-info", !is_node && !is_account),
        ("", true),
    ] {
        if !applies {
            continue;
        }
        match check(mode, wanted, attributes, authorizer) {
            Ok(user) => return Ok(user),
            Err(error) => _ = refusal.get_or_insert(error),
        }
    }
    Err(refusal.unwrap_or_else(|| Status::internal_error("all impersonation modes failed")))
}

fn check(
    mode: &str,
    wanted: &UserInfo,
    attributes: &Attributes<'_>,
    authorizer: &dyn Authorizer,
) -> Result<Impersonated, Status> {
    let mut asker = attributes.user.clone();
    if mode == "associated-node" {
        // The authorizer is not shown which node it is: what it allows, it allows on every node.
        let keys = asker.extra.keys().cloned().collect();
        asker.extra = [(Str::from(ASSOCIATED_NODE_KEYS), keys)].into();
    }
    let constrained = !mode.is_empty();
    let verb = if constrained { format!("impersonate:{mode}") } else { "impersonate".to_owned() };
    let checks = Checks { asker: &asker, verb: &verb, constrained, authorizer };
    if constrained {
        let on = format!("impersonate-on:{mode}:{}", attributes.verb);
        checks.ask(&Attributes { user: &asker, verb: &on, ..*attributes })?;
    }
    let mut user = wanted.clone();
    checks.name(mode, &mut user)?;
    if !wanted.uid.is_empty() {
        checks.ask(&checks.attributes(AUTHENTICATION, "uids", &wanted.uid))?;
    }
    checks.groups(&wanted.groups)?;
    checks.extra(wanted)?;
    let group = if user.name == SYSTEM_ANONYMOUS { SYSTEM_UNAUTHENTICATED } else { SYSTEM_AUTHENTICATED };
    if !user.in_group(group) && !user.in_group(SYSTEM_UNAUTHENTICATED) {
        user.groups.push(group.into());
    }
    Ok(Impersonated { user, constraint: if constrained { verb } else { String::new() } })
}

/// The questions of one mode.
struct Checks<'a> {
    asker: &'a UserInfo,
    verb: &'a str,
    constrained: bool,
    authorizer: &'a dyn Authorizer,
}

impl Checks<'_> {
    fn ask(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let decision = self.authorizer.authorize(attributes);
        if decision.is_allowed() { Ok(()) } else { Err(forbidden(attributes, decision.reason())) }
    }

    fn attributes<'a>(&'a self, group: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        let version = "v1";
        Attributes { name, version, ..Attributes::resource(self.asker, self.verb, group, resource) }
    }

    /// The group of users and groups: it was the core one, before there was another.
    fn group(&self) -> &'static str {
        if self.constrained { AUTHENTICATION } else { "" }
    }

    fn name(&self, mode: &str, user: &mut UserInfo) -> Result<(), Status> {
        let name = user.name.clone();
        let mut attributes = self.attributes(self.group(), "users", &name);
        if let (true, Some(node)) = (self.constrained, node_name(&name)) {
            attributes.resource = "nodes";
            attributes.name = if mode == "associated-node" { "*" } else { node };
            user.groups = vec![NODES_GROUP.into()];
        }
        if let Some((namespace, account)) = split_username(&name) {
            (attributes.resource, attributes.namespace, attributes.name) = ("serviceaccounts", namespace, account);
            if user.groups.is_empty() {
                user.groups = group_names(namespace);
            }
        }
        self.ask(&attributes)
    }

    fn groups(&self, groups: &[Str]) -> Result<(), Status> {
        let attributes = |name| self.attributes(self.group(), "groups", name);
        if self.constrained {
            for (group, reason) in [
                ("", "impersonating the empty string group is not allowed"),
                (SYSTEM_MASTERS, "impersonating the system:masters group is not allowed"),
            ] {
                if groups.iter().any(|own| own == group) {
                    return Err(forbidden(&attributes(group), reason));
                }
            }
            if groups.len() >= MANY && self.ask(&attributes("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.ask(&attributes(group)))
    }

    fn extra(&self, user: &UserInfo) -> Result<(), Status> {
        let attributes =
            |key, value| Attributes { subresource: key, ..self.attributes(AUTHENTICATION, "userextras", value) };
        if self.constrained && !user.extra.is_empty() {
            validate_extra(user).map_err(|reason| forbidden(&attributes("", ""), &reason))?;
            let many = user.extra.len() >= MANY || user.extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && self.ask(&attributes("*", "*")).is_ok() {
                return Ok(());
            }
        }
        let mut pairs = user.extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        pairs.try_for_each(|(key, value)| self.ask(&attributes(key, value)))
    }
}

fn validate_extra(user: &UserInfo) -> Result<(), String> {
    let extra = Path::new("extra");
    let path = extra.child("key");
    for (key, values) in &user.extra {
        if key.is_empty() {
            return Err("impersonating the empty string key in extra is not allowed".into());
        }
        let errors = validation::is_domain_prefixed_path(&path, key);
        if !errors.is_empty() {
            let errors = capstan_api::field::aggregate(&errors);
            return Err(format!("impersonating an invalid key in extra is not allowed: {errors}"));
        }
        if key.chars().any(char::is_uppercase) {
            let key = go::quote(key);
            return Err(format!("impersonating a non-lowercase key in extra is not allowed: {key}"));
        }
        if values.is_empty() {
            return Err("impersonating empty values in extra is not allowed".into());
        }
        if values.iter().any(Str::is_empty) {
            return Err("impersonating the empty string value in extra is not allowed".into());
        }
    }
    Ok(())
}

/// The name of a node from its user name, if it is one's.
fn node_name(username: &str) -> Option<&str> {
    let name = username.strip_prefix(NODE_PREFIX)?;
    validation::name_is_dns_subdomain(name, false).is_empty().then_some(name)
}

/// Whether a service account's token says that it runs on this node.
fn is_associated(requestor: &UserInfo, username: &str) -> bool {
    let own = requestor.extra.get(NODE_NAME).map(Vec::as_slice);
    split_username(&requestor.name).is_some()
        && node_name(username).is_some_and(|node| matches!(own, Some([own]) if own == node))
}

fn only_name(user: &UserInfo) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

/// A user as Go's `%#v` shows it.
fn show(user: &UserInfo) -> String {
    let list = |texts: &[Str]| {
        let texts: Vec<String> = texts.iter().map(|text| go::quote(text)).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{}:{}", go::quote(key), list(values))).collect();
    let extra = match &extra[..] {
        [] => "map[string][]string(nil)".to_owned(),
        extra => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    let (name, uid) = (go::quote(&user.name), go::quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

#[cfg(test)]
mod tests;
