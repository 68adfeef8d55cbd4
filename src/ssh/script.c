/* The shell scripts that run on an SSH host. */
#include "ssh/script.h"

#include "ssh/text.h"

/* dd takes no byte more than it is told to, so what follows the script is left for its commands. */
void ssh_script_argument(size_t len, struct buf *out)
{
        buf_appendf(out, "eval \"$(dd bs=1 count=%zu 2>/dev/null)\"", len);
}

void ssh_script_launcher(size_t len, struct buf *out)
{
        buf_puts(out, "sh -c '");
        ssh_script_argument(len, out);
        buf_puts(out, "'");
}

static const char say_text[] = "say() { printf '%s%s\\n' \"$m\" \"$*\"; }\n"
                               "printf '\\n'\n"
                               "say start\n";

static const char workspace_text[] =
        "case $p in '/~') p=$HOME ;; '/~/'*) p=$HOME/${p#/~/} ;; esac\n"
        "mkdir -p \"$p\" && cd \"$p\" || exit 1\n"
        "t=.berth-$$\n"
        "if ! echo berth | cat >\"$t\" || [ ! -s \"$t\" ]; then\n"
        "  rm -f \"$t\"\n"
        "  echo \"cannot write to $p\" >&2\n"
        "  exit 1\n"
        "fi\n"
        "rm -f \"$t\"\n"
        "os=$(uname -s 2>/dev/null) a=$(uname -m 2>/dev/null)\n"
        "say \"machine $os $a\"\n"
        "command -v tar >/dev/null 2>&1 && say tar || tar=no\n"
        "say \"var PATH $PATH\"\n"
        "say \"var HOME $HOME\"\n"
        "say \"var USER ${USER:-$LOGNAME}\"\n"
        "say \"var LOGNAME ${LOGNAME:-$USER}\"\n"
        "say \"var SHELL ${SHELL:-/bin/sh}\"\n"
        "[ -n \"$LANG\" ] && say \"var LANG $LANG\"\n"
        "[ -n \"$TMPDIR\" ] && say \"var TMPDIR $TMPDIR\"\n"
        "say \"cwd $(pwd)\"\n";

static const char no_way_text[] = "if [ -z \"$h\" ] && [ \"$tar\" = no ]; then\n"
                                  "  echo 'tar is not installed' >&2\n"
                                  "  exit 1\n"
                                  "fi\n";

/* A place counts when the box really runs there: that finds mounts without exec, and machines that
 * say they are another. In a directory that others write to, only one of our own.
 *
 * What lies in the cache may have been replaced by a command that ran here, so its name is not
 * believed: a private copy is made, and what is run is the open file whose hash was compared, after
 * the copy has lost its name. Tools come from the system's own path (command -p). Where there is
 * none that can tell a hash, the box is brought anew each time. */
