//! Numbers with seven bits in each byte, lowest first; the top bit says that more bytes follow.

use super::bytes::SHORT;

/// Bits of the number in one byte.
const BITS: u32 = 7;
/// Flag of a byte that is not the last one.
const MORE: u8 = 1 << BITS;

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= u64::from(MORE) {
        out.push(u8::try_from(number & u64::from(MORE - 1)).unwrap_or_default() | MORE);
        number >>= BITS;
    }
    out.push(u8::try_from(number).unwrap_or_default());
}

/// Number of bytes that [`put`] appends.
pub fn octets(number: u64) -> usize {
    usize::try_from(number.max(1).ilog2() / BITS).unwrap_or_default() + 1
}

/// Reads a number from the beginning of `input`, and leaves the rest.
///
/// # Errors
///
/// When the number does not end, or has more than 64 bits.
pub fn take(input: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(BITS as usize) {
        let (octet, rest) = input.split_first().ok_or(SHORT)?;
        *input = rest;
        let bits = u64::from(octet & (MORE - 1));
        let shifted = bits << shift;
        if shifted >> shift != bits {
            break;
        }
        number |= shifted;
        if octet & MORE == 0 {
            return Ok(number);
        }
    }
    Err("a number is too long")
}
