//! Packages of services whose signers are revoked, from the revocation list in a file to the state that clients read.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::certificates::{Authority, CertificateAndKey};
use holdfast_tests::clients::{Gnmic, grpcurl};
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{answer_with, operate, packed, update};

use crate::services::install_request;

const INSTALL: [&str; 1] = ["holdfast.services.v1.Packages/Install"];
const ACME: &str = "holdfast_native:/services/bridge-port[name=acme]";
const TYPES: [&str; 5] =
    ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state/type"];
/// Serial numbers of the certificates of two signers.
const ANN: u64 = 7;
const BOB: u64 = 8;

/// Files with the certificate and the key of a signer.
fn files(folder: &Path, name: &str, pair: &CertificateAndKey) -> [String; 2] {
    let file = |end: &str, text: &str| {
        let path = folder.join(format!("{name}.{end}"));
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    [file("pem", &pair.certificate), file("key", &pair.key)]
}

fn archive(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}-1.0.0.hfs"))
}

#[tokio::test]
async fn a_signer_that_is_revoked_installs_nothing_and_is_named_with_what_it_installed() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    let [ports, uplinks] = ["bridge-port", "uplink"].map(packed);
    let ports = archive(ports.path(), "bridge-port");
    let uplinks = archive(uplinks.path(), "uplink");
    let folder = tempfile::TempDir::new().unwrap();
    let authority = Authority::new("signers of packages");
    let [ann, bob] = [("ann", ANN), ("bob", BOB)]
        .map(|(name, serial)| files(folder.path(), name, &authority.numbered_client(name, serial)));
    let [trust, lists] = ["trust.pem", "lists.pem"].map(|name| folder.path().join(name));
    fs::write(&trust, &authority.pem).unwrap();
    fs::write(&lists, authority.revocation_list(&[])).unwrap();
    let options = ["--service-trust", trust.to_str().unwrap()];
    let options = [options, ["--service-revocations", lists.to_str().unwrap()]].concat();
    let mut agent = AgentProcess::start_with(&net, &options).await;
    let by_ann = install_request(&ports, &ports, &ann);
    grpcurl(&agent, &INSTALL, &by_ann).await.unwrap();
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, ACME, r#"{"bridge": "br0", "port": ["eth1"]}"#).await;

    // A list counts for the next installation, without a restart, and for what is installed.
    fs::write(&lists, authority.revocation_list(&[ANN])).unwrap();
    let refused = grpcurl(&agent, &INSTALL, &install_request(&uplinks, &uplinks, &ann)).await;
    let refused = refused.unwrap_err();
    for part in ["PermissionDenied", "the signer of the message is not trusted", "is revoked"] {
        assert!(refused.contains(part), "`{part}` is not in {refused}");
    }
    fs::remove_file(&lists).unwrap();
    let by_bob = install_request(&uplinks, &uplinks, &bob);
    let refused = grpcurl(&agent, &INSTALL, &by_bob).await.unwrap_err();
    for part in ["FailedPrecondition", "lists.pem"] {
        assert!(refused.contains(part), "nothing is installed without a list: {refused}");
    }
    fs::write(&lists, authority.revocation_list(&[ANN])).unwrap();
    grpcurl(&agent, &INSTALL, &by_bob).await.unwrap();
    answer_with(&gnmic, &TYPES, &["signer-refused", "is revoked"]).await;
    fs::write(&lists, authority.revocation_list(&[])).unwrap();
    let is_cleared = async || !gnmic.run(&TYPES).await.contains("signer-refused");
    eventually_async("nobody is refused any more", is_cleared).await;
    fs::write(&lists, authority.revocation_list(&[ANN])).unwrap();

    // An installed package stays, and says so.
    agent.restart().await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, ACME, r#"{"gateway": "192.0.2.1/24"}"#).await;
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);
    answer_with(&gnmic, &TYPES, &["signer-refused", "is revoked"]).await;
    let types = gnmic.run(&TYPES).await;
    assert_eq!(types.matches("signer-refused").count(), 1, "bob is not revoked: {types}");
    let listed = operate(&agent, &["list"]).unwrap();
    let [ports, uplinks] = ["bridge-port", "uplink"]
        .map(|name| listed.lines().find(|line| line.starts_with(name)).unwrap());
    assert!(ports.contains("ann, who is refused now: ") && ports.contains("is revoked"), "{ports}");
    assert!(uplinks.contains("bob") && !uplinks.contains("refused"), "{uplinks}");
    assert!(agent.log().contains("the signer of a package of services is refused now"));

    // Without the file the box comes up, and nobody is known to be trusted.
    fs::remove_file(&lists).unwrap();
    agent.restart().await;
    let listed = operate(&agent, &["list"]).unwrap();
    assert_eq!(listed.matches("lists of signers cannot be read").count(), 2, "{listed}");
    fs::write(&lists, authority.revocation_list(&[ANN])).unwrap();
    let gnmic = Gnmic::for_admin(&agent);

    // The signature goes with the package.
    gnmic.run(&["set", "--delete", ACME]).await;
    operate(&agent, &["remove", "bridge-port"]).unwrap();
    agent.restart().await;
    assert!(!Gnmic::for_admin(&agent).run(&TYPES).await.contains("signer-refused"));
    let listed = operate(&agent, &["list"]).unwrap();
    assert!(listed.starts_with("uplink") && listed.lines().count() == 1, "{listed}");
}
