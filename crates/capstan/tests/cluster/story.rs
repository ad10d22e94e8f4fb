//! The story of a Deployment, in ten steps: who does what, and that nobody does more than their part.

use capstan_api::options::DeleteOptions;
use http::Method;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use serde_json::Value;

use crate::world::{World, Write};

/// What a write means, in words; none for what belongs to no story: leases, nodes, and a status that says little.
fn told(write: &Write) -> Option<String> {
    let Write { method, path, asked, answer, .. } = write;
    let words: Vec<&str> = path.split('/').collect();
    let name = answer["metadata"]["name"].as_str().unwrap_or_default();
    let ready = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.clone().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    match (method, words.as_slice()) {
        (&Method::POST, ["deployments"]) => Some(format!("creates Deployment {name}")),
        (&Method::POST, ["replicasets"]) => Some(format!("creates ReplicaSet {name}")),
        (&Method::POST, ["pods"]) => Some(format!("creates Pod {name}")),
        (&Method::POST, ["pods", pod, "binding"]) => {
            Some(format!("binds Pod {pod} to {}", asked["target"]["name"].as_str().unwrap_or_default()))
        }
        (&Method::PATCH | &Method::PUT, ["pods", pod, "status"]) if ready(&answer["status"]) => {
            Some(format!("runs Pod {pod}: {}", answer["status"]["phase"].as_str().unwrap_or_default()))
        }
        (&Method::PATCH | &Method::PUT, ["replicasets", set, "status"]) => {
            Some(format!("counts ReplicaSet {set}: {} ready", answer["status"]["readyReplicas"].as_i64().unwrap_or(0)))
        }
        (&Method::PATCH | &Method::PUT, ["deployments", name, "status"]) => {
            let count = answer["status"]["availableReplicas"].as_i64().unwrap_or(0);
            Some(format!("counts Deployment {name}: {count} available"))
        }
        (&Method::DELETE, ["pods", pod]) => Some(format!("deletes Pod {pod}")),
        _ => None,
    }
}

/// Looks for a step behind the ones before it, and gives what its last `{}` stands for.
fn find(lines: &[(String, String)], from: &mut usize, who: &str, what: &str) -> String {
    let (begins, ends) = what.split_once("{}").unwrap_or((what, ""));
    let found = lines[*from..].iter().position(|(by, did)| {
        by == who && did.starts_with(begins) && did[begins.len()..].ends_with(ends) && did.len() >= what.len() - 2
    });
    let at = *from + found.unwrap_or_else(|| panic!("{who} never {what} after step {from}:\n{lines:#?}"));
    *from = at + 1;
    let rest = &lines[at].1[begins.len()..];
    rest[..rest.len() - ends.len()].to_owned()
}

#[tokio::test]
async fn ten_steps_of_a_deployment() {
    let world = World::start().await;
    let _nodes = world.nodes(&["node-0"]);
    world
        .until("the account of pods", || async { world.api::<ServiceAccount>().get_opt("default").await.unwrap() })
        .await;

    world.deploy("web", 1).await;
    world.until_available("web", 1).await;
    let first = world.list::<Pod>().await.remove(0).metadata.name.unwrap();
    world.api::<Pod>().delete(&first, &DeleteOptions::default()).await.unwrap();
    world
        .until("the pod is gone", || async {
            world.api::<Pod>().get_opt(&first).await.unwrap().is_none().then_some(())
        })
        .await;
    // The loops may count before or after the one that died is replaced, or both.
    let runs = |(_, did): &&(String, String)| did.starts_with("runs Pod") && did.ends_with(": Running");
    let lines = world
        .until("the Deployment is as it was wanted again", || async {
            let writes = world.record.writes();
            let lines: Vec<(String, String)> =
                writes.iter().filter_map(|write| Some((write.who.clone(), told(write)?))).collect();
            (lines.iter().filter(runs).count() > 1).then_some(lines)
        })
        .await;
    world.until_available("web", 1).await;
    println!("the story of a Deployment:");
    for (number, (who, did)) in lines.iter().enumerate() {
        println!("{:>4}  {who:<24} {did}", number + 1);
    }

    let mut at = 0;
    find(&lines, &mut at, "user", "creates Deployment web"); // 1
    let set = find(&lines, &mut at, "deployment-controller", "creates ReplicaSet {}"); // 2
    let pod = find(&lines, &mut at, "replicaset-controller", "creates Pod {}"); // 3
    assert!(set.starts_with("web-") && pod.starts_with(&format!("{set}-")), "{set} {pod}");
    find(&lines, &mut at, "scheduler", &format!("binds Pod {pod} to node-0")); // 4
    find(&lines, &mut at, "node", &format!("runs Pod {pod}: Running")); // 5
    find(&lines, &mut at, "replicaset-controller", &format!("counts ReplicaSet {set}: 1 ready")); // 6
    find(&lines, &mut at, "deployment-controller", "counts Deployment web: 1 available"); // 7
    find(&lines, &mut at, "user", &format!("deletes Pod {pod}")); // 8: the pod dies
    let died = at;
    let second = find(&lines, &mut at, "replicaset-controller", "creates Pod {}"); // 9: it is replaced
    assert_ne!(pod, second);
    find(&lines, &mut { died }, "node", &format!("deletes Pod {pod}"));
    find(&lines, &mut at, "scheduler", &format!("binds Pod {second} to node-0"));
    find(&lines, &mut at, "node", &format!("runs Pod {second}: Running"));
    // 10: it is as it was wanted, which was waited for.

    // Everybody did their own part and nobody else's.
    for (who, did) in &lines {
        let expected = match did.split(' ').take(2).collect::<Vec<_>>().as_slice() {
            ["creates", "Deployment"] => "user",
            ["creates", "ReplicaSet"] | ["counts", "Deployment"] => "deployment-controller",
            ["creates", "Pod"] | ["counts", "ReplicaSet"] => "replicaset-controller",
            ["binds", _] => "scheduler",
            ["runs", _] => "node",
            _ => continue,
        };
        assert_eq!(who, expected, "{did}");
    }
    assert_eq!(lines.iter().filter(|(_, did)| did.starts_with("creates Pod")).count(), 2, "one pod, and one more");
}
