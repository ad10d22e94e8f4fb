//! All roles and bindings, indexed by subject.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, btree_map},
    sync::Arc,
};

use capstan_api::{Str, Value};

use super::{Binding, PolicyRule, RoleError, RoleRef, Subject, policy::string};
use crate::authorization::UserInfo;

/// What the names of service accounts begin with when they are users.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The four kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RbacKind {
    /// Rules in one namespace.
    Role,
    /// Rules everywhere, or in the namespaces where it is bound.
    ClusterRole,
    /// Grants a role in one namespace.
    RoleBinding,
    /// Grants a cluster role everywhere.
    ClusterRoleBinding,
}

impl RbacKind {
    /// The kind of this name.
    #[must_use]
    pub fn from_kind(kind: &str) -> Option<Self> {
        Some(match kind {
            "Role" => RbacKind::Role,
            "ClusterRole" => RbacKind::ClusterRole,
            "RoleBinding" => RbacKind::RoleBinding,
            "ClusterRoleBinding" => RbacKind::ClusterRoleBinding,
            _ => return None,
        })
    }

    /// The resource under which the kind is served.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            RbacKind::Role => "roles",
            RbacKind::ClusterRole => "clusterroles",
            RbacKind::RoleBinding => "rolebindings",
            RbacKind::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    fn is_namespaced(self) -> bool {
        matches!(self, RbacKind::Role | RbacKind::RoleBinding)
    }
}

/// A snapshot of all roles and bindings. A clone shares everything; a change copies the namespace that it is in, unless
/// nobody shares it.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    /// ClusterRoles and ClusterRoleBindings.
    cluster: Arc<Scope>,
    /// Roles and RoleBindings of each namespace that has any.
    namespaces: Arc<BTreeMap<Str, Arc<Scope>>>,
}

/// The roles and bindings of one namespace, or of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
struct Scope {
    roles: BTreeMap<Str, Arc<[PolicyRule]>>,
    bindings: BTreeMap<Str, Arc<Binding>>,
    /// By user name, service accounts among them.
    users: Index,
    groups: Index,
}

/// From a subject to the bindings that name it, each with the place of the first such subject in it.
type Index = BTreeMap<Str, BTreeMap<Str, Entry>>;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    binding: Arc<Binding>,
    subject: usize,
}

/// A binding that applies to a user, and the first of its subjects that does.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The binding.
    pub binding: &'a Binding,
    /// The subject.
    pub subject: &'a Subject,
}

impl Rbac {
    /// Takes in an object that was created or has changed.
    pub fn upsert(&mut self, kind: RbacKind, object: &Value) {
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let name = string(metadata, "name");
        let namespace = if kind.is_namespaced() { string(metadata, "namespace") } else { Str::default() };
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                let rules = PolicyRule::list_of(object);
                self.change(kind, &namespace, |scope| _ = scope.roles.insert(name, rules.into()));
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let binding = Binding { namespace: namespace.clone(), ..Binding::from_value(object) };
                self.change(kind, &namespace, |scope| scope.bind(binding));
            }
        }
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        self.change(kind, namespace, |scope| match kind {
            RbacKind::Role | RbacKind::ClusterRole => _ = scope.roles.remove(name),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => scope.unbind(name),
        });
    }

    fn change(&mut self, kind: RbacKind, namespace: &str, change: impl FnOnce(&mut Scope)) {
        if !kind.is_namespaced() {
            return change(Arc::make_mut(&mut self.cluster));
        }
        let namespaces = Arc::make_mut(&mut self.namespaces);
        let scope = Arc::make_mut(namespaces.entry(namespace.into()).or_default());
        change(scope);
        if *scope == Scope::default() {
            namespaces.remove(namespace);
        }
    }

    /// The bindings that apply to a user, each once: those of the cluster, then those of the namespace if one is given,
    /// by name.
    pub fn grants<'a>(&'a self, user: &'a UserInfo, namespace: &str) -> impl Iterator<Item = Grant<'a>> {
        let own = if namespace.is_empty() { None } else { self.namespaces.get(namespace) };
        self.cluster.grants(user).chain(own.into_iter().flat_map(|scope| scope.grants(user)))
    }

    /// The rules of the role that a binding in this namespace refers to; for ClusterRoleBindings it is empty.
    ///
    /// # Errors
    /// If there is no such role.
    pub fn rules_of(&self, role_ref: &RoleRef, namespace: &str) -> Result<&[PolicyRule], RoleError> {
        let name = role_ref.name.as_str();
        let (scope, missing): (_, fn(String) -> RoleError) = match role_ref.kind.as_str() {
            "ClusterRole" => (Some(&self.cluster), RoleError::NoClusterRole),
            "Role" => (self.namespaces.get(namespace), RoleError::NoRole),
            kind => return Err(RoleError::UnsupportedKind(kind.to_owned())),
        };
        scope.and_then(|scope| scope.roles.get(name)).map(|rules| &**rules).ok_or_else(|| missing(name.to_owned()))
    }
}

