//! `token-cleaner-controller`: tokens that are over go.

use std::{sync::Arc, time::Duration};

use capstan_api::options::{DeleteOptions, Preconditions};
use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, Lister};
use capstan_clock::SharedClock;
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::Secret;

use super::{Life, is_token, life};
use crate::{
    ControllerContext,
    drive::{drive, filled},
};

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let secrets = context.informers.informer::<Secret>();
    let cleaner =
        Cleaner { client: context.client.clone(), clock: Arc::clone(&context.clock), secrets: secrets.lister() };
    let controller = Controller::new(cleaner, Arc::clone(&context.clock));
    let queue = controller.queue().clone();
    let see = move |secret: &Secret| {
        if is_token(secret) {
            queue.add(Key::of(secret));
        }
    };
    let update = see.clone();
    secrets.add_event_handler(
        HandlerFuncs::new().on_add(move |new: &Arc<Secret>, _| see(new)).on_update(move |_, new| update(new)),
    );
    drive(context, "token_cleaner", vec![filled(&secrets)], controller)
}

struct Cleaner {
    client: Client,
    clock: SharedClock,
    secrets: Lister<Secret>,
}

impl Reconciler for Cleaner {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(secret) = self.secrets.get(&key).filter(|secret| is_token(secret)) else { return Ok(Action::Done) };
        match life(&secret, self.clock.now()) {
            Life::Forever => return Ok(Action::Done),
            Life::For(left) => return Ok(Action::RequeueAfter(Duration::try_from(left).unwrap_or_default())),
            Life::Over => {}
        }
        let preconditions = Preconditions { uid: secret.metadata.uid.clone(), ..Preconditions::default() };
        let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        match Api::<Secret>::namespaced(&self.client, key.namespace()).delete(key.name(), &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
