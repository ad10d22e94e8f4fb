//! B1: from the spawn of the processes to the first create that an authorised user gets done; and in process.

use std::{fs, path::Path, sync::Arc};

use capstan_clock::{Clock, RealClock};
use capstan_server::{Config, InProcessUser, Server, authorization::UserInfo, http::Body};
use capstan_storage::{Embedded, Memory, Options, SharedStore};
use http::Request;

use crate::{
    bench::Bench,
    client::Call,
    objects::{self, CONFIG_MAPS},
    result::{Case, Sample},
};

/// The namespace `default` is there when the create can succeed, so this is all that a client waits for.
fn first_create(name: &str) -> Call {
    Call::post(CONFIG_MAPS, objects::config_map(name, 1024))
}

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let first = Case::less("first start, with new keys", "ms").goal(70.0).bound(100.0);
    bench.add_sizes()?;
    let again = Case::less("start after that", "ms").goal(70.0).bound(50.0);
    for round in 1..=bench.settings.rounds {
        for side in bench.sides.clone() {
            bench.say(&format!("{}, round {round} of {}", side.name(), bench.settings.rounds));
            let directory = bench.directory(side.name())?;
            for (case, name) in [(&first, "first"), (&again, "again")] {
                let (server, took) = side.start(&directory, &first_create(name)).await?;
                let usage = server.usage();
                server.stop().await;
                let sample = Sample::of(took.as_secs_f64() * 1e3).used(Default::default(), usage, 1);
                bench.add(case, side.name(), sample);
            }
            let _ = fs::remove_dir_all(&directory);
        }
        in_process(bench, "in process, in memory", |_| Ok(Arc::new(Memory::new(Options::default())))).await?;
        in_process(bench, "in process, new store", |directory| {
            let store = Embedded::open(directory, Options::default()).map_err(|error| error.to_string())?;
            Ok(Arc::new(store))
        })
        .await?;
    }
    Ok(())
}

/// The server as a value, without sockets: what a test of a controller starts.
async fn in_process(
    bench: &mut Bench,
    case: &str,
    open: impl FnOnce(&Path) -> Result<SharedStore, String>,
) -> Result<(), String> {
    let directory = bench.directory("in-process")?;
    let clock = RealClock::new();
    let server = Server::start(open(&directory)?, Config::default()).await.map_err(|error| error.to_string())?;
    let request = Request::post(CONFIG_MAPS)
        .header("content-type", "application/json")
        .extension(InProcessUser(UserInfo::new("admin", ["system:masters"])))
        .body(Body::from(objects::config_map("first", 1024)))
        .map_err(|error| error.to_string())?;
    let status = server.answer(request).await.status();
    let took = clock.monotonic().0;
    if !status.is_success() {
        return Err(format!("in process: {status}"));
    }
    let _ = fs::remove_dir_all(&directory);
    bench.add(&Case::less(case, "ms").bound(10.0), "capstan", Sample::of(took.as_secs_f64() * 1e3));
    Ok(())
}
