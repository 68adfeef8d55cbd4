/* berth-box where only single commands can be run: a stream to a box, carried by calls
 * (docs/box-protocol.md, section 12), and questions about boxes from the command line.
 *
 *   exchange.c  one call: hands it to the resident end, and starts that where there is none
 *   resident.c  the resident end: keeps the connection to the box between calls */
#pragma once

#define EXCHANGE_SOCKET "exchange.sock"

/* Becomes the resident end of DIR; one byte to `ready_fd`, which is closed, when it listens. */
int resident_main(const char *dir, int ready_fd);
