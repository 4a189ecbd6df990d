//! Rotation of TLS profiles.

use std::{fmt, sync::Arc};

use rustls_pki_types::UnixTime;
use smol_str::SmolStr;

use super::{BoxIdentity, CertzError, GeneratedRequest, PrivateKey, Profiles, Upload};
use crate::rotation::RotationRules;

/// Rules by which a stream of certz changes profiles.
#[derive(Clone, Copy, Debug)]
pub struct CertzRules;

/// All profiles, and the subject of the stream that changes them.
#[derive(Clone, Debug, Default)]
pub struct RotationState {
    pub profiles: Profiles,
    /// `None` before the first message of a stream.
    stream: Option<Stream>,
}

#[derive(Clone, Debug)]
struct Stream {
    /// Profile of the stream; all of its messages must name this one.
    profile: SmolStr,
    /// Key of the stream's last signing request.
    key: Option<PrivateKey>,
}

/// One message of a stream.
pub enum StreamMessage {
    /// A key was generated, with the request for its certificate.
    Request { profile: SmolStr, generated: GeneratedRequest },
    Upload {
        upload: Upload,
        identity: Arc<dyn BoxIdentity + Send + Sync>,
        /// Time of the message.
        now: UnixTime,
    },
    /// Replaces all profiles, as a boot configuration does.
    Replacement {
        uploads: Vec<Upload>,
        /// Profile that the server will be bound to.
        in_use: Option<SmolStr>,
        identity: Arc<dyn BoxIdentity + Send + Sync>,
        /// Time of the message.
        now: UnixTime,
    },
}

/// Answer to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Certificate signing request in PEM.
    Request(String),
    Uploaded,
}

impl From<Profiles> for RotationState {
    fn from(profiles: Profiles) -> Self {
        Self { profiles, stream: None }
    }
}

impl RotationState {
    /// Refuses a message about a profile that this stream cannot change.
    ///
    /// # Errors
    /// When an upload to it would be refused for the same reason.
    pub fn check_profile(&self, profile: &SmolStr) -> Result<(), CertzError> {
        self.about(profile).map(drop)
    }

    /// The state after a message about this profile.
    ///
    /// # Errors
    /// When the profile may not be changed, or the stream began with another one.
    fn about(&self, profile: &SmolStr) -> Result<Stream, CertzError> {
        self.profiles.changeable(profile)?;
        match &self.stream {
            Some(stream) if stream.profile != *profile => Err(CertzError::invalid(
                "ssl_profile_id",
                format!("this stream is about profile `{}`, not `{profile}`", stream.profile),
            )),
            Some(stream) => Ok(stream.clone()),
            None => Ok(Stream { profile: profile.clone(), key: None }),
        }
    }
}

impl RotationRules for CertzRules {
    type State = RotationState;
    type Upload = StreamMessage;
    type Reply = Reply;
    type Refusal = CertzError;

    fn version_in_use(&self, state: &RotationState, change: &StreamMessage) -> Option<String> {
        match change {
            StreamMessage::Request { .. } | StreamMessage::Replacement { .. } => None,
            StreamMessage::Upload { upload, .. } => state.profiles.version_in_use(upload),
        }
    }

    fn apply(
        &self,
        state: &RotationState,
        change: StreamMessage,
    ) -> Result<(RotationState, Reply), CertzError> {
        match change {
            StreamMessage::Request { profile, generated } => {
                let stream = Stream { key: Some(generated.key), ..state.about(&profile)? };
                let state =
                    RotationState { profiles: state.profiles.clone(), stream: Some(stream) };
                Ok((state, Reply::Request(generated.pem)))
            }
            StreamMessage::Upload { upload, identity, now } => {
                let stream = state.about(&upload.profile)?;
                let key = stream.key.as_ref();
                let profiles = state.profiles.with_upload(&upload, key, &*identity, now)?;
                Ok((RotationState { profiles, stream: Some(stream) }, Reply::Uploaded))
            }
            StreamMessage::Replacement { uploads, in_use, identity, now } => {
                let in_use = in_use.as_deref();
                let profiles = state.profiles.replaced(&uploads, in_use, &*identity, now)?;
                Ok((profiles.into(), Reply::Uploaded))
            }
        }
    }
}

impl fmt::Debug for StreamMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request { .. } => "Request",
            Self::Upload { .. } => "Upload",
            Self::Replacement { .. } => "Replacement",
        })
    }
}
