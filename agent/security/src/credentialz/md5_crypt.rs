//! md5crypt, the oldest password hash that gNSI allows, for checking logins against uploaded hashes. The agent
//! never makes such a hash itself.
//!
//! Source: crypt(5), `md5crypt`. The order of all operations below is that of the algorithm.

use md5::{Digest, Md5};

/// Rounds of the digest.
const ROUNDS: usize = 1000;
/// The digits of crypt(3), by value.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Bytes of the digest in the order in which they are written, three to a group; the last one stands alone.
const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
const LAST: usize = 11;

/// Computes the 22 digits after the last `$`.
pub(super) fn hash(password: &[u8], salt: &[u8]) -> String {
    let inner: [u8; 16] = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize()
        .into();
    let mut outer = Md5::new().chain_update(password).chain_update(b"$1$").chain_update(salt);
    for chunk in password.chunks(inner.len()) {
        outer.update(&inner[..chunk.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        outer.update([if length & 1 == 1 { 0 } else { password[0] }]);
        length >>= 1;
    }
    let mut digest: [u8; 16] = outer.finalize().into();
    for round in 0..ROUNDS {
        digest = again(round, &digest, password, salt);
    }
    text(&digest)
}

fn again(round: usize, digest: &[u8; 16], password: &[u8], salt: &[u8]) -> [u8; 16] {
    let odd = round % 2 == 1;
    let mut next = Md5::new();
    next.update(if odd { password } else { digest });
    if !round.is_multiple_of(3) {
        next.update(salt);
    }
    if !round.is_multiple_of(7) {
        next.update(password);
    }
    next.update(if odd { digest } else { password });
    next.finalize().into()
}

fn text(digest: &[u8; 16]) -> String {
    let mut text = String::with_capacity(22);
    let mut put = |mut value: u32, digits: usize| {
        for _ in 0..digits {
            text.push(char::from(DIGITS[(value & 63) as usize]));
            value >>= 6;
        }
    };
    for group in ORDER {
        let [high, middle, low] = group.map(|at| u32::from(digest[at]));
        put(high << 16 | middle << 8 | low, 4);
    }
    put(u32::from(digest[LAST]), 2);
    text
}
