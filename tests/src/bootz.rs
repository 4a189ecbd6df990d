//! Bootstrap and DHCP servers by others, in a namespace of their own, and the files with which a box trusts them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use tempfile::TempDir;

use crate::agent::AgentProcess;
use crate::clients::client;
use crate::eventually::eventually;
use crate::netns::Netns;

/// Address and port of the server; the box is at [`BOX`].
pub const SERVER: &str = "192.0.2.1:15006";
/// The address of the box on the cable to the server.
pub const BOX: &str = "192.0.2.2/24";
/// The port of the box on that cable.
pub const PORT: &str = "mgmt0";
/// The address of the server for boxes that speak IPv6 alone.
pub const SERVER_V6: &str = "[2001:db8::1]:15006";
/// The image that [`BootstrapFixture::faulty`] serves, and its SHA-256 as sha256sum(1) prints it.
pub const IMAGE: &str = "https://192.0.2.1:8443/image";
pub const IMAGE_SHA256: &str = "a5df3fde7b200c3fa2791144c7e05c5c2bced4c6ad863d3a4cf76c972c1712f9";
/// Address and gateway from the DHCP servers.
pub const LEASED: &str = "192.0.2.9/24";
pub const GATEWAY: &str = "192.0.2.1";
/// IPv6 address from the DHCP servers; routers announce the prefix.
pub const LEASED_V6: &str = "2001:db8::9/128";

/// A cable between a box and a server, and the files of both.
#[derive(Debug)]
pub struct BootstrapFixture {
    folder: TempDir,
    /// Namespace of the server.
    pub server: Netns,
    /// Address and port at which the server listens.
    address: &'static str,
}

/// Bootstrap data from the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerData<'a> {
    /// Uses IPv6 to reach the server.
    pub v6: bool,
    /// Gives the server a stream for the box.
    pub streaming: bool,
    /// `oc_config`.
    pub openconfig: &'a str,
    /// `vendor_config`.
    pub vendor: &'a str,
    /// `dynamic_oc_config`.
    pub dynamic: &'a str,
    /// `authz`, as text of protobuf.
    pub authz: &'a str,
    /// `intended_image`, as text of protobuf.
    pub image: &'a str,
}

impl BootstrapFixture {
    /// Configures the port of the box, as its operator would, and makes keys, vouchers and certificates.
    ///
    /// # Panics
    /// When the program of the public helper packages is not built.
    pub fn new(net: &Netns, data: ServerData<'_>) -> Self {
        let bootstrap = Self::factory_new(net, data);
        net.ip(&format!("address add {BOX} dev {PORT}"));
        net.ip(&format!("link set {PORT} up"));
        bootstrap
    }

    /// Prepares a bootstrap of a factory-new box, whose port has no configuration.
    ///
    /// # Panics
    /// When the program of the public helper packages is not built.
    pub fn factory_new(net: &Netns, data: ServerData<'_>) -> Self {
        let server = Netns::detached();
        net.add_cable(PORT, &server, "box0");
        server.ip("address add 192.0.2.1/24 dev box0");
        server.ip("address add 2001:db8::1/64 dev box0 nodad");
        server.ip("link set box0 up");
        let address = if data.v6 { SERVER_V6 } else { SERVER };
        let folder = TempDir::with_prefix("bootz-").expect("a folder for the server");
        let mut generate = Command::new(client("bootz"));
        generate.arg("generate").arg("-dir").arg(folder.path()).args(["-address", address]);
        generate.arg(format!("-streaming={}", data.streaming));
        for (option, text) in [
            ("-oc", data.openconfig),
            ("-vendor", data.vendor),
            ("-dynamic-oc", data.dynamic),
            ("-authz", data.authz),
            ("-image", data.image),
        ] {
            if !text.is_empty() {
                let file = folder.path().join(&option[1..]);
                fs::write(&file, text).expect("a file in our own folder");
                generate.arg(option).arg(file);
            }
        }
        let output = generate.output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { folder, server, address }
    }

    /// The options with which an agent has an identity.
    pub fn options(&self) -> Vec<String> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        [
            ("--bootz-idevid-cert", file("idevid.pem")),
            ("--bootz-idevid-key", file("idevid.key")),
            ("--bootz-vendor-ca", file("vendor.pem")),
            ("--bootz-serial", "HF-1".to_owned()),
            ("--bootz-manufacturer", "Holdfast".to_owned()),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect()
    }

