use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The bytes that went through a [`Forwarder`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) requests: usize,
    pub(crate) answers: usize,
}

/// A port of its own for an etcd, which can die without it.
#[derive(Debug)]
pub(crate) struct Forwarder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    port: u16,
    streams: Mutex<Vec<TcpStream>>,
    requests: AtomicUsize,
    answers: AtomicUsize,
    dead: AtomicBool,
}

impl Forwarder {
    /// Forwards to that port. It is asked after every part, and may take its time; when it says no, the port is dead.
    pub(crate) fn new(to: u16, goes_on: impl Fn(Traffic) -> bool + Send + Sync + 'static) -> Self {
        let listener = super::listener();
        let shared = Arc::new(Shared {
            port: listener.local_addr().expect("it is bound").port(),
            streams: Mutex::default(),
            requests: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            dead: AtomicBool::new(false),
        });
        let (forwarder, goes_on) = (Self(Arc::clone(&shared)), Arc::new(goes_on));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.dead.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let clone = |stream: &TcpStream| stream.try_clone().expect("a socket can be cloned");
                shared.streams.lock().expect("no panic").extend([clone(&client), clone(&server)]);
                for (mut from, mut into, is_answer) in [(clone(&client), clone(&server), false), (server, client, true)]
                {
                    let (shared, goes_on) = (Arc::clone(&shared), Arc::clone(&goes_on));
                    std::thread::spawn(move || {
                        let mut part = vec![0; 16 * 1024];
                        while let Ok(length @ 1..) = from.read(&mut part) {
                            if !goes_on(shared.count(is_answer, length)) {
                                shared.die();
                            }
                            if into.write_all(part.get(..length).expect("read returned it")).is_err() {
                                break;
                            }
                        }
                        _ = into.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        forwarder
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.0.port)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn count(&self, is_answer: bool, length: usize) -> Traffic {
        let counter = if is_answer { &self.answers } else { &self.requests };
        counter.fetch_add(length, Ordering::SeqCst);
        let now = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        Traffic { requests: now(&self.requests), answers: now(&self.answers) }
    }

    fn die(&self) {
        if !self.dead.swap(true, Ordering::SeqCst) {
            for stream in self.streams.lock().expect("no panic").drain(..) {
                _ = stream.shutdown(Shutdown::Both);
            }
            // The listener waits for a connection, sees that it is dead, and is dropped.
            _ = TcpStream::connect(("127.0.0.1", self.port));
        }
    }
}
