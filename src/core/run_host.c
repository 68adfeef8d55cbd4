#include "core/run.h"

struct run_host {
        struct runtime *rt;
        uv_loop_t *loop;
};

int run_host_new(struct runtime *rt, uv_loop_t *loop, struct run_host **ret, struct err *err)
{
        *ret = xcalloc(1, sizeof(**ret));
        (*ret)->rt = rt;
        (*ret)->loop = loop;
        return 0;
}

int run_host_start(struct run_host *host, struct err *err)
{
        return 0;
}

void run_host_kick(struct run_host *host)
{
}

void run_host_stop(struct run_host *host)
{
}

void run_host_free(struct run_host *host)
{
        free(host);
}
