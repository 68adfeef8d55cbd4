#include "core/live.h"

struct live {
        uv_loop_t *loop;
};

int live_new(uv_loop_t *loop, struct live **ret, struct err *err)
{
        *ret = xcalloc(1, sizeof(**ret));
        (*ret)->loop = loop;
        return 0;
}

void live_free(struct live *live)
{
        free(live);
}

void live_publish(struct live *live, const char *company_id, const char *type, json_t *take_payload)
{
        json_decref(take_payload);
}
