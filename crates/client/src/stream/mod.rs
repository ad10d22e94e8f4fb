//! Streams of pods: logs, commands that run in them, their ports.

#[cfg(feature = "kube")]
mod command;
#[cfg(feature = "kube")]
mod forward;
#[cfg(feature = "kube")]
mod ports;
#[cfg(feature = "kube")]
mod socket;

use capstan_api::Time;
use http::Method;
use serde::Serialize;

#[cfg(feature = "kube")]
pub use command::{AttachOptions, MAX_OUTPUT, Output, RemoteCommand, RemoteOutput, RemoteStdin, exit_code};
#[cfg(feature = "kube")]
pub use forward::PortForward;
#[cfg(feature = "kube")]
pub use ports::PortStream;

use crate::{Api, Error, query::with_options, transport::Body};

/// Which part of the logs of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogOptions {
    /// Of which container; of the only one if there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// Whether to go on with what comes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
    /// Whether those of the container before this one are meant.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub previous: bool,
    /// Only what is younger than so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_seconds: Option<i64>,
    /// Only what is younger than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_time: Option<Time>,
    /// Whether each line begins with its time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timestamps: bool,
    /// So many lines from the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_lines: Option<i64>,
    /// No more than so many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<i64>,
}

/// Of pods.
impl<K> Api<K> {
    /// The logs of a pod, as they come.
    ///
    /// # Errors
    /// It is not there, the server refuses or cannot be reached.
    pub async fn log_stream(&self, name: &str, options: &LogOptions) -> Result<Body, Error> {
        let path = with_options(&self.path(name, "log")?, options);
        Ok(self.client().call(self.client().request(Method::GET, &path)?).await?.into_body())
    }

    /// The logs of a pod so far.
    ///
    /// # Errors
    /// It is not there, the server refuses or cannot be reached.
    pub async fn logs(&self, name: &str, options: &LogOptions) -> Result<String, Error> {
        let text = self.log_stream(name, options).await?.bytes().await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