    /// Options with which a factory-new box bootstraps without a command, with DHCP.
    pub fn options_of_factory_new(&self) -> Vec<String> {
        [self.options(), vec!["--bootz-port".to_owned(), PORT.to_owned()]].concat()
    }

    /// Starts a DHCP server that names the bootstrap server to clients that ask for it.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn dnsmasq(&self) -> ServerProcess {
        let list: Vec<String> = option(&format!("bootz://{}", self.address))
            .iter()
            .map(|octet| format!("{octet:02x}"))
            .collect();
        let list = list.join(":");
        let leases = self.folder.path().join("leases");
        let mut arguments = vec![
            "--keep-in-foreground".to_owned(),
            "--conf-file=/dev/null".to_owned(),
            "--user=root".to_owned(),
            "--pid-file=".to_owned(),
            "--port=0".to_owned(),
            "--no-ping".to_owned(),
            "--interface=box0".to_owned(),
            "--bind-interfaces".to_owned(),
            "--dhcp-authoritative".to_owned(),
            "--log-dhcp".to_owned(),
            "--log-facility=-".to_owned(),
            format!("--dhcp-leasefile={}", leases.display()),
        ];
        arguments.extend(match self.address {
            SERVER_V6 => [
                "--enable-ra".to_owned(),
                "--dhcp-range=2001:db8::9,2001:db8::9,64,2m".to_owned(),
                format!("--dhcp-option=option6:136,{list}"),
            ],
            _ => [
                "--dhcp-range=192.0.2.9,192.0.2.9,255.255.255.0,2m".to_owned(),
                format!("--dhcp-option=option:router,{GATEWAY}"),
                format!("--dhcp-option=143,{list}"),
            ],
        });
        self.run("dnsmasq".as_ref(), &arguments, "range").await
    }

    /// Starts a DHCP server whose leases last four seconds.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn short_leases(&self) -> ServerProcess {
        let uri = format!("bootz://{}", self.address);
        let arguments = ["lease", "-uri", &uri].map(ToOwned::to_owned);
        self.run(&client("bootz"), &arguments, "listening on").await
    }

    /// Starts the server emulator of the public repository, with its DHCP server for the box in this namespace. The
    /// emulator starts only on a link that is usable for IPv6, so the other end is set up.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn emulator_with_dhcp(&self, net: &Netns) -> ServerProcess {
        net.ip(&format!("link set {PORT} up"));
        let routes = || self.server.ip("-6 route show table all type multicast dev box0");
        eventually("the link of the server is usable", || {
            routes().lines().any(|route| !route.contains("linkdown"))
        })
        .await;
        let file = self.folder.path().join("dhcp.textproto");
        let mac = net.link(PORT).mac;
        let text = format!(
            "interface: \"box0\" bootz_urls: \"bootz://{}\"
             records {{ machine: \"{mac}\" ip: \"{LEASED}\" gateway: \"{GATEWAY}\" }}",
            self.address
        );
        fs::write(&file, text).expect("a file in our own folder");
        self.emulate(&[format!("-dhcp_file={}", file.display())]).await
    }

    /// Starts the server emulator of the public repository.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn emulator(&self) -> ServerProcess {
        self.emulate(&[]).await
    }

    async fn emulate(&self, more: &[String]) -> ServerProcess {
        let config = self.folder.path().join("bootz.textproto");
        let arguments = ["-logtostderr".to_owned(), format!("-config_file={}", config.display())];
        let arguments = [&arguments[..], more].concat();
        self.run(&client("bootz-emulator"), &arguments, "ready and listening").await
    }

    /// Starts the service of the public repository with one fault in its answers.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn faulty(&self, fault: &str) -> ServerProcess {
        let config = self.folder.path().join("bootz.textproto").display().to_string();
        let arguments = ["serve", "-config", &config, "-fault", fault].map(ToOwned::to_owned);
        self.run(&client("bootz"), &arguments, "listening on").await
    }

    /// Starts a malicious server instead of the right one. The server ends when the result is dropped.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start_hostile(&self, malice: HostileBehavior) -> HostileServer {
        let namespace = File::open(self.server.path()).expect("the namespace is there");
        let address = self.address;
        let (listens_tx, listens) = mpsc::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let counted = Arc::clone(&connections);
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("root, or a user namespace");
            let listener = TcpListener::bind(address).expect("the address is free");
            listens_tx.send(()).expect("the test waits");
            // One connection after the other, because the box makes one at a time.
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                counted.fetch_add(1, Ordering::Relaxed);
                // The connection ends when the box closes it.
                let _hung_up = malice.serve(stream, &stopped);
            }
        });
        listens.recv().expect("the server listens");
        let namespace = File::open(self.server.path()).expect("the namespace is there");
        HostileServer { address, namespace, connections, stop, thread: Some(thread) }
    }

    /// Starts a program in the server's namespace, and waits for the line that says that it serves.
    async fn run(&self, program: &Path, arguments: &[String], ready: &str) -> ServerProcess {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let first = arguments.first().map_or("", String::as_str).trim_start_matches('-');
        let log = self.folder.path().join(format!("{name}-{first}.log"));
        let output = File::create(&log).expect("a file in our own folder");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "nsenter"])
            .arg(format!("--net={}", self.server.path()))
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("an open file can be shared"))
            .stderr(output)
            .spawn();
        let server = ServerProcess { child: child.expect("setpriv starts"), log };
        eventually("the server listens", || server.log().contains(ready)).await;
        server
    }
}

