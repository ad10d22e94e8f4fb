//! The control loops and the scheduler of `capstan up`, in the server's own process.

use std::sync::Arc;

use capstan_controllers::{
    ControllerContext, ControllerOptions, LOCAL_PATH_PROVISIONER, LocalPath, MetadataInformers, TokenSigner,
};
use capstan_runtime::Stop;
use capstan_scheduler::{Scheduler, SchedulerConfig};
use k8s_openapi::api::storage::v1::StorageClass;
use tokio::task::JoinSet;

use super::{
    clock_and_ids,
    flags::{Place, UpFlags},
    inside::{self, CONTROLLER_MANAGER, GARBAGE_COLLECTOR, Inside},
};
use crate::{keys::Keys, metrics::create};

/// Starts the control loops that the flags choose, and tells how many.
pub(super) async fn controllers(
    inside: &Inside<'_>,
    flags: &UpFlags,
    place: &Place,
    stop: &Stop,
    tasks: &mut JoinSet<()>,
) -> Result<usize, String> {
    let which = capstan_controllers::select(&flags.controllers).map_err(|error| error.to_string())?;
    let (clock, ids) = clock_and_ids();
    create::<StorageClass>(&inside.installer(), default_storage_class()).await?;
    let keys = Arc::new(Keys(Arc::clone(&inside.running.pki)));
    let volumes = place.directory.join("volumes");
    let journal = Arc::clone(&inside.journal);
    let options = ControllerOptions {
        root_ca: inside.running.pki.ca.own.certificate.clone(),
        token_signer: Some(Arc::clone(&keys) as Arc<dyn TokenSigner>),
        certificate_signer: Some(keys),
        local_path: LocalPath {
            root: volumes.to_string_lossy().into_owned(),
            // All nodes are this machine.
            remove: Some(Arc::new(move |_node, directory| match std::fs::remove_dir_all(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
                _ => Ok(()),
            })),
        },
        log: Some(Arc::new(move |line| {
            let (of, what) = line.split_once(": ").unwrap_or((CONTROLLER_MANAGER, line));
            journal.say(of, what);
        })),
    };
    // One reads for all; each writes in its own name.
    let reader = inside.client(CONTROLLER_MANAGER, inside::controller_manager(), CONTROLLER_MANAGER);
    let mut context = ControllerContext::new(reader, Arc::clone(&clock), Arc::clone(&ids), stop.clone(), options);
    // What reads the metadata of all objects also deletes them.
    let collector = inside.client(GARBAGE_COLLECTOR, inside::service_account(GARBAGE_COLLECTOR), CONTROLLER_MANAGER);
    context.informers = Arc::clone(&inside.informers);
    context.metadata = MetadataInformers::new(&collector, clock, ids);
    let loops: Vec<_> = which
        .iter()
        .map(|descriptor| {
            let user = inside::controller(descriptor.name);
            let client = inside.client(descriptor.name, user, CONTROLLER_MANAGER);
            (descriptor.run)(&ControllerContext { client, ..context.clone() })
        })
        .collect();
    // All have asked for their informers: what they share can be started.
    context.informers.start();
    let count = loops.len();
    for work in loops {
        tasks.spawn(work);
    }
    // Informers end with the factory that made them.
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.stopped().await;
        drop(context);
    });
    Ok(count)
}

/// Claims that name no class get their volumes on the node of the pod that uses them.
fn default_storage_class() -> serde_json::Value {
    serde_json::json!({
        "metadata": {
            "name": "local-path",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": LOCAL_PATH_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    })
}

/// Starts the scheduler.
pub(super) fn scheduler(inside: &Inside<'_>, stop: &Stop, tasks: &mut JoinSet<()>) {
    let (clock, ids) = clock_and_ids();
    let client = inside.client("kube-scheduler", inside::scheduler(), "kube-scheduler");
    let scheduler = Scheduler::new(client, clock, ids, SchedulerConfig::default());
    tasks.spawn(scheduler.with_informers(Arc::clone(&inside.informers)).run(stop.clone()));
}
