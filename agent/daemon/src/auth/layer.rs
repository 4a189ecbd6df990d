//! The tower layer in front of every service.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use holdfast_base::Caller;
use http::{HeaderMap, Request, Response};
use smol_str::SmolStr;
use tonic::{Status, body::Body};
use tower::Service;

use super::Login;
use super::{Authenticator, Credentials, LoginContext, LoginRefusal, Password};
use crate::{messages, tls::Peer, users::check_name};

/// Metadata that carries the credentials (gNMI authentication document, "Credentials").
const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// Methods open to a caller that may only read; a trailing `/` means all methods of a service. All others need the role
/// admin, so that a new service is closed until it is listed here.
const READING_METHODS: &[&str] = &[
    "/gnmi.gNMI/Capabilities",
    "/gnmi.gNMI/Get",
    "/gnmi.gNMI/Subscribe",
    "/gnsi.credentialz.v1.Credentialz/CanGenerateKey",
    "/gnsi.credentialz.v1.Credentialz/GetPublicKeys",
    "/gnoi.os.OS/Verify",
    "/gnoi.system.System/RebootStatus",
    "/gnoi.system.System/Time",
    "/gnsi.authz.v1.Authz/Get",
    "/gnsi.authz.v1.Authz/Probe",
    "/gnsi.certz.v1.Certz/CanGenerateCSR",
    "/gnsi.certz.v1.Certz/GetIntegrityManifest",
    "/gnsi.certz.v1.Certz/GetProfileList",
    "/gnsi.pathz.v1.Pathz/Get",
    "/gnsi.pathz.v1.Pathz/Probe",
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
];

/// Puts [`Authenticated`] in front of a service.
#[derive(Clone, Debug)]
pub struct Layer(pub Authenticator);

impl<S> tower::Layer<S> for Layer {
    type Service = Authenticated<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Authenticated { inner, authenticator: self.0.clone() }
    }
}

/// Passes on requests whose caller [`Authenticator`] identifies and whose role allows the method, with a [`Caller`] in
/// the extensions and without the password. Answers all others itself.
#[derive(Clone, Debug)]
pub struct Authenticated<S> {
    inner: S,
    authenticator: Authenticator,
}

impl<S> Service<Request<Body>> for Authenticated<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let authenticator = self.authenticator.clone();
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh); // the one that was polled ready
        let login = request.extensions().get::<Login>().cloned().unwrap_or_default();
        // Noted before anything is awaited, so that a call that is given up is recorded with the name that it tried.
        let credentials = take_credentials(request.headers_mut());
        match &credentials {
            Ok(Credentials { name: Some(name), password: Some(_) }) => login.tried(name),
            Ok(_) => {}
            Err(refusal) => login.refused(None, refusal),
        }
        Box::pin(async move {
            let admitted = match credentials {
                Ok(credentials) => admit(&authenticator, credentials, &login, &mut request).await,
                Err(refusal) => Err(refusal.into()),
            };
            match admitted {
                Ok(admission) => {
                    request.extensions_mut().insert(admission.caller.clone());
                    request.extensions_mut().insert(admission);
                    inner.call(request).await
                }
                Err(status) => Ok(messages::cut(status).into_http()),
            }
        })
    }
}

async fn admit(
    authenticator: &Authenticator,
    credentials: Credentials,
    login: &Login,
    request: &mut Request<Body>,
) -> Result<LoginContext, Status> {
    // The listener adds a peer to every request. Without one, nothing is known about the connection.
    let peer = request.extensions().get::<Peer>().cloned();
    let peer = peer.ok_or_else(|| Status::unauthenticated("the connection is not known"))?;
    let tried = credentials.name.clone();
    let entrance = authenticator.entrance(&credentials);
    let identified = match authenticator.as_it_stands(&peer) {
        Ok(peer) => authenticator.identify(credentials, &peer).await,
        Err(refusal) => Err(refusal),
    };
    let caller = identified.inspect_err(|refusal| login.refused(tried, refusal))?;
    peer.known.set();
    login.identified(&caller);
    require_role(&caller, request.uri().path())?;
    Ok(entrance.admit(caller))
}

