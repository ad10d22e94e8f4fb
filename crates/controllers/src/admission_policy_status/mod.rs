//! `validatingadmissionpolicy-status-controller`: whether the expressions of policies fit the objects that they are
//! about, as warnings in their status. A policy works the same with and without them.

mod types;

use std::{collections::BTreeSet, sync::Arc};

use capstan_api::{GroupVersion, GroupVersionKind, options::PatchOptions};
use capstan_cel::{Env, Errors, Type, check, parse};
use capstan_client::{Api, BoxFuture, Client, Key, Lister, Patch};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object};
use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec,
};
use serde_json::{Value, json};

use crate::{
    ControllerContext,
    drive::{drive, filled},
};

const WORKERS: usize = 5;
const FIELD_MANAGER: &str = "validatingadmissionpolicy-status";
/// Against how many kinds a policy is checked.
const MAX_TYPES: usize = 10;

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let policies = context.informers.informer::<ValidatingAdmissionPolicy>();
    let checker = Checker { client: context.client.clone(), policies: policies.lister() };
    let controller = Controller::new(checker, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    policies.add_event_handler(enqueue_request_for_object::<ValidatingAdmissionPolicy>(controller.queue().clone()));
    drive(context, FIELD_MANAGER, vec![filled(&policies)], controller)
}

struct Checker {
    client: Client,
    policies: Lister<ValidatingAdmissionPolicy>,
}

fn resource_rules(spec: &ValidatingAdmissionPolicySpec) -> &[NamedRuleWithOperations] {
    spec.match_constraints.as_ref().and_then(|all| all.resource_rules.as_deref()).unwrap_or_default()
}

/// The groups and versions of a rule, none if it is for all of them, and its resources, as far as they are named.
fn named(rule: &NamedRuleWithOperations) -> (Vec<GroupVersion>, Vec<&str>) {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let (mut groups, mut versions) = (list(&rule.api_groups), list(&rule.api_versions));
    if groups.iter().chain(&versions).any(|text| text.contains('*')) {
        return Default::default();
    }
    groups.sort_unstable();
    versions.sort_unstable();
    let of_group = |group: &String| {
        let of_version = |version: &String| GroupVersion::new(group.clone(), version.clone());
        versions.iter().map(of_version).collect::<Vec<_>>()
    };
    let resources = rule.resources.iter().flatten().map(String::as_str);
    (groups.iter().flat_map(of_group).collect(), resources.filter(|text| !text.contains(['*', '/'])).collect())
}

fn type_name(kind: &GroupVersionKind) -> String {
    format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind)
}

impl Checker {
    /// The kinds that a policy is about, as far as they are named and served.
    async fn kinds(&self, spec: &ValidatingAdmissionPolicySpec) -> BTreeSet<GroupVersionKind> {
        let mut kinds = BTreeSet::new();
        let discovery = self.client.discovery();
        for rule in resource_rules(spec) {
            let (group_versions, resources) = named(rule);
            for group_version in &group_versions {
                let Ok(served) = discovery.server_resources_for_group_version(group_version).await else { continue };
                for resource in served.resources {
                    if kinds.len() < MAX_TYPES && resources.contains(&&*resource.info.plural) {
                        kinds.insert(resource.info.gvk.clone());
                    }
                }
            }
        }
        kinds
    }

    /// What all expressions of a policy are to be warned of: where, and what.
    async fn warnings(&self, spec: &ValidatingAdmissionPolicySpec) -> Vec<Value> {
        let kinds = self.kinds(spec).await;
        let params = match &spec.param_kind {
            None => None,
            Some(kind) => {
                let version = kind.api_version.as_deref().unwrap_or_default().parse::<GroupVersion>();
                let kind = version.ok().map(|version| version.with_kind(kind.kind.clone().unwrap_or_default()));
                let schema = match kind {
                    Some(kind) => types::schema(&self.client, &kind).await,
                    None => None,
                };
                Some(schema.unwrap_or_else(types::any))
            }
        };
        let mut environments = Vec::new();
        for kind in kinds {
            let Some(object) = types::schema(&self.client, &kind).await else { continue };
            let variables = spec.variables.iter().flatten();
            let variables = variables.map(|variable| (variable.name.as_str(), variable.expression.as_str()));
            if let Some(env) = types::environment(&object, params.as_ref(), variables) {
                environments.push((type_name(&kind), env));
            }
        }
        let mut warnings = Vec::new();
        for (at, validation) in spec.validations.iter().flatten().enumerate() {
            let expressions = [
                ("expression", Some(&validation.expression)),
                ("messageExpression", validation.message_expression.as_ref()),
            ];
            for (field, expression) in expressions {
                let warning = expression.filter(|text| !text.is_empty()).map(|text| warning(text, &environments));
                if let Some(warning) = warning.filter(|warning| !warning.is_empty()) {
                    warnings.push(json!({"fieldRef": format!("spec.validations[{at}].{field}"), "warning": warning}));
                }
            }
        }
        warnings
    }
}

fn output(expression: &str, env: &Env) -> Result<Type, Errors> {
    parse(expression).and_then(|ast| check(ast, env)).map(|checked| checked.output().clone())
}

/// What does not fit, for each of the kinds.
fn warning(expression: &str, environments: &[(String, Env)]) -> String {
    let each = environments.iter().filter_map(|(kind, env)| {
        let errors = output(expression, env).err()?;
        Some(format!("{kind}: {errors}\n"))
    });
    each.collect::<Vec<_>>().join("\n")
}

impl Reconciler for Checker {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(policy) = self.policies.get(&key) else { return Ok(Action::Done) };
        let generation = policy.metadata.generation;
        if generation <= policy.status.as_ref().and_then(|status| status.observed_generation) {
            return Ok(Action::Done);
        }
        let warnings = match &policy.spec {
            Some(spec) => self.warnings(spec).await,
            None => Vec::new(),
        };
        let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let apply = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": key.name()},
            "status": {"observedGeneration": generation, "typeChecking": checked},
        });
        let options =
            PatchOptions { force: Some(true), field_manager: FIELD_MANAGER.to_owned(), ..PatchOptions::default() };
        let api = Api::<ValidatingAdmissionPolicy>::all(&self.client);
        api.patch_with(key.name(), "status", &Patch::Apply(apply), &options).await?;
        Ok(Action::Done)
    }
}
