//! Terminals: a pair of ends, the node's one as something that can be read and written.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags},
    pty::OpenptFlags,
    termios::Winsize,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::runtime::{Input, Output, TerminalSize};

/// How much is read of a terminal at once.
const CHUNK: usize = 8 * 1024;
/// How much may wait between a terminal and whoever reads it.
const BUFFER: usize = 64 * 1024;

/// The node's end of a terminal. Reads and writes block, so they have threads of their own.
#[derive(Clone, Debug)]
pub(super) struct Terminal {
    node: Arc<File>,
}

/// A new terminal, and the end for the process.
pub(super) fn open() -> std::io::Result<(Terminal, OwnedFd)> {
    let node = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&node)?;
    rustix::pty::unlockpt(&node)?;
    let name = rustix::pty::ptsname(&node, Vec::new())?;
    let process = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((Terminal { node: Arc::new(File::from(node)) }, process))
}

impl Terminal {
    pub(super) fn resize(&self, size: TerminalSize) {
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = rustix::termios::tcsetwinsize(&*self.node, size);
    }

    /// What the process prints, until it has closed the terminal.
    pub(super) fn output(&self) -> Output {
        let (mut ours, theirs) = tokio::io::duplex(BUFFER);
        let node = self.node.clone();
        let handle = tokio::runtime::Handle::current();
        // Not one of the runtime's own threads: those are waited for when the program ends, and this one may not end.
        std::thread::spawn(move || {
            let mut buffer = [0; CHUNK];
            // The kernel's answer when nobody has the other end open is an error.
            while let Ok(read @ 1..) = (&*node).read(&mut buffer) {
                if handle.block_on(ours.write_all(&buffer[..read])).is_err() {
                    return;
                }
            }
        });
        Box::new(theirs)
    }

    /// What the process reads.
    pub(super) fn input(&self) -> Input {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let node = self.node.clone();
        tokio::spawn(pump(ours, node));
        Box::new(theirs)
    }
}

async fn pump(mut from: impl AsyncRead + Unpin, node: Arc<File>) {
    let mut buffer = [0; CHUNK];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        // A terminal takes what is typed at once.
        if (&*node).write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}