/// # Errors
/// `PERMISSION_DENIED` when the role does not allow this method.
pub(super) fn require_role(caller: &Caller, path: &str) -> Result<(), Status> {
    if open_to_readers(path) { Ok(()) } else { caller.require_admin(method_name(path)) }
}

/// Removes the password from the request: no handler needs it, and so none can log it.
fn take_credentials(headers: &mut HeaderMap) -> Result<Credentials, LoginRefusal> {
    let name = only(headers, USERNAME)?.map(|name| std::str::from_utf8(name).map(SmolStr::new));
    let name = name.transpose().map_err(|_| LoginRefusal::Malformed(USERNAME))?;
    let password = only(headers, PASSWORD)?.filter(|text| !text.is_empty());
    // A text that is no valid password counts as a wrong one: it is checked and charged like any other.
    let password = password.map(|text| Password::new(text).or_else(|_| Password::new("\0")));
    let password = password.transpose().map_err(|_| LoginRefusal::Malformed(PASSWORD))?;
    headers.remove(PASSWORD);
    let name = name.filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| check_name(name).is_err()) {
        return Err(LoginRefusal::Malformed(USERNAME));
    }
    Ok(Credentials { name, password })
}

fn only<'h>(headers: &'h HeaderMap, key: &'static str) -> Result<Option<&'h [u8]>, LoginRefusal> {
    let mut values = headers.get_all(key).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(http::HeaderValue::as_bytes)),
        (_, Some(_)) => Err(LoginRefusal::Malformed(key)),
    }
}

fn open_to_readers(path: &str) -> bool {
    READING_METHODS.iter().any(|method| {
        if method.ends_with('/') { path.starts_with(method) } else { path == *method }
    })
}

/// The name of a method in messages, such as `gnmi.gNMI/Set`.
fn method_name(path: &str) -> &str {
    path.trim_start_matches('/')
}

impl From<LoginRefusal> for Status {
    fn from(refusal: LoginRefusal) -> Self {
        match refusal {
            LoginRefusal::Busy => Self::unavailable(refusal.to_string()),
            refusal => Self::unauthenticated(refusal.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_methods_are_open_to_readers() {
        for (path, want) in [
            ("/gnmi.gNMI/Get", true),
            ("/gnmi.gNMI/Subscribe", true),
            ("/grpc.health.v1.Health/Watch", true),
            ("/gnmi.gNMI/Set", false),
            ("/gnmi.gNMI/Getter", false),
            ("/gnoi.bootconfig.BootConfig/GetBootConfig", false), // a Get of it would be asked of pathz
            ("/gnmi.gNMI/", false),
            ("/gnoi.os.OS/Verify", true),
            ("/gnoi.os.OS/Activate", false),
            ("/gnoi.os.OS/Install", false),
            ("/gnoi.system.System/Reboot", false),
            ("/grpc.health.v1.Healthier/Check", false),
        ] {
            assert_eq!(open_to_readers(path), want, "{path}");
        }
    }

    #[test]
    fn credentials_are_taken_out_of_the_metadata() {
        let mut headers = HeaderMap::new();
        headers.insert(USERNAME, "ada".parse().unwrap());
        headers.insert(PASSWORD, "secret".parse().unwrap());
        let credentials = take_credentials(&mut headers).unwrap();
        assert_eq!(credentials.name.as_deref(), Some("ada"));
        assert!(credentials.password.is_some() && !headers.contains_key(PASSWORD));
        headers.append(USERNAME, "bob".parse().unwrap());
        assert_eq!(take_credentials(&mut headers).unwrap_err(), LoginRefusal::Malformed(USERNAME));
    }
}
