//! Commands that run in pods: exec and attach.

use std::fmt;

use bytes::Bytes;
use capstan_api::Status;

use super::socket::{Reader, Writer, halves};
use crate::{Api, Error};

/// The newest protocol can end the input; the older one has to be closed for that.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";
const CLOSES: &str = "v5.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// The most output that [`RemoteCommand::output`] keeps.
pub const MAX_OUTPUT: usize = 64 << 20;

/// What to run, and what of it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachOptions {
    /// In which container; in the only one, or the default one, if there is none named.
    pub container: String,
    /// The command and its arguments. Nothing for attach.
    pub command: Vec<String>,
    /// Whether there is input.
    pub stdin: bool,
    /// Whether its output is wanted.
    pub stdout: bool,
    /// Whether its other output is wanted. With a terminal there is none.
    pub stderr: bool,
    /// Whether it runs in a terminal.
    pub tty: bool,
}

impl AttachOptions {
    /// A command without input, of which all output is wanted.
    pub fn command<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        AttachOptions { command, stdout: true, stderr: true, ..AttachOptions::default() }
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query: Vec<(&str, String)> = self.command.iter().map(|word| ("command", word.clone())).collect();
        if !self.container.is_empty() {
            query.push(("container", self.container.clone()));
        }
        let flags = [("stdin", self.stdin), ("stdout", self.stdout), ("stderr", self.stderr), ("tty", self.tty)];
        query.extend(flags.into_iter().filter(|(_, on)| *on).map(|(name, _)| (name, "true".to_owned())));
        query
    }
}

/// What a command says.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// On its output.
    Stdout(Bytes),
    /// On its other output.
    Stderr(Bytes),
    /// It has ended, well or not; see [`exit_code`].
    Ended(Box<Status>),
}

/// The exit code that a status tells of; 0 of a success, nothing if the command could not be run.
#[must_use]
pub fn exit_code(status: &Status) -> Option<i32> {
    if status.status == capstan_api::status::SUCCESS {
        return Some(0);
    }
    status.cause("ExitCode").and_then(|cause| cause.message.parse().ok())
}

/// A command that runs in a pod. It is given up when this is dropped.
pub struct RemoteCommand {
    output: RemoteOutput,
    stdin: RemoteStdin,
}

/// The output of a command.
pub struct RemoteOutput {
    reader: Reader,
}

/// The input of a command, and its terminal.
pub struct RemoteStdin {
    writer: Writer,
    closes: bool,
}

impl fmt::Debug for RemoteCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteCommand")
    }
}

impl fmt::Debug for RemoteOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteOutput")
    }
}

impl fmt::Debug for RemoteStdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteStdin")
    }
}

/// Of pods.
impl<K> Api<K> {
    /// Runs a command in a pod.
    ///
    /// # Errors
    /// The pod is not there, the server refuses or cannot be reached.
    pub async fn exec(&self, name: &str, options: &AttachOptions) -> Result<RemoteCommand, Error> {
        self.remote(name, "exec", options).await
    }

    /// Attaches to what runs in a pod.
    ///
    /// # Errors
    /// The pod is not there, the server refuses or cannot be reached.
    pub async fn attach(&self, name: &str, options: &AttachOptions) -> Result<RemoteCommand, Error> {
        self.remote(name, "attach", options).await
    }

    async fn remote(&self, name: &str, how: &str, options: &AttachOptions) -> Result<RemoteCommand, Error> {
        let path = crate::query::with_pairs(&self.path(name, how)?, &options.query());
        let (socket, protocol) = self.client().web_socket(&path, PROTOCOLS).await?;
        let (reader, writer) = halves(socket);
        Ok(RemoteCommand { output: RemoteOutput { reader }, stdin: RemoteStdin { writer, closes: protocol == CLOSES } })
    }
}

impl RemoteOutput {
    /// What it says next; nothing when the connection is over.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Output>, Error> {
        while let Some((stream, bytes)) = self.reader.next().await? {
            match stream {
                // The first messages are empty: they say that the streams are there.
                STDOUT | STDERR if bytes.is_empty() => {}
                STDOUT => return Ok(Some(Output::Stdout(bytes))),
                STDERR => return Ok(Some(Output::Stderr(bytes))),
                ERROR if !bytes.is_empty() => {
                    let status: Status = serde_json::from_slice(&bytes).map_err(|error| {
                        Error::Decode(format!("unable to understand how the command ended: {error}"))
                    })?;
                    return Ok(Some(Output::Ended(Box::new(status))));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl RemoteCommand {
    /// What it says next; nothing when the connection is over.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Output>, Error> {
        self.output.next().await
    }

    /// Its input.
    pub fn stdin(&mut self) -> &mut RemoteStdin {
        &mut self.stdin
    }

    /// Its input and its output apart, for two tasks.
    #[must_use]
    pub fn split(self) -> (RemoteStdin, RemoteOutput) {
        (self.stdin, self.output)
    }

    /// All that it says, and how it ends. Its input is closed.
    ///
    /// # Errors
    /// The connection broke before the command ended, or it says more than [`MAX_OUTPUT`].
    pub async fn output(mut self) -> Result<(Vec<u8>, Vec<u8>, Status), Error> {
        self.stdin.close().await?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match self.next().await? {
                Some(Output::Stdout(bytes)) => stdout.extend_from_slice(&bytes),
                Some(Output::Stderr(bytes)) => stderr.extend_from_slice(&bytes),
                Some(Output::Ended(status)) => return Ok((stdout, stderr, *status)),
                None => return Err(Error::Transport("the connection ended before the command did".to_owned())),
            }
            if stdout.len() + stderr.len() > MAX_OUTPUT {
                return Err(Error::Decode(format!("the command said more than {MAX_OUTPUT} bytes")));
            }
        }
    }
}

impl RemoteStdin {
    /// Gives it input, once the connection takes it.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.writer.send(STDIN, bytes).await
    }

    /// Says that there is no more input. Servers that speak the older protocol cannot be told.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn close(&mut self) -> Result<(), Error> {
        if self.closes { self.writer.send(CLOSE, &[STDIN]).await } else { Ok(()) }
    }

    /// Says how large its terminal is.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn resize(&mut self, width: u16, height: u16) -> Result<(), Error> {
        let size = format!(r#"{{"Width":{width},"Height":{height}}}"#);
        self.writer.send(RESIZE, size.as_bytes()).await
    }
}
