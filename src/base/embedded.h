/* Files that are part of the binary (scripts/embed). Immutable. */
#pragma once

#include <stddef.h>

struct embedded_file {
        const char *name; /* base name; NULL ends the table */
        const char *data; /* NUL-terminated, the NUL not counted */
        size_t len;
};

extern const struct embedded_file store_migrations[];
extern const struct embedded_file store_migrations_postgres[];
extern const struct embedded_file adapter_files[];
extern const struct embedded_file kind_files[];
extern const struct embedded_file agent_texts[];
extern const struct embedded_file callback_programs[];
extern const struct embedded_file page_files[];
