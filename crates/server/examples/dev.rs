//! Plain HTTP for trying things, everybody is an admin.
use capstan_server::authorization::UserInfo;
use capstan_server::{Config, InProcessUser, Server};
use capstan_storage::{Memory, Options};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use std::sync::Arc;

#[derive(Clone)]
struct Admin(Server);
impl tower_service::Service<http::Request<hyper::body::Incoming>> for Admin {
    type Response = capstan_server::http::Response;
    type Error = std::convert::Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;
    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }
    fn call(&mut self, mut r: http::Request<hyper::body::Incoming>) -> Self::Future {
        r.extensions_mut().insert(InProcessUser(UserInfo::new("admin", ["system:masters", "system:authenticated"])));
        let s = self.0.clone();
        Box::pin(async move { Ok(s.answer(r).await) })
    }
}
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let store = Arc::new(Memory::new(Options::default()));
    let t = std::time::Instant::now();
    let server = Server::start(store, Config::default()).await.unwrap();
    println!("started in {:?}", t.elapsed());
    let l = tokio::net::TcpListener::bind(("127.0.0.1", 8001)).await.unwrap();
    loop {
        let (s, _) = l.accept().await.unwrap();
        let a = Admin(server.clone());
        tokio::spawn(async move {
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(s), TowerToHyperService::new(a))
                .await;
        });
    }
}
