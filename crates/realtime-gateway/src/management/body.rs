//! The bodies and query parameters of calls: few, small, and with no room for what is not known.
//!
//! Must never repeat what was sent: errors name a field that is known, and its rule.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Query;
use axum::http::Uri;
use realtime_core::code::ApiCode;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Refusal;

/// How long a body may take: shorter than the call's own deadline, so that the answer says why.
const BODY_DEADLINE: Duration = Duration::from_secs(2);

/// Reads a body of at most `bytes_max` bytes.
///
/// # Errors
/// It is longer, or did not come in time.
pub async fn read(body: Body, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let read = tokio::time::timeout(BODY_DEADLINE, to_bytes(body, bytes_max)).await;
    match read {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        // Or the connection broke: then nobody reads the answer.
        Ok(Err(_)) => Err(ApiCode::BodyTooLarge.into()),
        Err(_) => Err(ApiCode::RequestTimeout.into()),
    }
}

/// The members of a JSON object, each once, in their order.
///
/// # Errors
/// The body is empty, not JSON, or no object; a member occurs twice.
pub fn members<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<(String, Option<T>)>, Refusal> {
    if body.trim_ascii().is_empty() {
        return Err(Refusal::invalid("body: is empty; it must be a JSON object"));
    }
    let object: Object<T> = serde_json::from_slice(body)
        .map_err(|_| Refusal::invalid("body: must be a JSON object, each field once"))?;
    Ok(object.0)
}

/// The query parameters, each once.
///
/// # Errors
/// One of them occurs twice or is not among `known`, or the query is not UTF-8.
pub fn parameters(uri: &Uri, known: &[&str]) -> Result<Vec<(String, String)>, Refusal> {
    let rule = || {
        Refusal::invalid(match known {
            [] => "query: takes no parameter".to_owned(),
            known => format!("query: takes {} only, each once", known.join(", ")),
        })
    };
    let given = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| rule())?
        .0;
    for (at, (name, _)) in given.iter().enumerate() {
        let twice = given.iter().take(at).any(|(earlier, _)| earlier == name);
        if twice || !known.contains(&name.as_str()) {
            return Err(rule());
        }
    }
    Ok(given)
}

struct Object<T>(Vec<(String, Option<T>)>);

/// A value of the wanted type, or any other JSON value, which is then told apart by its field.
#[derive(Deserialize)]
#[serde(untagged)]
enum Either<T> {
    Wanted(T),
    Other(serde::de::IgnoredAny),
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<T>, A::Error> {
                let mut members: Vec<(String, Option<T>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Either<T>>()? {
                    if members.iter().any(|(earlier, _)| *earlier == name) {
                        return Err(A::Error::custom("a field occurs twice"));
                    }
                    members.push(match value {
                        Either::Wanted(value) => (name, Some(value)),
                        Either::Other(_) => (name, None),
                    });
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid<T>(read: Result<T, Refusal>) -> bool {
        read.is_err_and(|refusal| refusal.code == ApiCode::InvalidRequest)
    }

    #[test]
    fn members_are_read_once_each() {
        let read = members::<bool>(br#" {"a":true,"b":null,"c":[1,{"a":2}],"d":false} "#).unwrap();
        let expected = [("a", Some(true)), ("b", None), ("c", None), ("d", Some(false))];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value)));
        for body in [
            &b""[..],
            b" \n",
            b"null",
            b"[]",
            b"1",
            b"{",
            br#"{"a":true,"a":true}"#,
            br#"{"a":true} x"#,
            b"\xff",
            b"{\"a\":tru",
        ] {
            assert!(invalid(members::<bool>(body)), "{body:?}");
        }
        let deep = "[".repeat(10_000);
        assert!(invalid(members::<bool>(format!("{{\"a\":{deep}").as_bytes())));
    }

    #[test]
    fn parameters_are_known_and_read_once_each() {
        let read = |query: &str| parameters(&format!("/x?{query}").parse().unwrap(), &["schema", "limit"]);
        assert_eq!(read("").unwrap(), []);
        let schema = [("schema".to_owned(), "a b&c".to_owned())];
        assert_eq!(read("schema=a%20b%26c").unwrap(), schema);
        for query in ["schema=a&schema=a", "other=1", "schema=a&=", "=", "Schema=a"] {
            assert!(invalid(read(query)), "{query}");
        }
    }
}
