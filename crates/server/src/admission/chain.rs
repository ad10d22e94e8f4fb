//! The plugins in their order, and which of them are on.

use std::{collections::BTreeSet, fmt, sync::Arc};

use capstan_api::{Status, go, mapper::RESTMapper};
use capstan_clock::SharedIds;

use super::{
    AlwaysAdmit, AlwaysDeny, AlwaysPullImages, CertificateApproval, CertificateSigning, CertificateSubjectRestriction,
    ClusterTrustBundleAttest, DEFAULT_INGRESS_CLASS, DEFAULT_STORAGE_CLASS, DefaultTolerationSeconds,
    DenyServiceExternalIPs, ExtendedResourceToleration, LimitPodHardAntiAffinityTopology, NamespaceExists,
    NamespaceLifecycle, NodeDeclaredFeatureValidator, NodeRestriction, OwnerReferencesPermissionEnforcement,
    POD_GROUP_PROTECTION, PersistentVolumeClaimResize, Plugin, PodNodeSelector, PodResizeValidator, PodTopologyLabels,
    Priority, Request, RuntimeClass, STORAGE_OBJECT_IN_USE_PROTECTION, ServiceAccount, TaintNodesByCondition,
};
use crate::authorization::Authorizer;

/// All names of plugins in the order in which they are asked, and whether they are on by default.
const ORDER: [(&str, bool); 41] = [
    ("AlwaysAdmit", false),
    ("NamespaceAutoProvision", false),
    ("NamespaceLifecycle", true),
    ("NamespaceExists", false),
    ("LimitPodHardAntiAffinityTopology", false),
    ("LimitRanger", true),
    ("ServiceAccount", true),
    ("NodeRestriction", false),
    ("TaintNodesByCondition", true),
    ("AlwaysPullImages", false),
    ("ImagePolicyWebhook", false),
    ("PodSecurity", true),
    ("PodNodeSelector", false),
    ("Priority", true),
    ("DefaultTolerationSeconds", true),
    ("PodTolerationRestriction", false),
    ("EventRateLimit", false),
    ("ExtendedResourceToleration", false),
    ("DefaultStorageClass", true),
    ("StorageObjectInUseProtection", true),
    ("PodGroupProtection", true),
    ("OwnerReferencesPermissionEnforcement", false),
    ("PersistentVolumeClaimResize", true),
    ("RuntimeClass", true),
    ("CertificateApproval", true),
    ("CertificateSigning", true),
    ("ClusterTrustBundleAttest", true),
    ("CertificateSubjectRestriction", true),
    ("DefaultIngressClass", true),
    ("DenyServiceExternalIPs", false),
    ("PodTopologyLabels", true),
    ("PodGroupWorkloadExists", true),
    ("NodeDeclaredFeatureValidator", true),
    ("JobValidation", true),
    ("PodResizeValidator", true),
    (FIRST_DYNAMIC, true),
    ("MutatingAdmissionWebhook", true),
    ("ValidatingAdmissionPolicy", true),
    ("ValidatingAdmissionWebhook", true),
    ("ResourceQuota", true),
    ("AlwaysDeny", false),
];

/// The first of the four that ask others: policies and webhooks.
const FIRST_DYNAMIC: &str = "MutatingAdmissionPolicy";

fn place(name: &str) -> Option<usize> {
    ORDER.iter().position(|(other, _)| *other == name)
}

/// What plugins of this module need.
pub struct Parts {
    /// Decides what users may do.
    pub authorizer: Arc<dyn Authorizer>,
    /// Knows the kinds of owners.
    pub mapper: Arc<dyn RESTMapper + Send + Sync>,
    /// Where the names of volumes come from.
    pub ids: SharedIds,
}

impl Parts {
    /// All plugins of this module, as they are without configuration.
    #[must_use]
    pub fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        let authorizer = || Arc::clone(&self.authorizer);
        vec![
            Arc::new(AlwaysAdmit),
            Arc::new(NamespaceLifecycle),
            Arc::new(NamespaceExists),
            Arc::new(LimitPodHardAntiAffinityTopology),
            Arc::new(ServiceAccount::new(Arc::clone(&self.ids))),
            Arc::new(NodeRestriction::new(authorizer())),
            Arc::new(TaintNodesByCondition),
            Arc::new(AlwaysPullImages),
            Arc::new(PodNodeSelector::default()),
            Arc::new(Priority),
            Arc::new(DefaultTolerationSeconds::default()),
            Arc::new(ExtendedResourceToleration),
            Arc::new(DEFAULT_STORAGE_CLASS),
            Arc::new(STORAGE_OBJECT_IN_USE_PROTECTION),
            Arc::new(POD_GROUP_PROTECTION),
            Arc::new(OwnerReferencesPermissionEnforcement::new(authorizer(), Arc::clone(&self.mapper))),
            Arc::new(PersistentVolumeClaimResize),
            Arc::new(RuntimeClass),
            Arc::new(CertificateApproval::new(authorizer())),
            Arc::new(CertificateSigning::new(authorizer())),
            Arc::new(ClusterTrustBundleAttest::new(authorizer())),
            Arc::new(CertificateSubjectRestriction),
            Arc::new(DEFAULT_INGRESS_CLASS),
            Arc::new(DenyServiceExternalIPs),
            Arc::new(PodTopologyLabels),
            Arc::new(NodeDeclaredFeatureValidator),
            Arc::new(PodResizeValidator),
            Arc::new(AlwaysDeny),
        ]
    }
}

