//! Keys that log in and their options, and a second reading of sshd(8) to compare with.

use holdfast_security::credentialz::{
    AUTHORIZED_KEYS_FOLDER, AccountUpload, Credentials, CredentialzRules, Freshness, KeyOption,
    PRINCIPALS_FOLDER, PublicKey, RawKey, RawOptions, RawPrincipal, Upload,
};

use crate::corpus::Corpus;

const WORDS: [&str; 20] = [
    "\n",
    "\\",
    "\"",
    "\\\"",
    "=",
    ",",
    " ",
    "#",
    "\t",
    "\r",
    "\u{b}",
    "\0",
    "command=",
    "from=",
    "no-pty=",
    "restrict",
    "ssh-ed25519",
    "ssh-rsa",
    "A",
    "expiry-time=20301231",
];

const ACCOUNT: &str = "alice";

#[test]
fn keys() {
    let seeds = Corpus::read("keys", &WORDS);
    bolero::check!().for_each(|input: &[u8]| {
        check(&String::from_utf8_lossy(input));
        check(&seeds.mutated(input));
    });
}

/// Options, each a line `NAME=VALUE`, and a key behind them.
fn check(text: &str) {
    let (lines, key) = text.rsplit_once('\n').unwrap_or(("", text));
    let pairs = || lines.split('\n').filter_map(|line| line.split_once('='));
    let options =
        || -> RawOptions { pairs().map(|(name, value)| KeyOption::named(name, value)).collect() };
    let want: Vec<(String, String)> =
        pairs().map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let raw = RawKey {
        octets: key.as_bytes().to_vec(),
        kind: None,
        description: String::new(),
        options: options(),
    };
    if let Some(line) = written(Upload::Keys(vec![of(vec![raw])]), AUTHORIZED_KEYS_FOLDER) {
        let (options, rest) = read(&line);
        assert_eq!(options, want, "{line:?} of {text:?}");
        let read = PublicKey::parse(rest.as_bytes(), None).expect("what is written is a key");
        let parsed = PublicKey::parse(key.as_bytes(), None).expect("it was accepted");
        assert_eq!(read.line(), parsed.line());
    }
    let principal = RawPrincipal { name: key.to_owned(), options: options() };
    if let Some(line) = written(Upload::Principals(vec![of(vec![principal])]), PRINCIPALS_FOLDER) {
        // The last word is the name, what is before it are options.
        let (front, name) = line.rsplit_once(' ').unwrap_or(("", &line));
        assert_eq!((read(&format!("{front} x")).0, name), (want, key), "{line:?} of {text:?}");
    }
}

fn of<T>(what: T) -> AccountUpload<T> {
    AccountUpload { account: ACCOUNT.into(), stamp: Freshness::default(), what }
}

/// The only line of the account's file; `None` when the upload is refused.
fn written(upload: Upload, folder: &str) -> Option<String> {
    let rules = CredentialzRules { accounts: [ACCOUNT.into()].into(), box_keys: Vec::new() };
    let credentials = match rules.apply(&Credentials::default(), upload) {
        Ok((credentials, _)) => credentials,
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty());
            return None;
        }
    };
    let path = format!("{folder}/{ACCOUNT}");
    let rendered = credentials.render();
    let file = rendered.files.iter().find(|file| file.path == path).expect("a file is made");
    let content = std::str::from_utf8(&file.content).expect("it is text");
    let lines: Vec<&str> = content.lines().filter(|line| !line.starts_with('#')).collect();
    let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
    assert!(content.ends_with('\n') && !line.contains(|it: char| it.is_control()), "{content:?}");
    Some((*line).to_owned())
}

/// Options and what stands behind them, as sshd reads them: separated by commas, ended by a blank that is not between
/// quotes; within quotes a backslash keeps a quote from ending them, and stands for itself before anything else.
fn read(line: &str) -> (Vec<(String, String)>, String) {
    if line.starts_with("ssh-") || line.starts_with("ecdsa-") || line == "x" || line == " x" {
        return (Vec::new(), line.trim_start().to_owned());
    }
    let mut options = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.next_if_eq(&'"').is_some() => current.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => options.push(std::mem::take(&mut current)),
            ' ' | '\t' if !quoted => break,
            letter => current.push(letter),
        }
    }
    assert!(!quoted, "a quote is left open: {line:?}");
    options.push(current);
    let pair = |option: String| match option.split_once('=') {
        Some((name, value)) => (name.to_lowercase(), value.to_owned()),
        None => (option.to_lowercase(), String::new()),
    };
    (options.into_iter().map(pair).collect(), letters.collect())
}
