use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

#[test]
fn the_document_has_every_route_and_no_other() {
    let document = document();
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters")
        {
            described.insert((method.to_uppercase(), path.clone()));
        }
    }
    let served: BTreeSet<_> = routes()
        .iter()
        .map(|route| (route.method.to_string(), route.path.to_owned()))
        .collect();
    assert_eq!(described, served);
}

#[test]
fn the_document_has_every_code_with_its_status() {
    let document = document();
    let codes: BTreeSet<&str> =
        document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"]
            .as_array()
            .unwrap()
            .iter()
            .map(|code| code.as_str().unwrap())
            .collect();
    let known: BTreeSet<&str> = ApiCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(codes, known);
    // Each of them is answered somewhere, under its own status.
    let mut statuses = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let Some(responses) = operation["responses"].as_object() else {
                continue;
            };
            statuses.extend(responses.keys().filter_map(|status| status.parse::<u16>().ok()));
        }
    }
    for code in ApiCode::ALL {
        assert!(statuses.contains(&code.http_status()), "{}", code.as_str());
    }
}

#[test]
fn a_refusal_is_json_and_tells_how_to_go_on() {
    for code in ApiCode::ALL {
        let response = Refusal::from(code).response();
        assert_eq!(response.status().as_u16(), code.http_status());
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(
            response.headers().contains_key(header::RETRY_AFTER),
            code.is_passing()
        );
        assert_eq!(
            response.headers().contains_key(header::WWW_AUTHENTICATE),
            code == ApiCode::Unauthorized
        );
    }
}
