//! Which families of addresses a Service has, and how many.

use capstan_api::field::{Error, ErrorList, Path};

use super::{
    fields::{Family, Fields, NONE},
    validate::{self, list, policy},
};

const SPEC: Path<'static> = Path::new("spec");

/// What the cluster has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    pub primary: Family,
    pub dual: bool,
}

impl Stack {
    fn has(self, family: Family) -> bool {
        self.dual || family == self.primary
    }
}

/// Whether nothing that decides about families has changed in a service that takes what it gets: it keeps what it has,
/// even if the cluster has got another family since.
pub(super) fn is_settled(new: &Fields, old: &Fields) -> bool {
    let prefers = |policy: &Option<String>| policy.as_deref().is_none_or(|policy| policy == "PreferDualStack");
    new.policy.is_some()
        && new.ty == old.ty
        && matches!(new.ty.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer")
        && prefers(&new.policy)
        && prefers(&old.policy)
        && new.cluster_ips == old.cluster_ips
        && new.families == old.families
}

/// Fills `ipFamilies` and `ipFamilyPolicy`.
pub(super) fn init(service: &mut Fields, old: Option<&Fields>, stack: Stack) -> Result<(), ErrorList> {
    if !service.needs_cluster_ip() || old.is_some_and(|old| is_settled(service, old)) {
        return Ok(());
    }
    let open_headless = service.cluster_ip == NONE && !service.has_selector;
    if service.policy.is_none() {
        let kept = old.and_then(|old| old.policy.clone());
        let fresh = if open_headless { "RequireDualStack" } else { "SingleStack" };
        service.policy = kept.or_else(|| Some(fresh.to_owned()));
    }
    refuse(validate::fields(service, old))?;

    let mut errors = ErrorList::new();
    let single = service.policy.as_deref() == Some("SingleStack");
    if let Some(old) = old {
        reductions(service, old, single, &mut errors);
    }
    if single {
        for (count, what) in [(service.cluster_ips.len(), "cluster IPs"), (service.families.len(), "IP families")] {
            if count == 2 {
                let detail =
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.push(Error::invalid(SPEC.child("ipFamilyPolicy"), policy(service), detail));
            }
        }
    }
    infer(service, stack, &mut errors);
    refuse(errors)?;

    if open_headless {
        if service.families.is_empty() {
            service.families.push(stack.primary.as_str().to_owned());
        }
        return add_other(service, single);
    }
    refuse(not_configured(service, stack))?;
    if service.families.is_empty() {
        service.families.push(stack.primary.as_str().to_owned());
    }
    add_other(service, single || !stack.dual)
}

fn refuse(errors: ErrorList) -> Result<(), ErrorList> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Asking for a single stack gives up the second of what has not been touched; otherwise giving up must be asked for.
fn reductions(service: &mut Fields, old: &Fields, single: bool, errors: &mut ErrorList) {
    if single {
        if service.cluster_ips == old.cluster_ips {
            service.cluster_ips.truncate(1);
        }
        if service.families == old.families {
            service.families.truncate(1);
        }
        return;
    }
    let reduced = |new: &[String], old: &[String]| !new.is_empty() && new.len() < old.len();
    let lists = [
        (reduced(&service.cluster_ips, &old.cluster_ips), "cluster IP"),
        (reduced(&service.families, &old.families), "IP family"),
    ];
    for (_, what) in lists.into_iter().filter(|(reduced, _)| *reduced) {
        let detail = format!("must be 'SingleStack' to release the secondary {what}");
        errors.push(Error::invalid(SPEC.child("ipFamilyPolicy"), policy(service), detail));
    }
}

/// Families that are not named follow from the addresses.
fn infer(service: &mut Fields, stack: Stack, errors: &mut ErrorList) {
    for (i, ip) in service.cluster_ips.iter().enumerate() {
        if ip == NONE {
            break;
        }
        let Some(family) = Family::of_text(ip).filter(|_| i >= service.families.len()) else { continue };
        if stack.has(family) {
            service.families.push(family.as_str().to_owned());
        } else {
            let detail = format!("{} is not configured on this cluster", family.as_str());
            errors.push(Error::invalid(SPEC.child("clusterIPs").index(i), list(&service.cluster_ips), detail));
        }
    }
}

fn not_configured(service: &Fields, stack: Stack) -> ErrorList {
    let mut errors = ErrorList::new();
    if service.policy.as_deref() == Some("RequireDualStack") && !stack.dual {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(Error::invalid(SPEC.child("ipFamilyPolicy"), policy(service), detail));
    }
    for (i, name) in service.families.iter().enumerate() {
        if !Family::from_name(name).is_some_and(|family| stack.has(family)) {
            let path = SPEC.child("ipFamilies");
            errors.push(Error::invalid(path.index(i), name.as_str(), "not configured on this cluster"));
        }
    }
    errors
}

/// The family that is missing.
fn add_other(service: &mut Fields, single: bool) -> Result<(), ErrorList> {
    if let ([name], false) = (&service.families[..], single) {
        let other = Family::from_name(name).map(Family::other);
        service.families.extend(other.map(|family| family.as_str().to_owned()));
    }
    Ok(())
}
