//! `serviceaccount-controller`: every namespace has a service account `default`.

use std::sync::Arc;

use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, Lister};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};

use crate::{
    ControllerContext,
    drive::{adds, drive, filled},
};

/// The account that every namespace has.
const DEFAULT: &str = "default";

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let namespaces = context.informers.informer::<Namespace>();
    let accounts = context.informers.informer::<ServiceAccount>();
    let ensure =
        Ensure { client: context.client.clone(), namespaces: namespaces.lister(), accounts: accounts.lister() };
    let controller = Controller::new(ensure, Arc::clone(&context.clock));
    let (add, update) = (adds(controller.queue()), adds(controller.queue()));
    namespaces
        .add_event_handler(HandlerFuncs::new().on_add(move |new, _| add(new)).on_update(move |_, new| update(new)));
    let queue = controller.queue().clone();
    accounts.add_event_handler(HandlerFuncs::<ServiceAccount>::new().on_delete(move |gone| {
        queue.add(Key::new("", gone.object().metadata.namespace.as_deref().unwrap_or_default()));
    }));
    drive(context, "serviceaccount", vec![filled(&namespaces), filled(&accounts)], controller)
}

struct Ensure {
    client: Client,
    namespaces: Lister<Namespace>,
    accounts: Lister<ServiceAccount>,
}

impl Reconciler for Ensure {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let is_active = |namespace: &Namespace| {
            namespace.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active")
        };
        if !self.namespaces.get(&key).is_some_and(|namespace| is_active(&namespace))
            || self.accounts.namespace(key.name()).get(DEFAULT).is_some()
        {
            return Ok(Action::Done);
        }
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(DEFAULT.to_owned());
        account.metadata.namespace = Some(key.name().to_owned());
        match Api::namespaced(&self.client, key.name()).create(&account).await {
            Err(error) if !error.is_already_exists() && !crate::namespace::is_terminating(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
