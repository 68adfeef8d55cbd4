/* A document of any shape against a schema that uses every check. Either all is well, or there is a
 * list of issues that is itself a valid document, each with code, path and message. */
#include "codec/check.h"
#include "codec/jsnum.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(struct check *c)
{
        static const char *const options[] = { "local", "ssh", "it's", NULL };
        static const char *const known[] = { "a", "b", "c", "d", "e", "f", "g",
                                             "h", "i", "j", "k", "l", "m", NULL };
        const char *s;
        bool present;
        int64_t n;

        check_text(c, "A is needed.");
        s = check_string(c, "a", CHECK_REQUIRED | CHECK_TRIM, 1, 8);
        if (s && (strlen(s) < 1 || strlen(s) > 8 * 3))
                abort();
        check_string(c, "b", CHECK_NULLABLE, 2, 0);
        check_uuid(c, "c", 0);
        check_enum(c, "d", CHECK_NULLABLE, options);
        n = check_int(c, "e", CHECK_COERCE, 1, 65535, &present);
        if (present && (n < 1 || n > 65535))
                abort();
        n = check_int(c, "f", CHECK_POSITIVE, 0, INT64_MAX, &present);
        if (present && (n < 1 || n > JSNUM_MAX_SAFE))
                abort();
        check_int(c, "g", CHECK_COERCE | CHECK_NULLABLE, INT64_MIN, INT64_MAX, NULL);
        check_bool(c, "h", 0, true);
        check_literal(c, "i", 0, "fake");
        check_null(c, "j");
        check_strings(c, "k", 0, 1);
        check_array_size(c, "l", check_array(c, "l", 0), 1, 2);
        check_record(c, "m", CHECK_NULLABLE);
        check_unknown(c, known);
}

static void verify_issues(const char *text)
{
        json_t *issues, *issue;
        size_t i;

        if (json_parse(text, strlen(text), &issues, NULL) < 0 || json_array_size(issues) == 0)
                abort();
        json_array_foreach(issues, i, issue)
        {
                if (!json_get_string(issue, "code") || !json_get_string(issue, "message") ||
                    !json_is_array(json_object_get(issue, "path")))
                        abort();
        }
        json_decref(issues);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(check_done) struct check c;
        struct check nested, item;
        json_t *root, *list;

        (void)jsnum_parse((const char *)data, size);
        if (json_parse((const char *)data, size, &root, NULL) < 0)
                return 0;
        check_init(&c, root);
        look(&c);
        check_nested(&nested, &c, "m", json_object_get(root, "m"));
        look(&nested);
        list = json_object_get(root, "l");
        for (size_t i = 0; i < json_array_size(list); i++) {
                check_nested_item(&item, &nested, "l", i, json_array_get(list, i));
                look(&item);
        }
        if (check_end(&c, &e) < 0)
                verify_issues(e.details);
        json_decref(root);
        return 0;
}
