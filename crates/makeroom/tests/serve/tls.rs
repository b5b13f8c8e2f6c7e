//! TLS and users, over real connections.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Server;
use crate::support::machine::{Machine, text};

const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/certificates");

/// Writes a configuration and returns its path.
fn configuration(machine: &Machine, yaml: &str) -> String {
    for file in ["cert.pem", "key.pem"] {
        std::fs::copy(Path::new(CERTIFICATES).join(file), machine.folder().join(file)).unwrap();
    }
    let path = machine.folder().join("web.yml");
    std::fs::write(&path, yaml).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A request over TLS from a client that trusts the certificate.
fn get(server: &Server, path: &str, authorization: Option<&str>) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(Path::new(CERTIFICATES).join("cert.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address).unwrap());
    let authorization = authorization
        .map_or(String::new(), |user| format!("Authorization: Basic {}\r\n", STANDARD.encode(user)));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n").unwrap();
    let mut response = Vec::new();
    // hyper closes the connection without a TLS close_notify.
    let _ = stream.read_to_end(&mut response);
    text(&response)
}

#[test]
fn metrics_are_encrypted_and_for_known_users() {
    let machine = Machine::new("tls");
    let hash = bcrypt::hash("secret", 4).unwrap();
    let yaml = format!(
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  prometheus: {hash}\n"
    );
    let path = configuration(&machine, &yaml);
    let server = Server::start(&machine, "", &["--web.config.file", &path]);
    let right = get(&server, "/metrics", Some("prometheus:secret"));
    assert!(right.starts_with("HTTP/1.1 200 OK") && right.contains("makeroom_up 1"), "{right}");
    for wrong in [None, Some("prometheus:Secret"), Some("other:secret"), Some(":")] {
        let refused = get(&server, "/metrics", wrong);
        assert!(
            refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Basic"),
            "{refused}"
        );
        assert!(!refused.contains("makeroom_up"), "{refused}");
    }
    assert!(get(&server, "/healthz", None).ends_with("ok\n"));
    // A client without TLS, one that disconnects during the handshake, and one that sends nothing.
    let mut plain = TcpStream::connect(server.address).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!text(&answer).contains("makeroom"), "{}", text(&answer));
    let mut partial = TcpStream::connect(server.address).unwrap();
    partial.write_all(&[0x16, 3, 1]).unwrap();
    drop(partial);
    let silent: Vec<TcpStream> = (0..70).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert!(get(&server, "/metrics", Some("prometheus:secret")).starts_with("HTTP/1.1 200 OK"));
    drop(silent);
}

#[test]
fn users_without_tls_are_checked_too() {
    let machine = Machine::new("users");
    let path =
        configuration(&machine, &format!("basic_auth_users:\n  ann: {}\n", bcrypt::hash("b", 4).unwrap()));
    let server = Server::start(&machine, "", &["--web-config", &path]);
    assert_eq!(server.get("/metrics").0, 401);
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {}\r\nConnection: close\r\n\r\n",
        STANDARD.encode("ann:b")
    );
    assert_eq!(server.ask(&request).0, 200);
}

#[test]
fn a_configuration_that_cannot_be_followed_is_an_error() {
    let machine = Machine::new("web-config");
    for (yaml, problem) in [
        ("tls_server_config: {cert_file: cert.pem}", "`tls_server_config` has no key_file"),
        ("tls_server_config: {cert_file: gone.pem, key_file: key.pem}", "gone.pem: No such file"),
        ("tls_server_config: {cert_file: key.pem, key_file: key.pem}", "key.pem: "),
        (
            "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_auth_type: RequireAndVerifyClientCert}",
            "`tls_server_config.client_auth_type` is not supported",
        ),
        ("rate_limit: {}", "`rate_limit` is not supported"),
        ("basic_auth_users: {ann: secret}", "the password of `ann` is not a bcrypt hash"),
        ("basic_auth_users: {}", "`basic_auth_users` has no users"),
        ("- 1", "the file is not a mapping"),
        ("a: [", "web.yml: "),
    ] {
        let path = configuration(&machine, yaml);
        let output = machine
            .makeroom("", &["serve", "--listen", "127.0.0.1:0", "--web-config", &path])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{yaml}: {said}");
        assert!(said.contains(problem) && said.contains("hint: "), "{yaml}: {said}");
    }
}
