//! gNSI acctz: accounting records for collectors, from the history and then as they are made.

use std::net::SocketAddr;

use holdfast_core::Datastore;
use holdfast_proto::gnsi::acctz;
use holdfast_proto::gnsi::acctz::acctz_stream_server::AcctzStream;
use holdfast_security::acctz::{
    Activity, Authn, AuthnKind, AuthnOutcome, Authz, AuthzOutcome, BoundedText, Command,
    CommandKind, DeliveredRecord, Rpc, ServiceFamily, Session, SessionStage, User,
};
use holdfast_store::accounts::{AccountingLog, Reader};
use tonic::{Request, Response, Status};

use super::admin;
use crate::northbound::response_stream::{ResponseSender, ResponseStream, StreamError};
use crate::northbound::status::Refusal;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// Protocol number of TCP in the IP header.
const TCP: u32 = 6;

/// Serves gnsi.acctz.
#[derive(Debug)]
pub(in crate::northbound) struct AcctzService<D> {
    core: D,
    accounts: AccountingLog,
}

impl<D> AcctzService<D> {
    pub(in crate::northbound) fn new(core: D, accounts: AccountingLog) -> Self {
        Self { core, accounts }
    }
}

#[tonic::async_trait]
impl<D: Datastore> AcctzStream for AcctzService<D> {
    type RecordSubscribeStream = ResponseStream<acctz::RecordResponse>;

    async fn record_subscribe(
        &self,
        request: Request<acctz::RecordRequest>,
    ) -> Result<Response<Self::RecordSubscribeStream>, Status> {
        admin(&self.core, &request, "gNSI RecordSubscribe")?;
        let after_ns = after(request.get_ref().timestamp.as_ref())?;
        let reader = self.accounts.read(after_ns);
        Ok(Response::new(ResponseStream::spawn(|outlet| send_records(reader, outlet))))
    }
}

/// Sends each record, until the client is gone or does not read.
async fn send_records(
    mut reader: Reader,
    outlet: ResponseSender<acctz::RecordResponse>,
) -> Result<(), StreamError> {
    loop {
        let delivered = reader.next().await;
        outlet.send(to_wire(&delivered)).await?;
        reader.sent(&delivered);
    }
}

/// Reads the time stamp of a request as nanoseconds since 1970; 0, for the whole history, if it is absent.
fn after(time: Option<&prost_types::Timestamp>) -> Result<u64, Refusal> {
    let Some(time) = time else { return Ok(0) };
    let seconds = u64::try_from(time.seconds).ok();
    let nanos = u64::try_from(time.nanos).ok();
    let nanos = nanos.filter(|nanos| *nanos < SECOND);
    let after = seconds.zip(nanos).and_then(|(seconds, nanos)| {
        seconds.checked_mul(SECOND).and_then(|seconds| seconds.checked_add(nanos))
    });
    after.ok_or_else(|| {
        let prost_types::Timestamp { seconds, nanos } = time;
        Refusal::invalid(format!("timestamp {seconds} s and {nanos} ns is not a time since 1970"))
    })
}

fn to_wire(delivered: &DeliveredRecord) -> acctz::RecordResponse {
    let record = &delivered.record;
    let request = match &record.account.activity {
        Activity::Rpc(rpc) => acctz::record_response::ServiceRequest::GrpcService(grpc(rpc)),
        Activity::Command(command) => {
            acctz::record_response::ServiceRequest::CmdService(cmd(command))
        }
    };
    acctz::RecordResponse {
        session_info: Some(session(&record.account.session)),
        timestamp: Some(timestamp(record.time_ns)),
        history_istruncated: delivered.truncated,
        service_request: Some(request),
        ..Default::default()
    }
}

fn timestamp(time_ns: u64) -> prost_types::Timestamp {
    let within = "a nanosecond's count of seconds and of nanoseconds is small";
    prost_types::Timestamp {
        seconds: i64::try_from(time_ns / SECOND).expect(within),
        nanos: i32::try_from(time_ns % SECOND).expect(within),
    }
}

