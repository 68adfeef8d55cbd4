/* System call filters: the pieces that the filter of a sandbox's commands (berth-box/seccomp.c) and
 * that of plugin workers (plugin/confine_filter.c) are put together from.
 *
 * A filter is a list of entries. Jumps go forward only and each entry is on its own, so a filter
 * can be read from top to bottom: the first entry that gives an answer decides. An entry expects
 * the number of the call in the accumulator; one that loads something else ends with an answer or
 * loads the number again. The kernel keeps a bitmap of the calls that a filter allows whatever
 * their arguments are, so the length of the list costs nothing.
 *
 * No allocation; any thread. */
#pragma once

#include <linux/filter.h>

#include "base/util.h"

#define SECCOMP_MAX 600

struct seccomp {
        struct sock_filter at[SECCOMP_MAX];
        unsigned short len; /* SECCOMP_MAX: it did not fit */
};

/* The words */

void seccomp_put(struct seccomp *p, struct sock_filter what);
void seccomp_load_call(struct seccomp *p);
/* The lower half of an argument: what the kernel takes of an int. */
void seccomp_load_arg(struct seccomp *p, int arg);
/* The next `n` instructions are for this value only. */
void seccomp_when(struct seccomp *p, uint32_t value, uint8_t n);
void seccomp_answer(struct seccomp *p, int errno_value);
void seccomp_allow(struct seccomp *p);

/* Entries */

/* The first one: another ABI than the native one (32-bit, x32) gets ENOSYS. */
void seccomp_abi(struct seccomp *p);
void seccomp_deny(struct seccomp *p, int call, int errno_value);
/* Only with this value as argument `arg`; EPERM otherwise. */
void seccomp_only_with(struct seccomp *p, int call, int arg, uint32_t value);
/* EPERM with this value as argument `arg`; the entries behind decide about other values. */
void seccomp_not_with(struct seccomp *p, int call, int arg, uint32_t value);
/* clone and unshare without new namespaces. clone3 gets ENOSYS, since its flags lie in memory where
 * a filter cannot look; libc then uses clone. */
void seccomp_no_clone3(struct seccomp *p);
void seccomp_no_namespaces(struct seccomp *p);
/* mount calls, pivot_root and setns. */
void seccomp_no_mounts(struct seccomp *p);
/* ioctl TIOCSTI and TIOCLINUX: typing into another process's terminal. */
void seccomp_no_typing(struct seccomp *p);
/* socket(): streams and datagrams of the internet. Unix sockets get `unix_answer`, 0: any type is
 * allowed. All other families get EAFNOSUPPORT; libc looks names up without netlink. */
void seccomp_sockets(struct seccomp *p, int unix_answer);
/* socketpair(): Unix only. One of datagrams can be sent from to any path; a stream cannot be
 * connected again. */
void seccomp_socketpairs(struct seccomp *p, bool with_datagrams);
/* What no confined program gets: other processes' memory, the kernel's rarely tested or
 * far-reaching parts, the machine. */
void seccomp_no_kernel(struct seccomp *p);

/* 0, or -1 with errno: E2BIG when it did not fit. */
int seccomp_load(const struct seccomp *p);
