/* The commands, in the order in which help shows them. */
#include "cli/command.h"

const struct cli_command *const cli_commands[] = {
        &cmd_run,      &cmd_serve,    &cmd_env,    &cmd_lease,   &cmd_workspace,
        &cmd_snapshot, &cmd_leaks,    &cmd_secret, &cmd_vault,   &cmd_company,
        &cmd_agent,    &cmd_runs,     &cmd_issue,  &cmd_project, &cmd_key,
        &cmd_plugin,   &cmd_activity, &cmd_db,     &cmd_doctor,  &cmd_help,
#ifdef BERTH_FAULTS
        &cmd_faults,
#endif
        NULL,
};

const struct cli_option cli_global_options[] = {
        { "api-url", 0, OPTION_VALUE, "URL", "where the daemon is (BERTH_API_URL)" },
        { "api-key", 0, OPTION_VALUE, "KEY",
          "token; seen in the process list, prefer BERTH_API_KEY" },
        { "company", 'C', OPTION_VALUE, "ID|NAME", "company to work in (BERTH_COMPANY_ID)" },
        { "data", 0, OPTION_VALUE, "DIR", "data directory (BERTH_DATA)" },
        { "json", 0, OPTION_FLAG, NULL, "print the API's JSON" },
        { "help", 'h', OPTION_FLAG, NULL, "show help" },
        { 0 },
};
