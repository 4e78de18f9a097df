//! The key from a real client certificate, shown in a real TLS handshake.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use serde_json::json;
use tidegate_e2e::http::{self, Reply};
use tidegate_e2e::{Part, Setup};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::common::{assert_healthy, start, two_each};

const SERVER: &str = "tidegate.test";

#[tokio::test]
async fn the_uri_of_the_clients_certificate_is_a_key() {
    let authority = authority();
    let server_key = KeyPair::generate().expect("a key");
    let server = CertificateParams::new([SERVER.to_owned()]).expect("a name");
    let server = server.signed_by(&server_key, &authority).expect("a certificate");
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "require_client_certificate": false,
            "common_tls_context": {
                "tls_certificates": [{
                    "certificate_chain": { "inline_string": server.pem() },
                    "private_key": { "inline_string": server_key.serialize_pem() },
                }],
                "validation_context": { "trusted_ca": { "inline_string": authority.pem() } },
            },
        },
    });
    let limits = json!({ "rules": [two_each(&json!(["mtls_uri_san"]))] });
    let envoy = start(Setup::limits(limits).field(Part::FilterChain, "transport_socket", tls)).await;

    for name in ["spiffe://test/ana", "spiffe://test/ben"] {
        // Two certificates of one name are one client.
        let certificates = [Some(client(&authority, name)), Some(client(&authority, name))];
        assert_eq!(admitted(envoy.address(), &authority, &certificates).await, 2, "{name}");
    }
    // Without a certificate there is no such name, whatever a header says.
    assert_eq!(admitted(envoy.address(), &authority, &[None]).await, 2);
    assert_healthy(&envoy).await;
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Another name than the default, which the certificates that it signs have.
    params.distinguished_name.push(DnType::CommonName, "authority");
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A client's certificate and key.
type Shown = (CertificateDer<'static>, Vec<u8>);

fn client(authority: &Authority, uri: &str) -> Shown {
    let mut params = CertificateParams::new([]).expect("no names");
    params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a URI"))];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    (certificate.der().clone(), key.serialize_der())
}

/// How many of six requests pass, with these certificates in turn.
async fn admitted(to: SocketAddr, authority: &Authority, shown: &[Option<Shown>]) -> usize {
    let mut admitted = 0;
    for index in 0..6 {
        let reply = send(to, authority, shown[index % shown.len()].as_ref(), index).await;
        match reply.status {
            200 => admitted += 1,
            status => assert_eq!(status, 429),
        }
    }
    admitted
}

async fn send(to: SocketAddr, authority: &Authority, shown: Option<&Shown>, index: usize) -> Reply {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).expect("a root");
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivatePkcs8KeyDer::from(key.clone());
            config
                .with_client_auth_cert(vec![certificate.clone()], key.into())
                .expect("a certificate to show")
        }
    };
    let stream = TcpStream::connect(to).await.expect("a connection");
    let name = ServerName::try_from(SERVER).expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake");
    // Envoy takes no such header from outside, and Tidegate reads none.
    let forged = format!("URI=spiffe://test/fresh-{index}");
    let request = http::get("/", &[("x-forwarded-client-cert", forged.as_bytes())]);
    http::send_over(stream, request).await.unwrap()
}
