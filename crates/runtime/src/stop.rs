//! Telling everybody that it is time to go.

use tokio::sync::watch;

/// Tells all [`Stop`]s; dropping it does so too.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Hears when it is time to go. Clones hear the same.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stopper {
    /// One that has told nobody yet, and who hears it.
    #[must_use]
    pub fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Stop(receiver))
    }

    /// It is time to go.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Whether it is time to go.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until it is time to go.
    pub async fn stopped(&self) {
        // Whoever drops the stopper is gone, and nobody else can tell.
        let _ = self.0.clone().wait_for(|stopped| *stopped).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_hear() {
        let (stopper, stop) = Stopper::new();
        let other = stop.clone();
        assert!(!stop.is_stopped());
        stopper.stop();
        other.stopped().await;
        assert!(stop.is_stopped());

        let (stopper, stop) = Stopper::new();
        drop(stopper);
        stop.stopped().await;
        assert!(stop.is_stopped());
    }
}
