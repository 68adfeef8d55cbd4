/* The file worker, the other end of sync.h: part of berth-box, made of base, codec, libsodium, zstd
 * and libc only. */
#pragma once

#include "base/err.h"

/* Serve one stream until it ends. The descriptor is blocking and goes both ways. */
int sync_serve(int fd, struct err *err);
