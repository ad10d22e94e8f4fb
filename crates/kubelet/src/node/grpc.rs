//! The gRPC health protocol: one question, three answers.

use prost::Message;
use tonic::{Code, client::Grpc, transport::Endpoint};

use crate::lifecycle::Outcome;

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The answer that all is well.
const SERVING: i32 = 1;

/// Asks the service at an address how it is.
pub(super) async fn check(address: &str, service: &str) -> Outcome {
    let channel = match Endpoint::from_shared(format!("http://{address}")) {
        Ok(endpoint) => endpoint.connect().await,
        Err(error) => return Outcome::Error(error.to_string()),
    };
    let channel = match channel {
        Ok(channel) => channel,
        Err(error) => return Outcome::Failure(format!("failed to connect service \"{address}\": {error}")),
    };
    let mut client = Grpc::new(channel);
    if let Err(error) = client.ready().await {
        return Outcome::Failure(error.to_string());
    }
    let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
    let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    match client.unary(request, path, codec).await {
        Ok(answer) if answer.get_ref().status == SERVING => Outcome::Success,
        Ok(answer) => {
            let word = match answer.get_ref().status {
                2 => "NOT_SERVING",
                3 => "SERVICE_UNKNOWN",
                _ => "UNKNOWN",
            };
            Outcome::Failure(format!("service unhealthy (responded with \"{word}\")"))
        }
        Err(status) if status.code() == Code::Unimplemented => Outcome::Failure(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ".to_owned()
                + status.message(),
        ),
        Err(status) => Outcome::Failure(format!("error: health rpc failed: {}", status.message())),
    }
}
