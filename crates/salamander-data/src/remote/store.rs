//! Clients for stores, set up by the environment variables that users of `object_store` know.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
#[cfg(feature = "azure")]
use object_store::azure::MicrosoftAzureBuilder;
#[cfg(feature = "gcs")]
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as StorePath;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use salamander_core::environment;
use url::{Position, Url};

use super::RequestSettings;
use crate::Error;

/// A URL taken apart.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// Scheme and bucket, or scheme, host and port.
    pub(super) base: String,
    pub(super) path: StorePath,
    kind: StoreKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreKind {
    S3,
    #[cfg(feature = "gcs")]
    Google,
    #[cfg(feature = "azure")]
    Azure,
    Http,
}

/// Why a store that is known cannot be used.
#[cfg(not(all(feature = "azure", feature = "gcs")))]
fn left_out(scheme: &str, feature: &str) -> String {
    format!(
        "this program was built without {scheme}://: build it with that feature (`--features {feature}`)"
    )
}

impl Location {
    pub(super) fn parse(place: &Path) -> Result<Location, Error> {
        let wrong = |reason: String| Error::form(place, reason);
        let text = place.to_str().ok_or_else(|| wrong("a url must be utf-8".to_owned()))?;
        let url = Url::parse(text).map_err(|error| wrong(format!("not a url: {error}")))?;
        let kind = match url.scheme() {
            "s3" | "s3a" => StoreKind::S3,
            #[cfg(feature = "gcs")]
            "gs" => StoreKind::Google,
            #[cfg(not(feature = "gcs"))]
            "gs" => return Err(wrong(left_out("gs", "gcs"))),
            #[cfg(feature = "azure")]
            "az" | "azure" | "abfs" | "abfss" => StoreKind::Azure,
            #[cfg(not(feature = "azure"))]
            scheme @ ("az" | "azure" | "abfs" | "abfss") => {
                return Err(wrong(left_out(scheme, "azure")));
            }
            "http" | "https" => StoreKind::Http,
            other => {
                let known = "give s3://, gs://, az://, http:// or https://";
                return Err(wrong(format!("unknown kind of place {other:?}: {known}")));
            }
        };
        if url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("the url names no bucket or host".to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("a url with ? or # cannot be read: write %3F or %23".to_owned()));
        }
        let path = StorePath::from_url_path(url.path())
            .map_err(|error| wrong(format!("not a path in a store: {error}")))?;
        Ok(Location { base: url[..Position::BeforePath].to_owned(), path, kind })
    }

    pub(super) fn is_http(&self) -> bool {
        self.kind == StoreKind::Http
    }

    /// The URL of another object in the same bucket.
    pub(super) fn with_path(&self, path: &StorePath) -> PathBuf {
        let mut text = format!("{}/", self.base);
        for letter in path.as_ref().chars() {
            match letter {
                '%' => text.push_str("%25"),
                '?' => text.push_str("%3F"),
                '#' => text.push_str("%23"),
                other => text.push(other),
            }
        }
        PathBuf::from(text)
    }
}

/// A client for the bucket or host of a URL.
pub(super) fn connect(
    location: &Location,
    settings: RequestSettings,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let (base, retry) = (location.base.as_str(), retry(settings));
    Ok(match location.kind {
        StoreKind::S3 => {
            let builder = AmazonS3Builder::new().with_url(base).with_retry(retry);
            Arc::new(
                configure(
                    builder,
                    environment::S3.prefix(),
                    settings,
                    AmazonS3Builder::with_config,
                )
                .build()?,
            )
        }
        #[cfg(feature = "gcs")]
        StoreKind::Google => {
            let builder = GoogleCloudStorageBuilder::new().with_url(base).with_retry(retry);
            let with = GoogleCloudStorageBuilder::with_config;
            Arc::new(configure(builder, environment::GCS.prefix(), settings, with).build()?)
        }
        #[cfg(feature = "azure")]
        StoreKind::Azure => {
            let builder = MicrosoftAzureBuilder::new().with_url(base).with_retry(retry);
            let with = MicrosoftAzureBuilder::with_config;
            Arc::new(configure(builder, environment::AZURE.prefix(), settings, with).build()?)
        }
        StoreKind::Http => {
            let builder = HttpBuilder::new().with_url(base).with_retry(retry);
            let builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
            Arc::new(configure(builder, "", settings, HttpBuilder::with_config).build()?)
        }
    })
}

