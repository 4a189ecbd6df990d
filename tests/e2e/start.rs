//! The start of a box: the stored configuration comes into the kernel, whatever clients will find.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream as StdTcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_tests::agent::{AgentProcess, binary};
use holdfast_tests::certificates::{Authority, CertificateAndKey, shown_certificate};
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::{connect, connect_to};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::documents::port;

const ADDRESS: &str = "192.0.2.1/24";

/// A box with a configured port whose agent was killed, and whose kernel has forgotten the configuration.
struct StoppedBox {
    net: Netns,
    agent: AgentProcess,
    files: TempDir,
}

impl StoppedBox {
    async fn new() -> Self {
        let net = Netns::enter().with_veth("eth0", "peer0");
        net.ip("link set peer0 up");
        let mut agent = AgentProcess::start(&net).await;
        let ports = json!({"interface": [port("eth0", &[ADDRESS])]});
        agent.gnmi().await.update("/interfaces", ports).await.unwrap();
        agent.kill();
        net.ip("address flush dev eth0");
        net.ip("link set eth0 down");
        Self { net, agent, files: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Options for a certificate in files, which are written here.
    fn identity(&self, pair: &CertificateAndKey) -> Vec<String> {
        let certificate = self.file("cert.pem", &pair.certificate);
        let key = self.file("key.pem", &pair.key);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        vec!["--tls-cert".to_owned(), text(certificate), "--tls-key".to_owned(), text(key)]
    }

    /// Starts the agent with these options, and checks that the box is configured when it is ready.
    async fn start(&mut self, options: &[String]) {
        self.agent.set_options(options);
        self.agent.restart().await;
        self.check_configured();
    }

    #[track_caller]
    fn check_configured(&self) {
        assert_eq!(self.net.addresses("eth0"), [ADDRESS]);
        assert!(self.agent.show("config").contains("192.0.2.1"), "the local socket answers");
    }

    /// Waits until `holdfast show listeners` has a line with these parts.
    async fn until_listener(&self, parts: &[&str]) {
        eventually(&format!("a listener with {parts:?}"), || {
            let table = self.agent.show("listeners");
            table.lines().any(|line| parts.iter().all(|part| line.contains(part)))
        })
        .await;
    }

    /// Connects to the agent's own identity at another address.
    async fn accepts(&self, address: &str) -> bool {
        let ca = fs::read_to_string(self.agent.ca_file()).unwrap();
        connect(address.parse().unwrap(), &ca).await.is_ok()
    }
}

fn options(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn an_expired_certificate_is_shown_and_told() {
    let mut device = StoppedBox::new().await;
    let expired = Authority::new("operator").expired_server();
    let identity = device.identity(&expired);
    device.start(&identity).await;

    assert!(shown_certificate(device.agent.address()).await.is_some(), "clients decide");
    let state = device.agent.show("state");
    // 2020-01-02, in nanoseconds since 1970.
    assert!(state.contains("\"certificate-expires-on\": \"1577923200000000000\""), "{state}");
    let status = device.agent.status();
    assert!(status.contains("the certificate expired on 2020-01-02"), "{status}");
    assert!(device.agent.log().contains("the certificate has expired"));

    // A new one needs no restart.
    let authority = Authority::new("operator");
    device.identity(&authority.server());
    device.agent.reload();
    let address = device.agent.address();
    eventually_async("the new certificate is shown", || async {
        connect(address, &authority.pem).await.is_ok()
    })
    .await;
    eventually("readers see it", || !device.agent.show("state").contains("1577923200000000000"))
        .await;
}

#[tokio::test]
async fn a_reload_reads_the_configuration_file() {
    let mut device = StoppedBox::new().await;
    let file = device.file("holdfast.toml", "[agent]\nlog-level = \"warn\"\n");
    device.start(&["--config".to_owned(), file.to_str().unwrap().to_owned()]).await;
    assert!(!device.agent.log().contains("TLS files read again"));

    let authority = Authority::new("operator");
    let pair = authority.server();
    let certificate = device.file("other-cert.pem", &pair.certificate);
    let key = device.file("other-key.pem", &pair.key);
    let text = format!(
        "[agent]\nlog-level = \"info\"\nlog-format = \"json\"\n\
         [server]\ncertificate-role = \"read-only\"\ntls-cert = {certificate:?}\ntls-key = {key:?}\n"
    );
    device.file("holdfast.toml", &text);
    device.agent.reload();
    let address = device.agent.address();
    eventually_async("the certificate of the file is shown", || async {
        connect(address, &authority.pem).await.is_ok()
    })
    .await;
    eventually("the level of the log is that of the file", || {
        device.agent.log().contains("TLS files read again")
    })
    .await;
    let waiting = "`log-format` in [agent], `certificate-role` in [server]";
    assert!(device.agent.log().contains(waiting), "{}", device.agent.log());

    device.file("holdfast.toml", "[agent]\nlog-levl = \"info\"\n");
    device.agent.reload();
    eventually("the mistake is named", || {
        device.agent.log().contains("2:1: unknown key \\\"log-levl\\\"")
            || device.agent.log().contains("2:1: unknown key \"log-levl\"")
    })
    .await;
}

#[tokio::test]
async fn tls_files_that_cannot_be_used_leave_the_box_and_its_socket() {
    let mut device = StoppedBox::new().await;
    let authority = Authority::new("operator");
    let pair = authority.server();
    let other = authority.server();
    let address = device.agent.address();
    let no_clients = ["--tls-client-ca".to_owned(), "/missing/clients.pem".to_owned()];
    for (what, wrong, more, want) in [
        ("a missing certificate", None, &[][..], "cannot read certificates"),
        ("a key of another one", Some(&other.key), &[][..], "does not belong to the certificate"),
        ("no client authorities", Some(&pair.key), &no_clients[..], "/missing/clients.pem"),
    ] {
        let mut identity = device.identity(&pair);
        match wrong {
            None => fs::remove_file(&identity[1]).unwrap(),
            Some(key) => fs::write(&identity[3], key).unwrap(),
        }
        identity.extend_from_slice(more);
        device.start(&identity).await;
        assert!(TcpStream::connect(address).await.is_err(), "{what}: nothing is served");
        device.until_listener(&["WAITING", "gRPC", want]).await;
        let status = device.agent.status();
        assert!(
            status.contains("listening on nothing; not on 127.0.0.1:9339") && status.contains(want),
            "{status}"
        );
        let state = device.agent.show("state");
        assert!(state.contains("unavailable-listeners") && state.contains(want), "{what}: {state}");
    }

    // The first two kinds are mended by SIGHUP or by waiting, without a restart.
    for by_signal in [true, false] {
        let identity = device.identity(&pair);
        fs::remove_file(&identity[3]).unwrap();
        device.start(&identity).await;
        device.until_listener(&["WAITING", "cannot read a private key"]).await;
        device.identity(&pair);
        if by_signal {
            device.agent.reload();
        }
        eventually_async("the services are open", || async {
            connect(address, &authority.pem).await.is_ok()
        })
        .await;
        device.until_listener(&["LISTENING", "gRPC", "127.0.0.1:9339"]).await;
        assert!(!device.agent.show("state").contains("unavailable-listeners"));
    }
}

#[tokio::test]
async fn a_listener_has_its_address_from_the_configuration() {
    let mut device = StoppedBox::new().await;
    let wanted = "--listen 192.0.2.1:9340 --listen 198.51.100.9:9340 --listen [2001:db8::1]:9340";
    device.start(&options(wanted)).await;
    assert!(device.accepts("192.0.2.1:9340").await);
    let state = device.agent.show("state");
    assert!(!state.contains("unavailable-listeners"), "{state}");

    // Addresses that come later, and that go and come back, need nothing of the agent.
    for _ in 0..2 {
        device.net.ip("address add 198.51.100.9/24 dev lo");
        device.net.ip("address add 2001:db8::1/64 dev lo nodad");
        assert!(device.accepts("198.51.100.9:9340").await);
        assert!(device.accepts("[2001:db8::1]:9340").await);
        device.net.ip("address del 198.51.100.9/24 dev lo");
        device.net.ip("address del 2001:db8::1/64 dev lo");
    }
}

#[tokio::test]
async fn a_port_in_use_is_taken_when_it_is_free() {
    let mut device = StoppedBox::new().await;
    let holders: Vec<_> =
        [9340, 9190].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap()).into();
    let folder = device.files.path().join("later");
    let socket = folder.join("services.sock");
    let wanted = "--listen 127.0.0.1:9340 --introspect 127.0.0.1:9190 --service-socket";
    device.start(&options(&format!("{wanted} {}", socket.display()))).await;
    assert!(device.accepts("127.0.0.1:9339").await, "the other listener is open");
    for parts in [
        ["WAITING", "gRPC", "127.0.0.1:9340", "Address already in use"],
        ["WAITING", "introspection", "127.0.0.1:9190", "Address already in use"],
        ["WAITING", "handlers", "services.sock", "No such file"],
    ] {
        device.until_listener(&parts).await;
    }
    let status = device.agent.status();
    assert!(status.starts_with("in sync, "), "{status}");
    assert!(status.contains("; listening on 127.0.0.1:9339; not on"), "{status}");
    let refused = |log: &str| log.lines().filter(|line| line.contains("cannot be opened")).count();
    eventually("a second attempt was made", || {
        !device.agent.show("listeners").contains(" 1 tries")
    })
    .await;
    assert_eq!(refused(&device.agent.log()), 3, "one line for each: {}", device.agent.log());

    drop(holders);
    fs::create_dir(&folder).unwrap();
    device.agent.reload(); // at once
    for parts in [
        ["LISTENING", "gRPC", "127.0.0.1:9340"],
        ["LISTENING", "introspection", "127.0.0.1:9190"],
        ["LISTENING", "handlers", "services.sock"],
    ] {
        device.until_listener(&parts).await;
    }
    assert!(device.accepts("127.0.0.1:9340").await);
    assert!(socket.exists());
}

#[tokio::test]
async fn a_link_local_listener_follows_its_link() {
    let mut device = StoppedBox::new().await;
    device.start(&options("--listen [fe80::7%eth7]:9340")).await;
    device.until_listener(&["WAITING", "there is no link eth7"]).await;
    let ca = fs::read_to_string(device.agent.ca_file()).unwrap();
    for _ in 0..2 {
        // A link that is made again has the name, and not the index.
        device.net.ip("link add eth7 type veth peer name peer7");
        device.net.ip("link set peer7 up");
        device.net.ip("link set eth7 up");
        device.net.ip("address add fe80::7/64 dev eth7 nodad");
        let index = device.net.link("eth7").index;
        let address: SocketAddr = format!("[fe80::7%{index}]:9340").parse().unwrap();
        eventually_async("it is reached by the link", || async {
            // A URI has no place for the zone of an address.
            shown_certificate(address).await.is_some()
        })
        .await;
        device.until_listener(&["LISTENING", "[fe80::7%eth7]:9340"]).await;
        device.net.ip("link del eth7");
        device.until_listener(&["WAITING", "there is no link eth7"]).await;
    }
    assert!(connect(device.agent.address(), &ca).await.is_ok());
}

#[tokio::test]
async fn wildcards_of_both_families_go_together() {
    let mut device = StoppedBox::new().await;
    let both = ["127.0.0.1", "[::1]"];
    for (wanted, reached) in [
        ("--listen 0.0.0.0:9340 --listen [::]:9340", &both[..]),
        ("--listen [::]:9340 --listen 0.0.0.0:9340", &both),
        ("--listen [::]:9340", &both),
        ("--listen [::]:9340 --listen [::1]:9340 --listen [::]:9340", &both),
        ("--listen 192.0.2.1:9340 --listen [::]:9340", &["192.0.2.1", "[::1]"]),
    ] {
        device.start(&options(wanted)).await;
        let table = device.agent.show("listeners");
        assert!(!table.contains("WAITING"), "{wanted}: {table}");
        for address in reached {
            assert!(device.accepts(&format!("{address}:9340")).await, "{wanted}: {address}");
        }
    }
    assert!(TcpStream::connect("127.0.0.1:9340").await.is_err(), "IPv4 was given alone");
}

#[tokio::test]
async fn the_own_certificate_follows_names_and_addresses() {
    let mut device = StoppedBox::new().await;
    device.start(&options("--listen [::]:9340")).await;
    let ca = fs::read_to_string(device.agent.ca_file()).unwrap();
    let has =
        async |name: &str| connect_to(name, "127.0.0.1:9340".parse().unwrap(), &ca).await.is_ok();
    eventually_async("it has the address that the configuration brought", || has("192.0.2.1"))
        .await;
    assert!(!has("198.51.100.9").await && !has("renamed").await);

    device.net.ip("address add 198.51.100.9/24 dev eth0");
    eventually_async("the certificate has the new address", || has("198.51.100.9")).await;
    nix::unistd::sethostname("renamed").unwrap();
    eventually_async("the certificate has the new name", || has("renamed")).await;
    assert_eq!(fs::read_to_string(device.agent.ca_file()).unwrap(), ca, "clients keep it");
}

#[tokio::test]
async fn a_password_file_that_cannot_be_read_keeps_nobody_out_of_the_kernel() {
    let mut device = StoppedBox::new().await;
    let password = device.agent.state_dir().parent().unwrap().join("password");
    fs::rename(&password, device.files.path().join("password")).unwrap();
    device.start(&[]).await;
    assert!(device.agent.log().contains("cannot set the password of admin"));
    fs::write(&password, "another one\n").unwrap();
    device.agent.reload();
    let log = || device.agent.log();
    eventually("the files were read again", || log().contains("TLS files read again")).await;
}

#[tokio::test]
async fn commands_work_as_soon_as_the_agent_starts() {
    let mut device = StoppedBox::new().await;
    let set = ["set", "early", "--role", "admin"];
    for pause in [0, 10, 20, 40, 80, 160].map(Duration::from_millis) {
        // Before anything is ready: the command has the database, or finds it taken, or waits for the socket.
        let root = device.agent.root();
        let mut command = device.agent.command("run");
        command.args(["--listen", "127.0.0.1:9339", "--root"]).arg(root).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        tokio::time::sleep(pause).await;
        let output = device.agent.user(&set, "a password");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(child.try_wait().unwrap(), None, "the agent runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    device.start(&[]).await;
}

#[tokio::test]
async fn wait_online_returns_when_the_configuration_is_in_the_kernel() {
    let mut device = StoppedBox::new().await;
    let run = |device: &StoppedBox, words: &str| {
        let output = device.agent.command("wait-online").args(words.split(' ')).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run(&device, "--timeout 0");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("no agent answers"), "{text}");

    // A command that came before the agent.
    let mut waiting = device.agent.command("wait-online").spawn().unwrap();
    device.start(&[]).await;
    let mut ended = None;
    eventually("it ends", || {
        ended = waiting.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert!(ended.unwrap().success());

    // A port that is not plugged in.
    let ports = json!({"interface": [port("eth9", &["198.51.100.1/24"])]});
    let client = device.agent.gnmi().await;
    client.update("/interfaces", ports).await.unwrap();
    let (code, text) = run(&device, "--timeout 1");
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("some of the configuration is not in the system")
            && text.contains("PENDING  link/eth9"),
        "{text}"
    );
    assert_eq!(run(&device, "--allow-pending --timeout 60").0, Some(0));
    let mut waiting = device.agent.command("wait-online").spawn().unwrap();
    device.net.ip("link add eth9 type veth peer name peer9");
    eventually("it ends", || {
        ended = waiting.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert!(ended.unwrap().success());
    assert_eq!(device.net.addresses("eth9"), ["198.51.100.1/24"]);
}

#[tokio::test]
async fn the_sockets_of_the_box_are_there_before_the_port() {
    let mut device = StoppedBox::new().await;
    let socket = device.files.path().join("services.sock");
    for _ in 0..5 {
        let mut run = device.agent.command("run");
        run.args(["--listen", "127.0.0.1:9339", "--service-socket"]).arg(&socket);
        run.arg("--root").arg(device.agent.root()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = run.spawn().unwrap();
        let local = device.agent.state_dir().join("holdfast.sock");
        let mut reached = None;
        eventually("the port accepts connections", || {
            let port = StdTcpStream::connect(device.agent.address());
            reached = port.ok().map(|_| [&socket, &local].map(UnixStream::connect));
            reached.is_some()
        })
        .await;
        for socket in reached.unwrap() {
            socket.unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    device.start(&[]).await;
}

#[tokio::test]
async fn a_second_agent_in_the_namespace_is_refused_and_takes_nothing_down() {
    let mut device = StoppedBox::new().await;
    device.start(&[]).await;
    // Of IPv4: the kernel itself goes on with its link-local addresses.
    let contents = |device: &StoppedBox| {
        ["-4 address show", "-4 route show table all"].map(|shown| device.net.ip(shown))
    };
    let before = contents(&device);
    let other = device.files.path().join("other");
    let mut second = Command::new("setpriv");
    second.args(["--pdeathsig", "KILL"]).arg(binary()).args(["run", "--listen", "127.0.0.1:9341"]);
    second.arg("--state-dir").arg(&other).arg("--root").arg(device.files.path().join("root"));
    let ended = second.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let reason = String::from_utf8_lossy(&ended.stderr);
    let pid = device.agent.pid();
    let folder = device.agent.state_dir();
    assert!(reason.contains(&format!("process {pid},")), "{reason}");
    assert!(reason.contains(&format!("state folder `{}`", folder.display())), "{reason}");
    assert_eq!(contents(&device), before);

    // The namespace is free as soon as the first one is gone, also by a kill.
    device.start(&[]).await;
}