impl Scope {
    fn bind(&mut self, binding: Binding) {
        self.unbind(&binding.name);
        let binding = Arc::new(binding);
        for (at, subject) in binding.subjects.iter().enumerate() {
            let Some((index, key)) = self.index(subject, &binding.namespace) else { continue };
            let entry = || Entry { binding: Arc::clone(&binding), subject: at };
            index.entry(key).or_default().entry(binding.name.clone()).or_insert_with(entry);
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    fn unbind(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let Some((index, key)) = self.index(subject, &binding.namespace) else { continue };
            let Some(entries) = index.get_mut(&key) else { continue };
            entries.remove(name);
            if entries.is_empty() {
                index.remove(&key);
            }
        }
    }

    /// Where a subject is to be found. Nobody is a service account without a namespace, or of a kind that is unknown.
    fn index(&mut self, subject: &Subject, binding_namespace: &str) -> Option<(&mut Index, Str)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() { binding_namespace } else { &subject.namespace };
                let key = || format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{}", subject.name).into();
                (!namespace.is_empty()).then(|| (&mut self.users, key()))
            }
            _ => None,
        }
    }

    fn grants<'a>(&'a self, user: &'a UserInfo) -> Merge<'a> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group));
        Merge::new(self.users.get(&user.name).into_iter().chain(groups).map(BTreeMap::values).collect())
    }
}

/// Several lists, each sorted by the name of the binding, as one; a binding that is in more than one comes once.
struct Merge<'a> {
    lists: Vec<btree_map::Values<'a, Str, Entry>>,
    heads: BinaryHeap<Reverse<Head<'a>>>,
}

/// The first of what is left of a list: the name of its binding, the place of the subject, and which list it is.
type Head<'a> = (&'a Str, usize, usize);

impl<'a> Merge<'a> {
    fn new(lists: Vec<btree_map::Values<'a, Str, Entry>>) -> Self {
        let head =
            |(at, list): (usize, &btree_map::Values<'a, Str, Entry>)| list.clone().next().map(|entry| entry.head(at));
        let heads = lists.iter().enumerate().filter_map(head).collect();
        Merge { lists, heads }
    }

    fn pop(&mut self) -> Option<&'a Entry> {
        let Reverse((.., at)) = self.heads.pop()?;
        let list = &mut self.lists[at];
        let entry = list.next();
        self.heads.extend(list.clone().next().map(|entry| entry.head(at)));
        entry
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = Grant<'a>;

    fn next(&mut self) -> Option<Grant<'a>> {
        let Entry { binding, subject } = self.pop()?;
        while self.heads.peek().is_some_and(|Reverse((name, ..))| **name == binding.name) {
            self.pop();
        }
        Some(Grant { binding, subject: &binding.subjects[*subject] })
    }
}

impl Entry {
    fn head(&self, list: usize) -> Reverse<Head<'_>> {
        Reverse((&self.binding.name, self.subject, list))
    }
}