static const char box_text[] =
        "if [ -z \"$h\" ]; then say \"plain no box for $os $a\"; exit 0; fi\n"
        "umask 077\n"
        "own() { mkdir -p \"$1/bin\" 2>/dev/null && [ ! -h \"$1\" ] && [ -O \"$1\" ] && chmod 700 \"$1\" "
        "2>/dev/null; }\n"
        "sum() {\n"
        "  { command -p sha256sum || command -p openssl dgst -sha256 -r || command -p shasum -a 256; } "
        "<\"$1\" 2>/dev/null\n"
        "}\n"
        "same() { s=$(sum \"$1\"); [ \"${s%% *}\" = \"$2\" ]; }\n"
        "nothing=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"
        "sums=; same /dev/null $nothing && sums=yes\n"
        "runs() { chmod 700 \"$x\" && \"$x\" --version >/dev/null 2>&1; }\n"
        "take() {\n"
        "  [ -n \"$sums\" ] && [ -f \"$f\" ] && dd if=\"$f\" of=\"$x\" bs=65536 count=256 2>/dev/null &&\n"
        "    same \"$x\" \"$hash\" && runs\n"
        "}\n"
        "fetch() {\n"
        "  say \"need $a\"\n"
        "  read -r n || exit 1\n"
        "  rm -f \"$x\"\n"
        "  if [ \"$(printf ab | head -c 1 2>/dev/null)\" = a ]; then head -c \"$n\" >\"$x\"\n"
        "  else dd bs=1 count=\"$n\" of=\"$x\" 2>/dev/null; fi\n"
        "  [ \"$(($(wc -c <\"$x\")))\" = \"$n\" ] && runs || return 1\n"
        "  cp \"$x\" \"$f.$$\" && [ ! -d \"$f\" ] && mv -f \"$f.$$\" \"$f\" || rm -f \"$f.$$\"\n"
        "}\n"
        "for d in \"${XDG_CACHE_HOME:-$HOME/.cache}/berth\" \"$p/.paperclip-runtime/berth\" "
        "\"/tmp/berth-$(id -u)\"; do\n"
        "  own \"$d\" || continue\n"
        "  f=$d/bin/berth-box-$h x=$d/bin/.box-$$\n"
        "  rm -f \"$x\"\n"
        "  take || fetch || { rm -f \"$x\"; continue; }\n"
        "  find \"$d/bin\" \\( -name 'berth-box-*' ! -name \"berth-box-$h\" -mtime +30 -o -name '.box-*' "
        "-mtime +1 \\) -exec rm -f {} + 2>/dev/null\n"
        "  say \"ready $d\"\n"
        "  read -r go || { rm -f \"$x\"; exit 1; }\n"
        "  exec 9<\"$x\"\n"
        "  if [ -e /proc/self/fd/9 ]; then rm -f \"$x\"; x=/proc/self/fd/9; fi\n"
        "  [ -z \"$sums\" ] || same \"$x\" \"$hash\" || exit 1\n"
        "  exec \"$x\" --relay --dir \"$d\"\n"
        "done\n"
        "say 'plain no place on the host where the box can be written and run'\n";

/* The mark is in the directory of Berth's own files, which no workspace replaces. A link would lead
 * to a directory of somebody else. */
static const char own_text[] =
        "q=$p/.paperclip-runtime/berth\n"
        "if [ -h \"$p\" ]; then echo \"$p is a link\" >&2; exit 1; fi\n"
        "if [ -e \"$p\" ]; then\n"
        "  l=$(ls -A \"$p\") || exit 1\n"
        "  if [ -n \"$l\" ] && [ \"$(cat \"$q/owner\" 2>/dev/null)\" != \"$k\" ]; then\n"
        "    echo \"the directory $p has something in it that is not this place's: name another one\" >&2\n"
        "    exit 1\n"
        "  fi\n"
        "fi\n"
        "mkdir -p \"$q\" && printf '%s\\n' \"$k\" >\"$q/owner\" || exit 1\n";

static void script_begin(const char *mark, const char *path, const char *owner,
                         const struct ssh_box *boxes, struct buf *out)
{
        buf_puts(out, "m=");
        ssh_text_quote(mark, out);
        buf_puts(out, "\np=");
        ssh_text_quote(path, out);
        buf_puts(out, "\n");
        buf_puts(out, say_text);
        if (owner) {
                buf_puts(out, "k=");
                ssh_text_quote(owner, out);
                buf_puts(out, "\n");
                buf_puts(out, own_text);
        }
        buf_puts(out, workspace_text);
        buf_puts(out, "h=\ncase \"$os $a\" in\n");
        for (size_t i = 0; i < SSH_N_BOXES; i++)
                if (boxes[i].hash[0])
                        buf_appendf(out, "'Linux %s') h=%.32s hash=%s ;;\n", boxes[i].machine,
                                    boxes[i].hash, boxes[i].hash);
        buf_puts(out, "esac\n");
        buf_puts(out, no_way_text);
}

void ssh_script_ready(const char *mark, const char *path, const struct ssh_box *boxes,
                      struct buf *out)
{
        script_begin(mark, path, NULL, boxes, out);
        buf_puts(out, "say done\n");
}

void ssh_script_stream(const char *mark, const char *path, const struct ssh_box *boxes,
                       struct buf *out)
{
        script_begin(mark, path, NULL, boxes, out);
        buf_puts(out, box_text);
}

