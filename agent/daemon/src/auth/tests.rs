//! Logins over made-up connections, and the number of comparisons that they cause.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use holdfast_base::{Caller, Role};
use holdfast_config::Models;
use holdfast_store::Store;
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::{
    Authenticator, CertificateTrust, Credentials, ImpersonationPolicy, LoginRefusal, Password,
    Users,
};
use crate::gnsi::{Gnsi, TlsProfiles};
use crate::settings::TlsSettings;
use crate::tls::{CertificateStatusCache, Peer, PeerCertificate};

/// Attempts that are compared before one has to wait: five without cost, and the one that causes the first wait.
const COMPARED: usize = 6;

struct Rig {
    authenticator: Authenticator,
    _state: TempDir,
}

impl Rig {
    /// Creates the users `ada` and `bob` with the password `secret`, and no logins.
    async fn new() -> Self {
        let state = TempDir::new().unwrap();
        let (store, loaded) = Store::open(state.path()).unwrap();
        let users = Users::new(loaded.users, store.clone()).unwrap();
        for name in ["ada", "bob"] {
            let password = Password::new("secret").unwrap();
            users.set(name.into(), Role::Admin, Some(password)).await.unwrap();
        }
        let folder = state.path().to_owned();
        let address = "127.0.0.1".parse().unwrap();
        let settings = TlsSettings::default();
        let profiles = TlsProfiles::new(settings, folder, &[address], &BTreeMap::new()).unwrap();
        let models = Arc::new(Models::load().unwrap());
        let gnsi = Gnsi::new(
            &models,
            &users,
            &store,
            &loaded.artefacts,
            state.path(),
            profiles,
            crate::northbound::pathz_draft,
        )
        .unwrap();
        let trust =
            CertificateTrust { role: Role::Admin, impersonation: ImpersonationPolicy::Itself };
        let rig = Self { authenticator: Authenticator::new(users, trust, gnsi), _state: state };
        tokio::time::pause(); // however long hashing takes, no failure is forgotten
        rig
    }

    fn login(
        &self,
        peer: &Peer,
        name: &str,
        password: &str,
    ) -> impl Future<Output = Result<Caller, LoginRefusal>> + use<> {
        let authenticator = self.authenticator.clone();
        let peer = peer.clone();
        let password = Some(password).filter(|text| !text.is_empty()).map(Password::new);
        let password = password.transpose().unwrap();
        let credentials = Credentials { name: Some(name.into()), password };
        async move { authenticator.identify(credentials, &peer).await }
    }

    /// The outcome of a login on a new connection, as text.
    async fn answer(&self, address: &str, name: &str, password: &str) -> String {
        outcome(&self.login(&peer(address), name, password).await)
    }

    /// Number of passwords that were compared since the last call.
    fn compared(&self) -> usize {
        self.authenticator.compared.swap(0, Ordering::SeqCst)
    }
}

fn peer(address: &str) -> Peer {
    let address: SocketAddr = (address.parse::<std::net::IpAddr>().unwrap(), 40_000).into();
    Peer::of(address, None)
}

/// Polls a login once, to its first wait.
async fn once<F: Future>(login: &mut Pin<Box<F>>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(login.as_mut().poll(context))).await
}

