//! A server of its own for each test, and a small HTTP/1.1 client that sends exactly the bytes it is given.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Arc,
};

use capstan_api::{Value, json};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

/// The command with flags that every server of these tests has.
fn command(directory: &Path, port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args(["server", "--bind-address", "127.0.0.1", "--disable-admission-plugins", "ServiceAccount"]);
    command.arg(format!("--secure-port={port}")).arg("--data-dir").arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a server that is expected to refuse to start.
pub(crate) fn refused(directory: &Path, port: u16) -> Output {
    command(directory, port).output().expect("the command starts")
}

/// An empty directory for one test.
pub(crate) fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    directory
}

/// A running server; it is killed when this is dropped.
pub(crate) struct Capstan {
    child: Child,
    directory: PathBuf,
    pub(crate) address: String,
}

impl Capstan {
    /// Starts one on a free port, and returns when it is ready.
    pub(crate) fn start(directory: &Path) -> Self {
        let mut child = command(directory, 0).spawn().expect("the command starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let ready = lines.next().and_then(Result::ok).unwrap_or_default();
        let Some(address) = ready.strip_prefix("capstan is ready: https://").and_then(|rest| rest.split(' ').next())
        else {
            let mut words = String::new();
            let _ = child.stderr.take().expect("it is piped").read_to_string(&mut words);
            panic!("the server did not start: {ready} {words}");
        };
        Capstan { address: address.to_owned(), child, directory: directory.to_owned() }
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("it ends")
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it was started").is_none()
    }

    /// How to reach it: as the administrator, or as nobody.
    pub(crate) fn door(&self, known: bool) -> Door {
        let pki = self.directory.join("pki");
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(pki.join("ca.crt")).expect("the server wrote it") {
            roots.add(certificate.expect("it is PEM")).expect("it is a certificate");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots);
        let config = if known {
            let chain = CertificateDer::pem_file_iter(pki.join("admin.crt")).expect("the server wrote it");
            let chain = chain.collect::<Result<Vec<_>, _>>().expect("it is PEM");
            let key = PrivateKeyDer::from_pem_file(pki.join("admin.key")).expect("the server wrote it");
            builder.with_client_auth_cert(chain, key).expect("they belong together")
        } else {
            builder.with_no_client_auth()
        };
        Door { address: self.address.clone(), config: Arc::new(config) }
    }
}

impl Drop for Capstan {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Door {
    address: String,
    config: Arc<ClientConfig>,
}

impl Door {
    pub(crate) fn connect(&self) -> io::Result<Connection> {
        let name = ServerName::try_from("127.0.0.1").expect("it is an address");
        let tls = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        let socket = TcpStream::connect(&self.address)?;
        socket.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(StreamOwned::new(tls, socket)) })
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<Answer> {
        self.connect()?.ask(method, path, body)
    }
}

/// A connection that is used for one request after the other.
pub(crate) struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

/// What a server says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        json::parse(self.text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// A string below an object.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    found.and_then(Value::as_str).unwrap_or_default()
}

/// What a connection that is cut gives.
fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

impl Connection {
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> io::Result<Answer> {
        let length = body.len();
        self.send(
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
                .as_bytes(),
        )?;
        self.answer()
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.stream.get_mut().write_all(bytes).and_then(|()| self.stream.get_mut().flush());
        match sent {
            // A server that has heard enough answers and closes: the answer is there to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(cut());
        }
        Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned())
    }

    /// The code, the length of the body if it is said, and whether it comes in chunks.
    pub(crate) fn head(&mut self) -> io::Result<(u16, Option<usize>, bool)> {
        let first = self.line()?;
        let code = first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(cut)?;
        let (mut length, mut chunked) = (None, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().ok(),
                Some(("transfer-encoding", value)) => chunked = value == "chunked",
                _ if line.is_empty() => return Ok((code, length, chunked)),
                _ => {}
            }
        }
    }

    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let (code, length, chunked) = self.head()?;
        let mut body = Vec::new();
        if chunked {
            while let Some(mut chunk) = self.chunk()? {
                body.append(&mut chunk);
            }
        } else if let Some(length) = length {
            body.resize(length, 0);
            self.stream.read_exact(&mut body)?;
        }
        Ok(Answer { code, text: String::from_utf8_lossy(&body).into_owned() })
    }

    /// The next piece of a body that comes in pieces; none at its clean end.
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk)?;
        self.line()?;
        Ok((size > 0).then_some(chunk))
    }
}

/// The events of a watch.
pub(crate) struct Watch {
    connection: Connection,
    rest: Vec<u8>,
}

impl Watch {
    /// Watches what a path lists, from after a version.
    pub(crate) fn start(door: &Door, path: &str, after: &str) -> io::Result<Self> {
        let mut connection = door.connect()?;
        connection
            .send(format!("GET {path}?watch=1&resourceVersion={after} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
        let (code, _, chunked) = connection.head()?;
        if code != 200 || !chunked {
            return Err(io::Error::other(format!("a watch from {after} is answered with {code}")));
        }
        Ok(Watch { connection, rest: Vec::new() })
    }

    /// The next event; none when the server has ended the watch in order, an error when it is cut.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return json::parse(&line).map(Some).map_err(io::Error::other);
            }
            match self.connection.chunk()? {
                Some(mut chunk) => self.rest.append(&mut chunk),
                None => return Ok(None),
            }
        }
    }
}
