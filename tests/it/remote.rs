//! The remote tier against real servers, which the tests start: Redis, nginx with WebDAV, a folder.
//! A server that is not installed is skipped with a message, unless `KILN_TEST_SERVERS=1`.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln::cache::{Counts, Key, Remote};
use kiln::expr::{Mode, Pointwise};
use kiln::plan::Origin;
use kiln::{Config, DType, Kiln, OperationGraph};
use tempfile::TempDir;

/// A server that ends with the test, and the folder that it works in.
struct Server {
    child: Child,
    folder: TempDir,
    uri: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server and waits until it listens; `None` where it is not installed.
fn start(
    program: &str,
    folder: TempDir,
    arguments: &[&str],
    port: u16,
    uri: &str,
) -> Option<Server> {
    let spawned = Command::new(program)
        .args(arguments)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = match spawned {
        Ok(child) => child,
        Err(error) if std::env::var_os("KILN_TEST_SERVERS").is_none() => {
            eprintln!("skipped: {program} cannot be started: {error}");
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let server = Server { child, folder, uri: uri.replace("PORT", &port.to_string()) };
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "{program} does not listen on {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(server)
}

fn redis() -> Option<Server> {
    let port = free_port();
    let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
    let folder = tempfile::tempdir().unwrap();
    start("redis-server", folder, &arguments, port, "redis://127.0.0.1:PORT/0/kernels")
}

fn nginx() -> Option<Server> {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let root = folder.path().to_owned();
    let shown = root.display();
    fs::create_dir(root.join("store")).unwrap();
    let account = if runs_as_root() { "user root;" } else { "" };
    let config = format!(
        "load_module /usr/lib/nginx/modules/ngx_http_dav_ext_module.so;
         daemon off; {account} pid {shown}/pid; error_log {shown}/error.log;
         events {{ }}
         http {{
             access_log off; client_max_body_size 100m;
             client_body_temp_path {shown}/body; proxy_temp_path {shown}/proxy;
             fastcgi_temp_path {shown}/fastcgi; uwsgi_temp_path {shown}/uwsgi;
             scgi_temp_path {shown}/scgi;
             server {{
                 listen 127.0.0.1:{port};
                 root {shown}/store;
                 dav_methods PUT DELETE MKCOL COPY MOVE;
                 dav_ext_methods PROPFIND OPTIONS;
                 create_full_put_path on;
             }}
         }}"
    );
    fs::write(root.join("nginx.conf"), config).unwrap();
    let path = root.join("nginx.conf").display().to_string();
    start("nginx", folder, &["-c", &path], port, "webdav:///kernels?endpoint=http://127.0.0.1:PORT")
}

/// Root's workers would otherwise run as another user, who cannot enter a private folder.
fn runs_as_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn graph(length: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[3, length], DType::F32);
    let bias = graph.input("bias", &[1, length], DType::F32);
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::TanhFwd), &[sum]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// A machine of its own: it shares nothing with the others but the store.
fn machine(folder: &Path, remote: Remote) -> Kiln {
    let config = Config {
        device: Some("sim".parse().unwrap()),
        cache_dir: Some(folder.to_owned()),
        remote: Some(remote),
        ..Config::default()
    };
    Kiln::open(config).unwrap()
}

fn missed(counts: &Counts, reason: &str) -> u64 {
    counts.misses.get(reason).copied().unwrap_or_default()
}

fn patient(uri: &str) -> Remote {
    Remote { timeout: Duration::from_secs(5), ..Remote::new(uri) }
}

/// What one machine compiles, the next one finds, keeps, and finds again without the store.
fn is_shared(uri: &str) {
    let folders = [0; 3].map(|_| tempfile::tempdir().unwrap());
    let first = machine(folders[0].path(), patient(uri));
    let lengths = [100, 200, 300];
    for length in lengths {
        assert_eq!(
            first.plan(&graph(length)).unwrap().kernels()[0].report().origin,
            Origin::Compiled
        );
    }
    assert!(first.remote_cache().unwrap().flush(Duration::from_secs(10)));
    let counts = first.remote_cache().unwrap().counts();
    assert_eq!((counts.hits, missed(&counts, "absent"), counts.writes), (0, 3, 3), "{counts:?}");

    let second = machine(folders[1].path(), patient(uri));
    for length in lengths {
        let plan = second.plan(&graph(length)).unwrap();
        assert_eq!(plan.kernels()[0].report().origin, Origin::Remote);
        let (entry, bytes) =
            second.remote_cache().unwrap().get(plan.kernels()[0].report().key).unwrap();
        let file = second.disk_cache().unwrap().path_of(plan.kernels()[0].report().key);
        assert_eq!(fs::read(file).unwrap(), bytes, "kept on disk, byte for byte");
        assert_eq!(entry.image.resources, plan.kernels()[0].report().resources);
    }
    drop(second);
    let second = machine(folders[1].path(), patient(uri));
    assert_eq!(second.plan(&graph(100)).unwrap().kernels()[0].report().origin, Origin::Disk);
    assert_eq!(second.remote_cache().unwrap().counts().hits, 0, "the disk comes first");

    let readers = machine(folders[2].path(), Remote { read_only: true, ..patient(uri) });
    assert_eq!(readers.plan(&graph(100)).unwrap().kernels()[0].report().origin, Origin::Remote);
    let plan = readers.plan(&graph(400)).unwrap();
    assert_eq!(plan.kernels()[0].report().origin, Origin::Compiled);
    assert!(readers.remote_cache().unwrap().flush(Duration::from_secs(10)));
    assert_eq!(readers.remote_cache().unwrap().counts().writes, 0);
    assert!(
        first.remote_cache().unwrap().get(plan.kernels()[0].report().key).is_none(),
        "it was only read"
    );
}

#[test]
fn a_folder_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    is_shared(&format!("fs://{}", folder.path().display()));
}

#[test]
fn redis_is_a_store() {
    let Some(server) = redis() else { return };
    is_shared(&server.uri);
}

#[test]
fn nginx_is_a_store() {
    let Some(server) = nginx() else { return };
    is_shared(&server.uri);
    assert!(server.folder.path().join("store/kernels").is_dir());
}

#[test]
fn garbage_is_not_served() {
    let store = tempfile::tempdir().unwrap();
    let uri = format!("fs://{}", store.path().display());
    let folder = tempfile::tempdir().unwrap();
    let first = machine(folder.path(), patient(&uri));
    let keys: Vec<Key> = [100, 200]
        .map(|length| first.plan(&graph(length)).unwrap().kernels()[0].report().key)
        .to_vec();
    assert!(first.remote_cache().unwrap().flush(Duration::from_secs(10)));
    let file = |key: Key| store.path().join(format!("{key}.kiln"));
    let whole = fs::read(file(keys[0])).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (garbage, reason) in [
        (flipped, "digest"),
        (whole[..whole.len() / 2].to_vec(), "digest"),
        (Vec::new(), "malformed"),
        (b"<html>captive portal</html>".to_vec(), "malformed"),
        (fs::read(file(keys[1])).unwrap(), "key"),
    ] {
        fs::write(file(keys[0]), garbage).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kiln = machine(folder.path(), Remote { read_only: true, ..patient(&uri) });
        assert_eq!(kiln.plan(&graph(100)).unwrap().kernels()[0].report().origin, Origin::Compiled);
        let counts = kiln.remote_cache().unwrap().counts();
        assert_eq!((counts.hits, counts.misses.get(reason)), (0, Some(&1)), "{counts:?}");
    }
    // Who may write heals it.
    let folder = tempfile::tempdir().unwrap();
    let kiln = machine(folder.path(), patient(&uri));
    assert_eq!(kiln.plan(&graph(100)).unwrap().kernels()[0].report().origin, Origin::Compiled);
    assert!(kiln.remote_cache().unwrap().flush(Duration::from_secs(10)));
    assert!(kiln.remote_cache().unwrap().get(keys[0]).is_some());
}

#[test]
fn a_store_that_is_down_costs_three_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("redis://127.0.0.1:{}/0", free_port());
    let kiln = machine(folder.path(), Remote::new(&uri));
    let key = kiln.plan(&graph(100)).unwrap().kernels()[0].report().key;
    for _ in 0..20 {
        assert!(kiln.remote_cache().unwrap().get(key).is_none());
    }
    let counts = kiln.remote_cache().unwrap().counts();
    assert!(missed(&counts, "failed") <= 3 && missed(&counts, "resting") >= 18, "{counts:?}");
}

