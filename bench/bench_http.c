/* The cost of the HTTP server alone: an inline answer of a few bytes, for wrk to ask for.
 *
 *     bench_http 127.0.0.1:8099 & wrk -t1 -c16 -d5 http://127.0.0.1:8099/ */
#include <stdio.h>

#include "net/http_server.h"

static void on_request(void *ctx, struct http_exchange *x)
{
        static const struct http_field type = { "Content-Type", "application/json" };
        struct buf body = BUF_INIT;

        (void)ctx;
        buf_puts(&body, "{\"status\":\"ok\"}");
        http_respond(x, 200, &type, 1, &body);
}

int main(int argc, char **argv)
{
        static const struct http_handler handler = { .on_request = on_request };
        struct http_server_config config = { .loop = uv_default_loop(), .handler = &handler };
        struct err CLEAN(err_done) err = { 0 };
        struct http_server *server;
        int fd;

        if (http_listen_tcp(argc > 1 ? argv[1] : "127.0.0.1:8099", &fd, &err) < 0 ||
            http_server_new(&config, &server, &err) < 0 ||
            http_server_listen(server, fd, &err) < 0) {
                fprintf(stderr, "%s\n", err.msg);
                return 1;
        }
        return uv_run(config.loop, UV_RUN_DEFAULT);
}
