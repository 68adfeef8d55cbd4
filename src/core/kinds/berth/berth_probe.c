/* The probe: it checks what the machine has, starts a real sandbox, and tests the isolation from
 * inside.
 *
 * The sandbox is a place like any other, with its intent recorded first, so that a crash in the
 * middle leaves a row from which the sweeper goes on. It belongs to no environment. */
#include "base/clock.h"
#include "base/fault.h"
#include "box/ask.h"
#include "core/kinds/berth/berth.h"
#include "core/leases/lease.h"
#include "core/places/place.h"
#include "core/sandboxes/sandbox_host.h"

#define COMMAND_MS 10000
#define OUTPUT_MAX 65536
#define NO_ENV     "probe"

/* Each line is a point: its name, ok or bad, and what was found. Only what every shell has, and
 * /proc: a rootfs need not have more. */
static const char script[] =
        "say() { echo \"$1 $2 $3\"; }\n"
        "status() { while read -r k v r; do [ \"$k\" = \"$1:\" ] && echo \"$v\"; done"
        " < /proc/self/status; }\n"
        "c=$(status CapEff); b=$(status CapBnd)\n"
        "[ \"$WANT_ROOT\" = 1 ] || { [ \"$c\" = 0000000000000000 ] && say capabilities ok none"
        " || say capabilities bad \"$c\"; }\n"
        "[ \"$(status NoNewPrivs)\" = 1 ] && say no-new-privileges ok set"
        " || say no-new-privileges bad 'not set'\n"
        "[ \"$(status Seccomp)\" = 2 ] && say system-calls ok filtered"
        " || say system-calls bad 'not filtered'\n"
        "n=0; for p in /proc/[0-9]*; do n=$((n+1)); done\n"
        "[ $n -lt 8 ] && say processes ok \"$n, all its own\" || say processes bad \"$n visible\"\n"
        "i=; while read -r d r; do case $d in *:) i=\"$i${d%:} \";; esac; done < /proc/net/dev\n"
        "if [ \"$WANT_HOST_NET\" = 1 ]; then say network ok 'of the host, as configured'\n"
        "elif [ \"$i\" = 'lo ' ]; then say network ok 'loopback only'\n"
        "else say network bad \"interfaces: $i\"; fi\n"
        "if [ -n \"$WANT_ROOTFS\" ]; then :\n"
        "elif [ -e /etc/shadow ]; then say host-files bad '/etc/shadow is there'\n"
        "elif [ -e \"$HOST_DATA\" ]; then say host-files bad 'the daemon data directory is there'\n"
        "else say host-files ok 'no /etc/shadow, no data directory'; fi\n"
        "(: > /usr/.berth-probe) 2>/dev/null && [ -z \"$WANT_ROOTFS\" ]"
        " && say system bad '/usr can be written' || say system ok 'not the host to change'\n"
        "for d in \"$HOME\" /tmp /workspace; do (: > $d/.probe) 2>/dev/null"
        " && rm -f $d/.probe || w=\"$w$d \"; done\n"
        "[ -z \"$w\" ] && say writable ok \"$HOME, /tmp, /workspace\""
        " || say writable bad \"cannot write $w\"\n"
        "say finished ok yes\n";

static const struct {
        const char *name, *fix;
} fixes[] = {
        { "capabilities", "report this: commands must have none" },
        { "no-new-privileges", "report this: it needs no setting" },
        { "system-calls", "use a kernel with CONFIG_SECCOMP_FILTER; see `berth doctor`" },
        { "processes", "allow pid namespaces and a fresh /proc; see `berth doctor`" },
        { "network", "allow network namespaces; see `berth doctor`" },
        { "host-files", "allow mount namespaces; see `berth doctor`" },
        { "system", "allow mount namespaces; see `berth doctor`" },
        { "writable", "give it more diskMb, or look at the permissions in the rootfs" },
};

