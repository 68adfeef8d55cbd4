/* Finds the addresses of a host name in the tests' file. */
#include "net/proxy_test_hosts.h"

#ifdef BERTH_FAULTS

#include <stdio.h>

#include "codec/host_pattern.h"

static enum test_host read_line(char *line, struct lookup_answer *ret, uint16_t *ret_port)
{
        char *save = NULL, *word;

        *ret = (struct lookup_answer){ 0 };
        while ((word = strtok_r(ret->n ? NULL : line, " \n", &save)) && ret->n < RESOLVE_ADDRS) {
                struct host_target t;

                if (streq(word, "silent"))
                        return TEST_HOST_SILENT;
                if (word[0] == '!' &&
                    host_target_parse(word + 1, strlen(word + 1), 0, &t, NULL) >= 0) {
                        ret->addrs[ret->n++] = t.addr;
                        *ret_port = t.port;
                        return TEST_HOST_EXEMPT;
                }
                if (!net_addr_parse(word, strlen(word), &ret->addrs[ret->n]))
                        abort();
                ret->n++;
        }
        if (ret->n == 0)
                abort();
        return TEST_HOST_ANSWER;
}

enum test_host test_hosts_find(const char *name, struct lookup_answer *ret, uint16_t *ret_port)
{
        const char *path = getenv("BERTH_TEST_HOSTS");
        enum test_host found = TEST_HOST_NONE;
        size_t len = strlen(name);
        char line[1024];
        FILE *file = path ? fopen(path, "re") : NULL;

        while (file && found == TEST_HOST_NONE && fgets(line, sizeof(line), file))
                if (strncmp(line, name, len) == 0 && line[len] == ' ')
                        found = read_line(line + len + 1, ret, ret_port);
        if (file)
                (void)fclose(file);
        return found;
}

#endif
