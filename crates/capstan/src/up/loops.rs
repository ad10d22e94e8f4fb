//! The control loops and the scheduler of `capstan up`, in the server's own process.

use std::sync::Arc;

use capstan_client::Api;
use capstan_controllers::{ControllerContext, ControllerOptions, LOCAL_PATH_PROVISIONER, LocalPath, TokenSigner};
use capstan_runtime::Stop;
use capstan_scheduler::{Scheduler, SchedulerConfig};
use capstan_server::authorization::{SYSTEM_MASTERS, UserInfo};
use tokio::task::JoinSet;

use super::{
    clock_and_ids,
    flags::{Place, UpFlags},
    in_process,
};
use crate::{keys::Keys, server::Running};

/// Starts the control loops that the flags choose, and tells how many.
pub(super) async fn controllers(
    running: &Running,
    flags: &UpFlags,
    place: &Place,
    stop: &Stop,
    loops: &mut JoinSet<()>,
) -> Result<usize, String> {
    let which = capstan_controllers::select(&flags.controllers).map_err(|error| error.to_string())?;
    let count = which.len();
    let (clock, ids) = clock_and_ids();
    let user = UserInfo::new("system:kube-controller-manager", [SYSTEM_MASTERS]);
    let client = in_process(running, user, "kube-controller-manager");
    default_storage_class(&client).await?;
    let keys = Arc::new(Keys(Arc::clone(&running.pki)));
    let volumes = place.directory.join("volumes");
    let options = ControllerOptions {
        root_ca: running.pki.ca.own.certificate.clone(),
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
    };
    let context = ControllerContext::new(client, clock, ids, stop.clone(), options);
    loops.spawn(async move { capstan_controllers::run(&context, &which).await });
    Ok(count)
}

/// Claims that name no class get their volumes on the node of the pod that uses them.
async fn default_storage_class(client: &capstan_client::Client) -> Result<(), String> {
    let class = serde_json::json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "local-path",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": LOCAL_PATH_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let class = serde_json::from_value(class).map_err(|error| error.to_string())?;
    match Api::<k8s_openapi::api::storage::v1::StorageClass>::all(client).create(&class).await {
        Err(error) if !error.is_already_exists() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Starts the scheduler.
pub(super) fn scheduler(running: &Running, stop: &Stop, loops: &mut JoinSet<()>) {
    let (clock, ids) = clock_and_ids();
    let client = in_process(running, UserInfo::new("system:kube-scheduler", [SYSTEM_MASTERS]), "kube-scheduler");
    loops.spawn(Scheduler::new(client, clock, ids, SchedulerConfig::default()).run(stop.clone()));
}
