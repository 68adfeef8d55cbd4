/* Two byte streams joined: what one side sends, the other gets. Each direction has one buffer, so a
 * side that does not read stops its own writer.
 *
 * Loop thread only. */
#pragma once

#include "rt/byte_stream.h"

struct stream_pump;

/* Takes both streams and begins. `done` is called once, from the loop, when either is broken or
 * `near` has ended; then both are to be closed by the caller, within the call. */
struct stream_pump *stream_pump_new(struct byte_stream *near, struct byte_stream *far,
                                    void (*done)(void *arg), void *arg);
/* The streams are closed, or about to be. */
void stream_pump_free(struct stream_pump *p);
