/* libcurl, loaded when the first request is made, and kept: a daemon that makes none neither needs
 * nor holds it. It gets memory that is wiped when it is freed, since keys, tokens and values pass
 * through it. Any thread. */
#pragma once

/* The type checks are macros around the functions' names, which are not called by name. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "codec/net_addr.h"

/* The functions that are used: libcurl.easy_init is libcurl's curl_easy_init, and so on. */
/* clang-format off */
#define LIBCURL_FUNCTIONS(X)                                                                       \
        X(global_init_mem) X(easy_init) X(easy_setopt) X(easy_getinfo) X(easy_cleanup)             \
        X(easy_strerror) X(slist_append) X(slist_free_all) X(multi_init) X(multi_setopt)           \
        X(multi_add_handle) X(multi_remove_handle) X(multi_perform) X(multi_poll)                  \
        X(multi_info_read) X(multi_cleanup) X(url) X(url_set) X(url_get) X(url_cleanup) X(free)
/* clang-format on */
#define LIBCURL_DECLARE(name) __typeof__(curl_##name) *name;

struct libcurl {
        LIBCURL_FUNCTIONS(LIBCURL_DECLARE)
};

/* After libcurl_load(), which is false where libcurl.so.4 is not installed. */
extern struct libcurl libcurl;
bool libcurl_load(void);

/* The address that libcurl is about to connect to, whatever the URL or the name server said; for
 * CURLOPT_OPENSOCKETFUNCTION. False when it is no internet address. */
bool libcurl_address(curlsocktype purpose, const struct curl_sockaddr *address,
                     struct net_addr *ret, uint16_t *ret_port);
