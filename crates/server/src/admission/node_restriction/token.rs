//! The tokens that a node may ask for: those of pods that run on it, for audiences that these pods name.

use capstan_api::{GroupResource, Map, Status, Value, go};

use super::{PVCS, stored_pod};
use crate::{
    admission::{
        Operation, Request,
        common::{each, forbidden, is_set, lister_not_found, object, stored},
    },
    authorization::{Attributes, Authorizer, aggregate},
    registry::paths,
};

const CSI_DRIVERS: GroupResource = GroupResource::from_static("storage.k8s.io", "csidrivers");
const PVS: GroupResource = GroupResource::from_static("", "persistentvolumes");

/// The drivers that have taken over volumes which were built in once.
const MIGRATED: [(&str, &str); 7] = [
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
    ("portworxVolume", "pxd.portworx.com"),
];

pub(super) fn admit(request: &Request<'_>, node: &str, authorizer: &dyn Authorizer) -> Result<(), Status> {
    if request.operation != Operation::Create || request.subresource != "token" {
        return Ok(());
    }
    let token = object(request);
    let bound = |field: &str| paths::text(token, &format!("spec.boundObjectRef.{field}"));
    let (name, uid) = (bound("name"), bound("uid"));
    if bound("apiVersion") != "v1" || bound("kind") != "Pod" || name.is_empty() {
        return Err(forbidden(request, "node requested token not bound to a pod"));
    }
    if uid.is_empty() {
        return Err(forbidden(request, "node requested token with a pod binding without a uid"));
    }
    let pod = stored_pod(request, name)?;
    if paths::text(&pod, "metadata.uid") != uid {
        return Err(forbidden(
            request,
            format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            ),
        ));
    }
    if paths::text(&pod, "spec.nodeName") != node {
        return Err(forbidden(request, "node requested token bound to a pod scheduled on a different node"));
    }
    check_audience(request, token, &pod, authorizer).map_err(|error| forbidden(request, error))
}

fn check_audience(request: &Request<'_>, token: &Map, pod: &Map, authorizer: &dyn Authorizer) -> Result<(), String> {
    let audience = match paths::items(token, "spec.audiences") {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Err("node may only request 0 or 1 audiences".to_owned()),
    };
    let quoted = go::quote(audience);
    if names_audience(request, pod, audience).map_err(|error| format!("error validating audience {quoted}: {error}"))? {
        return Ok(());
    }
    let attributes = Attributes {
        version: "v1",
        name: request.name,
        namespace: request.namespace,
        ..Attributes::resource(request.user, "request-serviceaccounts-token-audience", "", audience)
    };
    if authorizer.authorize(&attributes).is_allowed() {
        return Ok(());
    }
    Err(format!(
        "audience {quoted} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        request.user.name
    ))
}

/// Whether a volume of the pod, or the driver of one, asks for tokens for an audience.
fn names_audience(request: &Request<'_>, pod: &Map, audience: &str) -> Result<bool, String> {
    let mut errors = Vec::new();
    for volume in each(pod, "spec.volumes") {
        let mut tokens = each(volume, "projected.sources").filter(|source| is_set(source, "serviceAccountToken"));
        if tokens.any(|source| paths::text(source, "serviceAccountToken.audience") == audience) {
            return Ok(true);
        }
        let found = driver(request, pod, volume).and_then(|driver| match driver {
            None => Ok(false),
            Some(name) => {
                let driver = stored(request, &CSI_DRIVERS, "", &name)
                    .ok_or_else(|| lister_not_found("storage.k8s.io", "csidriver", &name))?;
                Ok(each(&driver, "spec.tokenRequests").any(|token| paths::text(token, "audience") == audience))
            }
        });
        match found {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(status) => errors.push(status.message),
        }
    }
    aggregate(&errors).map_or(Ok(false), Err)
}

/// The name of the driver behind a volume.
fn driver(request: &Request<'_>, pod: &Map, volume: &Map) -> Result<Option<String>, Status> {
    let own = |object: &Map, path: &str| paths::get(object, path).and_then(Value::as_str).map(str::to_owned);
    let migrated = |object: &Map| {
        MIGRATED.iter().find(|(source, _)| is_set(object, source)).map(|(_, driver)| (*driver).to_owned())
    };
    let claim = if is_set(volume, "ephemeral.volumeClaimTemplate") {
        Some(format!("{}-{}", paths::text(pod, "metadata.name"), paths::text(volume, "name")))
    } else {
        own(volume, "persistentVolumeClaim.claimName")
    };
    let Some(claim) = claim else {
        return Ok(own(volume, "csi.driver").or_else(|| migrated(volume)));
    };
    let claim = stored(request, &PVCS, request.namespace, &claim)
        .ok_or_else(|| lister_not_found("", "persistentvolumeclaim", &claim))?;
    let name = paths::text(&claim, "spec.volumeName");
    let volume = stored(request, &PVS, "", name).ok_or_else(|| lister_not_found("", "persistentvolume", name))?;
    let source = volume.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    Ok(own(&source, "csi.driver").or_else(|| migrated(&source)))
}
