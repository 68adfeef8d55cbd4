#include "test.h"

#include "api/api.h"
#include "api/thing.h"

#define ID    "0196a8a2-1111-4222-8333-444455556666"
#define UPPER "0196A8A2-1111-4222-8333-444455556666"

struct found {
        struct call call;
        struct buf allowed;
        const struct route *route;
};

static const struct route *find(struct found *f, const char *method, const char *path)
{
        *f = (struct found){ .allowed = BUF_INIT };
        arena_init(&f->call.arena);
        f->route = route_find(&f->call, method, path, &f->allowed);
        return f->route;
}

static void done(struct found *f)
{
        buf_done(&f->allowed);
        arena_done(&f->call.arena);
}

static void expect(const char *method, const char *path, const char *pattern, const char *param)
{
        struct found f;

        find(&f, method, path);
        if (!pattern) {
                if (f.route)
                        fail_msg("%s %s found %s", method, path, f.route->pattern);
        } else if (!f.route || !streq(f.route->pattern, pattern)) {
                fail_msg("%s %s found %s", method, path, f.route ? f.route->pattern : "nothing");
        } else if (param) {
                assert_string_equal(f.call.params[0], param);
        }
        done(&f);
}

static void test_paths(void **state)
{
        (void)state;
        expect("GET", "/api/health", "/api/health", NULL);
        expect("HEAD", "/api/health", "/api/health", NULL);
        expect("GET", "/API/Health/", "/api/health", NULL);
        expect("GET", "/api/environments/" ID, "/api/environments/:id", ID);
        /* Ids are compared as they are stored. */
        expect("GET", "/api/environments/" UPPER "/", "/api/environments/:id", ID);
        expect("GET", "/api/environments/a%20b%2Fc", "/api/environments/:id", "a b/c");
        expect("GET", "/api/environments/%2525", "/api/environments/:id", "%25");
        expect("GET", "/api/environments/", NULL, NULL);
        expect("GET", "/api/environments//", NULL, NULL);
        expect("GET", "/api//health", NULL, NULL);
        expect("GET", "//api/health", NULL, NULL);
        expect("GET", "/api/health//", NULL, NULL);
        expect("GET", "/api/health/x", NULL, NULL);
        expect("GET", "/api/healthy", NULL, NULL);
        expect("GET", "/api/heal", NULL, NULL);
        expect("GET", "api/health", NULL, NULL);
        expect("GET", "", NULL, NULL);
        expect("GET", "/", NULL, NULL); /* the page: page.h */
        expect("GET", "*", NULL, NULL);
        /* What cannot be decoded names nothing. */
        expect("GET", "/api/environments/%zz", NULL, NULL);
        expect("GET", "/api/environments/%", NULL, NULL);
        expect("GET", "/1/2/3/4/5/6/7/8/9/10/11/12", NULL, NULL);
        expect("GET", "/1/2/3/4/5/6/7/8/9/10/11/12/13", NULL, NULL);
}

static void test_methods(void **state)
{
        struct found f;

        (void)state;
        assert_null(find(&f, "PUT", "/api/environments/" ID));
        assert_non_null(strstr(buf_str(&f.allowed), "GET, HEAD"));
        assert_non_null(strstr(buf_str(&f.allowed), "PATCH"));
        assert_non_null(strstr(buf_str(&f.allowed), "DELETE"));
        assert_null(strstr(buf_str(&f.allowed), "PUT"));
        done(&f);
        assert_null(find(&f, "get", "/api/health"));
        done(&f);
        assert_null(find(&f, "GET", "/nothing"));
        assert_int_equal(f.allowed.len, 0);
        done(&f);
}

/* Every pattern of every table finds itself: none is hidden by another, or has more parameters than
 * a call can keep. */
static void test_every_route_can_be_reached(void **state)
{
        (void)state;
        for (const struct route *r = route_next(NULL); r; r = route_next(r)) {
                struct found f;
                size_t params = 0;

                for (const char *p = r->pattern; *p; p++)
                        params += *p == ':';
                assert_in_range(params, 0, CALL_MAX_PARAMS);
                if (find(&f, r->method, r->pattern) != r)
                        fail_msg("%s %s cannot be reached", r->method, r->pattern);
                done(&f);
        }
}

/* A route that may wait names a thing that has a lane. */
static void test_lanes(void **state)
{
        size_t waiting = 0;

        (void)state;
        for (const struct route *r = NULL; (r = route_next(r));) {
                if (!(r->flags & ROUTE_WAITS))
                        continue;
                waiting++;
                if (!thing_has_lane(r))
                        fail_msg("%s %s has no lane to wait in", r->method, r->pattern);
        }
        assert_true(waiting > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_paths),
                cmocka_unit_test(test_lanes),
                cmocka_unit_test(test_methods),
                cmocka_unit_test(test_every_route_can_be_reached),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
