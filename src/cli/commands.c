/* The commands, in the order in which help shows them. */
#include "cli/command.h"

const struct cli_command cli_commands[] = {
        { "run", "[OPTION]... -- COMMAND [ARG]...",
          "Lease a place, run a command there, release it",
          "berth run -v -- sh -c 'uname -a; sleep 1; echo done'",
          .notes =
                  "Exits with the command's status, 128+N when signal N ended it, 124 when its time "
                  "was over,\n1 instead of 0 when output is missing.\n"
                  "--workspace brings changes home also when the command failed; where a file was "
                  "changed on\nboth sides, yours is kept beside it.\n"
                  "Without --env and --sandbox it runs on this machine, not isolated, and says so.\n"
                  "--sandbox takes the environment \"Sandbox\", which is made when there is none.\n"
                  "--image makes one for the image, with its user, directory and variables; without a "
                  "command it\nruns the image's own.\n"
                  "Without a daemon it starts one in the background, which ends by itself.\n"
                  "With --json all output goes to standard error and the result to standard output.",
          .options = run_options, .run = cmd_run, .max_words = SIZE_MAX, .takes_command = true },
        { "serve", "[OPTION]...", "Run the daemon", "berth serve --listen 127.0.0.1:3100",
          .notes =
                  "Prints 'listening on http://...' once it is ready. Settings come from these "
                  "options,\n"
                  "then BERTH_* variables, then berth.toml in the data directory; see "
                  "berth.toml(5).\n"
                  "A password in a database URL is seen in the process list: prefer BERTH_DATABASE.",
          .options = serve_options, .run = cmd_serve },
        { "env", "", "List, create, change, test and delete environments", "berth env list",
          .notes = "ENV is a name, an id, or at least four characters with which exactly one id "
                   "begins or ends.",
          .sub = env_commands },
        { "lease", "", "List, acquire, renew and release leases; run commands in them",
          "berth lease acquire Local --ttl 30m",
          .notes = "LEASE is an id, or at least four characters with which exactly one begins or "
                   "ends.",
          .sub = lease_commands },
        { "fork", "LEASE [-n COUNT] [--ttl TIME] [--key TEXT]",
          "Make new places with the files of a sandbox",
          "berth fork $(berth lease list --json | jq -r '.[0].id') -n 8", .words = 1,
          .notes =
                  "Each has the files that the sandbox has now, /workspace and /tmp too, and goes its "
                  "own way.\nWith --snapshot the word names the environment that the places are in.",
          .options = OPTIONS(
                  { "count", "COUNT", "so many, at most 32 (1)", 'n' },
                  { "snapshot", "NAME", "with the files of a snapshot instead of a lease's" },
                  { "ttl", "TIME", "end them by themselves after this time (30s, 5m, 2h, 1d)" },
                  { "key", "TEXT", "idempotency key: the same again gives the same leases" }),
          .run = cmd_fork },
        { "workspace", "", "Directories in leases, and what was changed in them",
          "berth workspace diff 01a1deef", .sub = workspace_commands },
        { "image", "", "Get, list and remove the images that sandboxes are made of",
          "berth image pull debian:12",
          .notes = "IMAGE is a reference as everywhere: debian:12, ghcr.io/org/name:tag, "
                   "name@sha256:...\n`-o image=IMAGE` of an environment and `berth run --image` "
                   "use one.",
          .sub = image_commands },
        { "snapshot", "", "List, show and delete snapshots of sandboxes", "berth snapshot list",
          .notes = "`berth lease snapshot` makes one, `-o snapshot=NAME` of an environment starts "
                   "from it.",
          .sub = snapshot_commands },
        { "leaks", "", "Show places whose record does not match what exists", "berth leaks",
          .notes = "Exit status 0 and 'no leaks' when they agree, 1 when they do not.",
          .sub = leaks_commands, .run = cmd_leaks },
        { "secret", "", "Keep, rotate and remove secrets; see who uses them",
          "berth secret create OPENAI_API_KEY --file key.txt",
          .notes = "SECRET is a name, a key, an id, or at least four characters with which exactly "
                   "one id\nbegins or ends. Values are read from standard input or a file, never "
                   "from the command\nline, and are never shown.",
          .sub = secret_commands },
        { "vault", "", "Say where secrets are kept, and check it", "berth vault health",
          .notes = "VAULT is a name, an id, or at least four characters with which exactly one id "
                   "begins or\nends.",
          .sub = vault_commands },
        { "company", "", "List, create, change and delete companies", "berth company create Acme",
          .sub = company_commands },
        { "agent", "", "List, create, change and wake agents", "berth agent list",
          .notes = "`berth key create --agent AGENT` makes a key for one.", .sub = agent_commands },
        { "adapter", "", "List the kinds of agent programs, and try one", "berth adapter list",
          .sub = adapter_commands },
        { "kind", "", "List the kinds of places that commands make, and check one",
          "berth kind list", .sub = kind_commands },
        { "runs", "", "Show, follow and end the runs of agents", "berth runs list",
          .notes = "RUN is an id, or a part of one. `berth agent wake` starts one; `berth run` is "
                   "for\nsingle commands.",
          .sub = runs_commands },
        { "issue", "", "List, create, change and check out issues", "berth issue list",
          .notes = "ISSUE is an identifier, as ACM-1, or an id.", .sub = issue_commands },
        { "project", "", "List, create, change and delete projects", "berth project list",
          .sub = project_commands },
        { "key", "", "Create, list and revoke API keys", "berth key list", .sub = key_commands },
        { "plugin", "", "Install, look after and test plugins that provide sandboxes",
          "berth plugin list", .sub = plugin_commands },
        { "activity", "", "Show who did what", "berth activity list --limit 20",
          .sub = activity_commands },
        { "db", "backup|restore|check|migrate|copy", "Back the database up, check and move it",
          "berth db backup /var/backups", .sub = db_commands },
        { "doctor", "[--json]", "Check what this machine supports, and how to fix what is missing",
          "berth doctor",
          .notes =
                  "Runs without a daemon. Exit status 1 only when something is missing that nothing "
                  "works\n"
                  "without: the data directory, or a system call.",
          .run = cmd_doctor },
        { "help", "[COMMAND]...", "Show help for a command", "berth help env create",
          .run = cmd_help, .max_words = 3 },
#ifdef BERTH_FAULTS
        { "faults", "", "List the crash points of this test build", "berth faults",
          .run = cmd_faults },
#endif
        { 0 },
};

const struct cli_option cli_global_options[] = {
        { "api-url", "URL", "where the daemon is (BERTH_API_URL)" },
        { "api-key", "KEY", "token; seen in the process list, prefer BERTH_API_KEY" },
        { "company", "ID|NAME", "company to work in (BERTH_COMPANY_ID)", 'C' },
        { "data", "DIR", "data directory (BERTH_DATA)" },
        { "json", NULL, "print the API's JSON" },
        { "help", NULL, "show help", 'h' },
        { 0 },
};
