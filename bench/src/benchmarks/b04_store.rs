//! B4: durable creates of 1 KB on the store alone: the embedded engine in this process, and a real etcd.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_clock::{Clock, RealClock};
use capstan_storage::{Embedded, Etcd, EtcdConfig, Op, Options, SharedStore};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    histogram::Histogram,
    process::{Process, usage_of},
    result::{Case, Sample},
    side::{Side, etcd_flags},
};

/// How often etcd is tried until it is there.
const TRY: Duration = Duration::from_millis(20);
/// And how many times.
const TRIES: usize = 1_000;

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let writers: &[usize] = bench.settings.scale(&[1, 100], &[1, 10, 100, 1000]);
    for &writers in writers {
        let case = Case::more(format!("create 1 KB, {writers} writers"), "ops/s")
            .point("creates on the store over writers", writers);
        for round in 1..=bench.settings.rounds {
            for side in bench.sides.clone() {
                bench.say(&format!("{}, {writers} writers, round {round}", side.name()));
                let directory = bench.directory(side.name())?;
                let (store, etcd): (SharedStore, _) = match &side {
                    Side::Capstan { .. } | Side::Cluster { .. } => {
                        let store = Embedded::open(&directory, Options::default());
                        (Arc::new(store.map_err(|error| error.to_string())?), None)
                    }
                    Side::Upstream { binaries } => {
                        let ports = [free_port()?, free_port()?];
                        let flags = etcd_flags(&directory, ports[0], ports[1]);
                        let mut process = Process::start(&binaries.join("etcd"), &flags, &directory)?;
                        (Arc::new(connect(ports[0], &mut process).await?), Some(process))
                    }
                };
                // The engine of ours runs in this process, so its CPU has the load's in it.
                let usage = || etcd.as_ref().map_or_else(|| usage_of("self"), Process::usage);
                let before = usage();
                let sample = creates(&store, writers, bench.settings.time).await?;
                let done = sample.latency.as_ref().map_or(0, Histogram::count);
                bench.add(&case, side.name(), sample.used(before, usage(), done));
                drop(store);
                drop(etcd);
                let _ = std::fs::remove_dir_all(&directory);
            }
        }
    }
    Ok(())
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| error.to_string())
}

async fn connect(port: u16, process: &mut Process) -> Result<Etcd, String> {
    let endpoint = format!("http://127.0.0.1:{port}");
    let mut problem = String::new();
    for _ in 0..TRIES {
        process.check()?;
        match Etcd::connect(EtcdConfig::new([endpoint.clone()]), Options::default()).await {
            Ok(store) => return Ok(store),
            Err(error) => problem = error.to_string(),
        }
        RealClock::new().sleep(TRY).await;
    }
    Err(format!("etcd: {problem}"))
}

async fn creates(store: &SharedStore, writers: usize, time: Duration) -> Result<Sample, String> {
    let clock = RealClock::new();
    let (next, value) = (Arc::new(AtomicU64::new(0)), Bytes::from(vec![b'x'; 1024]));
    let mut workers: JoinSet<Result<Histogram, String>> = JoinSet::new();
    for _ in 0..writers {
        let (store, next, value) = (Arc::clone(store), Arc::clone(&next), value.clone());
        workers.spawn(async move {
            let mut latency = Histogram::default();
            loop {
                let began = clock.monotonic();
                if began.0 >= time {
                    return Ok(latency);
                }
                let key = format!("/registry/configmaps/default/c{:09}", next.fetch_add(1, Ordering::Relaxed));
                store.commit(vec![Op::create(key, value.clone())]).await.map_err(|error| error.to_string())?;
                latency.record(clock.monotonic().since(began));
            }
        });
    }
    let mut all = Histogram::default();
    while let Some(worker) = workers.join_next().await {
        all.merge(&worker.map_err(|error| error.to_string())??);
    }
    let value = all.count() as f64 / clock.monotonic().0.as_secs_f64();
    Ok(Sample { latency: Some(all), ..Sample::of(value) })
}
