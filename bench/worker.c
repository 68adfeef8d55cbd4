/* bench-worker: how long a plugin's worker takes for a lease's life, without Berth.
 *
 *   bench-worker [--seconds S] CALLS PROGRAM ARG...
 *
 * CALLS is a file with one call per line, method and parameters with a space between. The first one
 * is made once; the others are made one after the other, again and again, and one round of them is
 * what is measured. In parameters @ becomes the providerLeaseId of the last answer that had one.
 * The output is the line of stats.h. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats.h"

enum { MAX_CALLS = 16, LINE_SIZE = 64 * 1024, LEASE_SIZE = 512 };

extern char **environ;

static const double warmup = 0.5;

struct call {
        char *method, *params;
};

struct worker {
        FILE *in, *out;
        pid_t pid;
        unsigned long next_id;
        char lease[LEASE_SIZE];
        char line[LINE_SIZE];
};

static void die(const char *what)
{
        (void)fprintf(stderr, "bench-worker: %s: %s\n", what, strerror(errno));
        exit(1);
}

static size_t read_calls(const char *path, struct call *calls)
{
        FILE *f = fopen(path, "re");
        char *line = NULL;
        size_t n = 0, size = 0;

        if (!f)
                die(path);
        while (n < MAX_CALLS && getline(&line, &size, f) > 0) {
                char *space = strchr(line, ' ');

                line[strcspn(line, "\n")] = '\0';
                if (!space)
                        continue;
                calls[n].method = strndup(line, (size_t)(space - line));
                calls[n++].params = strdup(space + 1);
        }
        free(line);
        (void)fclose(f);
        return n;
}

static void start(struct worker *w, char **argv)
{
        posix_spawn_file_actions_t actions;
        int to[2], from[2];

        if (pipe(to) < 0 || pipe(from) < 0)
                die("pipe");
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
        posix_spawn_file_actions_addclose(&actions, to[1]);
        posix_spawn_file_actions_addclose(&actions, from[0]);
        errno = posix_spawnp(&w->pid, argv[0], &actions, NULL, argv, environ);
        if (errno)
                die(argv[0]);
        posix_spawn_file_actions_destroy(&actions);
        (void)close(to[0]);
        (void)close(from[1]);
        w->in = fdopen(to[1], "w");
        w->out = fdopen(from[0], "r");
        if (!w->in || !w->out)
                die("fdopen");
}

static void send_call(struct worker *w, const struct call *c)
{
        (void)fprintf(w->in,
                      "{\"jsonrpc\":\"2.0\",\"id\":%lu,\"method\":\"%s\",\"params\":", ++w->next_id,
                      c->method);
        for (const char *p = c->params; *p; p++) {
                if (*p == '@')
                        (void)fputs(w->lease, w->in);
                else
                        (void)fputc(*p, w->in);
        }
        (void)fputs("}\n", w->in);
        if (fflush(w->in) != 0)
                die("write to the worker");
}

static void keep_lease(struct worker *w)
{
        const char *p = strstr(w->line, "\"providerLeaseId\":\"");
        size_t n;

        if (!p)
                return;
        p += strlen("\"providerLeaseId\":\"");
        n = strcspn(p, "\"");
        if (n < LEASE_SIZE) {
                memcpy(w->lease, p, n);
                w->lease[n] = '\0';
        }
}

static void ask(struct worker *w, const struct call *c)
{
        send_call(w, c);
        do {
                if (!fgets(w->line, sizeof(w->line), w->out))
                        die("the worker ended");
        } while (!strstr(w->line, "\"result\":") && !strstr(w->line, "\"error\":"));
        if (strstr(w->line, "\"error\":")) {
                (void)fprintf(stderr, "bench-worker: %s: %.400s", c->method, w->line);
                exit(1);
        }
        keep_lease(w);
}

static void measure(struct worker *w, const struct call *calls, size_t n, double seconds,
                    struct stats *stats)
{
        int64_t from = stats_now_ns() + (int64_t)(warmup * 1e9);
        int64_t to = from + (int64_t)(seconds * 1e9);
        bool measuring = false;

        while (stats_now_ns() < to) {
                int64_t began = stats_now_ns();

                if (!measuring && began >= from) {
                        stats_begin(stats);
                        measuring = true;
                }
                for (size_t i = 1; i < n; i++)
                        ask(w, &calls[i]);
                if (measuring)
                        stats_add(stats, stats_now_ns() - began);
        }
        stats_end(stats);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "seconds", required_argument, NULL, 's' },
                { 0 },
        };
        static struct worker w;
        struct call calls[MAX_CALLS] = { 0 };
        struct stats stats = { 0 };
        double seconds = 2;
        size_t n;
        int opt;

        while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
                if (opt != 's')
                        return 2;
                seconds = strtod(optarg, NULL);
        }
        if (argc - optind < 2) {
                (void)fprintf(stderr, "usage: bench-worker [--seconds S] CALLS PROGRAM ARG...\n");
                return 2;
        }
        n = read_calls(argv[optind], calls);
        if (n < 2) {
                (void)fprintf(stderr, "bench-worker: nothing to call\n");
                exit(2);
        }
        (void)signal(SIGPIPE, SIG_IGN);
        start(&w, argv + optind + 1);
        ask(&w, &calls[0]);
        measure(&w, calls, n, seconds, &stats);
        stats_print(&stats, "worker", 1);
        (void)fclose(w.in); /* it ends at the end of its input */
        (void)waitpid(w.pid, NULL, 0);
        (void)fclose(w.out);
        for (size_t i = 0; i < n; i++) {
                free(calls[i].method);
                free(calls[i].params);
        }
        stats_done(&stats);
        return 0;
}