/// Why a choice of plugins makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChoiceError {
    /// `--enable-admission-plugins` names one that nobody knows.
    UnknownEnabled(String),
    /// `--disable-admission-plugins` names one that nobody knows.
    UnknownDisabled(String),
    /// Both name these.
    Overlap(Vec<String>),
    /// It is asked for, and known upstream, but not part of this server.
    Missing(String),
    /// A plugin was handed over that has no place in the order.
    NoPlace(&'static str),
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::UnknownEnabled(name) => {
                write!(f, "enable-admission-plugins plugin {} is unknown", go::quote(name))
            }
            ChoiceError::UnknownDisabled(name) => {
                write!(f, "disable-admission-plugins plugin {} is unknown", go::quote(name))
            }
            ChoiceError::Overlap(names) => {
                write!(f, "[{}] in enable-admission-plugins and disable-admission-plugins overlapped", names.join(" "))
            }
            ChoiceError::Missing(name) => write!(f, "admission plugin {} is not available", go::quote(name)),
            ChoiceError::NoPlace(name) => write!(f, "admission plugin {} has no place in the order", go::quote(name)),
        }
    }
}

impl std::error::Error for ChoiceError {}

/// The plugins that are on, in the order in which they are asked; the first that refuses decides.
///
/// Plugins never wait, but policies and webhooks may. Their place is between two halves of the chain, which
/// [`split`](Chain::split) gives: a write goes through `admit` of the first half, mutating policies and webhooks,
/// `admit` of the second, and later through `validate` of the first, validating policies and webhooks, and `validate`
/// of the second, where quota is charged for what nobody else refused. When a webhook has changed an object, upstream
/// sends it once more through `admit` of the whole.
#[derive(Clone, Default)]
pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
}

impl Chain {
    /// A chain of those of `plugins` that are on by default or enabled, and not disabled. They may come in any order;
    /// of two with one name the later counts. One that is on by default and not among them is left out.
    ///
    /// # Errors
    /// All that is wrong with the names.
    pub fn new<S: AsRef<str>>(
        plugins: Vec<Arc<dyn Plugin>>,
        enable: &[S],
        disable: &[S],
    ) -> Result<Self, Vec<ChoiceError>> {
        let names = |names: &[S]| -> Vec<String> { names.iter().map(|name| name.as_ref().to_owned()).collect() };
        let (enable, disable) = (names(enable), names(disable));
        let mut errors = Vec::new();
        let mut places: Vec<Option<Arc<dyn Plugin>>> = vec![None; ORDER.len()];
        for plugin in plugins {
            match place(plugin.name()) {
                Some(place) => places[place] = Some(plugin),
                None => errors.push(ChoiceError::NoPlace(plugin.name())),
            }
        }
        for name in &enable {
            match place(name) {
                None => errors.push(ChoiceError::UnknownEnabled(name.clone())),
                Some(place) if places[place].is_none() && !ORDER[place].1 => {
                    errors.push(ChoiceError::Missing(name.clone()));
                }
                Some(_) => {}
            }
        }
        errors.extend(disable.iter().filter(|name| place(name).is_none()).cloned().map(ChoiceError::UnknownDisabled));
        let (enabled, disabled) = (BTreeSet::from_iter(&enable), BTreeSet::from_iter(&disable));
        let both: Vec<String> = enabled.intersection(&disabled).map(|name| (*name).clone()).collect();
        if !both.is_empty() {
            errors.push(ChoiceError::Overlap(both));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let is_named = |names: &[String], name| names.iter().any(|other| other == name);
        let is_on = |(name, default)| is_named(&enable, name) || default && !is_named(&disable, name);
        let plugins = ORDER.into_iter().zip(places).filter(|(row, _)| is_on(*row)).filter_map(|(_, plugin)| plugin);
        Ok(Chain { plugins: plugins.collect() })
    }

    /// The names of the plugins that are on, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plugins.iter().map(|plugin| plugin.name())
    }

    /// What is asked before policies and webhooks, and what after them.
    #[must_use]
    pub fn split(&self) -> (Chain, Chain) {
        let is_before = |plugin: &&Arc<dyn Plugin>| place(plugin.name()) < place(FIRST_DYNAMIC);
        let (before, after): (Vec<_>, Vec<_>) = self.plugins.iter().partition(is_before);
        let chain = |plugins: Vec<&Arc<dyn Plugin>>| Chain { plugins: plugins.into_iter().cloned().collect() };
        (chain(before), chain(after))
    }

    /// Lets each plugin change the new object.
    ///
    /// # Errors
    /// The answer of the first that refuses.
    pub fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        self.plugins.iter().try_for_each(|plugin| plugin.admit(request))
    }

    /// Lets each plugin judge the write as it will be.
    ///
    /// # Errors
    /// The answer of the first that refuses.
    pub fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        self.plugins.iter().try_for_each(|plugin| plugin.validate(request))
    }
}
