//! The benchmarks, one file each.

mod b01_start;
mod b02_idle;
mod b03_write;
mod b04_store;
mod b05_get;
mod b06_list;
mod b07_watch;
mod b08_stalled;
mod b09_recreate;
mod b10_restart;
mod b11_schedule;
mod b12_controllers;
mod b13_informer;
mod b14_queue;
mod b15_kinds;
mod b16_scale;

use crate::bench::Bench;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    Start,
    Idle,
    Write,
    Store,
    Get,
    List,
    Watch,
    Stalled,
    Recreate,
    Restart,
    Schedule,
    Controllers,
    Informer,
    Queue,
    Kinds,
    Scale,
}

impl Benchmark {
    pub(crate) const ALL: [Benchmark; 16] = [
        Benchmark::Start,
        Benchmark::Idle,
        Benchmark::Write,
        Benchmark::Store,
        Benchmark::Get,
        Benchmark::List,
        Benchmark::Watch,
        Benchmark::Stalled,
        Benchmark::Recreate,
        Benchmark::Restart,
        Benchmark::Schedule,
        Benchmark::Controllers,
        Benchmark::Informer,
        Benchmark::Queue,
        Benchmark::Kinds,
        Benchmark::Scale,
    ];

    pub(crate) fn id(self) -> &'static str {
        self.about().0
    }

    pub(crate) fn title(self) -> &'static str {
        self.about().1
    }

    fn about(self) -> (&'static str, &'static str) {
        match self {
            Benchmark::Start => ("B1", "Start: spawn to the first authorised create, and in process"),
            Benchmark::Idle => ("B2", "Memory and CPU: idle, then with pods"),
            Benchmark::Write => ("B3", "Durable creates and updates, few and many in flight"),
            Benchmark::Store => ("B4", "The store alone, beside etcd"),
            Benchmark::Get => ("B5", "GET of 10 KB, JSON and protobuf"),
            Benchmark::List => ("B6", "LIST of pods: all, a namespace, pages, a selector that matches nothing"),
            Benchmark::Watch => ("B7", "100 patches a second to many watchers"),
            Benchmark::Stalled => ("B8", "Watchers beside one that does not read"),
            Benchmark::Recreate => ("B9", "Delete and create among many objects, seen by a watcher"),
            Benchmark::Restart => ("B10", "Restart with many pods"),
            Benchmark::Schedule => ("B11", "Pods get nodes: a scheduler on its server"),
            Benchmark::Controllers => {
                ("B12", "A ReplicaSet grows: time until all is ready, requests, memory of the manager")
            }
            Benchmark::Informer => ("B13", "An informer of many pods, beside those of client-go and kube-rs"),
            Benchmark::Queue => ("B14", "Work queues, and a loop that does nothing, beside Go's"),
            Benchmark::Kinds => ("B15", "Custom kinds installed and served"),
            Benchmark::Scale => ("Scale", "Simulated nodes with many pods in one process"),
        }
    }

    /// Those of the given names, all when there are none.
    pub(crate) fn choose(names: &[String]) -> Result<Vec<Benchmark>, String> {
        if names.is_empty() {
            return Ok(Benchmark::ALL.to_vec());
        }
        let find =
            |name: &String| Benchmark::ALL.into_iter().find(|benchmark| benchmark.id().eq_ignore_ascii_case(name));
        names.iter().map(|name| find(name).ok_or(format!("there is no benchmark {name}; `list` names all"))).collect()
    }
}

/// Runs them one after the other. What fails is noted, and the next one has its turn.
pub(crate) async fn run(bench: &mut Bench, chosen: &[Benchmark]) {
    for (at, benchmark) in chosen.iter().enumerate() {
        bench.begin(benchmark.id(), at + 1, chosen.len());
        let done = match benchmark {
            Benchmark::Start => b01_start::run(bench).await,
            Benchmark::Idle => b02_idle::run(bench).await,
            Benchmark::Write => b03_write::run(bench).await,
            Benchmark::Store => b04_store::run(bench).await,
            Benchmark::Get => b05_get::run(bench).await,
            Benchmark::List => b06_list::run(bench).await,
            Benchmark::Watch => b07_watch::run(bench).await,
            Benchmark::Stalled => b08_stalled::run(bench).await,
            Benchmark::Recreate => b09_recreate::run(bench).await,
            Benchmark::Restart => b10_restart::run(bench).await,
            Benchmark::Schedule => b11_schedule::run(bench).await,
            Benchmark::Controllers => b12_controllers::run(bench).await,
            Benchmark::Informer => b13_informer::run(bench).await,
            Benchmark::Queue => b14_queue::run(bench).await,
            Benchmark::Kinds => b15_kinds::run(bench).await,
            Benchmark::Scale => b16_scale::run(bench).await,
        };
        if let Err(error) = done {
            bench.failures.push(format!("{}: {error}", benchmark.id()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_are_found_by_name() {
        let names =
            |names: &[&str]| Benchmark::choose(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["B10", "B1"]), Ok(vec![Benchmark::Restart, Benchmark::Start]));
        assert_eq!(names(&[]).unwrap().len(), Benchmark::ALL.len());
        assert_eq!(names(&["B99"]).unwrap_err(), "there is no benchmark B99; `list` names all");
    }
}