/// What a caller greets a server with.
fn greeting(uri: &str) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = uri.replace("PORT", &listener.local_addr().unwrap().port().to_string());
    let heard = std::thread::spawn(move || {
        let mut bytes = vec![0; 3];
        listener.accept().unwrap().0.read_exact(&mut bytes).unwrap();
        bytes
    });
    let folder = tempfile::tempdir().unwrap();
    let remote = Remote { timeout: Duration::from_secs(1), ..Remote::new(&uri) };
    machine(folder.path(), remote).plan(&graph(100)).unwrap();
    heard.join().unwrap()
}

#[test]
fn stores_behind_tls_are_called_by_tls() {
    const HANDSHAKE: [u8; 3] = [0x16, 3, 1];
    for uri in [
        "webdav:///kernels?endpoint=https://localhost:PORT",
        "redis:///0?endpoint=rediss://localhost:PORT",
    ] {
        assert_eq!(greeting(uri), HANDSHAKE, "{uri}");
    }
    assert_eq!(greeting("webdav:///kernels?endpoint=http://localhost:PORT"), *b"PRO");
}

#[test]
fn a_store_that_is_slow_is_not_waited_for() {
    // It takes calls and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for call in listener.incoming() {
            let mut call = call.unwrap();
            let _ = call.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = call.read(&mut [0; 64]);
            held.push(call);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let timeout = Duration::from_millis(100);
    let remote = Remote { timeout, ..Remote::new(format!("redis://127.0.0.1:{port}/0")) };
    let kiln = machine(folder.path(), remote);
    let key = kiln.plan(&graph(100)).unwrap().kernels()[0].report().key;
    let start = Instant::now();
    for _ in 0..10 {
        assert!(kiln.remote_cache().unwrap().get(key).is_none());
    }
    let counts = kiln.remote_cache().unwrap().counts();
    assert_eq!((missed(&counts, "late"), missed(&counts, "resting")), (3, 8), "{counts:?}");
    // Two more waits; a busy machine may take longer over each.
    assert!(start.elapsed() < 10 * timeout, "{:?}", start.elapsed());
}

#[test]
fn callers_may_be_in_a_runtime() {
    let store = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kiln = machine(folder.path(), patient(&format!("fs://{}", store.path().display())));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let kiln = Arc::new(kiln);
    runtime.block_on(async move {
        assert_eq!(kiln.plan(&graph(100)).unwrap().kernels()[0].report().origin, Origin::Compiled);
        drop(kiln);
    });
}

#[test]
fn an_address_that_means_nothing_is_an_error() {
    for uri in ["nowhere", "gopher://host", "redis://"] {
        let config = Config { remote: Some(Remote::new(uri)), ..Config::default() };
        let error = Kiln::open(config).unwrap_err().to_string();
        assert!(error.starts_with("remote store `"), "{error}");
    }
}
