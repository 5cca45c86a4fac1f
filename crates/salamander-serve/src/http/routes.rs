//! All addresses with the methods that each takes: what is known is not "not found" with another method.

/// A part in braces stands for any text.
pub(crate) const ROUTES: &[(&str, &[&str])] = &[
    ("/", &["GET", "HEAD", "OPTIONS"]),
    ("/page/{file}", &["GET", "HEAD"]),
    ("/openapi.json", &["GET", "HEAD"]),
    ("/api-description", &["GET", "HEAD"]),
    ("/ping", &["GET", "HEAD"]),
    ("/healthz", &["GET", "HEAD"]),
    ("/readyz", &["GET", "HEAD"]),
    ("/metrics", &["GET", "HEAD"]),
    ("/v2", &["GET", "HEAD"]),
    ("/v2/health/live", &["GET", "HEAD"]),
    ("/v2/health/ready", &["GET", "HEAD"]),
    ("/v2/logging", &["GET", "HEAD", "POST"]),
    ("/v2/trace/setting", &["GET", "HEAD", "POST"]),
    ("/v2/models/stats", &["GET", "HEAD"]),
    ("/v2/models/{model}", &["GET", "HEAD"]),
    ("/v2/models/{model}/ready", &["GET", "HEAD"]),
    ("/v2/models/{model}/config", &["GET", "HEAD"]),
    ("/v2/models/{model}/stats", &["GET", "HEAD"]),
    ("/v2/models/{model}/trace/setting", &["GET", "HEAD", "POST"]),
    ("/v2/models/{model}/infer", &["POST"]),
    ("/v2/models/{model}/versions/{version}", &["GET", "HEAD"]),
    ("/v2/models/{model}/versions/{version}/ready", &["GET", "HEAD"]),
    ("/v2/models/{model}/versions/{version}/config", &["GET", "HEAD"]),
    ("/v2/models/{model}/versions/{version}/stats", &["GET", "HEAD"]),
    ("/v2/models/{model}/versions/{version}/infer", &["POST"]),
    ("/v2/repository/index", &["POST"]),
    ("/v2/repository/models/{model}/load", &["POST"]),
    ("/v2/repository/models/{model}/unload", &["POST"]),
    ("/v1/models", &["GET", "HEAD"]),
    ("/v1/models/{model}", &["GET", "HEAD"]),
    ("/v1/models/{model}:predict", &["POST"]),
    ("/predictions/{model}", &["POST", "PUT"]),
    ("/predictions/{model}/{version}", &["POST", "PUT"]),
    ("/models", &["GET", "HEAD", "POST"]),
    ("/models/{model}", &["GET", "HEAD", "PUT", "DELETE"]),
    ("/models/{model}/all", &["GET", "HEAD"]),
    ("/models/{model}/{version}", &["GET", "HEAD", "PUT", "DELETE"]),
    ("/models/{model}/{version}/set-default", &["PUT"]),
];

/// The methods of an address; nothing where there is none such.
pub(crate) fn methods(path: &[&str]) -> Option<&'static [&'static str]> {
    // Without collecting anything: each request looks here.
    let fits = |pattern: &str| {
        let mut parts = pattern.split('/').filter(|part| !part.is_empty());
        path.iter().all(|text| parts.next().is_some_and(|part| is(part, text)))
            && parts.next().is_none()
    };
    ROUTES.iter().find(|(pattern, _)| fits(pattern)).map(|(_, methods)| *methods)
}

fn is(part: &str, text: &str) -> bool {
    match part.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some((_, "")) => !text.contains(':'),
        Some((_, end)) => text.ends_with(end),
        None => part == text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_methods_or_are_unknown() {
        let check = |path: &str, expected: Option<&[&str]>| {
            let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
            assert_eq!(methods(&path), expected, "{path:?}");
        };
        check("/", Some(&["GET", "HEAD", "OPTIONS"]));
        check("/v1/models/a:predict", Some(&["POST"]));
        check("/v1/models/a", Some(&["GET", "HEAD"]));
        check("/models/a/all", Some(&["GET", "HEAD"]));
        check("/models/a/1", Some(&["GET", "HEAD", "PUT", "DELETE"]));
        check("/v2/models/stats", Some(&["GET", "HEAD"]));
        check("/v2/models/a/versions/1/infer", Some(&["POST"]));
        check("/elsewhere", None);
    }

    #[test]
    fn the_description_has_every_address_with_its_methods() {
        let described: serde_json::Value =
            serde_json::from_str(crate::page::OPEN_API).expect("JSON");
        let paths = described["paths"].as_object().expect("addresses");
        for (path, methods) in ROUTES.iter().filter(|(path, _)| !path.starts_with("/page/")) {
            let known: Vec<String> = paths[*path]
                .as_object()
                .expect(path)
                .keys()
                .map(|key| key.to_uppercase())
                .collect();
            let own: Vec<&str> = methods
                .iter()
                .filter(|method| !["HEAD", "OPTIONS"].contains(method))
                .copied()
                .collect();
            assert!(own.iter().all(|method| known.iter().any(|other| other == method)), "{path}");
            assert_eq!(own.len(), known.len(), "{path}");
        }
        assert_eq!(paths.len(), ROUTES.len() - 1);
    }
}