fn session(session: &Session) -> acctz::SessionInfo {
    let Session { transport, channel, stage, user, authn } = session;
    let stage = match stage {
        SessionStage::Login => acctz::session_info::SessionStatus::Login,
        SessionStage::Logout => acctz::session_info::SessionStatus::Logout,
        SessionStage::Once => acctz::session_info::SessionStatus::Once,
    };
    let User { identity, role, ssh_principal } = user;
    let user = acctz::UserDetail {
        identity: text(identity),
        role: text(role),
        ssh_principal: text(ssh_principal),
    };
    let ends = transport.map(|(local, remote)| (end(local), end(remote)));
    let ((local_address, local_port), (remote_address, remote_port)) = ends.unwrap_or_default();
    acctz::SessionInfo {
        local_address,
        local_port,
        remote_address,
        remote_port,
        ip_proto: if transport.is_some() { TCP } else { 0 },
        channel_id: text(channel),
        tty: String::new(), // a command comes through a socket, which has none
        status: stage.into(),
        user: Some(user),
        authn: authn.as_ref().map(authn_detail),
    }
}

/// Address and port of one end. An IPv4-mapped IPv6 address is shown as IPv4.
fn end(address: SocketAddr) -> (String, u32) {
    (address.ip().to_canonical().to_string(), address.port().into())
}

fn authn_detail(authn: &Authn) -> acctz::AuthnDetail {
    use acctz::authn_detail::{AuthnStatus, AuthnType};
    let kind = match authn.kind {
        AuthnKind::None => AuthnType::None,
        AuthnKind::Password => AuthnType::Password,
        AuthnKind::SshKey => AuthnType::Sshkey,
        AuthnKind::SshCertificate => AuthnType::Sshcert,
        AuthnKind::TlsCertificate => AuthnType::Tlscert,
    };
    let status = match authn.outcome {
        AuthnOutcome::Success => AuthnStatus::Success,
        AuthnOutcome::Fail => AuthnStatus::Fail,
        AuthnOutcome::Error => AuthnStatus::Error,
    };
    acctz::AuthnDetail { r#type: kind.into(), status: status.into(), cause: text(&authn.cause) }
}

fn authz_detail(authz: &Authz) -> acctz::AuthzDetail {
    use acctz::authz_detail::AuthzStatus;
    let status = match authz.outcome {
        AuthzOutcome::Permit => AuthzStatus::Permit,
        AuthzOutcome::Deny => AuthzStatus::Deny,
        AuthzOutcome::Error => AuthzStatus::Error,
    };
    acctz::AuthzDetail { status: status.into(), detail: text(&authz.detail) }
}

fn grpc(rpc: &Rpc) -> acctz::GrpcService {
    use acctz::grpc_service::{GrpcServiceType, Payload};
    let family = match rpc.family {
        ServiceFamily::Other => GrpcServiceType::Unspecified,
        ServiceFamily::Gnmi => GrpcServiceType::Gnmi,
        ServiceFamily::Gnoi => GrpcServiceType::Gnoi,
        ServiceFamily::Gnsi => GrpcServiceType::Gnsi,
    };
    let any = rpc.payload.as_ref().map(|payload| prost_types::Any {
        type_url: format!("type.googleapis.com/{}", payload.message),
        value: payload.octets.clone(),
    });
    acctz::GrpcService {
        service_type: family.into(),
        rpc_name: text(&rpc.path),
        payload_istruncated: rpc.payload.as_ref().is_some_and(|payload| payload.cut),
        authz: Some(authz_detail(&rpc.authz)),
        payload: any.map(Payload::ProtoVal),
        ..Default::default()
    }
}

fn cmd(command: &Command) -> acctz::CommandService {
    use acctz::command_service::CmdServiceType;
    let kind = match command.kind {
        CommandKind::Shell => CmdServiceType::Shell,
        CommandKind::Cli => CmdServiceType::Cli,
    };
    acctz::CommandService {
        service_type: kind.into(),
        cmd: text(&command.command),
        cmd_args: command.arguments.iter().map(text).collect(),
        cmd_istruncated: command.command.is_cut(),
        cmd_args_istruncated: command.arguments.iter().any(BoundedText::is_cut),
        authz: Some(authz_detail(&command.authz)),
    }
}

fn text(text: &BoundedText) -> String {
    text.as_str().to_owned()
}