/// What to tell a user about a failed request.
pub(super) fn refusal(error: object_store::Error) -> io::Error {
    use object_store::Error as E;
    let (kind, reason) = match &error {
        E::NotFound { .. } => (io::ErrorKind::NotFound, "not found in the store"),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            (io::ErrorKind::PermissionDenied, "the store refuses access: check the credentials")
        }
        E::Generic { .. } => (io::ErrorKind::Other, "the store cannot be read"),
        _ => (io::ErrorKind::Other, "the store refuses the request"),
    };
    io::Error::new(kind, format!("{reason}: {}", one_line(&error.to_string())))
}

/// Stores answer with whole documents; the beginning says what is wrong.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(400).collect()
}

fn retry(settings: RequestSettings) -> RetryConfig {
    let init_backoff = settings.pause.min(Duration::from_millis(100));
    let backoff = BackoffConfig { init_backoff, max_backoff: settings.pause, base: 2.0 };
    RetryConfig { backoff, max_retries: settings.retries, retry_timeout: settings.patience }
}

/// Hands the environment's settings with this prefix to a builder; names it does not know are left out.
fn configure<B, K: FromStr>(
    builder: B,
    prefix: &str,
    settings: RequestSettings,
    with: impl Fn(B, K, String) -> B,
) -> B {
    let timeout = format!("{}ms", settings.timeout.as_millis());
    let connect = format!("{}ms", settings.timeout.as_millis().min(5_000));
    let own = [("timeout".to_owned(), timeout), ("connect_timeout".to_owned(), connect)];
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        (!prefix.is_empty() && name.starts_with(prefix)).then_some((name, value))
    });
    let mut builder = builder;
    for (name, value) in own.into_iter().chain(environment) {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = with(builder, key, value);
        }
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let check = |place: &str, base: &str, path: &str| {
            let location = Location::parse(Path::new(place)).unwrap();
            assert_eq!((location.base.as_str(), location.path.as_ref()), (base, path));
        };
        check("s3://bucket/folder/a.csv", "s3://bucket", "folder/a.csv");
        #[cfg(feature = "gcs")]
        check("gs://bucket/folder/", "gs://bucket", "folder");
        #[cfg(feature = "azure")]
        check("az://container/a%20b.csv", "az://container", "a b.csv");
        check("http://127.0.0.1:80/a.csv", "http://127.0.0.1", "a.csv");
        check("https://host:9000/x/a.csv", "https://host:9000", "x/a.csv");
    }

    #[test]
    fn listed_names_lead_back_to_the_same_object() {
        let location = Location::parse(Path::new("s3://bucket/")).unwrap();
        for name in ["a.csv", "50%.csv", "what?.csv", "c#.csv", "a b.csv", "\u{e9}.csv"] {
            let path = StorePath::parse(name).unwrap();
            let again = Location::parse(&location.with_path(&path)).unwrap();
            assert_eq!(again.path, path);
        }
    }

    #[test]
    fn urls_that_cannot_be_read_are_named() {
        let check = |place: &str, expected: &str| {
            let message = Location::parse(Path::new(place)).unwrap_err().to_string();
            assert_eq!(message, format!("{place}: {expected}"));
        };
        check(
            "ftp://host/a.csv",
            "unknown kind of place \"ftp\": give s3://, gs://, az://, http:// or https://",
        );
        check("s3:///a.csv", "the url names no bucket or host");
        #[cfg(not(feature = "azure"))]
        check(
            "az://container/a.csv",
            "this program was built without az://: build it with that feature (`--features azure`)",
        );
        check("https://h/a?b=c", "a url with ? or # cannot be read: write %3F or %23");
    }
}
