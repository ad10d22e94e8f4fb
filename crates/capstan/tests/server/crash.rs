//! kill -9 under load: nothing that was acknowledged is lost, and watchers go on without a gap.

use std::{collections::BTreeMap, sync::mpsc, thread};

use capstan_api::Value;

use crate::harness::{Capstan, Door, Watch, directory, text};

const WRITERS: usize = 4;
const KILLS: usize = 3;
/// How many writes are acknowledged before each kill.
const ACKNOWLEDGED: usize = 100;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates one object after the other until the server is gone, and says what was acknowledged.
fn write(door: &Door, names: String, acknowledged: &mpsc::SyncSender<(String, u64)>) {
    let Ok(mut connection) = door.connect() else { return };
    for n in 0.. {
        let name = format!("{names}-{n}");
        let Ok(answer) = connection.ask("POST", MAPS, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)) else {
            return;
        };
        assert_eq!(answer.code, 201, "{}", answer.text);
        if acknowledged.send((name, version(&answer.json()))).is_err() {
            return;
        }
    }
}

fn version(object: &Value) -> u64 {
    text(object, &["metadata", "resourceVersion"]).parse().expect("objects have a version")
}

/// Follows the creates until the server is gone, or until one has a name.
fn follow(door: &Door, after: u64, until: &str) -> Vec<(String, u64)> {
    let mut seen = Vec::new();
    let mut watch = Watch::start(door, MAPS, &after.to_string()).expect("the version is in the window");
    while let Ok(Some(event)) = watch.next() {
        assert_eq!(text(&event, &["type"]), "ADDED", "{event:?}");
        let object = event.get("object").expect("events have one");
        let name = text(object, &["metadata", "name"]);
        seen.push((name.to_owned(), version(object)));
        if name == until {
            break;
        }
    }
    seen
}

fn stored(door: &Door) -> (u64, BTreeMap<String, u64>) {
    let list = door.ask("GET", MAPS, "").expect("the server runs").json();
    let items = list.get("items").and_then(Value::as_array).expect("a list has items");
    (version(&list), items.iter().map(|item| (text(item, &["metadata", "name"]).to_owned(), version(item))).collect())
}

#[test]
fn nothing_acknowledged_is_lost() {
    let directory = directory("crash");
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    let mut server = Capstan::start(&directory);
    let (mut last, already) = stored(&server.door(true));
    let mut watched: Vec<(String, u64)> = already.into_iter().collect();
    for kill in 0..KILLS {
        let door = server.door(true);
        let (sender, receiver) = mpsc::sync_channel(1024);
        let (seen, writers) = thread::scope(|scope| {
            let watcher = scope.spawn(|| follow(&door, last, ""));
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (sender, door) = (sender.clone(), &door);
                    scope.spawn(move || write(door, format!("k{kill}-w{writer}"), &sender))
                })
                .collect();
            drop(sender);
            let mut count = 0;
            let mut server = Some(server);
            for (name, version) in &receiver {
                acknowledged.insert(name, version);
                count += 1;
                if count == ACKNOWLEDGED {
                    server.take().expect("it is killed once").kill();
                }
            }
            (watcher.join().expect("watchers see what they should"), writers.len())
        });
        assert!(seen.windows(2).all(|pair| pair[0].1 < pair[1].1), "in order, nothing twice: {seen:?}");
        last = seen.last().map_or(last, |(_, version)| *version);
        watched.extend(seen);

        server = Capstan::start(&directory);
        let door = server.door(true);
        let (_, objects) = stored(&door);
        for (name, version) in &acknowledged {
            assert_eq!(objects.get(name), Some(version), "{name} was acknowledged");
        }
        let unanswered = objects.keys().filter(|name| name.starts_with(&format!("k{kill}-w"))).count()
            - acknowledged.keys().filter(|name| name.starts_with(&format!("k{kill}-w"))).count();
        assert!(unanswered <= writers, "at most one write of each writer was under way: {unanswered}");

        // The watcher goes on where it was: what it missed, and what comes now.
        let end = format!("k{kill}-end");
        assert_eq!(door.ask("POST", MAPS, &format!(r#"{{"metadata":{{"name":"{end}"}}}}"#)).unwrap().code, 201);
        watched.extend(follow(&door, last, &end));
        last = watched.last().expect("the end was seen").1;
        assert!(watched.windows(2).all(|pair| pair[0].1 < pair[1].1), "in order, nothing twice: {watched:?}");
        assert_eq!(watched.iter().cloned().collect::<BTreeMap<_, _>>(), stored(&door).1, "no gap");
    }
    drop(server);
    std::fs::remove_dir_all(&directory).unwrap();
}
