//! An HTTP server that answers what it is told, for what the real servers cannot be made to say.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whole lines without their ends.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

/// A server on a thread of its own, until the process ends.
pub(crate) struct Stub {
    pub(crate) address: String,
    requests: Arc<AtomicUsize>,
}

impl Stub {
    /// Answers the request with that number, counted from 0, headers and body.
    pub(crate) fn start(answer: impl Fn(usize, &str) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("it has an address"));
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that went away is no concern of this server.
                drop(serve(&stream, |request| answer(counted.fetch_add(1, Ordering::SeqCst), request)));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: &TcpStream, answer: impl Fn(&str) -> Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
    }
    let header = |name: &str| {
        let mut lines = request.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let len = header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    request.push_str(&String::from_utf8_lossy(&body));
    let answer = answer(&request);
    write!(stream, "HTTP/1.1 {} -\r\nContent-Length: {}\r\nConnection: close\r\n", answer.status, answer.body.len())?;
    for line in &answer.headers {
        write!(stream, "{line}\r\n")?;
    }
    write!(stream, "\r\n{}", answer.body)
}
