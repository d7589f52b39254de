//! moto, a server of S3, in a process of its own.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a port of this machine; killed when dropped. It then forgets everything.
pub struct Moto(Child);

impl Moto {
    /// Starts it with a Python that has it.
    pub fn start(python: &Path, port: u16) -> Self {
        let mut command = Command::new(python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        let moto = Moto(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < PATIENCE, "moto does not start");
            sleep(Duration::from_millis(50));
        }
        moto
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port on which no process listens.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
