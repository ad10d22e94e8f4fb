//! Asking whether somebody may do something. The host answers.

use std::{fmt, rc::Rc};

use super::{Call, Impl, fail, made, yes};
use crate::value::{Outcome, Val};

/// Who answers.
pub trait Authorizer {
    /// Whether that is allowed. It is asked about the user of the request unless a service account is named.
    fn authorize(&self, question: &Question) -> Decision;
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The namespace and the name of the service account that is asked about.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The path of a request that is not about a resource.
    pub path: Option<String>,
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The field selector.
    pub field_selector: String,
    /// The label selector.
    pub label_selector: String,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// What an expression has in its hands on the way to an answer.
#[derive(Clone)]
pub struct AuthzVal<'a> {
    authorizer: &'a dyn Authorizer,
    stage: Stage,
    question: Question,
    decision: Decision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision,
}

impl fmt::Debug for AuthzVal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthzVal").field("stage", &self.stage).field("question", &self.question).finish_non_exhaustive()
    }
}

impl<'a> AuthzVal<'a> {
    /// The variable `authorizer`.
    #[must_use]
    pub fn variable(authorizer: &'a dyn Authorizer) -> Val<'a> {
        let (question, decision) = (Question::default(), Decision::default());
        Val::Authz(Rc::new(AuthzVal { authorizer, stage: Stage::Authorizer, question, decision }))
    }

    /// The variable `authorizer.requestResource`: the resource that the request is about.
    #[must_use]
    pub fn resource(authorizer: &'a dyn Authorizer, question: Question) -> Val<'a> {
        Val::Authz(Rc::new(AuthzVal { authorizer, stage: Stage::Resource, question, decision: Decision::default() }))
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
            Stage::Decision => "kubernetes.authorization.Decision",
        }
    }

    fn next(&self, stage: Stage, change: impl FnOnce(&mut Question)) -> Option<Outcome<'a>> {
        let mut next = self.clone();
        next.stage = stage;
        change(&mut next.question);
        if stage == Stage::Decision {
            next.decision = next.authorizer.authorize(&next.question);
        }
        Some(Ok(Val::Authz(Rc::new(next))))
    }
}

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "path" => |call| {
            at(call, Stage::Authorizer, |authz, text| {
                if text.is_empty() {
                    return fail("path must not be empty");
                }
                authz.next(Stage::Path, |question| question.path = Some(text))
            })
        },
        "group" => {
            |call| at(call, Stage::Authorizer, |authz, text| authz.next(Stage::Group, |question| question.group = text))
        }
        "serviceAccount" => service_account,
        "resource" => |call| {
            at(call, Stage::Group, |authz, text| {
                if text.is_empty() {
                    return fail("resource must not be empty");
                }
                authz.next(Stage::Resource, |question| question.resource = text)
            })
        },
        "subresource" => |call| refine(call, |question, text| question.subresource = text),
        "namespace" => |call| refine(call, |question, text| question.namespace = text),
        "name" => |call| refine(call, |question, text| question.name = text),
        "fieldSelector" => |call| refine(call, |question, text| question.field_selector = text),
        "labelSelector" => |call| refine(call, |question, text| question.label_selector = text),
        "check" => |call| match call.args {
            [Val::Authz(authz), Val::String(verb)] if matches!(authz.stage, Stage::Path | Stage::Resource) => {
                let verb = verb.to_string();
                authz.next(Stage::Decision, |question| question.verb = verb)
            }
            _ => None,
        },
        "allowed" => |call| decision(call).and_then(|decision| yes(decision.allowed)),
        "reason" => |call| decision(call).and_then(|decision| made(decision.reason.as_str())),
        "errored" => |call| decision(call).and_then(|decision| yes(decision.error.is_some())),
        "error" => |call| decision(call).and_then(|decision| made(decision.error.clone().unwrap_or_default())),
        _ => return None,
    })
}

fn at<'a>(
    call: &Call<'_, 'a>,
    stage: Stage,
    then: fn(&AuthzVal<'a>, String) -> Option<Outcome<'a>>,
) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Authz(authz), Val::String(text)] if authz.stage == stage => then(authz, text.to_string()),
        _ => None,
    }
}

fn refine<'a>(call: &Call<'_, 'a>, change: fn(&mut Question, String)) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Authz(authz), Val::String(text)] if authz.stage == Stage::Resource => {
            let text = text.to_string();
            authz.next(Stage::Resource, |question| change(question, text))
        }
        _ => None,
    }
}

fn service_account<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let [Val::Authz(authz), Val::String(namespace), Val::String(name)] = call.args else { return None };
    if authz.stage != Stage::Authorizer {
        return None;
    }
    if !capstan_api::validation::name_is_dns_subdomain(name, false).is_empty() {
        return fail("Invalid service account name");
    }
    if !capstan_api::validation::name_is_dns_label(namespace, false).is_empty() {
        return fail("Invalid service account namespace");
    }
    let account = (namespace.to_string(), name.to_string());
    authz.next(Stage::Authorizer, |question| question.service_account = Some(account))
}

fn decision<'c>(call: &'c Call<'_, '_>) -> Option<&'c Decision> {
    match call.args {
        [Val::Authz(authz)] if authz.stage == Stage::Decision => Some(&authz.decision),
        _ => None,
    }
}
