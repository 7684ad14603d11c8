//! `inet` and `cidr`: the family, then the network's bits, a shorter network first, then the whole address.

use std::net::IpAddr;

use super::ValueError;

/// Appends the key of an address as PostgreSQL prints it.
pub fn encode(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (address, bits) = parse(text)?;
    let (family, bytes) = match address {
        IpAddr::V4(address) => (4, address.octets().to_vec()),
        IpAddr::V6(address) => (6, address.octets().to_vec()),
    };
    out.push(family);
    // Each bit as 1 or 2 and the end as 0, in two bits each: a network is before every longer one within it.
    let digit = |at: usize| match at < bits {
        true => 1 + (bytes[at / 8] >> (7 - at % 8) & 1),
        false => 0,
    };
    for at in (0..=bits).step_by(4) {
        out.push((at..at + 4).fold(0, |byte, at| byte << 2 | digit(at)));
    }
    out.extend(bytes);
    Some(())
}

/// Reads a constant of `inet` or `cidr` and appends its key.
pub fn bind(type_name: &str, text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let malformed = ValueError::Malformed {
        expected: "an IPv4 or IPv6 address, with /bits or without",
    };
    let (address, bits) = parse(text).ok_or(malformed)?;
    if type_name == "cidr" && host_bits(address, bits) != 0 {
        return Err(ValueError::Malformed {
            expected: "a network, with no bits set to the right of its mask",
        });
    }
    encode(text, out).ok_or(malformed)
}

fn parse(text: &str) -> Option<(IpAddr, usize)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => most,
        Some(digits) => {
            let canonical = digits == "0" || !digits.starts_with(['0', '+']);
            digits.parse().ok().filter(|bits| canonical && *bits <= most)?
        }
    };
    Some((address, bits))
}

/// The bits of an address to the right of its mask.
fn host_bits(address: IpAddr, bits: usize) -> u128 {
    let (value, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let hosts = width - bits;
    if hosts == 128 {
        value
    } else {
        value & ((1 << hosts) - 1)
    }
}
