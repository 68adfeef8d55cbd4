/* Answers for host names from a file instead of the resolver: for tests only, which cannot reach
 * the internet. Only the build with crash points knows it (BERTH_FAULTS); in the product there is
 * nothing of it.
 *
 * BERTH_TEST_HOSTS names a file that is read at each lookup, one host per line:
 *
 *     name 93.184.216.34 2606:2800::1    resolves so, and is judged as any answer
 *     name !127.0.0.1:8080               goes there, whatever address it is
 *     name silent                        no answer ever comes */
#pragma once

#include "net/resolve.h"

enum test_host { TEST_HOST_NONE, TEST_HOST_ANSWER, TEST_HOST_EXEMPT, TEST_HOST_SILENT };

#ifdef BERTH_FAULTS
enum test_host test_hosts_find(const char *name, struct lookup_answer *ret, uint16_t *ret_port);
#else
static inline enum test_host test_hosts_find(const char *name, struct lookup_answer *ret,
                                             uint16_t *ret_port)
{
        return TEST_HOST_NONE;
}
#endif
