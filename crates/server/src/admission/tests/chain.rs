//! Which plugins are on, in which order, and what is said of names that make no sense.

use std::sync::Arc;

use super::{Chain, parts};
use crate::admission::Plugin;

struct Named(&'static str);

impl Plugin for Named {
    fn name(&self) -> &'static str {
        self.0
    }
}

fn names(chain: &Chain) -> String {
    chain.names().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_default_chain() {
    let mut plugins = parts().plugins();
    // Whatever the order in which they come.
    plugins.reverse();
    for name in ["ResourceQuota", "PodSecurity", "LimitRanger"] {
        plugins.push(Arc::new(Named(name)));
    }
    let chain = Chain::new::<&str>(plugins, &[], &[]).unwrap();
    let before = "NamespaceLifecycle LimitRanger ServiceAccount TaintNodesByCondition PodSecurity Priority \
                  DefaultTolerationSeconds DefaultStorageClass StorageObjectInUseProtection PodGroupProtection \
                  PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning \
                  ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass PodTopologyLabels \
                  NodeDeclaredFeatureValidator PodResizeValidator";
    assert_eq!(names(&chain), format!("{before} ResourceQuota"));
    let (first, second) = chain.split();
    assert_eq!((names(&first), names(&second)), (before.to_owned(), "ResourceQuota".to_owned()));
}

#[test]
fn names_are_turned_on_and_off() {
    fn check(enable: &[&str], disable: &[&str], expected: &str) {
        let plugins = ["AlwaysPullImages", "Priority", "AlwaysDeny", "NodeRestriction"];
        let plugins = plugins.into_iter().map(|name| Arc::new(Named(name)) as Arc<dyn Plugin>).collect();
        let answer = match Chain::new(plugins, enable, disable) {
            Ok(chain) => names(&chain),
            Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        };
        assert_eq!(answer, expected, "{enable:?} {disable:?}");
    }
    check(&[], &[], "Priority");
    check(&["AlwaysDeny", "NodeRestriction"], &[], "NodeRestriction Priority AlwaysDeny");
    check(&[], &["Priority"], "");
    check(&["Priority"], &["AlwaysDeny"], "Priority");
    check(&["LimitRanger"], &[], "Priority");
    check(&["Nope"], &[], "enable-admission-plugins plugin \"Nope\" is unknown");
    check(
        &["x"],
        &["y"],
        "enable-admission-plugins plugin \"x\" is unknown\ndisable-admission-plugins plugin \"y\" is unknown",
    );
    check(
        &["Priority", "AlwaysDeny"],
        &["AlwaysDeny", "Priority"],
        "[AlwaysDeny Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
    );
    check(&["EventRateLimit"], &[], "admission plugin \"EventRateLimit\" is not available");
}

#[test]
fn a_plugin_without_a_place_is_refused() {
    let chain = Chain::new::<&str>(vec![Arc::new(Named("Mine"))], &[], &[]);
    assert_eq!(chain.err().unwrap()[0].to_string(), "admission plugin \"Mine\" has no place in the order");
}
