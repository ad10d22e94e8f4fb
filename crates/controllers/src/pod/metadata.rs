//! The metadata of a pod, as far as loops look at it.

use std::{borrow::Cow, collections::BTreeMap};

use capstan_api::{Str, object::OwnerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use crate::{
    job::template::{FAILURE_COUNT, IGNORED_FAILURE_COUNT, INDEX_ANNOTATION},
    pods::rank::DELETION_COST,
    shared::{Owners, Shared},
};

/// The annotations of pods that loops read. Others are not kept.
const READ: [&str; 4] = [DELETION_COST, INDEX_ANNOTATION, FAILURE_COUNT, IGNORED_FAILURE_COUNT];

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// The metadata of a pod. Of its annotations it has only those that loops read, and it does not know who manages what.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: Option<Str>,
    pub(crate) namespace: Option<Str>,
    pub(crate) uid: Option<Str>,
    pub(crate) resource_version: Option<Str>,
    pub(crate) generation: Option<i64>,
    pub(crate) creation_timestamp: Option<Time>,
    pub(crate) deletion_timestamp: Option<Time>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    pub(crate) labels: Option<Shared<BTreeMap<String, String>>>,
    #[serde(deserialize_with = "read")]
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) finalizers: Option<Vec<String>>,
    owner_references: Owners,
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut all = Option::<BTreeMap<String, String>>::deserialize(from)?.unwrap_or_default();
    all.retain(|name, _| READ.contains(&name.as_str()));
    Ok(all)
}

impl Metadata {
    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The namespace.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// What tells the pod from all others that ever had its name.
    pub(crate) fn uid(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }

    /// Whom the pod belongs to.
    pub(crate) fn owners(&self) -> &[OwnerReference] {
        &self.owner_references
    }

    /// The labels.
    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        self.labels.as_deref().unwrap_or(&NO_LABELS)
    }

    /// An annotation that loops read.
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        debug_assert!(READ.contains(&name), "{name} is not kept");
        self.annotations.get(name).map(String::as_str)
    }
}

impl capstan_api::object::Metadata for Metadata {
    fn name(&self) -> &str {
        Metadata::name(self)
    }

    fn set_name(&mut self, name: String) {
        self.name = Some(name.into());
    }

    /// Nobody asks for it after the name has been made.
    fn generate_name(&self) -> &'static str {
        ""
    }

    fn namespace(&self) -> &str {
        Metadata::namespace(self)
    }

    fn set_namespace(&mut self, namespace: String) {
        self.namespace = Some(namespace.into());
    }

    fn uid(&self) -> &str {
        Metadata::uid(self)
    }

    fn resource_version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }

    fn set_resource_version(&mut self, version: String) {
        self.resource_version = Some(version.into());
    }

    fn generation(&self) -> i64 {
        self.generation.unwrap_or_default()
    }

    fn creation_timestamp(&self) -> Option<capstan_api::Time> {
        self.creation_timestamp.as_ref().map(|time| time.0.into())
    }

    fn deletion_timestamp(&self) -> Option<capstan_api::Time> {
        self.deletion_timestamp.as_ref().map(|time| time.0.into())
    }

    fn labels(&self) -> &BTreeMap<String, String> {
        Metadata::labels(self)
    }

    fn labels_mut(&mut self) -> &mut BTreeMap<String, String> {
        self.labels.get_or_insert_default().to_mut()
    }

    fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.annotations
    }

    fn finalizers(&self) -> &[String] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    fn finalizers_mut(&mut self) -> &mut Vec<String> {
        self.finalizers.get_or_insert_default()
    }

    fn owner_references(&self) -> Cow<'_, [OwnerReference]> {
        Cow::Borrowed(self.owners())
    }

    fn set_owner_references(&mut self, references: Vec<OwnerReference>) {
        self.owner_references = references.into();
    }
}
