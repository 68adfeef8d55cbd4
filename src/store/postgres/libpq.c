/* Loads libpq. */
#include "store/postgres/libpq.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define FIND(name) &&find_symbol(lib, "PQ" #name, &libpq.name)

struct libpq libpq;
static bool loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

static bool find_symbol(void *library, const char *name, void *ret)
{
        void *symbol = dlsym(library, name);

        /* POSIX promises that the pointer fits; C has no cast for it. */
        memcpy(ret, &symbol, sizeof(symbol));
        return symbol != NULL;
}

static void load_libpq(void)
{
        void *lib = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);

        loaded = lib LIBPQ_FUNCTIONS(FIND);
}

bool libpq_load(void)
{
        return pthread_once(&load_once, load_libpq) == 0 && loaded;
}
