/* Makes the scripts that install an agent's program in a place. */
#include "codec/shell.h"
#include "core/adapters/adapter_internal.h"
#include "core/kinds/kind.h"

/* With the least version that will do. */
#define NODE_ADVICE                                                                                  \
        "install Node %lld or newer with npm. A built-in sandbox has what its machine has in /usr, " \
        "not what is in a home directory"
#define NODE_USUAL 20

/* Root installs for all users; another user with sudo that asks for no password, else into the home
 * directory. */
static void npm_script(struct buf *b, const char *package, long long node)
{
        CLEAN(buf_done) struct buf word = BUF_INIT;

        shell_quote(&word, package);
        buf_appendf(b,
                    "command -v npm >/dev/null 2>&1 || { echo 'npm is missing: " NODE_ADVICE
                    "'; exit 1; }\n",
                    node > 0 ? node : NODE_USUAL);
        if (node > 0)
                buf_appendf(b,
                            "v=$(node -p process.versions.node 2>/dev/null)\n"
                            "[ \"${v%%%%.*}\" -ge %lld ] 2>/dev/null || "
                            "{ echo \"Node $v is too old: " NODE_ADVICE "\"; exit 1; }\n",
                            node, node);
        buf_appendf(
                b,
                "if [ \"$(id -u)\" -eq 0 ]; then npm install -g %s; "
                "elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then "
                "sudo -E npm install -g %s; "
                "else mkdir -p \"$HOME/.local\" && npm install -g --prefix \"$HOME/.local\" %s; "
                "fi",
                buf_str(&word), buf_str(&word), buf_str(&word));
}

const char *adapter_install_script(const struct adapter_descriptor *d, struct arena *arena)
{
        const json_t *install = json_get_object(d->json, "install");
        const char *npm = json_get_string(install, "npm");
        CLEAN(buf_done) struct buf b = BUF_INIT;

        if (!npm)
                return json_get_string(install, "shell");
        npm_script(&b, npm, json_integer_value(json_object_get(install, "node")));
        return arena_strdup(arena, buf_str(&b));
}

const char *adapter_setup_script(const struct adapter_descriptor *d, const char *command,
                                 bool is_offline, struct arena *arena)
{
        const char *install = adapter_install_script(d, arena);
        CLEAN(buf_done) struct buf b = BUF_INIT, word = BUF_INIT;

        if (!install)
                return NULL;
        shell_quote(&word, command);
        buf_appendf(&b,
                    "PATH=\"$HOME/.local/bin:$PATH\"; export PATH\n"
                    "has() { command -v %s >/dev/null 2>&1; }\n",
                    buf_str(&word));
        if (is_offline)
                buf_puts(&b, "has || exit 1\n");
        else
                buf_appendf(&b,
                            "if ! has; then\n"
                            "{ %s\n} </dev/null 2>&1 || has || exit 1\n"
                            "has || { echo \"its installation left no\" %s; exit 1; }\n"
                            "fi\n",
                            install, buf_str(&word));
        buf_appendf(&b,
                    "p=$(command -v %s)\n"
                    "case \"$p\" in \"$HOME\"/.local/bin/*) echo \"" ADAPTER_FOUND "$p\" ;; esac\n",
                    buf_str(&word));
        return arena_strdup(arena, buf_str(&b));
}

const char *adapter_setup_error(struct arena *arena, const char *command,
                                const struct adapter_target *target)
{
        const char *label = target->kind->label;

        return arena_printf(arena,
                            target->is_offline
                                    ? "%s is not in this %s, which has no network to install it: "
                                      "start the %s from a snapshot that has it "
                                      "(docs/adapters.md, Getting the program in), or give it a "
                                      "network"
                                    : "%s could not be installed in this %s",
                            command, label, label);
}
