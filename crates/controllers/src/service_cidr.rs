//! ServiceCIDRs: which say whether they are ready, and stay as long as addresses of services need them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use capstan_api::{options::PatchOptions, selector::Selector};
use capstan_client::{Api, BoxFuture, Client, Deleted, HandlerFuncs, Key, Patch, SharedIndexInformer};
use capstan_clock::{SharedClock, Timestamp};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    recorder::Recorder,
};

const NAME: &str = "service-cidr-controller";
/// Keeps a range while it is needed.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// How long a range that is not needed stays: servers may still be giving out its addresses.
const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Who gives addresses to services.
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// How many ranges are worked on at the same time.
const WORKERS: usize = 5;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
        (length <= Prefix::bits(address).1).then_some(Prefix { address, length })
    }

    /// The address as a number, and how many bits that has.
    fn bits(address: IpAddr) -> (u128, u8) {
        match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        let ((own, width), (other, other_width)) = (Prefix::bits(self.address), Prefix::bits(address));
        width == other_width && (own ^ other).checked_shr(u32::from(width - self.length)).is_none_or(|bits| bits == 0)
    }

    fn contains_prefix(self, other: Prefix) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    fn overlaps(self, other: Prefix) -> bool {
        self.contains_prefix(other) || other.contains_prefix(self)
    }
}

fn prefixes(range: &ServiceCIDR) -> impl Iterator<Item = Prefix> {
    let cidrs = range.spec.as_ref().and_then(|spec| spec.cidrs.as_ref());
    cidrs.into_iter().flatten().filter_map(|cidr| Prefix::parse(cidr))
}

/// The address, if it was given out for a service.
fn service_address(address: &IPAddress) -> Option<IpAddr> {
    let labels = address.metadata.labels.as_ref()?;
    let ours = labels.get("ipaddress.kubernetes.io/managed-by").is_some_and(|by| by == ALLOCATOR);
    if ours { address.metadata.name.as_ref()?.parse().ok() } else { None }
}

/// Those of the ranges that pass, by name.
fn names(ranges: &[Arc<ServiceCIDR>], pass: impl Fn(Prefix) -> bool) -> Vec<String> {
    let passing = ranges.iter().filter(|range| prefixes(range).any(&pass));
    passing.filter_map(|range| range.metadata.name.clone()).collect()
}

/// Whether a range can go: all of it is in other ranges too, or no address needs it.
fn can_delete(range: &ServiceCIDR, ranges: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>]) -> bool {
    let only_this = |names: &[String]| names.iter().all(|name| Some(name) == range.metadata.name.as_ref());
    let has_parent = prefixes(range).all(|prefix| !only_this(&names(ranges, |other| other.contains_prefix(prefix))));
    let needs_it = |address: IpAddr| {
        let holding = names(ranges, |other| other.contains(address));
        !holding.is_empty() && only_this(&holding)
    };
    has_parent || !addresses.iter().filter_map(|address| service_address(address)).any(needs_it)
}

/// What is next for a range.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It is to say that it is not ready, because it is needed and to be deleted.
    Terminating,
    /// Nothing, for this long.
    Wait(Duration),
    /// It may go.
    Release,
    /// It is to be protected and to say that it is ready.
    Ready,
}

fn next(range: &ServiceCIDR, ranges: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>], now: Timestamp) -> Next {
    let Some(deleted) = &range.metadata.deletion_timestamp else { return Next::Ready };
    if !can_delete(range, ranges, addresses) {
        return Next::Terminating;
    }
    let since = Duration::try_from(now.duration_since(deleted.0)).unwrap_or_default();
    match DELETION_GRACE_PERIOD.checked_sub(since) {
        Some(left) if !left.is_zero() => Next::Wait(left),
        _ => Next::Release,
    }
}

struct Loop {
    client: Client,
    clock: SharedClock,
    ranges: SharedIndexInformer<ServiceCIDR>,
    addresses: SharedIndexInformer<IPAddress>,
    recorder: Recorder,
}

/// Keeps the conditions and finalizers of ranges.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let reconciler = Loop {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        ranges: context.informers.informer(),
        addresses: context.informers.informer(),
        recorder: Recorder::new(context, NAME),
    };
    let (ranges, addresses) = (reconciler.ranges.clone(), reconciler.addresses.clone());
    let controller = Controller::new(reconciler, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    let (added, updated, deleted) = (queue.clone(), queue.clone(), queue.clone());
    let overlapping = ranges.lister();
    ranges.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |range: &Arc<ServiceCIDR>, _| {
                added.add(Key::of(&**range));
                // A new range may be all that a range was waiting for which is to go.
                let all = overlapping.list(&Selector::default());
                for prefix in prefixes(range) {
                    names(&all, |other| other.overlaps(prefix)).iter().for_each(|name| added.add(Key::new("", name)));
                }
            })
            .on_update(move |_: &Arc<ServiceCIDR>, range: &Arc<ServiceCIDR>| updated.add(Key::of(&**range)))
            .on_delete(move |range: &Deleted<ServiceCIDR>| deleted.add(Key::of(&**range.object()))),
    );
    let lister = ranges.lister();
    let holding = move |address: &IPAddress| {
        let Some(address) = service_address(address) else { return };
        let all = lister.list(&Selector::default());
        names(&all, |range| range.contains(address)).iter().for_each(|name| queue.add(Key::new("", name)));
    };
    let gone = holding.clone();
    addresses.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |address: &Arc<IPAddress>, _| holding(address))
            .on_delete(move |address: &Deleted<IPAddress>| gone(address.object())),
    );
    let caches = vec![filled(&ranges), filled(&addresses)];
    drive(context, "ipaddresses", caches, controller)
}

