/* libpq, loaded when a database on a server is opened: a daemon on SQLite neither needs nor holds
 * it. Any thread. */
#pragma once

#include <libpq-fe.h>
#include <stdbool.h>

/* The functions that are used: libpq.getResult is libpq's PQgetResult, and so on. */
/* clang-format off */
#define LIBPQ_FUNCTIONS(X)                                                                         \
        X(connectdbParams) X(finish) X(status) X(errorMessage) X(socket) X(setnonblocking)         \
        X(parameterStatus) X(setNoticeProcessor) X(enterPipelineMode) X(exitPipelineMode)          \
        X(pipelineSync) X(sendQueryParams) X(sendPrepare) X(sendQueryPrepared) X(flush)            \
        X(consumeInput) X(isBusy) X(getResult) X(exec) X(resultStatus) X(resultErrorField)         \
        X(cmdStatus) X(cmdTuples) X(ntuples) X(ftype) X(getvalue) X(getisnull) X(getlength)        \
        X(clear) X(conninfoParse) X(conninfoFree) X(freemem)
/* clang-format on */
#define LIBPQ_DECLARE(name) __typeof__(PQ##name) *name;

struct libpq {
        LIBPQ_FUNCTIONS(LIBPQ_DECLARE)
};

/* After libpq_load(), which is false where libpq.so.5 is not installed or older than 14. */
extern struct libpq libpq;
bool libpq_load(void);
