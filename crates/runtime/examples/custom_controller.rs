//! A custom controller: each ConfigMap that is labelled `copy=true` has a Secret with its data, whatever happens to it.
//!
//! It runs on a server in this process until the first copy is there:
//! `cargo run -p capstan-runtime --example custom_controller`.

use std::{error::Error, sync::Arc};

use capstan_api::Resource as _;
use capstan_client::{Api, Client, Event, Key};
use capstan_runtime::operator::{Context, Controller, Manager, Predicate, Reconciler};
use capstan_runtime::{Action, ReconcileError, Stopper, create_or_update, set_controller_reference};
use capstan_server::{Config, Server, authorization::UserInfo};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};

struct Copier;

impl Reconciler for Copier {
    type Object = ConfigMap;

    async fn reconcile(&self, key: Key, ctx: &Context) -> Result<Action, ReconcileError> {
        let Some(map) = ctx.get::<ConfigMap>(&key)? else { return Ok(Action::done()) };
        let (secrets, mut secret) = (ctx.api::<Secret>(key.namespace()), Secret::default());
        (secret.metadata.name, secret.metadata.namespace) = (map.metadata.name.clone(), map.metadata.namespace.clone());
        let result = create_or_update(&secrets, &mut secret, |secret| {
            let data = map.data.iter().flatten().map(|(name, text)| (name.clone(), ByteString(text.clone().into())));
            secret.data = Some(data.collect());
            set_controller_reference(&*map, secret).map_err(|error| capstan_client::Error::Decode(error.to_string()))
        });
        ctx.event(&*map, "Copied", format!("Secret {key} has been {}", result.await?));
        Ok(Action::done())
    }
}

fn controller() -> Controller<Copier> {
    let labelled = |map: &ConfigMap| map.labels().get("copy").is_some_and(|copy| copy == "true");
    Controller::new(Copier).with_predicates(Predicate::objects(labelled)).owns::<Secret>()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start(Arc::new(capstan_storage::Memory::new(Default::default())), Config::default()).await?;
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let mut map = ConfigMap { data: Some([("greeting".into(), "hello".into())].into()), ..Default::default() };
    map.metadata.name = Some("example".into());
    map.labels_mut().insert("copy".into(), "true".into());
    Api::namespaced(&client, "default").create(&map).await?;
    let mut secrets = Api::<Secret>::namespaced(&client, "default").watch(&Default::default()).await?;

    let (stopper, stop) = Stopper::new();
    let manager = tokio::spawn(Manager::new(&client).controller(controller()).run_until(stop));
    while let Some(event) = secrets.try_next().await? {
        if let Event::Added(secret) = event {
            println!("the secret {} has {:?}", secret.name(), secret.data);
            break;
        }
    }
    stopper.stop();
    Ok(manager.await??)
}
