/* Loads libcurl, and gives it memory that is wiped. */
#include "rt/libcurl.h"

#include <dlfcn.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>

#define FIND(name) &&find_symbol(lib, "curl_" #name, &libcurl.name)

struct libcurl libcurl;
static bool loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

static bool find_symbol(void *library, const char *name, void *ret)
{
        void *symbol = dlsym(library, name);

        /* POSIX promises that the pointer fits; C has no cast for it. */
        memcpy(ret, &symbol, sizeof(symbol));
        return symbol != NULL;
}

static void wipe_free(void *p)
{
        if (p)
                sodium_memzero(p, malloc_usable_size(p));
        free(p);
}

static void *wipe_realloc(void *p, size_t size)
{
        void *larger = malloc(size);

        if (!larger || !p)
                return larger;
        memcpy(larger, p, MIN(size, malloc_usable_size(p)));
        wipe_free(p);
        return larger;
}

static void load_libcurl(void)
{
        void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

        loaded = lib LIBCURL_FUNCTIONS(FIND) &&
                 libcurl.global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wipe_free, wipe_realloc,
                                         strdup, calloc) == CURLE_OK;
}

bool libcurl_load(void)
{
        return pthread_once(&load_once, load_libcurl) == 0 && loaded;
}

bool libcurl_address(curlsocktype purpose, const struct curl_sockaddr *address,
                     struct net_addr *ret, uint16_t *ret_port)
{
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->addr;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->addr;

        if (purpose != CURLSOCKTYPE_IPCXN ||
            (address->family != AF_INET && address->family != AF_INET6))
                return false;
        *ret = (struct net_addr){ .is_v6 = address->family == AF_INET6 };
        *ret_port = ntohs(ret->is_v6 ? v6->sin6_port : v4->sin_port);
        if (ret->is_v6)
                memcpy(ret->bytes, &v6->sin6_addr, 16);
        else
                memcpy(ret->bytes, &v4->sin_addr, 4);
        return true;
}
