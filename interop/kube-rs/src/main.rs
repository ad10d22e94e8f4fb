//! kube-rs: a Pod is created, read, updated in a loop that retries on conflict, watched and deleted; a reflector
//! follows.

use std::{fmt::Debug, pin::pin};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::{
    Api, Client, Error, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use serde_json::json;

fn that(name: &str, holds: bool, got: impl Debug) -> anyhow::Result<()> {
    if !holds {
        println!("FAIL {name}: {got:?}");
        bail!("{name}");
    }
    println!("ok {name}");
    Ok(())
}

fn refused<T: Debug>(name: &str, code: u16, answer: Result<T, Error>) -> anyhow::Result<()> {
    let right = matches!(&answer, Err(Error::Api(status)) if status.code == code);
    that(name, right, answer)
}

fn made<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> anyhow::Result<T> {
    Ok(serde_json::from_value(value)?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    let version = client.apiserver_version().await?;
    that("the version is told", version.minor == "36", &version)?;
    let namespace: Namespace = made(json!({"metadata": {"generateName": "kube-rs-"}}))?;
    let namespace = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?.name_any();
    crud(Api::namespaced(client.clone(), &namespace)).await?;
    events(Api::namespaced(client.clone(), &namespace)).await?;
    follow(Api::namespaced(client, &namespace)).await
}

async fn crud(pods: Api<Pod>) -> anyhow::Result<()> {
    let post = PostParams::default();
    let pod: Pod = made(json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
    }))?;
    let created = pods.create(&post, &pod).await?;
    let policy = created.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    that("a created pod is defaulted", policy == Some("Always"), &created)?;
    refused("a second create already exists", 409, pods.create(&post, &pod).await)?;
    let bare = made(json!({"metadata": {"name": "x"}}))?;
    refused("a pod without containers is invalid", 422, pods.create(&post, &bare).await)?;
    let list = pods.list(&ListParams::default().labels("app=web").limit(1)).await?;
    that("a list finds it", list.items.len() == 1, &list)?;

    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut got = pods.get("web").await?;
        if attempts == 1 {
            // Another writer gets in between.
            let other = Patch::Strategic(json!({"metadata": {"labels": {"other": "writer"}}}));
            pods.patch("web", &PatchParams::default(), &other).await?;
        }
        got.spec.as_mut().context("a pod has a spec")?.containers[0].image = Some("nginx:1.28".to_owned());
        match pods.replace("web", &post, &got).await {
            Ok(_) => break,
            Err(Error::Api(status)) if status.code == 409 && attempts == 1 => {}
            other => refused("a stale update conflicts", 409, other)?,
        }
    }
    let got = pods.get("web").await?;
    let kept = got.labels().get("other").is_some_and(|value| value == "writer");
    that("the loop of get, update and retry keeps both changes", attempts == 2 && kept, &got)?;
    let merged = Patch::Merge(json!({"metadata": {"annotations": {"a": "1"}}}));
    let got = pods.patch("web", &PatchParams::default(), &merged).await?;
    that("a merge patch is taken", got.annotations().len() == 1, &got)?;
    pods.delete("web", &DeleteParams::default().grace_period(0)).await?;
    refused("what is deleted is not found", 404, pods.get("web").await)
}

async fn events(maps: Api<ConfigMap>) -> anyhow::Result<()> {
    let start = maps.list(&ListParams::default()).await?.metadata.resource_version.context("a list has a version")?;
    let mut stream = pin!(maps.watch(&WatchParams::default().timeout(60), &start).await?);
    maps.create(&PostParams::default(), &made(json!({"metadata": {"name": "seen"}}))?).await?;
    maps.patch("seen", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "1"}}))).await?;
    maps.delete("seen", &DeleteParams::default()).await?;
    let mut seen = Vec::new();
    while let Some(event) = stream.try_next().await? {
        match event {
            WatchEvent::Added(map) => seen.push(format!("added {}", map.name_any())),
            WatchEvent::Modified(map) => seen.push(format!("modified {}", map.name_any())),
            WatchEvent::Deleted(map) => {
                seen.push(format!("deleted {}", map.name_any()));
                break;
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => bail!("error event {error:?}"),
        }
    }
    that("a watch tells of all changes", seen == ["added seen", "modified seen", "deleted seen"], &seen)
}

async fn follow(maps: Api<ConfigMap>) -> anyhow::Result<()> {
    maps.create(&PostParams::default(), &made(json!({"metadata": {"name": "early"}}))?).await?;
    for (name, config) in [
        ("a reflector by lists", watcher::Config::default()),
        ("a reflector by streaming lists", watcher::Config::default().streaming_lists()),
    ] {
        let late = format!("late-{}", name.len());
        let (store, writer) = reflector::store();
        let mut stream = pin!(watcher(maps.clone(), config).reflect(writer).touched_objects());
        let first = stream.next().await.context("a first object")??;
        maps.create(&PostParams::default(), &made(json!({"metadata": {"name": late}}))?).await?;
        let mut seen = vec![first.name_any()];
        while !seen.contains(&late) {
            seen.push(stream.next().await.context("another object")??.name_any());
        }
        that(name, store.state().iter().any(|map| map.name_any() == late), &seen)?;
    }
    Ok(())
}
