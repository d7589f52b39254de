//! The listener: connections with limits, with or without TLS.

use std::fs::File;
use std::io::{self, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use isotherm_linux::sys::{KeptCapabilities, drop_watching, forbid_writing};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};
use tracing::debug;

use crate::api::{Shared, refused_text, router};
use crate::guard::{Admitted, Guard, Refused};
use crate::source::PageSource;
use crate::write_timeout::WriteTimeout;

/// Maximum number of connections. A browser uses up to six.
const MAX_CONNECTIONS: usize = 128;
/// Maximum length of the head of a request, and number of its headers.
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// Time for the head of a request, for a TLS handshake, and for a client that does not read.
const HEAD_TIME: Duration = Duration::from_secs(10);
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Bytes that the kernel keeps for a client that does not read.
const SEND_BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of threads that answer questions and read files.
const MAX_THREADS: usize = 4;

/// Where to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// address and port; port 0 is any free port
    pub listen: SocketAddr,
    /// certificate chain and private key, PEM files
    pub tls: Option<(PathBuf, PathBuf)>,
    /// further names by which browsers reach the server
    pub hosts: Vec<String>,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// other machines could listen in
    #[error(
        "{0} can be reached from other machines, so that the page must be encrypted: give --tls-cert FILE and \
         --tls-key FILE, or listen on 127.0.0.1 and forward the port (ssh -L)"
    )]
    Open(IpAddr),
    /// all addresses of the machine, so that none of them names the server
    #[error(
        "{0} stands for all addresses of this machine, so it is not the address of the page: give --host NAME, \
         the name or the address that browsers open"
    )]
    Unnamed(IpAddr),
    /// the address is not free
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// the address
        address: SocketAddr,
        /// error of the system
        source: io::Error,
    },
    /// a file of TLS cannot be read
    #[error("cannot read {}: {why}; give a PEM file", path.display())]
    Pem {
        /// path of the file
        path: PathBuf,
        /// the fault
        why: String,
    },
    /// the certificate and the key do not fit
    #[error("cannot use the certificate: {0}; give the certificate and the key that belongs to it")]
    Tls(#[from] tokio_rustls::rustls::Error),
    /// its thread could read or change more than it should
    #[error("cannot restrict the thread that answers requests: {0}")]
    Unrestricted(io::Error),
    /// the system refuses something
    #[error("cannot start the server: {0}")]
    System(#[from] io::Error),
}

/// A running server, in a thread of its own. It ends when it is dropped.
pub struct Server {
    address: String,
    refused: Arc<Refused>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server of these sources. `changes` says when they change.
    ///
    /// # Errors
    /// If it cannot listen, if others could read the connection, or if its thread cannot be restricted.
    pub fn start(
        options: &ListenOptions,
        sources: Vec<Arc<PageSource>>,
        changes: watch::Receiver<u64>,
    ) -> Result<Self, ServerError> {
        let reads_files = sources.iter().any(|source| source.is_record());
        Self::start_restricted(options, sources, changes, move || restrict(reads_files))
    }

    /// Starts it in a thread that is first restricted.
    fn start_restricted(
        options: &ListenOptions,
        sources: Vec<Arc<PageSource>>,
        changes: watch::Receiver<u64>,
        restrict: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<Self, ServerError> {
        let ip = options.listen.ip();
        if !ip.is_loopback() && options.tls.is_none() {
            return Err(ServerError::Open(ip));
        }
        if ip.is_unspecified() && options.hosts.is_empty() {
            return Err(ServerError::Unnamed(ip));
        }
        let tls = options.tls.as_ref().map(|(cert, key)| acceptor(cert, key)).transpose()?;
        let listen = |source| ServerError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let own = listener.local_addr().map_err(listen)?;
        let guard = Guard::new(hosts(own, &options.hosts), own.port(), tls.is_some())?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let name = match options.hosts.first() {
            Some(host) => format!("{host}:{}", own.port()),
            None => own.to_string(),
        };
        let address = format!("{scheme}://{name}/?token={}", guard.token().text());
        let refused = Arc::new(Refused::default());
        let shared = Arc::new(Shared {
            sources,
            changes,
            guard,
            refused: Arc::clone(&refused),
            connections: Arc::new(AtomicUsize::new(0)),
            heavy: Arc::new(Semaphore::new(1)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_THREADS)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let (send_restricted, restricted) = mpsc::channel();
        let serve = move || {
            let is_restricted = restrict();
            let may_serve = is_restricted.is_ok();
            let _ = send_restricted.send(is_restricted);
            if !may_serve {
                return;
            }
            let serving = runtime.spawn(accept(listener, tls, shared));
            // It also ends if the sender was dropped.
            let _ = runtime.block_on(stopped);
            serving.abort();
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("web".into()).spawn(serve)?;
        // Nobody should open a page that is not served.
        let ended = |e| ServerError::System(io::Error::other(e));
        restricted.recv().map_err(ended)?.map_err(ServerError::Unrestricted)?;
        Ok(Server { address, refused, stop: Some(stop), thread: Some(thread) })
    }

    /// The address to open, with the token.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Refused requests and connections, as text; `None` if there are none.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        refused_text(&self.refused)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Restricts this thread, and those that it will start: they read what strangers send.
fn restrict(reads_files: bool) -> io::Result<()> {
    // Only records of other users require a capability.
    drop_watching(KeptCapabilities { reading: reads_files, ..KeptCapabilities::default() })?;
    // Downloads are written to a temporary file first.
    if !forbid_writing(&std::env::temp_dir())? {
        debug!("the kernel has no Landlock");
    }
    Ok(())
}

/// The values of the Host header that name this server.
fn hosts(own: SocketAddr, more: &[String]) -> Vec<String> {
    let port = own.port();
    let default = [80, 443].contains(&port);
    let mut names = vec![own.ip().to_string()];
    if own.is_ipv6() {
        names = vec![format!("[{}]", own.ip())];
    }
    if own.ip().is_loopback() {
        names.push("localhost".into());
    }
    names.extend(more.iter().cloned());
    let with_port = names.iter().map(|name| format!("{name}:{port}")).collect::<Vec<_>>();
    with_port.into_iter().chain(names.into_iter().filter(|_| default)).collect()
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, ServerError> {
    let bad = |path: &Path, why: String| ServerError::Pem { path: path.to_owned(), why };
    let open =
        |path: &Path| File::open(path).map(BufReader::new).map_err(|e| bad(path, e.to_string()));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(open(cert)?).collect();
    let chain = chain.map_err(|e| bad(cert, e.to_string()))?;
    if chain.is_empty() {
        return Err(bad(cert, "it has no certificate".into()));
    }
    let key = PrivateKeyDer::from_pem_reader(open(key)?).map_err(|e| bad(key, e.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections for ever.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let app = router(Arc::clone(&shared));
    let mut open = Connections::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // No descriptor is free, for example.
            Err(e) => {
                debug!("cannot accept a connection: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if !open.make_room(&shared.refused) {
            continue;
        }
        let counted = Counted::one_more(&shared.connections);
        let (app, tls, refused) = (app.clone(), tls.clone(), Arc::clone(&shared.refused));
        let admitted = Admitted::default();
        let client = admitted.clone();
        let task = tokio::spawn(async move {
            let _counted = counted;
            let _ = stream.set_nodelay(true);
            let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
            match tls {
                None => serve(stream, app, client, refused).await,
                Some(tls) => match timeout(HEAD_TIME, tls.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, app, client, refused).await,
                    _ => _ = refused.malformed.fetch_add(1, Ordering::Relaxed),
                },
            }
        });
        open.0.push((task.abort_handle(), admitted));
    }
}

/// The connections, the oldest first, and whether their clients have shown the token.
#[derive(Default)]
struct Connections(Vec<(AbortHandle, Admitted)>);

impl Connections {
    /// Makes room for one more. Strangers cannot lock out the owner: the oldest connection without a token ends.
    /// Returns false if each connection has shown it.
    fn make_room(&mut self, refused: &Refused) -> bool {
        self.0.retain(|(task, _)| !task.is_finished());
        if self.0.len() < MAX_CONNECTIONS {
            return true;
        }
        refused.connections.fetch_add(1, Ordering::Relaxed);
        let stranger = self.0.iter().position(|(_, admitted)| !admitted.is_admitted());
        let ended = stranger.map(|i| self.0.remove(i));
        ended.inspect(|(task, _)| task.abort()).is_some()
    }
}

/// Answers the requests of one connection.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    app: Router,
    admitted: Admitted,
    refused: Arc<Refused>,
) {
    let stream = WriteTimeout::new(stream, WRITE_TIME, Arc::clone(&refused));
    let answered = stream.answered();
    let app = TowerToHyperService::new(app);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(admitted.clone());
        app.call(request)
    });
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(e) = ended {
        debug!("a connection has ended: {e}");
        // A browser may keep a connection open without a further request.
        let is_late = e.is_timeout() && !answered.load(Ordering::Relaxed);
        if e.is_parse() || is_late {
            refused.malformed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One of the connections.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one_more(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(all))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_be_restricted_has_no_address() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let options = ListenOptions { listen, tls: None, hosts: Vec::new() };
        let start = |restrict: fn() -> io::Result<()>| {
            Server::start_restricted(&options, Vec::new(), watch::channel(0).1, restrict)
        };
        let refused = start(|| Err(io::Error::other("no memory for it")));
        let why = refused.err().map(|e| e.to_string()).unwrap();
        assert!(why.contains("no memory for it"), "{why}");
        assert!(start(|| Ok(())).unwrap().address().contains("token"));
    }

    #[test]
    fn names_have_the_port_unless_it_is_the_default() {
        let of = |address: &str| hosts(address.parse().unwrap(), &["box.example".into()]);
        assert_eq!(of("127.0.0.1:7777"), ["127.0.0.1:7777", "localhost:7777", "box.example:7777"]);
        assert_eq!(of("[::1]:7777"), ["[::1]:7777", "localhost:7777", "box.example:7777"]);
        assert_eq!(
            of("10.0.0.1:443"),
            ["10.0.0.1:443", "box.example:443", "10.0.0.1", "box.example"]
        );
    }
}