struct points {
        json_t *list;
        json_t *sandbox; /* what the launcher said of the one that started */
        unsigned failed;
};

static const char *fix_of(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(fixes); i++)
                if (streq(fixes[i].name, name))
                        return fixes[i].fix;
        return "see `berth doctor`";
}

static void add_point(struct points *p, const char *name, bool ok, const char *found,
                      const char *fix)
{
        json_t *point = json_pack("{s:s, s:b, s:s}", "name", name, "ok", ok, "found", found);

        if (!ok && fix && *fix)
                json_object_set_new(point, "fix", json_string(fix));
        if (!ok)
                p->failed++;
        json_array_append_new(p->list, point);
}

/* The machine. A missing feature that is not required only makes the sandbox weaker, and each lease
 * says so. */

static void check_machine(struct op *op, struct runtime *rt, struct points *p)
{
        CLEAN(err_done) struct err err = { 0 };
        struct sandbox_check checks[SANDBOX_MAX_CHECKS];
        size_t n = 0;

        if (sandbox_checks(op, rt->sandbox->box_program, (uint32_t)rt->sandbox->range.first,
                           (uint32_t)rt->sandbox->slice, checks, &n, &err) < 0) {
                add_point(p, "machine", false, err.msg, "see `berth doctor`");
                return;
        }
        for (size_t i = 0; i < n; i++) {
                unsigned failed = p->failed;

                add_point(p, checks[i].name, checks[i].ok, checks[i].found, checks[i].fix);
                if (!checks[i].required)
                        p->failed = failed;
        }
}

/* The place */

struct probing {
        struct op *op;
        struct runtime *rt;
        struct place place;
};

static int probe_intend(struct db *db, void *arg, struct err *err)
{
        struct probing *q = arg;

        q->place.next_attempt_at = place_busy_until(q->rt);
        int r = place_create(db, q->rt, &q->place, PLACE_INTENDED, err);
        return r < 0 ? r : kind_berth.claim(db, q->rt, &q->place, q->op->arena, err);
}

/* From inside */

static bool is(const json_t *config, const char *key, const char *value)
{
        const char *s = json_get_string(config, key);

        return s && streq(s, value);
}

/* A line is "name ok|bad what was found"; programs inside may print anything, so other lines are
 * dropped. */
static void take_line(struct points *p, char *line, bool *finished)
{
        char *verdict = strchr(line, ' '), *found;

        if (!verdict)
                return;
        *verdict++ = '\0';
        found = strchr(verdict, ' ');
        if (!found)
                return;
        *found++ = '\0';
        if (streq(line, "finished"))
                *finished = true;
        else
                add_point(p, line, streq(verdict, "ok"), found, fix_of(line));
}

static void look_inside(struct op *op, struct runtime *rt, const struct place *place,
                        const json_t *config, struct points *p)
{
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, place->id);
        CLEAN(cleanup_free) char *data = xasprintf("HOST_DATA=%s", rt->sandbox->dir);
        CLEAN(buf_done) struct buf out = { .max = OUTPUT_MAX };
        CLEAN(err_done) struct err err = { 0 };
        bool root = is(config, "user", "root"), finished = false;
        const char *args[] = { "-c", script, NULL };
        const char *env[] = { "PATH=/usr/bin:/bin",
                              root ? "HOME=/root" : "HOME=/home/agent",
                              root ? "WANT_ROOT=1" : "WANT_ROOT=0",
                              is(config, "network", "host") ? "WANT_HOST_NET=1" : "WANT_HOST_NET=0",
                              berth_has_base(config) ? "WANT_ROOTFS=1" : "WANT_ROOTFS=",
                              data,
                              NULL };
        struct box_question question = {
                .command = "/bin/sh", .args = args, .env = env, .cwd = "/", .timeout_ms = COMMAND_MS
        };
        struct box_exit end;
        int r = box_ask(op, box, &question, &out, &end, &err);

        if (r < 0) {
                add_point(p, "command", false, err.msg, "the sandbox needs a working /bin/sh");
                return;
        }
        for (char *line = out.data, *next; line && *line; line = next) {
                next = strchr(line, '\n');
                if (next)
                        *next++ = '\0';
                take_line(p, line, &finished);
        }
        add_point(p, "command", finished, finished ? "ran" : "did not come to its end",
                  "the sandbox needs a working /bin/sh");
}

