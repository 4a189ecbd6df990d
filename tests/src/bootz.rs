//! Bootstrap servers that nobody here wrote, in a namespace of their own, and what a box needs to trust them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::agent::AgentProcess;
use crate::clients::client;
use crate::eventually::eventually;
use crate::netns::Netns;

/// Where the server listens; the box is at [`BOX`].
pub const SERVER: &str = "192.0.2.1:15006";
/// The address of the box on the cable to the server.
pub const BOX: &str = "192.0.2.2/24";
/// The port of the box on that cable.
pub const PORT: &str = "mgmt0";

/// A cable between a box and a server, and the files of both.
#[derive(Debug)]
pub struct Bootstrap {
    folder: TempDir,
    /// Where the server is.
    pub server: Netns,
}

/// What the server gives to the box.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// Whether the server has a stream for the box.
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

impl Bootstrap {
    /// Configures the port of the box, as its operator would, and has the keys, vouchers and certificates made.
    ///
    /// # Panics
    /// When the program of the public helper packages is not built.
    pub fn new(net: &Netns, given: Given<'_>) -> Self {
        let server = Netns::beside();
        net.add_cable(PORT, &server, "box0");
        net.ip(&format!("address add {BOX} dev {PORT}"));
        net.ip(&format!("link set {PORT} up"));
        server.ip("address add 192.0.2.1/24 dev box0");
        server.ip("link set box0 up");
        let folder = TempDir::with_prefix("bootz-").expect("a folder for the server");
        let mut generate = Command::new(client("bootz"));
        generate.arg("generate").arg("-dir").arg(folder.path()).args(["-address", SERVER]);
        generate.arg(format!("-streaming={}", given.streaming));
        for (option, text) in [
            ("-oc", given.openconfig),
            ("-vendor", given.vendor),
            ("-dynamic-oc", given.dynamic),
            ("-authz", given.authz),
            ("-image", given.image),
        ] {
            if !text.is_empty() {
                let file = folder.path().join(&option[1..]);
                fs::write(&file, text).expect("a file in our own folder");
                generate.arg(option).arg(file);
            }
        }
        let output = generate.output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { folder, server }
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

    /// The server emulator of the public repository.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn emulator(&self) -> Server {
        let config = self.folder.path().join("bootz.textproto");
        let arguments = ["-logtostderr".into(), format!("-config_file={}", config.display())];
        self.serve("bootz-emulator", &arguments, "ready and listening").await
    }

    /// The service of the public repository, of whose answers one thing is wrong.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn faulty(&self, fault: &str) -> Server {
        let config = self.folder.path().join("bootz.textproto").display().to_string();
        let arguments = ["serve", "-config", &config, "-fault", fault].map(ToOwned::to_owned);
        self.serve("bootz", &arguments, "listening on").await
    }

    async fn serve(&self, program: &str, arguments: &[String], ready: &str) -> Server {
        let log = self.folder.path().join(format!("{program}.log"));
        let output = File::create(&log).expect("a file in our own folder");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "nsenter"])
            .arg(format!("--net={}", self.server.path()))
            .arg(client(program))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("an open file can be shared"))
            .stderr(output)
            .spawn();
        let server = Server { child: child.expect("setpriv starts"), log };
        eventually("the bootstrap server listens", || server.log().contains(ready)).await;
        server
    }
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the bootstrap server\n{}\n---", self.log());
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
