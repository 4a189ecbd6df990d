//! Keys of the configuration file: where each option of `holdfast run` stands in it.
//!
//! Names, help, defaults and checks of the options are those of the command line; this table has the places alone. A test
//! says that each option stands in it once.

/// A part of the configuration file.
#[derive(Debug)]
pub struct Section {
    pub name: &'static str,
    /// One sentence, for the head of the section.
    pub about: &'static str,
    pub settings: &'static [Setting],
}

/// One key of the file.
#[derive(Debug)]
pub struct Setting {
    pub key: &'static str,
    /// Id of the option in the definition of the command line.
    pub option: &'static str,
    pub takes_effect: TakesEffect,
}

/// Time at which a change of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// On SIGHUP, which `systemctl reload holdfast` sends.
    AtReload,
    /// With the next start of the agent.
    AtStart,
}

const fn at_start(key: &'static str, option: &'static str) -> Setting {
    Setting { key, option, takes_effect: TakesEffect::AtStart }
}

const fn at_reload(key: &'static str, option: &'static str) -> Setting {
    Setting { key, option, takes_effect: TakesEffect::AtReload }
}

/// The sections of the file, in its order.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "agent",
        about: "The agent as a whole. All commands of `holdfast` read `state-dir` and `socket`.",
        settings: &[
            at_start("state-dir", "state_dir"),
            at_start("socket", "socket"),
            at_start("root", "root"),
            at_start("netns", "netns"),
            at_start("reboot", "reboot"),
            at_start("factory", "factory"),
            at_start("log-format", "log_format"),
            at_reload("log-level", "log_level"),
        ],
    },
    Section {
        name: "server",
        about: "The gRPC services: gNMI, gNOI and gNSI.",
        settings: &[
            at_start("listen", "listen"),
            at_reload("tls-cert", "tls_cert"),
            at_reload("tls-key", "tls_key"),
            at_reload("tls-client-ca", "tls_client_ca"),
            at_reload("oidevid-cert", "oidevid_cert"),
            at_reload("oidevid-key", "oidevid_key"),
            at_start("certificate-role", "certificate_role"),
            at_start("certificate-speaks-for", "certificate_speaks_for"),
            at_start("unknown-subscription-paths", "unknown_subscription_paths"),
            at_start("admin-password-file", "admin_password_file"),
            at_start("user-socket", "user_socket"),
        ],
    },
    Section {
        name: "introspect",
        about: "Views of the agent itself, by HTTP.",
        settings: &[at_start("address", "introspect"), at_start("token", "introspect_token")],
    },
    Section {
        name: "services",
        about: "Packages of services and their handlers.",
        settings: &[
            at_start("folder", "services"),
            at_start("trust", "service_trust"),
            at_start("revocations", "service_revocations"),
            at_start("socket", "service_socket"),
        ],
    },
    Section {
        name: "accounting",
        about: "The history of requests and logins.",
        settings: &[at_start("history", "accounting_history")],
    },
    Section {
        name: "image",
        about: "The software of the box.",
        settings: &[at_start("command", "image_command"), at_start("version", "image_version")],
    },
    Section {
        name: "bootz",
        about: "Bootstrapping from a server of the owner.",
        settings: &[
            at_start("port", "bootz_port"),
            at_start("serial", "bootz_serial"),
            at_start("manufacturer", "bootz_manufacturer"),
            at_start("part-number", "bootz_part_number"),
            at_start("idevid-cert", "bootz_idevid_cert"),
            at_start("idevid-key", "bootz_idevid_key"),
            at_start("vendor-ca", "bootz_vendor_ca"),
            at_start("rpc", "bootz_rpc"),
            at_start("trust-any-server", "bootz_trust_any_server"),
        ],
    },
];

impl Section {
    pub fn named(name: &str) -> Option<&'static Self> {
        SECTIONS.iter().find(|section| section.name == name)
    }

    pub fn setting(&self, key: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }
}
