//! A Postgres server that takes encrypted connections only, and one whose certificate is somebody else's.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use salamander_hub::ingest::Ingester;
use salamander_hub::store::page::ListQuery;
use salamander_hub::{Hub, StoreUrl};

use crate::folders::write_run;
use crate::server::PostgresServer;

const PORT: u16 = 5432;

/// An authority in a file, and a certificate of it for a name, with its key.
fn certificates(name: &str) -> (String, String, String) {
    let mut authority = CertificateParams::new(Vec::new()).expect("valid");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    let root = authority.self_signed(&authority_key).expect("signed");
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let server = CertificateParams::new(vec![name.to_string()]).expect("valid");
    let server = server.signed_by(&key, &issuer).expect("signed");
    (root.pem(), server.pem(), key.serialize_pem())
}

#[test]
fn a_server_of_a_network_is_reached_encrypted_and_checked_as_asked_for() {
    // An address of this machine that nobody else has: a port alone may be taken.
    let pid = std::process::id();
    let host = format!("127.{}.{}.{}", 1 + pid % 199, pid / 199 % 250, 1 + pid / 49_750 % 250);
    let (root, certificate, key) = certificates(&host);
    let settings = [format!("listen_addresses={host}"), "ssl=on".into()];
    let access = "local all all trust\nhostssl all all 127.0.0.0/8 trust\n";
    let files = [("pg_hba.conf", access), ("server.crt", &certificate), ("server.key", &key)];
    let server = PostgresServer::start_with(&settings, &files);
    let name = server.database().rsplit('/').next().expect("a name").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let trusted = folder.path().join("root.pem");
    std::fs::write(&trusted, root).expect("written");
    let other = folder.path().join("other.pem");
    std::fs::write(&other, certificates("elsewhere").0).expect("written");
    let open = |host: &str, query: &str| {
        let url: StoreUrl = format!("postgres://hub@{host}:{PORT}/{name}?{query}").parse()?;
        Hub::open(&folder.path().join("runs"), Some(&url))
    };
    let refused = |query: &str| open(&host, query).err().expect(query).to_string();
    let error = refused("sslmode=disable");
    assert!(error.contains("no encryption"), "{error}");
    write_run(&folder.path().join("runs"), "a", 10);
    let rooted = format!("sslrootcert={}", trusted.display());
    for query in ["sslmode=require", "", &format!("sslmode=verify-full&{rooted}")] {
        let hub = open(&host, query).expect(query);
        Ingester::new(hub.clone()).look_at_all().expect("read");
        assert_eq!(hub.store().runs(&ListQuery::default()).expect("read").total, 1, "{query}");
    }
    let error = refused(&format!("sslmode=verify-full&sslrootcert={}", other.display()));
    // Both authorities have the same name, so that it is the signature that tells them apart.
    assert!(error.contains("invalid peer certificate"), "{error}");
    // The certificate is trusted, and is not of this name.
    let elsewhere = "localhost.localdomain";
    let named = |mode: &str| {
        format!("postgres://hub@{elsewhere}:{PORT}/{name}?sslmode={mode}&hostaddr={host}&{rooted}")
    };
    let open_named = |mode: &str| {
        let url: StoreUrl = named(mode).parse()?;
        Hub::open(&folder.path().join("runs"), Some(&url))
    };
    let error = open_named("verify-full").err().expect("another name").to_string();
    assert!(error.contains("not valid for name"), "{error}");
    open_named("verify-ca").expect("the authority is the right one");
}
