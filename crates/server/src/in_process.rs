//! The server for those who live in the same process: a service that always asks as the same user.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    InProcessUser, Server,
    authorization::UserInfo,
    http::{Request, Response},
};

/// The server as one user reaches it: no socket, no TLS, no credentials. Clones are cheap.
#[derive(Clone, Debug)]
pub struct InProcess {
    server: Server,
    user: UserInfo,
}

impl Server {
    /// The server as this user reaches it from within the process.
    #[must_use]
    pub fn as_user(&self, user: UserInfo) -> InProcess {
        InProcess { server: self.clone(), user }
    }
}

impl tower_service::Service<Request> for InProcess {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        request.extensions_mut().insert(InProcessUser(self.user.clone()));
        tower_service::Service::call(&mut self.server, request)
    }
}
