//! The operating system says that it is time to go.

use capstan_client::beat::race;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Stop, Stopper};

/// Hears SIGTERM and SIGINT. Who sends a second one does not want to wait: the process exits at once, with 1.
///
/// # Errors
/// The operating system does not let signals be heard.
pub fn setup_signal_handler() -> std::io::Result<Stop> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stopper, stop) = Stopper::new();
    tokio::spawn(async move {
        race(terminate.recv(), interrupt.recv()).await;
        stopper.stop();
        race(terminate.recv(), interrupt.recv()).await;
        std::process::exit(1);
    });
    Ok(stop)
}
