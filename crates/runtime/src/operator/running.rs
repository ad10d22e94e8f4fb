//! The tasks of a manager, and how they end.

use tokio::{sync::mpsc, task::JoinSet};

use capstan_client::{BoxFuture, beat::caught};

/// What runs until it is told to stop, or fails.
pub(super) type Prepared = BoxFuture<'static, Result<(), String>>;

/// Runs them all. One that fails or panics says so.
pub(super) fn spawn(all: Vec<Prepared>, failed: &mpsc::Sender<String>) -> JoinSet<()> {
    let run = |one: Prepared| {
        let failed = failed.clone();
        async move {
            let error = match caught(|| one).await {
                Some(Ok(())) => return,
                Some(Err(error)) => error,
                None => "a runnable panicked".to_owned(),
            };
            // Only the first one counts.
            let _ = failed.try_send(error);
        }
    };
    all.into_iter().map(run).collect()
}

/// The tasks of a manager, by when they end. What has not ended by itself ends when this is dropped.
pub(super) struct Running {
    pub(super) http: JoinSet<()>,
    pub(super) others: JoinSet<()>,
    pub(super) leading: JoinSet<()>,
    pub(super) election: JoinSet<()>,
}

impl Running {
    pub(super) fn new(http: JoinSet<()>) -> Self {
        Running { http, others: JoinSet::new(), leading: JoinSet::new(), election: JoinSet::new() }
    }

    pub(super) async fn work_ended(&mut self) {
        ended(&mut self.others).await;
        ended(&mut self.leading).await;
    }

    pub(super) async fn http_ended(&mut self) {
        ended(&mut self.http).await;
    }

    pub(super) async fn election_ended(&mut self) {
        ended(&mut self.election).await;
    }
}

async fn ended(tasks: &mut JoinSet<()>) {
    // What they said was heard already.
    while tasks.join_next().await.is_some() {}
}