impl Reconciler for Loop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(range) = self.ranges.lister().get(&key) else { return Ok(Action::Done) };
        let ranges = self.ranges.lister().list(&Selector::default());
        let addresses = self.addresses.lister().list(&Selector::default());
        match next(&range, &ranges, &addresses, self.clock.now()) {
            Next::Wait(left) => return Ok(Action::RequeueAfter(left)),
            Next::Release => self.set_finalizer(&range, false).await?,
            Next::Terminating => {
                let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
                self.set_condition(&range, "False", "Terminating", message).await?;
            }
            Next::Ready => {
                self.set_finalizer(&range, true).await?;
                let done = self.set_condition(&range, "True", "", "Kubernetes Service CIDR is ready").await;
                if let Err(error) = done {
                    let message = "The ServiceCIDR Status can not be set to Ready=True";
                    self.recorder.warning(&*range, "KubernetesServiceCIDRError", message);
                    return Err(error);
                }
            }
        }
        Ok(Action::Done)
    }
}

impl Loop {
    async fn set_finalizer(&self, range: &ServiceCIDR, wanted: bool) -> Result<(), ReconcileError> {
        let has = range.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if has == wanted {
            return Ok(());
        }
        let field = if wanted { "finalizers" } else { "$deleteFromPrimitiveList/finalizers" };
        let patch = serde_json::json!({"metadata": {field: [FINALIZER]}});
        let name = range.metadata.name.as_deref().unwrap_or_default();
        match Api::<ServiceCIDR>::all(&self.client).patch(name, &Patch::Strategic(patch)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn set_condition(
        &self,
        range: &ServiceCIDR,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), ReconcileError> {
        let conditions = range.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        if ready.is_some_and(|now| now.status == status && now.reason == reason && now.message == message) {
            return Ok(());
        }
        let name = range.metadata.name.as_deref().unwrap_or_default();
        // To the second: times of conditions have no fractions.
        let now = Timestamp::from_second(self.clock.now().as_second()).unwrap_or_default();
        let condition = serde_json::json!({
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now.to_string(),
        });
        let apply = serde_json::json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name},
            "status": {"conditions": [condition]},
        });
        let options = PatchOptions { field_manager: NAME.to_owned(), force: Some(true), ..PatchOptions::default() };
        Api::<ServiceCIDR>::all(&self.client).patch_with(name, "status", &Patch::Apply(apply), &options).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, cidrs: &[&str], deleted: Option<&str>) -> Arc<ServiceCIDR> {
        let meta = match deleted {
            Some(at) => serde_json::json!({"name": name, "deletionTimestamp": at}),
            None => serde_json::json!({"name": name}),
        };
        let range = serde_json::json!({"metadata": meta, "spec": {"cidrs": cidrs}});
        Arc::new(serde_json::from_value(range).unwrap())
    }

    fn address(name: &str) -> Arc<IPAddress> {
        let labels = serde_json::json!({"ipaddress.kubernetes.io/managed-by": ALLOCATOR});
        let address = serde_json::json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": null}});
        Arc::new(serde_json::from_value(address).unwrap())
    }

    #[test]
    fn a_range_stays_while_it_is_needed() {
        fn check(others: &[(&str, &str)], addresses: &[&str], now: &str, expected: Next) {
            let range_ = range("r", &["10.1.0.0/24"], Some("2026-01-01T00:00:00Z"));
            let mut ranges = vec![Arc::clone(&range_)];
            ranges.extend(others.iter().map(|(name, cidr)| range(name, &[cidr], None)));
            let addresses: Vec<_> = addresses.iter().map(|name| address(name)).collect();
            assert_eq!(next(&range_, &ranges, &addresses, now.parse().unwrap()), expected, "{others:?} {addresses:?}");
        }
        let (at, later) = ("2026-01-01T00:00:04Z", "2026-01-01T00:00:10Z");
        check(&[], &["10.1.0.7"], later, Next::Terminating);
        check(&[], &["10.2.0.7"], later, Next::Release);
        check(&[], &[], at, Next::Wait(Duration::from_secs(6)));
        check(&[("wide", "10.1.0.0/16")], &["10.1.0.7"], later, Next::Release);
        check(&[("part", "10.1.0.0/29")], &["10.1.0.7"], later, Next::Release);
        check(&[("part", "10.1.0.0/30")], &["10.1.0.7"], later, Next::Terminating);
        check(&[("six", "::/0")], &["10.1.0.7"], later, Next::Terminating);
        let living = range("r", &["10.1.0.0/24"], None);
        assert_eq!(next(&living, &[], &[], at.parse().unwrap()), Next::Ready);
    }

    #[test]
    fn prefixes_of_all_lengths() {
        let parse = |text| Prefix::parse(text).unwrap();
        assert!(parse("::/0").contains("fd00::1".parse().unwrap()));
        assert!(!parse("0.0.0.0/0").contains("fd00::1".parse().unwrap()));
        assert!(parse("10.0.0.1/32").contains("10.0.0.1".parse().unwrap()));
        assert!(!parse("10.0.0.1/32").contains("10.0.0.2".parse().unwrap()));
        assert!(parse("10.0.0.0/8").overlaps(parse("10.1.0.0/16")));
        assert!(!parse("10.0.0.0/16").overlaps(parse("10.1.0.0/16")));
        assert_eq!(Prefix::parse("10.0.0.0/33"), None);
    }
}
