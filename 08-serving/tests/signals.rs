//! What ends the command's process, and what must not: a pipe or a connection that nobody reads any more.

use serde_json::json;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

fn ladder(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// `ladder serve`, as a process of its own. It ends with this.
struct Server {
    process: Child,
    address: SocketAddr,
    log: Option<BufReader<ChildStderr>>,
}

impl Server {
    fn start() -> Self {
        let mut process = ladder(&["serve", "--port", "0", "--device", "cpu"]);
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("serving on") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it served");
        }
        let (_, address) = line.split_once("http://").unwrap();
        let address = address.split_whitespace().next().unwrap().parse();
        Server { process, address: address.unwrap(), log: Some(log) }
    }

    fn is_healthy(&self) -> bool {
        let url = format!("http://{}/v1/models", self.address);
        ureq::get(&url).call().is_ok_and(|answer| answer.status() == 200)
    }

    /// Asks for a long stream and goes away after so many bytes of it, or where it ends: a server with as many waiting as
    /// it lets wait refuses, in fewer bytes.
    fn left(&self, after: usize) {
        let body = json!({
            "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true, "logprobs": 20, "n": 2,
        });
        let (body, head) = (body.to_string(), "host: here\r\ncontent-type: application/json");
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /v1/completions HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        match stream.read_exact(&mut vec![0; after]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            read => read.unwrap(),
        }
        // First the end, then a reset, for what has come and was not read: what the server writes next fails with EPIPE.
        stream.shutdown(Shutdown::Write).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended, which the test has told.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_reader_who_has_seen_enough_ends_a_command_quietly() {
    for arguments in [&["break", "--list"][..], &["break"], &["--help"], &["models"]] {
        let mut command = ladder(arguments);
        drop(command.stdout.take());
        let mut said = String::new();
        command.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        command.wait().unwrap();
    }
}

#[test]
fn clients_that_leave_in_the_middle_do_not_end_the_server() {
    let mut server = Server::start();
    // What is logged is nobody's business here, but must not fill the pipe.
    let mut log = server.log.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    std::thread::scope(|scope| {
        for after in [10, 100, 300, 3_000].repeat(4) {
            let server = &server;
            scope.spawn(move || (0..40).for_each(|_| server.left(after)));
        }
    });
    assert!(server.is_healthy(), "{:?}", server.process.try_wait());
}

#[test]
fn a_server_whose_log_nobody_reads_any_more_goes_on() {
    let mut server = Server::start();
    drop(server.log.take());
    for _ in 0..3 {
        assert!(server.is_healthy(), "{:?}", server.process.try_wait());
    }
}

#[cfg(unix)]
#[test]
fn a_server_whose_log_is_full_goes_on_and_ends_when_it_is_told() {
    let mut server = Server::start();
    // A pipe holds 64 KiB, and each of these says a line.
    for _ in 0..1_500 {
        assert!(server.is_healthy(), "{:?}", server.process.try_wait());
    }
    let process = server.process.id().to_string();
    assert!(Command::new("kill").arg(process).status().unwrap().success());
    let is_over = |_| {
        std::thread::sleep(Duration::from_millis(100));
        server.process.try_wait().unwrap().is_some()
    };
    assert!((0..200).any(is_over), "it waits for somebody to read its log");
    drop(server.log.take());
}
