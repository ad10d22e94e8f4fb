//! `root-ca-certificate-publisher-controller`: every namespace can read whom to trust.

use std::{collections::BTreeMap, sync::Arc};

use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, Lister};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    namespace::is_terminating,
};

/// The ConfigMap that has the certificates.
const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION_ANNOTATION: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                           endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                           guaranteed across distributions of Kubernetes clusters.";

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    // What is published already is better than nothing.
    if context.options.root_ca.is_empty() {
        return Box::pin(std::future::ready(()));
    }
    let namespaces = context.informers.informer::<Namespace>();
    let maps = context.informers.informer::<ConfigMap>();
    let data = BTreeMap::from([("ca.crt".to_owned(), context.options.root_ca.clone())]);
    let publisher = Publisher { client: context.client.clone(), maps: maps.lister(), data };
    let controller = Controller::new(publisher, Arc::clone(&context.clock));
    let (add, update, queue) = (controller.queue().clone(), controller.queue().clone(), controller.queue().clone());
    namespaces.add_event_handler(
        HandlerFuncs::new().on_add(move |new: &Arc<Namespace>, _| add.add(Key::of(&**new))).on_update(move |_, new| {
            if new.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active") {
                update.add(Key::of(&**new));
            }
        }),
    );
    let see = move |map: &ConfigMap| {
        if map.metadata.name.as_deref() == Some(NAME) {
            queue.add(Key::new("", map.metadata.namespace.as_deref().unwrap_or_default()));
        }
    };
    let gone = see.clone();
    maps.add_event_handler(
        HandlerFuncs::new().on_update(move |_, new: &Arc<ConfigMap>| see(new)).on_delete(move |map| gone(map.object())),
    );
    drive(context, "root_ca_cert_publisher", vec![filled(&maps)], controller)
}

struct Publisher {
    client: Client,
    maps: Lister<ConfigMap>,
    data: BTreeMap<String, String>,
}

impl Reconciler for Publisher {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let api = Api::<ConfigMap>::namespaced(&self.client, key.name());
        let Some(map) = self.maps.namespace(key.name()).get(NAME) else {
            let mut map = ConfigMap { data: Some(self.data.clone()), ..ConfigMap::default() };
            map.metadata.name = Some(NAME.to_owned());
            describe(&mut map);
            return match api.create(&map).await {
                Err(error) if !error.is_not_found() && !is_terminating(&error) => Err(error.into()),
                _ => Ok(Action::Done),
            };
        };
        let described = map.metadata.annotations.as_ref().and_then(|all| all.get(DESCRIPTION_ANNOTATION));
        if map.data.as_ref() == Some(&self.data) && described.is_some_and(|text| !text.is_empty()) {
            return Ok(Action::Done);
        }
        let mut map = ConfigMap::clone(&map);
        map.data = Some(self.data.clone());
        describe(&mut map);
        api.update(&map).await?;
        Ok(Action::Done)
    }
}

fn describe(map: &mut ConfigMap) {
    let annotations = map.metadata.annotations.get_or_insert_default();
    annotations.insert(DESCRIPTION_ANNOTATION.to_owned(), DESCRIPTION.to_owned());
}
