//! The certificates of a job as three files in PEM: made once, written beside the token, read by every role.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Error, NAME};

/// The file with the certificate of the job's authority.
pub const AUTHORITY: &str = "ca.crt";
/// The file with the certificate that all members present.
pub const CERTIFICATE: &str = "tls.crt";
/// The file with its key: who has it is a member.
pub const KEY: &str = "tls.key";

/// A year of the Gregorian calendar on average, in seconds.
const YEAR: u64 = 31_556_952;
/// How long certificates are valid: longer than jobs run.
const YEARS: i32 = 10;

/// The contents of the three files.
#[derive(Clone, PartialEq, Eq)]
pub struct Files {
    /// Of [`AUTHORITY`].
    pub authority: String,
    /// Of [`CERTIFICATE`].
    pub certificate: String,
    /// Of [`KEY`]: a secret.
    pub key: String,
}

impl Files {
    /// Makes an authority and the certificate of a job.
    pub fn create() -> Result<Self, Error> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let year = 1970 + (since.as_secs() / YEAR) as i32;
        // Since last year, so that clocks need not agree to the second.
        Self::valid(year - 1, year + YEARS)
    }

    /// Like [`Files::create`], valid from the beginning of a year to that of another.
    pub fn valid(from: i32, to: i32) -> Result<Self, Error> {
        let failed = |error: rcgen::Error| Error::file("a new certificate", error);
        let params = |names: Vec<String>, called: &str| -> Result<_, Error> {
            let mut params = CertificateParams::new(names).map_err(failed)?;
            params.distinguished_name.push(DnType::CommonName, called);
            (params.not_before, params.not_after) =
                (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
            Ok(params)
        };
        let mut authority = params(Vec::new(), "the authority of a Salamander job")?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate().map_err(failed)?;
        let signed = authority.self_signed(&authority_key).map_err(failed)?;
        // Its key ends here: nobody can sign another certificate for this job.
        let issuer = Issuer::new(authority, authority_key);
        let mut member = params(vec![NAME.to_string()], "a member of a Salamander job")?;
        member.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        member.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = member.signed_by(&key, &issuer).map_err(failed)?;
        Ok(Self {
            authority: signed.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Writes a folder that must not be there yet; the key only its owner can read.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir(folder)?;
        for (name, text) in self.named() {
            let mode = if name == KEY { 0o600 } else { 0o644 };
            let mut file = OpenOptions::new();
            let mut file = file.write(true).create_new(true).mode(mode).open(folder.join(name))?;
            file.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// Reads a folder.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let read = |name: &str| {
            fs::read_to_string(folder.join(name))
                .map_err(|error| Error::file(name, error).of(folder))
        };
        Ok(Self { authority: read(AUTHORITY)?, certificate: read(CERTIFICATE)?, key: read(KEY)? })
    }

    /// Names and contents of the files.
    pub fn named(&self) -> [(&'static str, &str); 3] {
        [(AUTHORITY, &self.authority), (CERTIFICATE, &self.certificate), (KEY, &self.key)]
    }

    // What the parser says is left out: it may quote lines of a file that holds secrets.

    /// More than one while certificates are replaced.
    pub(super) fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        certificates(AUTHORITY, &self.authority)
    }

    pub(super) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        certificates(CERTIFICATE, &self.certificate)
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|_| Error::file(KEY, "it is no private key in PEM"))
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files(..)")
    }
}

fn certificates(name: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    all.ok()
        .filter(|all| !all.is_empty())
        .ok_or_else(|| Error::file(name, "it is no certificate in PEM"))
}