void ssh_script_own_stream(const char *mark, const char *path, const char *owner,
                           const struct ssh_box *boxes, struct buf *out)
{
        script_begin(mark, path, owner, boxes, out);
        buf_puts(out, box_text);
}

void ssh_script_command(const char *const *names, struct buf *out)
{
        for (const char *const *n = names; *n; n++)
                buf_appendf(out, "berth_%s=$%s\n", *n, *n);
        buf_puts(out,
                 "for berth_f in .profile .bash_profile .zprofile; do\n"
                 "  [ -f \"$HOME/$berth_f\" ] && . \"$HOME/$berth_f\" </dev/null >/dev/null 2>&1\n"
                 "done\n");
        for (const char *const *n = names; *n; n++)
                buf_appendf(out, "%s=$berth_%s; export %s; unset berth_%s\n", *n, *n, *n, *n);
        buf_puts(out, "unset berth_f\nexec \"$@\"\n");
}

/* A command without a box */

static void begin_plain(const char *mark, struct buf *out)
{
        buf_puts(out, "m=");
        ssh_text_quote(mark, out);
        buf_puts(out, "\n");
        buf_puts(out, say_text);
}

static void set_variable(const char *variable, struct buf *out)
{
        size_t n = strcspn(variable, "=");

        buf_append(out, variable, n);
        buf_putc(out, '=');
        ssh_text_quote(variable + n + 1, out);
        buf_puts(out, "; export ");
        buf_append(out, variable, n);
        buf_puts(out, "\n");
}

void ssh_script_plain(const char *mark, const struct ssh_plain_command *c, struct buf *out)
{
        const char **names;
        size_t n = 0;

        begin_plain(mark, out);
        buf_puts(out, "say start >&2\ncd ");
        ssh_text_quote(c->cwd, out);
        buf_puts(out, " || exit 126\n");
        while (c->env[n])
                set_variable(c->env[n++], out);
        buf_appendf(out, "BERTH_EXEC=%s BERTH_PLACE=%s; export BERTH_EXEC BERTH_PLACE\nset --",
                    c->exec_id, c->place_id);
        buf_putc(out, ' ');
        ssh_text_quote(c->command, out);
        for (const char *const *a = c->args; a && *a; a++) {
                buf_putc(out, ' ');
                ssh_text_quote(*a, out);
        }
        buf_puts(out, "\nunset m\nunset -f say\n");
        names = xcalloc(n + 1, sizeof(*names));
        for (size_t i = 0; i < n; i++)
                names[i] = xstrndup(c->env[i], strcspn(c->env[i], "="));
        ssh_script_command(names, out);
        for (size_t i = 0; i < n; i++)
                free((char *)names[i]);
        free(names);
}

/* Where there is no /proc nothing can be found; the end of the connection has to do there. */
static const char kill_text[] =
        "marked() {\n"
        "  for p in /proc/[0-9]*; do\n"
        "    tr '\\0' '\\n' <\"$p/environ\" 2>/dev/null | grep -qx \"$w\" && kill -\"$1\" \"${p#/proc/}\" "
        "2>/dev/null && k=yes\n"
        "  done\n"
        "}\n"
        "k=; marked TERM\n"
        "while [ -n \"$k\" ] && [ \"$n\" -gt 0 ]; do\n"
        "  k=; marked 0; [ -z \"$k\" ] && break\n"
        "  sleep 0.1 2>/dev/null || { sleep 1; n=$((n - 9)); }\n"
        "  n=$((n - 1))\n"
        "done\n"
        "for i in 1 2 3 4 5; do [ -z \"$k\" ] && break; k=; marked KILL; done\n"
        "say \"cwd $PWD\"\n"
        "say done\n";

void ssh_script_kill(const char *mark, const char *name, const char *id, unsigned grace_s,
                     struct buf *out)
{
        begin_plain(mark, out);
        buf_appendf(out, "w=%s=%s n=%u\n", name, id, 10 * grace_s);
        buf_puts(out, kill_text);
}
