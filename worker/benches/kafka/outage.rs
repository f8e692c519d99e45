//! Memory while the backend hangs, the recovery of a publisher whose documents are all outstanding, the replay of a run's log.

use super::{
    job,
    processes::{self, Mode, Setting},
};
use anyhow::{Context, Result};
use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Child,
    thread,
    time::{Duration, Instant},
};

/// How long the backend is looked at while it hangs.
const HANGING: Duration = Duration::from_secs(60);

/// Measures all three, one after the other.
pub fn measure(broker: &str, folder: &Path, rows: u64) -> Result<()> {
    hanging_backend(broker, folder)?;
    recovery(broker, folder, rows)?;
    replay(broker, folder, rows)
}

/// The memory of the processes while the backend takes requests and does not answer.
fn hanging_backend(broker: &str, folder: &Path) -> Result<()> {
    let backend = start_mute_cluster()?;
    let indexer = format!("{{opensearch: {{urls: [\"http://{backend}\"], index: bench}}}}");
    for (mode, roles) in [(Mode::Distributed, &["worker", "indexer"][..]), (Mode::WorkerIndexer, &["worker-indexer"])] {
        let name = format!("penstock-bench-{}-mute-{}", std::process::id(), roles.len());
        let setting = Setting::with_indexer(broker, folder, &name, mode, &indexer)?;
        let mut children = Vec::new();
        for role in roles {
            children.push((*role, setting.start_role(role)?));
        }
        children.push(("publish", setting.start_publisher("publish")?));
        let begun = Instant::now();
        for second in [5, 15, 30, 45, 60] {
            thread::sleep(Duration::from_secs(second).min(HANGING).saturating_sub(begun.elapsed()));
            let memory: Vec<String> = children.iter().map(|(name, child)| format!("{name} {}", megabytes(child, "VmRSS:"))).collect();
            println!("backend hangs, {:.0} s: {} MB", begun.elapsed().as_secs_f64(), memory.join(", "));
        }
        for (name, child) in &mut children {
            println!("backend hangs, at most: {name} {} MB", megabytes(child, "VmHWM:"));
            end(child)?;
        }
        setting.remove()?;
    }
    Ok(())
}

/// Nobody works: a publisher sends everything, is killed, and its successor claims and reads the log.
fn recovery(broker: &str, folder: &Path, rows: u64) -> Result<()> {
    let setting = Setting::new(broker, folder, &format!("penstock-bench-{}-recovery", std::process::id()), Mode::WorkerIndexer)?;
    let mut first = setting.start_publisher("publish")?;
    // long enough for all to be sent and covered by a checkpoint
    thread::sleep(Duration::from_secs(5) + Duration::from_micros(rows * 8));
    println!("recovery: {rows} outstanding, the publisher has {} MB", megabytes(&first, "VmRSS:"));
    end(&mut first)?;
    let begun = Instant::now();
    let mut role = setting.start_role("worker-indexer")?;
    let joined = begun.elapsed();
    let taken = job::measure(&mut setting.start_publisher("publish")?, Instant::now())?;
    println!(
        "recovery: roles join in {:.1} s, the successor completes the step in {:.2} s, {:.0} MB at most",
        joined.as_secs_f64(),
        taken.wall,
        taken.peak / 1e6
    );
    end(&mut role)?;
    setting.remove()
}

/// A publisher of a run that is complete reads its log and finds that.
fn replay(broker: &str, folder: &Path, rows: u64) -> Result<()> {
    let setting = Setting::new(broker, folder, &format!("penstock-bench-{}-replay", std::process::id()), Mode::WorkerIndexer)?;
    processes::run(&setting, &["worker-indexer"], "publish")?;
    let taken = job::measure(&mut setting.start_publisher("publish")?, Instant::now())?;
    println!("replay: {rows} events in {:.2} s from the start of the process, {:.0} MB at most", taken.wall, taken.peak / 1e6);
    setting.remove()
}

fn megabytes(child: &Child, figure: &str) -> String {
    job::memory(child.id(), figure).map_or("gone".into(), |bytes| format!("{:.0}", bytes / 1e6))
}

fn end(child: &mut Child) -> Result<()> {
    child.kill().context("failed to end a process")?;
    child.wait().context("failed to wait for a process")?;
    Ok(())
}

/// A cluster that says who it is, and never answers a write.
fn start_mute_cluster() -> Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("failed to listen")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(|| {
                // the client closes when it gives up
                let _ = serve(stream);
            });
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        if head.starts_with(b"POST") {
            io::copy(&mut stream, &mut io::sink())?;
            return Ok(());
        }
        let (status, body) = match head.starts_with(b"GET / ") {
            true => ("200 OK", r#"{"version":{"number":"2.19.0","distribution":"opensearch"}}"#),
            false => ("404 Not Found", ""),
        };
        write!(stream, "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    }
}