fn outcome(answer: &Result<Caller, LoginRefusal>) -> String {
    match answer {
        Ok(caller) => caller.name.to_string(),
        Err(LoginRefusal::WrongPassword) => "wrong".to_owned(),
        Err(LoginRefusal::BackOff { .. }) => "wait".to_owned(),
        Err(other) => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_guess_that_is_given_up_counts_like_one_that_is_answered() {
    let rig = Rig::new().await;
    rig.answer("192.0.2.9", "ada", "secret").await; // remembered from here on
    rig.compared();
    let peers = [peer("192.0.2.1"), peer("192.0.2.1")];
    for number in 0..200 {
        // The password is right from the hundredth attempt on.
        let password = if number < 100 { format!("guess {number}") } else { "secret".to_owned() };
        let mut guess = Box::pin(rig.login(&peers[number % 2], "ada", &password));
        let answer = once(&mut guess).await;
        assert!(!matches!(answer, Poll::Ready(Ok(_))), "guess {number} is told");
    }
    assert!((1..=COMPARED).contains(&rig.compared()));
    // The answer is the same for a right password.
    for password in ["secret", "guess"] {
        assert_eq!(rig.answer("192.0.2.1", "ada", password).await, "wait");
    }
    assert_eq!(rig.compared(), 0);
    assert_eq!(rig.answer("192.0.2.2", "ada", "secret").await, "ada");
}

#[tokio::test]
async fn a_right_guess_that_is_given_up_leaves_nothing_but_its_charge() {
    let rig = Rig::new().await;
    let guesser = peer("192.0.2.1");
    let mut guess = Box::pin(rig.login(&guesser, "ada", "secret"));
    assert!(once(&mut guess).await.is_pending(), "it is hashed");
    drop(guess);
    let places = rig.authenticator.attempts.places();
    let hashed = places.acquire_many(2).await.unwrap();
    let user = rig.authenticator.users.entry("ada").unwrap();
    let tag = rig.authenticator.users.tag(&Password::new("secret").unwrap());
    assert!(!user.verified_as(&tag));
    drop(hashed);
    for _ in 1..COMPARED {
        assert_eq!(rig.answer("192.0.2.1", "ada", "guess").await, "wrong");
    }
    assert_eq!(rig.answer("192.0.2.1", "ada", "secret").await, "wait", "it was charged");
}

#[tokio::test]
async fn logins_that_come_at_once_are_compared_a_few_at_a_time() {
    let rig = Rig::new().await;
    let guesses = (0..40).map(|number| {
        let login = rig.login(&peer("192.0.2.1"), "ada", &format!("guess {number}"));
        async move { outcome(&login.await) }
    });
    let answers = join_all(guesses).await;
    let wrong = answers.iter().filter(|answer| *answer == "wrong").count();
    assert_eq!((wrong, rig.compared()), (COMPARED, COMPARED));
    assert!(answers.iter().all(|answer| ["wrong", "wait"].contains(&answer.as_str())));
    // Logins with the right password only wait for each other.
    let logins = (0..40).map(|_| rig.login(&peer("192.0.2.2"), "bob", "secret"));
    let answers = join_all(logins).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn failed_logins_lock_out_no_other_name_or_source() {
    let rig = Rig::new().await;
    let certificate = || PeerCertificate {
        identity: Some("collector".into()),
        principals: vec!["collector".into()],
        der: CertificateDer::from(Vec::new()),
        intermediates: Vec::new(),
        status_cache: CertificateStatusCache::default(),
    };
    let colleague = peer("192.0.2.1");
    assert!(rig.login(&colleague, "bob", "secret").await.is_ok());
    for number in 0..9 {
        let answer = rig.answer("192.0.2.1", "nobody", "guess").await;
        assert_eq!(answer, if number < COMPARED { "wrong" } else { "wait" });
        rig.answer("192.0.2.1", "bob", "guess").await;
    }
    rig.compared();
    // Address, name, password; outcome.
    for (address, name, password, want) in [
        ("192.0.2.1", "ada", "secret", "ada"), // behind the same address
        ("192.0.2.1", "nobody", "secret", "wait"),
        ("192.0.2.1", "bob", "secret", "wait"),
        ("192.0.2.2", "bob", "secret", "bob"),
        ("2001:db8::1", "bob", "secret", "bob"),
    ] {
        assert_eq!(rig.answer(address, name, password).await, want, "{name} from {address}");
    }
    rig.compared();
    // A connection on which this login succeeded goes on, without a comparison; another password on it is a guess.
    assert!(rig.login(&colleague, "bob", "secret").await.is_ok());
    assert_eq!(outcome(&rig.login(&colleague, "bob", "guess").await), "wait");
    assert_eq!(rig.compared(), 0);
    // Nor is a certificate slowed down.
    let address = "192.0.2.1:40000".parse().unwrap();
    let holder = Peer::of(address, Some(certificate()));
    assert!(rig.login(&holder, "collector", "").await.is_ok());
}

#[tokio::test]
async fn users_behind_one_address_mistype_without_locking_each_other_out() {
    let rig = Rig::new().await;
    for user in 0..99 {
        rig.authenticator.attempts.fail_for_tests("192.0.2.1", &format!("user {user}"));
    }
    assert_eq!(rig.answer("192.0.2.1", "ada", "secret").await, "ada");
    // A hundred attempts a minute or more are an attack.
    for guess in 0..2 {
        assert_eq!(rig.answer("192.0.2.1", &format!("name{guess}"), "guess").await, "wrong");
    }
    assert_eq!(rig.answer("192.0.2.1", "ada", "secret").await, "wait");
    assert_eq!(rig.answer("192.0.2.2", "ada", "secret").await, "ada");
}

#[tokio::test]
async fn ipv6_sources_are_limited_by_64_prefix() {
    let rig = Rig::new().await;
    for number in 1..=COMPARED {
        let address = format!("2001:db8:1:2::{number}");
        assert_eq!(rig.answer(&address, "ada", "guess").await, "wrong");
    }
    assert_eq!(rig.answer("2001:db8:1:2:ffff::1", "ada", "secret").await, "wait");
    assert_eq!(rig.answer("2001:db8:1:3::1", "ada", "secret").await, "ada");
}

#[tokio::test]
async fn an_account_that_is_guessed_from_everywhere_is_slower_and_open() {
    let rig = Rig::new().await;
    for number in 0..20 {
        rig.authenticator.attempts.fail_for_tests(&format!("198.51.100.{number}"), "ada");
    }
    let began = Instant::now();
    // Who waits for the delay holds no place: another user is served meanwhile.
    let ada = peer("192.0.2.1");
    let mut delayed = Box::pin(rig.login(&ada, "ada", "secret"));
    assert!(once(&mut delayed).await.is_pending());
    assert_eq!(rig.compared(), 0);
    assert_eq!(rig.answer("192.0.2.1", "bob", "secret").await, "bob");
    assert!(timeout(Duration::from_millis(1900), &mut delayed).await.is_err());
    assert!(delayed.await.is_ok());
    assert!(began.elapsed() < Duration::from_millis(2100), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_source_with_many_guesses_stands_in_line_once() {
    let rig = Rig::new().await;
    let places = rig.authenticator.attempts.places();
    let busy = places.clone().acquire_many_owned(2).await.unwrap();
    let mut guesses: Vec<_> = (0..50)
        .map(|number| Box::pin(rig.login(&peer("192.0.2.1"), &format!("name {number}"), "guess")))
        .collect();
    for guess in &mut guesses {
        assert!(once(guess).await.is_pending());
    }
    let honest = peer("192.0.2.2");
    let mut login = Box::pin(rig.login(&honest, "ada", "secret"));
    assert!(once(&mut login).await.is_pending());
    drop(busy);
    // One of the guesses is before it in line, the other place is free.
    let mut compared = 0;
    let mut guesses = futures::future::select_all(guesses);
    loop {
        match futures::future::select(login, guesses).await {
            futures::future::Either::Left((answer, _)) => {
                assert!(answer.is_ok());
                break;
            }
            futures::future::Either::Right(((answer, _, rest), waiting)) => {
                assert!(answer.is_err());
                compared += 1;
                (login, guesses) = (waiting, futures::future::select_all(rest));
            }
        }
    }
    assert!(compared <= 4, "{compared} guesses were before the login");
}
