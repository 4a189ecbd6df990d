//! Get in the CLI origin: the elements of a path are the words of a `show` command.

use holdfast_base::now_ns;
use holdfast_config::limits::MESSAGE_SIZE;
use holdfast_config::{Path, show};
use holdfast_core::Datastore;
use holdfast_proto::gnmi::{self, TypedValue, typed_value};
use holdfast_telemetry::ReadType;

use super::path::{JoinedPath, Prefix, elems_to_wire};
use super::read_request::ReadRequest;
use super::reads::{ReadBudget, ReadPool};
use super::status::Refusal;

/// Answers a Get of CLI text, with one notification for each command. Each text shows the whole configuration.
pub(super) async fn get<D: Datastore>(
    core: &D,
    reads: &ReadPool,
    reader: ReadRequest,
    paths: Vec<JoinedPath>,
    request: &gnmi::GetRequest,
    kind: ReadType,
) -> Result<gnmi::GetResponse, Refusal> {
    check(&paths, request, kind)?;
    let configuration = core.configuration();
    let reader = reader.for_models(core, configuration.shared_models());
    paths.iter().try_for_each(|path| reader.admit_text(&path.path))?;
    let prefix = reader.prefix;
    let answer = move |work: &ReadBudget| {
        let mut octets = 0;
        let mut notification = Vec::with_capacity(paths.len());
        for path in &paths {
            let text = show::show(&configuration, &command(&path.path)?)
                .map_err(|unknown| Refusal::unimplemented(unknown.to_string()))?;
            work.spend(text.len())?;
            octets += text.len();
            MESSAGE_SIZE.check(octets)?;
            notification.push(text_of(&prefix, path, text));
        }
        Ok(gnmi::GetResponse { notification, ..Default::default() })
    };
    reads.run_blocking(answer).await
}

fn text_of(prefix: &Prefix, path: &JoinedPath, text: String) -> gnmi::Notification {
    let own = Path { elems: path.path.elems[prefix.len()..].to_vec() };
    let update = gnmi::Update {
        path: Some(elems_to_wire(&own)),
        val: Some(TypedValue { value: Some(typed_value::Value::AsciiVal(text)) }),
        ..Default::default()
    };
    let timestamp = now_ns().cast_signed();
    let prefix = prefix.echo(Some(path.origin_name()));
    gnmi::Notification { timestamp, prefix, update: vec![update], ..Default::default() }
}

/// Refuses options that CLI text cannot follow: it has one encoding, and a command itself selects what it shows.
fn check(paths: &[JoinedPath], request: &gnmi::GetRequest, kind: ReadType) -> Result<(), Refusal> {
    if let Some(other) = paths.iter().find(|path| !path.cli) {
        return Err(Refusal::malformed(
            other.path.to_string(),
            "CLI text needs a Get of its own, because a Get has one encoding",
        ));
    }
    if gnmi::Encoding::try_from(request.encoding) != Ok(gnmi::Encoding::Ascii) {
        let origin = paths.first().map_or("", |path| path.origin_name());
        return Err(Refusal::unimplemented(format!(
            "origin `{origin}` is answered in encoding ASCII only"
        )));
    }
    if !matches!(kind, ReadType::All | ReadType::Config) || !request.use_models.is_empty() {
        let reason = "a command shows what its name says: leave out type STATE or OPERATIONAL and use_models";
        return Err(Refusal::invalid(reason));
    }
    Ok(())
}

/// Reads the command, such as `show running-config`, from one element or from one element for each word.
fn command(path: &Path) -> Result<String, Refusal> {
    if path.elems.iter().any(|elem| !elem.keys.is_empty()) {
        return Err(Refusal::malformed(path.to_string(), "a command cannot have keys"));
    }
    let words: Vec<&str> = path.elems.iter().map(|elem| elem.name.as_str()).collect();
    Ok(words.join(" "))
}
