/* The table of the daemon's settings. */
#include "daemon/settings.h"

#include "core/sandboxes/host_ids.h"
#include "daemon/config.h"
#include "plugin/confine.h"

#define HOUR_MS     INT64_C(3600000)
#define DAY_MS      (24 * HOUR_MS)
#define YEAR_MS     (366 * DAY_MS)
#define PETABYTE_MB (INT64_C(1) << 30)

#define AT(member)            .at = offsetof(struct config, member)
#define FLAG(name)            .flag = "--" #name, .flag_at = offsetof(struct cli_serve_options, name)
#define FLAG_AS(member, name) .flag = (name), .flag_at = offsetof(struct cli_serve_options, member)
#define TEXT(member, value)   .type = SETTING_TEXT, AT(member), .text = (value)
#define LIST(member, by)      .type = SETTING_LIST, AT(member), .separator = (by)
#define NUMBER(member, value, least, most)                                                         \
        .type = SETTING_NUMBER, AT(member), .number = (value), .min = (least), .max = (most)
#define COUNT(member, value, least, most)                                                          \
        .type = SETTING_COUNT, AT(member), .number = (value), .min = (least), .max = (most)
#define SWITCH(member, value) .type = SETTING_SWITCH, AT(member), .number = (value)
#define WORD(member, list)    .type = SETTING_WORD, AT(member), .words = (list)
#define SECOND(member, list)  .type = SETTING_SECOND, AT(member), .words = (list)
#define NAME(member, list)    .type = SETTING_NAME, AT(member), .words = (list)

/* In the order of their enums. */
static const char *const modes[] = { "local_trusted", "authenticated", NULL };
static const char *const exposures[] = { "private", "public", NULL };
static const char *const box_uses[] = { "auto", "always", "off", NULL };
static const char *const levels[] = { "debug", "info", "warn", "error", NULL };
static const char *const formats[] = { "text", "json", NULL };
static const char *const full_ways[] = { "wait", "drop", NULL };
static const char *const callback_ways[] = { "auto", "channel", NULL };
static const char *const providers[] = { "local_encrypted", "aws_secrets_manager",
                                         "gcp_secret_manager", "vault", NULL };