/// An `intended_image` with version 2.
pub fn image(url: &str, sum: &str) -> String {
    format!(
        "name: \"os\" version: \"2\" url: \"{url}\" os_image_hash: \"{sum}\"
         hash_algorithm: \"ietf-sztp-conveyed-info:sha-256\""
    )
}

/// A URI as in the DHCP option: its length in two bytes, then the text.
fn option(uri: &str) -> Vec<u8> {
    let length = u16::try_from(uri.len()).expect("a short URI");
    [&length.to_be_bytes()[..], uri.as_bytes()].concat()
}

/// Behaviour of a malicious server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostileBehavior {
    /// Accepts the connection, and never sends anything.
    Silence,
    /// Sends bytes that are not TLS, without end.
    Garbage,
    /// Begins a handshake with a record of the largest length, and sends its bytes slowly, one by one.
    Drip,
    /// Closes the connection at once.
    HangUp,
}

impl HostileBehavior {
    /// The head of a TLS handshake record of 16 KiB.
    const RECORD: [u8; 5] = [0x16, 3, 3, 0x40, 0];
    /// Pause between two bytes of [`HostileBehavior::Drip`].
    const PAUSE: Duration = Duration::from_millis(50);

    fn serve(self, mut stream: TcpStream, stopped: &AtomicBool) -> io::Result<()> {
        stream.set_read_timeout(Some(Self::PAUSE))?;
        let mut octets = [0x55; 1 << 16];
        if self == Self::Drip {
            stream.write_all(&Self::RECORD)?;
        }
        while !stopped.load(Ordering::Relaxed) && self != Self::HangUp {
            match self {
                Self::Garbage => stream.write_all(&octets)?,
                Self::Drip => stream.write_all(&octets[..1])?,
                Self::Silence | Self::HangUp => {}
            }
            if self != Self::Garbage {
                match stream.read(&mut octets[1..]) {
                    Ok(0) => break,
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// A malicious server.
#[derive(Debug)]
pub struct HostileServer {
    address: &'static str,
    namespace: File,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostileServer {
    /// Number of connections of the box.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let namespace = self.namespace.try_clone();
        let address = self.address;
        // A connection wakes the listener, which then ends.
        let wake = thread::spawn(move || {
            let entered = namespace.map(|it| setns(it, CloneFlags::CLONE_NEWNET));
            entered.is_ok_and(|it| it.is_ok()) && TcpStream::connect(address).is_ok()
        });
        if wake.join().unwrap_or(false)
            && let Some(thread) = self.thread.take()
        {
            let _failed_already = thread.join();
        }
    }
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}\n---", self.log.display(), self.log());
        }
    }
}

/// Runs `holdfast bootz ARGUMENTS` against an agent.
///
/// # Panics
/// When the command fails.
#[track_caller]
pub fn bootz(agent: &AgentProcess, arguments: &[&str]) -> String {
    let output = agent.command("bootz").args(arguments).output().expect("the binary starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "bootz {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a bootstrap from the server at the other end of the cable.
#[track_caller]
pub fn start(agent: &AgentProcess) {
    let uri = format!("bootz://{SERVER}");
    bootz(agent, &["start", "--bootz-uri", &uri, "--src-interface", PORT]);
}
