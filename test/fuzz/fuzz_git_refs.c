/* Refs of a repository that somebody else wrote: what comes out is a name that git accepts and an
 * object name, or nothing. */
#include "codec/git_refs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
        if (!condition)
                abort();
}

static void check_ref(const struct git_ref *ref)
{
        must(!*ref->name || (git_ref_name_ok(ref->name) && !strstr(ref->name, "..") &&
                             !strstr(ref->name, "//") && !strstr(ref->name, "/.")));
        must(!*ref->oid || git_oid_ok(ref->oid));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *bytes = (const char *)data;
        struct git_ref ref;
        size_t at = 0, before = 0;

        if (git_parse_head(bytes, size, &ref)) {
                check_ref(&ref);
                must(!*ref.name != !*ref.oid);
        }
        while (git_packed_next(bytes, size, &at, &ref)) {
                check_ref(&ref);
                must(*ref.name && *ref.oid && at > before && at <= size);
                before = at;
        }
        return 0;
}
