//! DefaultStorageClass and DefaultIngressClass: who names no class gets the default one, the newest if there are more.

use std::cmp::Reverse;

use capstan_api::{GroupResource, Map, Status, Time};

use super::{
    Operation, Plugin, Request,
    common::{PVCS, STORAGE_CLASSES, annotation, content, is_about, is_set, object},
};
use crate::registry::paths;

const INGRESSES: GroupResource = GroupResource::from_static("networking.k8s.io", "ingresses");
const INGRESS_CLASSES: GroupResource = GroupResource::from_static("networking.k8s.io", "ingressclasses");

/// A plugin that gives a class to new objects which have none.
#[derive(Debug)]
pub struct DefaultClass {
    name: &'static str,
    resource: GroupResource,
    classes: GroupResource,
    /// The annotations that mark a class as the default.
    marks: &'static [&'static str],
    /// Where an object names its class, and the annotation that did so before.
    field: &'static str,
    annotation: &'static str,
}

/// DefaultStorageClass.
pub const DEFAULT_STORAGE_CLASS: DefaultClass = DefaultClass {
    name: "DefaultStorageClass",
    resource: PVCS,
    classes: STORAGE_CLASSES,
    marks: &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
    field: "spec.storageClassName",
    annotation: super::claim_resize::BETA_CLASS,
};

/// DefaultIngressClass.
pub const DEFAULT_INGRESS_CLASS: DefaultClass = DefaultClass {
    name: "DefaultIngressClass",
    resource: INGRESSES,
    classes: INGRESS_CLASSES,
    marks: &["ingressclass.kubernetes.io/is-default-class"],
    field: "spec.ingressClassName",
    annotation: "kubernetes.io/ingress.class",
};

impl DefaultClass {
    fn default_class(&self, request: &Request<'_>) -> Option<String> {
        let is_default = |class: &Map| self.marks.iter().any(|mark| annotation(class, mark) == Some("true"));
        let created = |class: &Map| paths::text(class, "metadata.creationTimestamp").parse::<Time>().ok();
        let classes = request.objects.list(&self.classes, "");
        let defaults = classes.iter().map(|class| content(class)).filter(is_default);
        let defaults =
            defaults.map(|class| (Reverse(created(&class)), paths::text(&class, "metadata.name").to_owned()));
        defaults.min().map(|(_, name)| name)
    }
}

impl Plugin for DefaultClass {
    fn name(&self) -> &'static str {
        self.name
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let has_class = |object: &Map| is_set(object, self.field) || annotation(object, self.annotation).is_some();
        if request.operation != Operation::Create || !is_about(request, &self.resource) || has_class(object(request)) {
            return Ok(());
        }
        let class = self.default_class(request);
        if let (Some(object), Some(class)) = (request.object.as_deref_mut(), class) {
            paths::set(object, self.field, class);
        }
        Ok(())
    }
}
