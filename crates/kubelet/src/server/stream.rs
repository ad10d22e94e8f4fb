//! Streams of one remote command, whatever carries them.

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};

use crate::{
    lifecycle::Exit,
    runtime::{Output, RuntimeError, Session, TerminalSize},
};

/// Which stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Channel {
    Stdin,
    Stdout,
    Stderr,
    Error,
    Resize,
}

/// What goes to the client.
#[derive(Debug)]
pub(super) enum ToClient {
    Data(Channel, Bytes),
    /// The command has ended: the status, then nothing more.
    End(Bytes),
}

/// What comes from the client.
#[derive(Debug)]
pub(super) enum FromClient {
    Data(Channel, Bytes),
    Close(Channel),
}

/// How many chunks may wait in either direction.
pub(super) const CHUNKS: usize = 32;
/// How much is read at once.
const CHUNK: usize = 32 * 1024;

/// Carries a session's streams to and from a client until the command has ended and all it printed has gone out.
pub(super) async fn carry(session: Session, mut from: mpsc::Receiver<FromClient>, to: mpsc::Sender<ToClient>) {
    let Session { stdin, stdout, stderr, resize, exit } = session;
    let outputs = [(Channel::Stdout, stdout), (Channel::Stderr, stderr)].map(|(channel, output)| {
        let to = to.clone();
        tokio::spawn(async move {
            if let Some(output) = output {
                pump(output, channel, to).await;
            }
        })
    });
    let input = tokio::spawn(async move {
        let mut stdin = stdin;
        while let Some(message) = from.recv().await {
            match message {
                FromClient::Data(Channel::Stdin, bytes) => {
                    if let Some(stdin) = &mut stdin {
                        let _ = stdin.write_all(&bytes).await;
                        let _ = stdin.flush().await;
                    }
                }
                FromClient::Data(Channel::Resize, bytes) => {
                    if let (Some(resize), Some(size)) = (&resize, size(&bytes)) {
                        let _ = resize.send(size).await;
                    }
                }
                FromClient::Close(Channel::Stdin) => {
                    if let Some(mut stdin) = stdin.take() {
                        let _ = stdin.shutdown().await;
                    }
                }
                _ => {}
            }
        }
        // The client is gone; who reads will not hear from it again.
        drop(stdin);
    });
    // Who is attached leaves when the client does; a command is ended by its input's end or its output's.
    let exit = tokio::select! {
        exit = exit => exit,
        () = to.closed() => {
            input.abort();
            outputs.iter().for_each(tokio::task::JoinHandle::abort);
            return;
        }
    };
    for output in outputs {
        let _ = output.await;
    }
    let _ = to.send(ToClient::End(status(exit).into())).await;
    input.abort();
}

async fn pump(mut output: Output, channel: Channel, to: mpsc::Sender<ToClient>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(read @ 1..) = output.read(&mut buffer).await {
        if to.send(ToClient::Data(channel, Bytes::copy_from_slice(&buffer[..read]))).await.is_err() {
            return;
        }
    }
}

/// `{"Width":80,"Height":24}`.
fn size(bytes: &[u8]) -> Option<TerminalSize> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let of = |name: &str| u16::try_from(value.get(name)?.as_u64()?).ok();
    Some(TerminalSize { width: of("Width")?, height: of("Height")? })
}

/// The status that says how a command ended, as clients read it.
fn status(exit: Result<Exit, RuntimeError>) -> String {
    let value = match exit {
        Ok(exit) if exit.code == 0 => serde_json::json!({"metadata": {}, "status": "Success"}),
        Ok(exit) => {
            let code = exit.code.to_string();
            serde_json::json!({
                "metadata": {}, "status": "Failure",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code}]},
            })
        }
        Err(error) => serde_json::json!({
            "metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {error}"),
            "reason": "InternalError", "details": {"causes": [{"message": error.to_string()}]}, "code": 500,
        }),
    };
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends() {
        let failed = status(Ok(Exit { code: 4, ..Exit::default() }));
        assert!(failed.contains(r#""message":"4","reason":"ExitCode""#), "{failed}");
        assert!(status(Ok(Exit::default())).contains("Success"));
        assert_eq!(size(br#"{"Width":80,"Height":24}"#), Some(TerminalSize { width: 80, height: 24 }));
        assert_eq!(size(b"nonsense"), None);
    }
}