static void start_and_look(struct probing *q, const json_t *config, struct points *p)
{
        CLEAN(err_done) struct err err = { 0 };
        struct sandbox_report report;
        int64_t began = clock_mono_us();

        json_t *with_image = (json_t *)config;
        int r = berth_image_plan(q->op, q->rt, q->place.company_id, NULL, &with_image, &err);
        if (r < 0) {
                add_point(p, "image", false, err.msg, NULL);
                return;
        }
        q->place.config = json_to_arena(q->op->arena, with_image);
        FAULT("sandbox.probe_intend.before");
        r = store_write(q->op, q->rt->store, probe_intend, q, &err);
        FAULT("sandbox.probe_intend.after");
        if (r < 0) {
                add_point(p, "start", false, err.msg, NULL);
                return;
        }
        r = berth_start(q->op, q->rt, &q->place, config, &report, &err);
        if (r < 0) {
                add_point(p, "start", false, err.msg, "see `berth doctor`");
        } else {
                char *found = arena_printf(q->op->arena, "%.1f ms",
                                           (double)(clock_mono_us() - began) / US_PER_MS);
                json_t *metadata = berth_describe(config, &report);

                add_point(p, "start", true, found, NULL);
                p->sandbox = json_incref(json_object_get(metadata, "sandbox"));
                json_decref(metadata);
                look_inside(q->op, q->rt, &q->place, config, p);
        }
        struct op shield = op_shield(q->op, q->rt->settings.close_timeout_ms);
        if (place_commit_move(&shield, q->rt, &q->place, PLACE_CLOSING, NULL, NULL) < 0)
                return;
        FAULT("sandbox.probe_close.before");
        (void)lease_finish_closing(&shield, q->rt, &q->place, NULL);
        FAULT("sandbox.probe_close.after");
}

int berth_probe(struct op *op, struct runtime *rt, const struct probe_target *target,
                json_t *config, struct probe_result *ret, struct err *err)
{
        struct points p = { .list = json_array() };
        struct probing q = {
                .op = op,
                .rt = rt,
                .place = { .id = arena_strdup(op->arena, uuid_new().s),
                           .company_id = target->company_id,
                           .environment_id = NO_ENV,
                           .driver = kind_berth.driver,
                           .provider = BERTH_PROVIDER,
                           .config = json_to_arena(op->arena, config),
                           .policy = POLICY_EPHEMERAL,
                           .has_world = true },
        };

        if (!rt->sandbox || rt->sandbox->range_code < 0)
                add_point(&p, "host-ids", false,
                          rt->sandbox ? rt->sandbox->range_error : "this daemon has no sandboxes",
                          NULL);
        else
                check_machine(op, rt, &p);
        if (p.failed == 0)
                start_and_look(&q, config, &p);
        ret->ok = p.failed == 0;
        if (ret->ok)
                buf_puts(&ret->summary,
                         "Berth sandbox started and ran a command; its walls hold. The "
                         "kernel is shared with the host.");
        else
                buf_appendf(&ret->summary, "Berth sandbox: %u point%s not as %s should be.",
                            p.failed, p.failed == 1 ? " is" : "s are",
                            p.failed == 1 ? "it" : "they");
        json_object_set_new(ret->details, "provider", json_string(BERTH_PROVIDER));
        json_object_set_new(ret->details, "isolation", json_string("shared kernel"));
        json_object_set_new(ret->details, "points", p.list);
        if (p.sandbox)
                json_object_set_new(ret->details, "sandbox", p.sandbox);
        return op_check(op, err);
}
