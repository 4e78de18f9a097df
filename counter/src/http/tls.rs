//! TLS, from a certificate and a key in files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ConfigBuilder, ServerConfig, WantsVerifier};
use tokio_rustls::server::TlsStream;

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// What connections are encrypted with.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// A file that TLS cannot begin with.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    message: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for TlsError {}

impl Tls {
    /// Reads a chain of certificates and its key, both in PEM.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, TlsError> {
        let error = |path: &Path, message: String| TlsError { path: path.to_owned(), message };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect)
            .map_err(|why| error(certificates, format!("is not a chain of certificates in PEM: {why}")))?;
        if chain.is_empty() {
            return Err(error(certificates, "has no certificate; give the chain in PEM".to_owned()));
        }
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|why| error(key, format!("is not a private key in PEM: {why}")))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map(ConfigBuilder::<ServerConfig, WantsVerifier>::with_no_client_auth)
            .and_then(|builder| builder.with_single_cert(chain, private));
        let mut config =
            config.map_err(|why| error(key, format!("does not go with the certificate: {why}")))?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands, and says whether the client chose HTTP/2.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, bool)> {
        let stream = self.0.accept(stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        Ok((stream, is_http2))
    }
}
