/* The JSON of a call to AWS and of its answer. */
#include "secret/aws.h"

#include "base/log.h"
#include "codec/json_scan.h"

json_t *aws_keep(struct op *op, json_t *take_value)
{
        arena_defer(op->arena, (void (*)(void *))json_decref, take_value);
        return take_value;
}

void aws_request_init(struct aws_request *q)
{
        q->text = BUF_INIT;
        jw_init(&q->w, &q->text);
        jw_object(&q->w);
}

void aws_request_done(struct aws_request *q)
{
        buf_done(&q->text);
}

/* Without a value in it. */
int aws_send(struct op *op, const struct aws_settings *s, const char *operation,
             struct aws_request *q, struct transfer_answer *ret, struct err *err)
{
        struct aws_call call = { .operation = operation };

        jw_object_end(&q->w);
        if (buf_failed(&q->text))
                return err_set(err, ERR_TOO_LARGE, "The request to the vault is too large.");
        call.body = buf_str(&q->text);
        call.len = q->text.len;
        return aws_call_run(op, s, &call, ret, err);
}

/* With the value as SecretString, in memory that is wiped. */
int aws_send_value(struct op *op, const struct aws_settings *s, const char *operation,
                   struct aws_request *q, const struct secret_value *value,
                   struct transfer_answer *ret, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value body = { 0 };
        struct aws_call call = { .operation = operation, .holds_value = true };
        size_t escaped = json_scan_escaped_len(value->data, value->len), n;
        int r;

        jw_key(&q->w, "SecretString");
        if (buf_failed(&q->text))
                return err_set(err, ERR_TOO_LARGE, "The request to the vault is too large.");
        r = secret_value_room(&body, q->text.len + escaped + 3, err);
        if (r < 0)
                return r;
        memcpy(body.data, q->text.data, q->text.len);
        n = q->text.len;
        body.data[n++] = '"';
        n += json_scan_escape(value->data, value->len, body.data + n);
        body.data[n++] = '"';
        body.data[n++] = '}';
        call.body = body.data;
        call.len = n;
        return aws_call_run(op, s, &call, ret, err);
}

int aws_bad_answer(const char *operation, const char *what, struct err *err)
{
        log_warn("AWS Secrets Manager answered nonsense", LOG_S("operation", operation),
                 LOG_S("what", what));
        return vault_fail(err, VAULT_ERROR, aws_failure_text(VAULT_ERROR));
}

/* A string member, in the arena; NULL when there is none. Never for the value itself. */
const char *aws_answer_text(struct op *op, const struct transfer_answer *a, const char *key)
{
        const char *raw;
        size_t len, n;
        char *text;

        if (!a->room.data || json_scan_string(a->room.data, a->len, key, &raw, &len, NULL) <= 0)
                return NULL;
        text = arena_alloc(op->arena, len + 1);
        if (json_scan_decode(raw, len, text, &n, NULL) < 0 || n == 0 || n > AWS_REFERENCE_MAX)
                return NULL;
        return text;
}

/* Answers without a value. */
int aws_answer_json(struct op *op, const char *operation, const struct transfer_answer *a,
                    json_t **ret, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        json_t *document = NULL;

        if (!a->room.data || json_parse(a->room.data, a->len, &document, &why) < 0)
                return aws_bad_answer(operation, why.msg, err);
        (void)aws_keep(op, document);
        if (!json_is_object(document))
                return aws_bad_answer(operation, "not an object", err);
        *ret = document;
        return 0;
}
