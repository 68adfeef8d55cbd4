/* The description of a sandbox, and its report: what is accepted must pass the check and be written
 * back as the same bytes. */
#include "box/sandbox_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf again = BUF_INIT, text = BUF_INIT;
        CLEAN(cleanup_free) char *store = NULL;
        struct sandbox_report report;
        struct sandbox_spec spec;

        buf_append(&text, data, size);
        sandbox_report_decode(buf_str(&text), &report);
        if (sandbox_spec_decode(data, size, &spec, &store, NULL) < 0)
                return 0;
        if (sandbox_spec_check(&spec, NULL) < 0)
                abort();
        sandbox_spec_encode(&spec, &again);
        if (again.len != size || memcmp(again.data, data, size) != 0)
                abort();
        return 0;
}
