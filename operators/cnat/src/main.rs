//! The operator as a program: installs its kind, and runs what is due until it is told to end.

use std::{error::Error, process::ExitCode};

use capstan_client::Client;
use capstan_runtime::operator::{Controller, Manager};
use cnat::Cnat;
use k8s_openapi::api::core::v1::Pod;

async fn run() -> Result<(), Box<dyn Error>> {
    let client = Client::from_default_config().await?.with_user_agent("cnat");
    cnat::install(&client).await?;
    println!("cnat runs what is due; `kubectl get ats` shows what there is");
    let controller = Controller::new(Cnat).owns::<Pod>();
    Manager::new(&client).named("cnat").leader_election("cnat").controller(controller).run().await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
