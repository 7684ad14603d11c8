//! TLS as a client: whom this process believes.
//!
//! Must never make a configuration that takes a certificate unverified.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// A client that believes the authorities of `ca_file`, or the system's without one.
///
/// # Errors
/// The file cannot be read, or holds no certificates.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder
        .with_root_certificates(roots(ca_file)?)
        .with_no_client_auth())
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let shown = path.display();
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| format!("{shown}: {error}"))?
            {
                let certificate = certificate.map_err(|error| format!("{shown}: {error}"))?;
                roots
                    .add(certificate)
                    .map_err(|error| format!("{shown}: {error}"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}
