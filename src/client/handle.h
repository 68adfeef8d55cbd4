/* What a handle of the public library holds (berth/berth.h), for the parts of the library that are
 * not in berth.c. One thread at a time. */
#pragma once

#include "client/conn.h"

struct berth {
        struct conn_address address;
        char *api_key;
        char *run_id;
        int64_t connect_timeout_ms;
        int64_t timeout_ms;
        int fd; /* -1: no connection */
};