/* In the order of the manual. */
const struct setting settings_table[] = {
        { "listen", "BERTH_LISTEN", FLAG(listen), TEXT(listen, "127.0.0.1:3100"),
          .help = "Address and port." },
        { "database", "BERTH_DATABASE", FLAG(database), TEXT(database, NULL),
          .otherwise = "SQLite in the data directory",
          .help = "A PostgreSQL URL, _postgres://user@host/name_, which may have what libpq knows, such as "
                  "_sslmode_ (docs/postgresql.md). A password in it is allowed only in _berth.toml_ and in "
                  "the variable." },
        { "mode", "BERTH_DEPLOYMENT_MODE", .paperclip = "PAPERCLIP_DEPLOYMENT_MODE", FLAG(mode),
          WORD(settings.mode, modes),
          .help = "Whether users of this machine need a key: the operator does not with "
                  "_local_trusted_, which only listens on loopback." },
        { "exposure", "BERTH_DEPLOYMENT_EXPOSURE", .paperclip = "PAPERCLIP_DEPLOYMENT_EXPOSURE",
          WORD(settings.exposure, exposures),
          .help = "Whether it may be called by any name, or only by those of "
                  "*allowed_hostnames*. Mode _local_trusted_ needs _private_." },
        { "allowed_hostnames", "BERTH_ALLOWED_HOSTNAMES",
          .paperclip = "PAPERCLIP_ALLOWED_HOSTNAMES", LIST(settings.allowed_hostnames, ','),
          .help = "Names by which the daemon may be called when it is private, besides loopback "
                  "and the address it listens on." },
        { "public_url", "BERTH_PUBLIC_URL", .paperclip = "PAPERCLIP_PUBLIC_URL",
          TEXT(settings.public_url, NULL),
          .help = "The URL by which browsers reach it, when that is not where it listens." },
        { "trusted_uids", "BERTH_TRUSTED_UIDS", LIST(trusted_users, ','), .otherwise = "nobody",
          .help = "Users of this machine who count as the operator, besides root and the user "
                  "that the daemon runs as: names or numbers. In mode _local_trusted_ they need "
                  "no key on the port, which the kernel tells whose connection it is; in both "
                  "modes they need none on the Unix socket, as far as its permissions let them "
                  "reach it. Every other user of the machine signs in with a key. A daemon of "
                  "root's that was told nothing asks on its terminal, once, and writes the "
                  "answer here; without a terminal it takes the user who called *sudo*(8)." },
        { "connections_per_client", "BERTH_CONNECTIONS_PER_CLIENT",
          COUNT(connections_per_client, 0, 0, 65536),
          .otherwise = "_0_, half of what the daemon takes",
          .help = "How many connections one client may have: an address (of IPv6, its first 64 "
                  "bits), and of this machine a user. An eighth of all that the daemon takes "
                  "may be requests of one client that have begun and are not complete; the "
                  "oldest of them is closed for the next. Connections of a reverse proxy are "
                  "all the proxy's." },
        { "reverse_proxy", "BERTH_REVERSE_PROXY", TEXT(settings.reverse_proxy, NULL),
          .otherwise = "none; everybody behind a proxy is one client",
          .help = "The reverse proxy in front of the daemon: its address, or, when it runs on "
                  "this machine, the user that it runs as (a name or a number). Limits of "
                  "sign-in are then counted for the last address in the *X-Forwarded-For* of its "
                  "requests, which the proxy has to add. The header counts for nothing else, and "
                  "from nobody else. Needs mode _authenticated_." },
        { "local_for_owners", "BERTH_LOCAL_FOR_OWNERS", SWITCH(settings.local_for_owners, false),
          .help = "Whether those who may manage a company's environments and agents may have "
                  "commands run on this machine, as the user that the daemon runs as "
                  "(environments of the kind _local_), and whether members may link secrets "
                  "that lie in AWS, which are read with the server's own credentials. Otherwise "
                  "that takes an instance admin." },
        { "share_user_files", "BERTH_SHARE_USER_FILES", SWITCH(settings.share_user_files, false),
          .otherwise =
                  "_true_ in mode _local_trusted_, where that user is the only one; _false_ in "
                  "mode _authenticated_, where it would give them to the agents of every "
                  "company",
          .help = "Whether agents are given the logins and the configuration that the user whom "
                  "the daemon runs as has for their programs: _~/.claude_, _~/.codex_, "
                  "_~/.config/opencode_. What an agent is given it can read and send elsewhere." },
        { "workspace_roots", "BERTH_WORKSPACE_ROOTS", LIST(settings.workspace_roots, ':'),
          .otherwise =
                  "in mode _local_trusted_ the home of the user and the temporary directory, in "
                  "mode _authenticated_ _berth/{company}_ in the home of the user",
          .help = "Directories beneath which workspaces of this machine may lie, and in mode "
                  "_authenticated_ the instructions of agents. A directory is for every "
                  "company; _ID=DIR_ is for the company with that id, and _{company}_ in one "
                  "stands for the id of whichever company asks. No directory of one company may "
                  "lie in one of another or of all: the daemon does not start. What is the "
                  "daemon's own is in "
                  "no workspace, wherever it lies: the data directory, the database, files with "
                  "keys, _plugin_dir_. A symbolic link on the way to such a directory is "
                  "followed if it is root's or the daemon user's, and another user's if it "
                  "leads to a directory of that user." },
        { "machine_id", "BERTH_MACHINE_ID", TEXT(machine_id, NULL),
          .otherwise = "_/etc/machine-id_; where there is none, as in many containers, the data "
                       "directory alone is compared",
          .help = "What the machine is called, to tell a copied database from one that is at "
                  "home (*--new-identity* in *berth-serve*(1)). Set it where the machine's id "
                  "is not stable, such as that of a container that is made anew." },
        { "scrub_interval_ms", "BERTH_SCRUB_INTERVAL_MS",
          NUMBER(settings.scrub_interval_ms, DAY_MS, 10, YEAR_MS),
          .help = "How often the whole database is read in search of damage, beside everything "
                  "else. A database of more than 4 MiB is also read after each start; a smaller "
                  "one before." },
        { "sweep_interval_ms", "BERTH_SWEEP_INTERVAL_MS",
          NUMBER(settings.sweep_interval_ms, 5000, 10, HOUR_MS),
          .help = "How often expired leases and unfinished clean-up are looked for." },
        { "idle_place_ttl_ms", "BERTH_IDLE_PLACE_TTL_MS",
          NUMBER(settings.idle_place_ttl_ms, HOUR_MS, 1, YEAR_MS),
          .help = "How long an idle place is kept for reuse." },
        { "adhoc_ttl_ms", "BERTH_ADHOC_TTL_MS", NUMBER(settings.adhoc_ttl_ms, HOUR_MS, 1, YEAR_MS),
          .help = "How long a lease without a run lives when nobody said." },
        { "operation_timeout_ms", "BERTH_OPERATION_TIMEOUT_MS",
          NUMBER(settings.operation_timeout_ms, 120000, 100, DAY_MS),
          .help = "How long a request may take before it is given up and undone." },
        { "close_timeout_ms", "BERTH_CLOSE_TIMEOUT_MS",
          NUMBER(settings.close_timeout_ms, 60000, 10, HOUR_MS),
          .help = "How long a provider may take to give a place up before that counts as failed "
                  "and is tried again later." },
        { "ssh_timeout_ms", "BERTH_SSH_TIMEOUT_MS",
          NUMBER(settings.ssh_timeout_ms, 20000, 100, 600000),
          .help = "How long a login to an ssh host may take." },
        { "run_prepare_timeout_ms", "BERTH_RUN_PREPARE_TIMEOUT_MS",
          NUMBER(settings.run_prepare_timeout_ms, HOUR_MS, 0, YEAR_MS),
          .help = "For how long a run that cannot begin for now is prepared again: the disk is "
                  "full, the provider is busy, the host cannot be reached. Then it fails with "
                  "that reason. _0_: at the first failure." },
        { "workspace_timeout_ms", "BERTH_WORKSPACE_TIMEOUT_MS",
          NUMBER(settings.workspace_timeout_ms, HOUR_MS, 100, DAY_MS),
          .help = "How long staging, restoring or saving a workspace may take." },
        { "salvage_ttl_ms", "BERTH_SALVAGE_TTL_MS",
          NUMBER(settings.salvage_ttl_ms, 14 * DAY_MS, 1, YEAR_MS),
          .help = "How long changes are kept that were saved before their place was given up, "
                  "from the first look at them on. Changes that nobody has looked at are kept "
                  "until somebody removes them, unless this is set: then it counts for them "
                  "too, from when they were saved." },
        { "restore_max_files", "BERTH_RESTORE_MAX_FILES",
          NUMBER(settings.restore_max_files, 1000000, 1, 10000000),
          .help = "How many changes one restore or salvage may bring home. Beyond that it fails "
                  "and names the setting." },
        { "restore_max_mb", "BERTH_RESTORE_MAX_MB",
          NUMBER(settings.restore_max_mb, 16384, 1, PETABYTE_MB),
          .help = "How many MiB the changes of one restore or salvage may be together, as their "
                  "place says and as they come. Beyond that it fails and names the setting." },
        { "output_max_mb", "BERTH_OUTPUT_MAX_MB",
          NUMBER(settings.output_max_mb, 1024, 1, PETABYTE_MB),
          .help = "How many MiB are kept of what one command prints. _outputMb_ of an "
                  "environment comes first." },
        { "output_place_max_mb", "BERTH_OUTPUT_PLACE_MAX_MB",
          NUMBER(settings.output_place_max_mb, 4096, 1, PETABYTE_MB),
          .otherwise = "_4096_; of a sandbox, no more than its _diskMb_",
          .help = "How many MiB are kept of what all commands of one place print. "
                  "_outputPlaceMb_ of an environment comes first." },
        { "output_full", "BERTH_OUTPUT_FULL", SECOND(settings.output_drops, full_ways),
          .help = "What happens at these limits. _wait_: the command waits for room, for _output_wait_ms_, "
                  "and is then ended. _drop_: its oldest output goes. _outputFull_ of an "
                  "environment comes first." },
        { "output_wait_ms", "BERTH_OUTPUT_WAIT_MS",
          NUMBER(settings.output_wait_ms, 60000, 1, HOUR_MS),
          .help = "How long a command waits for room, which comes when old output of its place "
                  "is forgotten, or on a full disk." },
        { "disk_reserve_mb", "BERTH_DISK_RESERVE_MB", NUMBER(settings.disk_reserve_mb, 4, 0, 6),
          .help = "Room on the disk, in MiB, that the database keeps for giving things up and "
                  "for recording how they end when the disk is full. _0_: none." },
        { "run_log_max_bytes", "BERTH_RUN_LOG_MAX_BYTES",
          NUMBER(settings.run_log_max_bytes, INT64_C(64) << 20, 0, INT64_C(1) << 40),
          .help = "How large the log of a run may become. What the run prints beyond that is "
                  "counted and left out of the log, which says so; 0 is no limit." },
        { "live_ping_ms", "BERTH_LIVE_PING_MS", NUMBER(settings.live_ping_ms, 30000, 100, HOUR_MS),
          .help = "How often WebSockets are pinged, and whether their caller may still listen is "
                  "looked at. For streams (events, logs, output) both happen twice as often, at "
                  "least every 15 seconds, and the ping is a comment." },
        { "kinds_dir", "BERTH_KINDS_DIR", TEXT(settings.kinds_dir, NULL),
          .otherwise = "_kinds_ in the data directory",
          .help = "Where descriptors of further kinds of places are: one JSON file each, which "
                  "says by which commands places are made. Their commands run with the daemon's "
                  "rights, so directory and files have to belong to root or to the daemon's user, "
                  "and may not be writable by others." },
        { "plugin_dir", "BERTH_PLUGIN_DIR", TEXT(settings.plugin_dir, NULL),
          .otherwise = "_plugins_ in the data directory",
          .help = "Where plugins are kept. It belongs to one daemon." },
        { "plugin_env", "BERTH_PLUGIN_ENV", LIST(settings.plugin_env, ','),
          .help = "Names of the daemon's variables that workers of plugins get besides their "
                  "own few. _NAME_ is for all, _KEY:NAME_ for the plugin with that key. "
                  "_HTTPS_PROXY_, _NODE_EXTRA_CA_CERTS_ and _HOME_ are the usual ones." },
        { "plugin_paths", "BERTH_PLUGIN_PATHS", LIST(settings.plugin_paths, ','),
          .help = "Files and directories that workers of plugins may read besides their package "
                  "and the system's: in the same form, _PATH_ or _KEY:PATH_. A worker with a "
                  "user of its own gets a copy of what others may not read. Nothing in the data "
                  "directory." },
        { "plugin_install_timeout_ms", "BERTH_PLUGIN_INSTALL_TIMEOUT_MS",
          NUMBER(settings.plugin_install_timeout_ms, 120000, 1000, HOUR_MS),
          .help = "How long npm may take to fetch a plugin." },
        { "plugin_confine", "BERTH_PLUGIN_CONFINE", SWITCH(settings.plugin_confine, true),
          .help = "Whether workers have users (where the daemon is root), files and processes "
                  "of their own; see docs/plugins.md. With _false_ they run as the daemon's "
                  "user with all its files, and only a filter of system calls is left." },
        { "plugin_uid_first", "BERTH_PLUGIN_UID_FIRST",
          NUMBER(settings.plugin_uid_first, CONFINE_UID_FIRST, 1000, UINT32_MAX - 1),
          .help = "The first of the host ids that workers of plugins get when the daemon is "
                  "root, one each. No user or group of the machine may lie in the range, and no "
                  "sandbox." },
        { "plugin_uid_count", "BERTH_PLUGIN_UID_COUNT",
          NUMBER(settings.plugin_uid_count, CONFINE_UID_COUNT, 1, UINT32_MAX),
          .help = "How many host ids workers of plugins may get." },
        { "plugin_box", "BERTH_PLUGIN_BOX", WORD(settings.plugin_box, box_uses),
          .help = "Whether commands in sandboxes of plugins run in a supervisor of ours, which "
                  "is brought into the sandbox by commands of its provider: _auto_ from the "
                  "first command of a lease on that wants a terminal, or the first workspace "
                  "that is staged there, _always_ or _off_. See docs/plugins.md." },
        { "node", "BERTH_NODE", TEXT(settings.node, NULL), .otherwise = "looked up in _PATH_",
          .help = "The node that runs workers and manifests of plugins." },
        { "npm", "BERTH_NPM", TEXT(settings.npm, NULL), .otherwise = "looked up in _PATH_",
          .help = "The npm that fetches plugins." },
        { "sandbox_uid_first", "BERTH_SANDBOX_UID_FIRST",
          NUMBER(settings.sandbox_uid_first, HOST_IDS_FIRST, 1000, UINT32_MAX - 1),
          .help = "The first of the host ids that sandboxes get when the daemon is root. No "
                  "user or group of the machine may lie in the range. Another user's daemon "
                  "takes what /etc/subuid and /etc/subgid give it." },
        { "sandbox_uid_count", "BERTH_SANDBOX_UID_COUNT",
          NUMBER(settings.sandbox_uid_count, HOST_IDS_COUNT, 0, UINT32_MAX),
          .help = "How many host ids sandboxes may get." },
        { "sandbox_ids_per_box", "BERTH_SANDBOX_IDS_PER_BOX",
          NUMBER(settings.sandbox_ids_per_box, 0, 0, 65536),
          .otherwise = "_0_, which is 65536 where there are plenty and 2048 where there are not",
          .help = "How many host ids one sandbox gets, at least 2048." },
        { "sandbox_rootfs_dirs", "BERTH_SANDBOX_ROOTFS_DIRS",
          LIST(settings.sandbox_rootfs_dirs, ':'),
          .otherwise = "_rootfs_ in the data directory and _/var/lib/berth/rootfs_",
          .help = "Directories beneath which the _rootfs_ of a sandbox may lie." },
        { "sandbox_pool_max", "BERTH_SANDBOX_POOL_MAX",
          NUMBER(settings.sandbox_pool_max, 64, 0, 4096),
          .help = "How many sandboxes are made in advance, of all environments. _0_: none." },
        { "image_registries", "BERTH_IMAGE_REGISTRIES", LIST(settings.image_registries, ','),
          .help = "What is special about registries of images. _\"registry.corp:5000\"_ may be at "
                  "an address that is not public, _\"http://localhost:5000\"_ also without TLS, "
                  "_\"docker.io=mirror.corp\"_ is a mirror that is asked first." },
        { "image_allowed_registries", "BERTH_IMAGE_ALLOWED_REGISTRIES",
          LIST(settings.image_allowed_registries, ','), .otherwise = "all",
          .help = "The only registries that images are pulled from, such as _\"docker.io\"_ and "
                  "_\"ghcr.io\"_." },
        { "image_store_max_mb", "BERTH_IMAGE_STORE_MAX_MB",
          NUMBER(settings.image_store_max_mb, 0, 0, PETABYTE_MB), .otherwise = "_0_, no limit",
          .help = "How many MiB the unpacked layers of images may be together. Beyond that the "
                  "images go that were not used for the longest time and that nothing stands on." },
        { "image_pull_timeout_ms", "BERTH_IMAGE_PULL_TIMEOUT_MS",
          NUMBER(settings.image_pull_timeout_ms, HOUR_MS, 1000, DAY_MS),
          .help = "How long pulling or importing an image may take." },
        { "callback", "BERTH_CALLBACK", SECOND(settings.callback_always_channel, callback_ways),
          .help = "How agents on this machine call the API. _auto_: at the daemon's own port, "
                  "with a run token. _channel_: as everywhere else, at an address of their own." },
        { "agent_jwt.ttl_seconds", "BERTH_AGENT_JWT_TTL_SECONDS",
          .paperclip = "PAPERCLIP_AGENT_JWT_TTL_SECONDS",
          NUMBER(settings.run_token_ttl_s, 172800, 1, YEAR_MS / 1000),
          .help = "How long a run token lasts at most; it ends with its run." },
        { "agent_jwt.issuer", "BERTH_AGENT_JWT_ISSUER", .paperclip = "PAPERCLIP_AGENT_JWT_ISSUER",
          TEXT(settings.run_token_issuer, "paperclip"),
          .help = "Who run tokens say they are from." },
        { "agent_jwt.audience", "BERTH_AGENT_JWT_AUDIENCE",
          .paperclip = "PAPERCLIP_AGENT_JWT_AUDIENCE",
          TEXT(settings.run_token_audience, "paperclip-api"),
          .help = "Whom run tokens say they are for." },
        { "private_hosts", "BERTH_PRIVATE_HOSTS", LIST(private_hosts, ','),
          .help = "Addresses that are not public and that agents may reach all the same: model "
                  "servers in your own network. Each is _\"address:port\"_, such as "
                  "_[\"10.0.0.5:8000\", \"[fd00::1]:8000\"]_. It counts for the requests of "
                  "agents of type *http* and, beside _allowedHosts_, for sandboxes with the "
                  "network _allowlist_." },
        { "local_env", "BERTH_LOCAL_ENV", LIST(settings.local_env, ','),
          .help = "Names of further variables of the daemon that local commands get, besides "
                  "PATH, HOME, USER, SHELL, LANG and TMPDIR." },
        { "op_threads", "BERTH_OP_THREADS", COUNT(op_threads, 16, 1, 256),
          .help = "How many operations run at once, besides those that wait for somebody else "
                  "(*peer_threads*)." },
        { "op_queue", "BERTH_OP_QUEUE", COUNT(op_queue, 1024, 1, 100000),
          .help = "How many more operations may wait; the next is told to come back later (503)." },
        { "peer_threads", "BERTH_PEER_THREADS", COUNT(peer_threads, 32, 1, 256),
          .help = "How many operations may wait at once for providers, hosts, boxes and vaults. "
                  "A company gets a seat only while it has fewer than are free: half of them, "
                  "when it is alone." },
        { "peer_threads_each", "BERTH_PEER_THREADS_EACH", COUNT(peer_threads_each, 8, 1, 256),
          .otherwise = "_8_, and no more than *peer_threads*",
          .help = "How many of them may be of one environment, for requests and again for runs." },
        { "peer_queue", "BERTH_PEER_QUEUE", COUNT(peer_queue, 256, 1, 100000),
          .help = "How many more of one environment may wait for their turn, without a thread; "
                  "the next is told to come back later (503)." },
        { "peer_silence_ms", "BERTH_PEER_SILENCE_MS",
          NUMBER(settings.peer_silence_ms, 60000, 100, HOUR_MS),
          .help = "How long a transfer of files may stand still before it is given up and tried "
                  "again later, and how long a supervisor of commands may leave the daemon "
                  "without an answer before it is connected to anew." },
        { "log.level", "BERTH_LOG_LEVEL", FLAG_AS(log_level, "--log-level"),
          WORD(log_level, levels), .number = LOG_LEVEL_INFO,
          .help = "What is logged: this and what weighs more." },
        { "log.format", "BERTH_LOG_FORMAT", FLAG_AS(log_format, "--log-format"),
          WORD(log_format, formats), .help = "How a line of the log looks." },
        { NULL, "BERTH_RUNTIME_API_CANDIDATES_JSON",
          .paperclip = "PAPERCLIP_RUNTIME_API_CANDIDATES_JSON", .section = SETTINGS_VARIABLES,
          TEXT(settings.api_candidates, NULL),
          .help = "A JSON list of base URLs. Leases of ssh hosts carry the first whose "
                  "_/api/health_ answers the daemon as _paperclipApiUrl_: a note for readers." },
        { "secrets.provider", "BERTH_SECRETS_PROVIDER", .paperclip = "PAPERCLIP_SECRETS_PROVIDER",
          .section = SETTINGS_SECRETS, NAME(settings.secrets_provider, providers),
          .help = "Where secrets are kept that name no provider." },
        { "secrets.strict_mode", "BERTH_SECRETS_STRICT_MODE",
          .paperclip = "PAPERCLIP_SECRETS_STRICT_MODE", .section = SETTINGS_SECRETS,
          SWITCH(settings.secrets_strict, false),
          .help = "Variables with a sensitive name have to be secrets." },
        { "secrets.key_file", "BERTH_SECRETS_KEY_FILE",
          .paperclip = "PAPERCLIP_SECRETS_MASTER_KEY_FILE", .section = SETTINGS_SECRETS,
          TEXT(secrets_key_file, NULL),
          .otherwise = "_secrets/master.key_ in the data directory, or the systemd credential "
                       "_berth-secrets-key_ when there is one",
          .help = "The file of the master key. Made when it is missing and there is no secret "
                  "yet." },
        { NULL, "BERTH_ALLOW_FAKE_PROVIDER", .section = SETTINGS_TESTS,
          SWITCH(settings.allow_fake_provider, false),
          .help = "_1_ lets sandbox environments with the provider _fake_ be saved and leased." },
        { NULL, "BERTH_FAKE_WORLD", .section = SETTINGS_TESTS, TEXT(settings.fake_world, NULL),
          .help = "A directory in which each fake sandbox is a file, so that it can be lost, "
                  "found and broken from outside." },
        { 0 },
};
