//! Decrypt at a fixed rate over one connection, as kube-apiserver fills its caches after a start.
//!
//! `cargo bench -p atrest-kms-plugin --bench load` starts a plugin with a keyring in a process of its own; with
//! `-- --socket PATH` it asks one that runs, whatever its backend. `--rate`, `--seconds`; `--test` is one second.
//!
//! The load is open: a call starts when its time has come, whether others have come back or not, and its latency counts from
//! that time. So a pause of the plugin shows in all calls that fell into it.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "../support/server/mod.rs"]
mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use atrest::kms::api::v2::key_management_service_client::KeyManagementServiceClient as V2Client;
use atrest::kms::api::v2::{DecryptRequest, EncryptRequest};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use support::Site;

const SEED: [u8; 32] = [7; 32];
/// kube-apiserver's default.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// A thread that sleeps wakes up later than it was told, by about so much.
const WAKE_TIME: Duration = Duration::from_micros(120);
const CALLS_BEFORE: usize = 200;

struct Load {
    socket: Option<PathBuf>,
    rate: u32,
    time: Duration,
}

impl Load {
    fn of_args() -> Self {
        let mut load = Self { socket: None, rate: 1000, time: Duration::from_secs(30) };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{arg} has no value"));
            match arg.as_str() {
                "--socket" => load.socket = Some(value().into()),
                "--rate" => load.rate = value().parse().expect("a number of calls a second"),
                "--seconds" => load.time = Duration::from_secs(value().parse().expect("a number of seconds")),
                "--test" => load.time = Duration::from_secs(1),
                // cargo's own.
                "--bench" => {}
                other => panic!("unknown argument {other}"),
            }
        }
        assert!(load.rate > 0, "a rate of nothing");
        load
    }
}

/// What came back.
#[derive(Default)]
struct Outcome {
    /// From the time at which a call was to start.
    latencies: Vec<Duration>,
    /// From the time at which it did start.
    calls: Vec<Duration>,
    /// How late it started, which is this program's doing.
    delays: Vec<Duration>,
    errors: Vec<tonic::Status>,
}

fn main() {
    let load = Load::of_args();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let own = load.socket.is_none().then(|| {
        let site = Site::new();
        let plugin = site.start(&mut site.serve());
        let time = runtime.block_on(plugin.until_healthy());
        println!("healthy {} ms after its start", time.as_millis());
        (site, plugin)
    });
    let socket = load.socket.clone().or_else(|| own.as_ref().map(|(site, _)| site.socket())).expect("a socket");
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).expect("a URL");
    let channel = runtime.block_on(async { endpoint.connect().await }).expect("a plugin");
    let request = runtime.block_on(prepare(V2Client::new(channel.clone())));
    let outcome = run(&runtime, &load, &channel, &request);
    report(&load, outcome);
}

/// A ciphertext of the plugin, after some calls that do not count.
async fn prepare(mut client: V2Client<Channel>) -> DecryptRequest {
    let request = EncryptRequest { plaintext: SEED.to_vec(), uid: uid(0) };
    let answer = client.encrypt(request).await.expect("encrypted").into_inner();
    let request = DecryptRequest {
        ciphertext: answer.ciphertext,
        uid: uid(0),
        key_id: answer.key_id,
        annotations: answer.annotations,
    };
    for _ in 0..CALLS_BEFORE {
        let answer = client.decrypt(request.clone()).await.expect("decrypted");
        assert_eq!(answer.get_ref().plaintext, SEED);
    }
    request
}

/// Of the length of kube-apiserver's.
fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn run(runtime: &tokio::runtime::Runtime, load: &Load, channel: &Channel, request: &DecryptRequest) -> Outcome {
    let count = usize::try_from(load.time.as_secs() * u64::from(load.rate)).expect("a number of calls");
    let step = Duration::from_secs(1) / load.rate;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut outcome = Outcome::default();
    let began = Instant::now();
    let mut due = began;
    // A thread of its own keeps the time: the runtime's timers are as coarse as a millisecond.
    for number in 0..count {
        if let Some(pause) = due.checked_duration_since(Instant::now() + WAKE_TIME) {
            std::thread::sleep(pause);
        }
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        outcome.delays.push(due.elapsed());
        let start = Instant::now();
        let mut client = V2Client::new(channel.clone());
        let mut request = Request::new(DecryptRequest { uid: uid(number), ..request.clone() });
        // What is left of a deadline differs from call to call, so that this header is never in the table.
        request.set_timeout(CALL_TIMEOUT - Duration::from_micros(number as u64 % 1000));
        let sender = sender.clone();
        runtime.spawn(async move {
            let result = client.decrypt(request).await;
            let times = (due.elapsed(), start.elapsed());
            _ = sender.send(result.map(|answer| {
                assert_eq!(answer.get_ref().plaintext, SEED);
                times
            }));
        });
        due += step;
    }
    drop(sender);
    runtime.block_on(async {
        while let Some(result) = receiver.recv().await {
            match result {
                Ok((latency, call)) => {
                    outcome.latencies.push(latency);
                    outcome.calls.push(call);
                }
                Err(error) => outcome.errors.push(error),
            }
        }
    });
    assert_eq!(outcome.latencies.len() + outcome.errors.len(), count, "a call was lost");
    outcome
}

fn report(load: &Load, mut outcome: Outcome) {
    outcome.latencies.sort_unstable();
    outcome.calls.sort_unstable();
    outcome.delays.sort_unstable();
    let at = |durations: &[Duration], per_mille: usize| {
        durations.get(durations.len().saturating_sub(1) * per_mille / 1000).map_or(0, Duration::as_micros)
    };
    println!("{} Decrypt a second for {} s over one connection", load.rate, load.time.as_secs());
    println!("{:>8} {:>8} {:>8} {:>8} {:>8}", "", "p50", "p95", "p99", "max");
    for (name, durations) in [("latency", &outcome.latencies), ("call", &outcome.calls), ("late", &outcome.delays)] {
        let [p50, p95, p99, max] = [500, 950, 990, 1000].map(|per_mille| at(durations, per_mille));
        println!("{name:>8} {p50:>5} µs {p95:>5} µs {p99:>5} µs {max:>5} µs");
    }
    let p99 = at(&outcome.latencies, 990);
    println!("p99 of the latency is {} 1 ms", if p99 < 1000 { "under" } else { "NOT under" });
    println!("{} answers, {} errors", outcome.latencies.len(), outcome.errors.len());
    if let Some(error) = outcome.errors.first() {
        panic!("{} calls failed; the first: {error}", outcome.errors.len());
    }
}
