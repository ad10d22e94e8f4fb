//! kill -9 while cnat runs what is due: everything is run, and nothing twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use capstan_api::options::ListOptions;
use capstan_client::{Api, Client};
use capstan_runtime::{
    Stopper,
    operator::{Controller, Manager},
};
use cnat::{At, AtSpec, Cnat, Phase};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};

use crate::{Up, directory, until};

const ATS: usize = 30;
const KILLS: usize = 3;

/// The operator; it ends, whatever it is doing, when the stopper goes.
fn operator(client: &Client) -> (Stopper, tokio::task::JoinHandle<()>) {
    let (stopper, stop) = Stopper::new();
    let manager = Manager::new(client).named("cnat").controller(Controller::new(Cnat).owns::<Pod>());
    let running = tokio::spawn(async move {
        let _ = manager.run_until(stop).await;
    });
    (stopper, running)
}

async fn done(client: &Client) -> Option<usize> {
    let ats = Api::<At>::namespaced(client, "default").list(&ListOptions::default()).await.ok()?.items;
    Some(ats.iter().filter(|at| at.phase() == Phase::Done).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_at_has_two_pods() {
    let directory = directory("cnat");
    let mut up = Up::start(&directory).await;
    until("the account of pods", || async {
        Api::<ServiceAccount>::namespaced(&up.client, "default").get("default").await.ok()
    })
    .await;
    cnat::install(&up.client).await.unwrap();
    for number in 0..ATS {
        let spec = AtSpec {
            schedule: "2020-01-01T00:00:00Z".to_owned(),
            command: Some("echo".to_owned()),
            ..AtSpec::default()
        };
        Api::<At>::namespaced(&up.client, "default").create(&At::new(&format!("at-{number}"), spec)).await.unwrap();
    }
    // Every pod that anybody ever saw, by the name of its `At`.
    let seen = Mutex::new(BTreeMap::<String, BTreeSet<String>>::new());
    let look = |client: Client| {
        let seen = &seen;
        async move {
            let pods = Api::<Pod>::namespaced(&client, "default").list(&ListOptions::default()).await.ok()?.items;
            for pod in pods {
                let owner = pod.metadata.owner_references.unwrap_or_default().remove(0).name;
                seen.lock().unwrap().entry(owner).or_default().insert(pod.metadata.uid.unwrap());
            }
            Some(())
        }
    };
    let (mut stopper, mut running) = operator(&up.client);
    for kill in 1..=KILLS {
        until("some are under way and not all are done", || async {
            look(up.client.clone()).await?;
            let begun = seen.lock().unwrap().len();
            (begun >= ATS * kill / (KILLS + 1)).then_some(())
        })
        .await;
        if kill % 2 == 0 {
            // The operator dies as well, in the middle of what it does.
            running.abort();
            drop(stopper);
            up = up.killed_and_started().await;
            (stopper, running) = operator(&up.client);
        } else {
            up = up.killed_and_started().await;
        }
    }
    until("all are done", || async {
        look(up.client.clone()).await?;
        (done(&up.client).await? == ATS).then_some(())
    })
    .await;
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), ATS);
    assert!(seen.values().all(|pods| pods.len() == 1), "{seen:?}");
    stopper.stop();
    up.end();
}
